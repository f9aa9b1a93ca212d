"""Writes the markers that end a transaction, on every partition of the transaction.

After a restart they are written again on all partitions, even where the transaction is no longer open: a
marker raises the producer's epoch on the partition to its own, so that late batches are refused. For readers
a second marker changes nothing.

Markers become durable partition by partition. A `ReadBarrier` hides what they make visible until all are
durable, so that no fetch sees a part of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from eoslog.broker.coordinator.transactions.transaction_state import TransactionMetadata, TransactionState
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.ports.ports import Clock
    from eoslog.broker.topics.topics import Topics

COORDINATOR_EPOCH = 0
"""There is only ever one coordinator: the data directory's lock ensures that."""


class ReadBarrier:
    """Hides decided records on several partitions until it is lifted from all of them at once."""

    def __init__(self) -> None:
        self._before: dict[Partition, None] = {}

    def draw(self, partition: Partition | None) -> None:
        """Hide this partition's new records from readers of committed data. None is ignored."""
        if partition is not None:
            partition.hold_back(self)
            self._before[partition] = None

    def lift(self) -> None:
        """Show all of it at once: nothing else runs on the event loop meanwhile."""
        for partition in self._before:
            partition.let_go(self)


OnMarker = Callable[["Partition", int, int, bool], None]

logger = logging.getLogger(__name__)


class MarkerWriter:
    """Writes markers and waits for the disk."""

    def __init__(self, topics: Topics, clock: Clock, on_marker: OnMarker) -> None:
        """`on_marker` is called with (partition, producer id, epoch, commit) after each marker's append."""
        self._topics = topics
        self._clock = clock
        self._on_marker = on_marker

    async def write(
        self, metadata: TransactionMetadata, missing: set[tuple[str, int]], barrier: ReadBarrier
    ) -> None:
        """Write a prepared transaction's markers on all partitions in `missing`; remove those that are done.

        The curtain hides what the markers make visible. A deleted partition needs no marker. Tries all, then
        raises KafkaError if one failed.
        """
        places = sorted(missing)
        for place in places:
            barrier.draw(self._topics.partition(*place))
        results = await asyncio.gather(*(self._mark(metadata, *place) for place in places))
        failed = [error for error in results if error is not None]
        missing.difference_update(
            place for place, error in zip(places, results, strict=True) if error is None
        )
        if failed:
            raise failed[0]

    async def _mark(self, metadata: TransactionMetadata, topic: str, index: int) -> KafkaError | None:
        """Write one marker durably. Returns the error instead of raising it, so that the others continue."""
        commit = metadata.state is TransactionState.PREPARE_COMMIT
        what = f"{'commit' if commit else 'abort'} marker of {metadata.transactional_id} for {topic}-{index}"
        partition = self._topics.partition(topic, index)
        if partition is None:
            logger.warning("%s is not written: the partition has been deleted", what)
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
                logger.warning("%s is not written: the partition was deleted meanwhile", what)
                return None
            if _is_superseded(partition, metadata.producer_id, error):
                logger.warning("%s is not written, no transaction is open there: %s", what, error)
                return None
            logger.error("%s cannot be written: %s", what, error)
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
    """Whether the partition has a later epoch of this producer, and no open transaction of it.

    Trying again would never succeed, and would block the transactional id for ever.
    """
    return error.code is ErrorCode.INVALID_PRODUCER_EPOCH and partition.ongoing(producer_id) is None
