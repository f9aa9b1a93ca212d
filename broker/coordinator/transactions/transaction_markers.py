"""Writes the markers that end a transaction, on every partition that takes part in it.

Written again after a restart, on all partitions, also where nothing of the transaction is open: a
marker takes the partition's producer to the marker's epoch, and by that a batch that comes late is
refused. For readers a second marker changes nothing.

Markers become durable partition by partition. What they make visible is held behind a `Curtain` until all
are, so that no fetch sees a part of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from eoslog.broker.rules.transactions.state import Metadata, State
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.broker.log.partition.partition import Partition
    from eoslog.broker.ports.ports import Clock
    from eoslog.broker.topics.topics import Topics

COORDINATOR_EPOCH = 0
"""There is one coordinator for ever: the data directory's lock sees to that."""


class Curtain:
    """Hides what is decided on partitions until it is lifted before all of them at once."""

    def __init__(self) -> None:
        self._before: dict[Partition, None] = {}

    def draw(self, partition: Partition | None) -> None:
        """Readers of committed data see nothing new of this partition, if it is there, for now."""
        if partition is not None:
            partition.hold_back(self)
            self._before[partition] = None

    def lift(self) -> None:
        """They see all of it: nothing else runs on the event loop meanwhile."""
        for partition in self._before:
            partition.let_go(self)


OnMarker = Callable[["Partition", int, int, bool], None]

_log = logging.getLogger(__name__)


class MarkerWriter:
    """Writes markers and waits for the disk."""

    def __init__(self, topics: Topics, clock: Clock, on_marker: OnMarker) -> None:
        """`on_marker` is called with (partition, producer id, epoch, commit) after each marker's append."""
        self._topics = topics
        self._clock = clock
        self._on_marker = on_marker

    async def write(self, metadata: Metadata, missing: set[tuple[str, int]], curtain: Curtain) -> None:
        """Bring the markers of a prepared transaction to all of `missing`, and take out what has one.

        What they make visible is behind the curtain. A partition that has been deleted needs none. Raises
        KafkaError, after having tried all, if some is left.
        """
        places = sorted(missing)
        for place in places:
            curtain.draw(self._topics.partition(*place))
        results = await asyncio.gather(*(self._mark(metadata, *place) for place in places))
        failed = [error for error in results if error is not None]
        missing.difference_update(
            place for place, error in zip(places, results, strict=True) if error is None
        )
        if failed:
            raise failed[0]

    async def _mark(self, metadata: Metadata, topic: str, index: int) -> KafkaError | None:
        """One marker, durable. Answers the error instead of raising it: the others go on."""
        commit = metadata.state is State.PREPARE_COMMIT
        what = f"{'commit' if commit else 'abort'} marker of {metadata.transactional_id} for {topic}-{index}"
        partition = self._topics.partition(topic, index)
        if partition is None:
            _log.warning("%s is left out: the partition has been deleted", what)
            return None
        try:
            await self.mark_one(
                partition,
                metadata.producer_id,
                metadata.producer_epoch,
                commit,
                transaction_version=metadata.client_version,
            )
        except KafkaError as error:
            if self._topics.partition(topic, index) is not partition:
                _log.warning("%s is left out: the partition was deleted meanwhile", what)
                return None
            if _is_superseded(partition, metadata.producer_id, error):
                _log.warning("%s is left out, nothing is open there: %s", what, error)
                return None
            _log.error("%s cannot be written: %s", what, error)
            return error
        return None

    async def mark_one(
        self,
        partition: Partition,
        producer_id: int,
        epoch: int,
        commit: bool,
        coordinator_epoch: int = COORDINATOR_EPOCH,
        transaction_version: int = 0,
    ) -> None:
        """Write one marker and return when it is durable. Raises KafkaError."""
        now_ms = self._clock.now_ms()
        appended = partition.append_marker(
            producer_id, epoch, commit, coordinator_epoch, now_ms, transaction_version
        )
        self._on_marker(partition, producer_id, epoch, commit)
        await partition.wait_durable(appended.last_offset)


def _is_superseded(partition: Partition, producer_id: int, error: KafkaError) -> bool:
    """Whether somebody has written there under a later epoch, and nothing is left that a marker could end.

    Trying again would never help, and hold the transactional id for ever.
    """
    return error.code is ErrorCode.INVALID_PRODUCER_EPOCH and partition.ongoing(producer_id) is None
