"""Warns when an open transaction holds a source back: whose it is, and how to end it.

Readers of committed records stop at the last stable offset. If that does not move although the log grows, the
query plans no batch and is not at fault, so it logs what it waits for. The end of the log is looked up only
if the last stable offset has not moved for STANDSTILL_SECONDS, and then at most that often.
"""

import logging
import time
from collections.abc import Mapping, Sequence

from eoslog.client.admin.producers import Holder, clock, holders, oldest, producers
from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.offsets.offsets import Offsets
from eoslog.connector.progress import tell
from eoslog.errors import EoslogError
from eoslog.errors.pages import see
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

_SEE = see("no-committed-record-can-be-read")

STANDSTILL_SECONDS = 60.0
_NAMED = 3
"""Partitions named in a warning."""


class Standstill:
    """Watches the last stable offsets of one query's partitions."""

    def __init__(self) -> None:
        self._ends: Offsets = {}
        self._since: dict[TopicPartition, float] = {}
        self._asked: dict[TopicPartition, float] = {}
        self._said: set[tuple[TopicPartition, int]] = set()
        self._held: set[TopicPartition] = set()

    def watch(self, cluster: Cluster, ends: Mapping[TopicPartition, int]) -> None:
        """Compare the ends that were just fetched with earlier ones. Warn once of each transaction that holds
        a partition back."""
        now = time.monotonic()
        moved = {tp for tp, end in ends.items() if self._ends.get(tp) != end}
        for tp in moved:
            self._since[tp] = self._asked[tp] = now
        if over := sorted(self._held & moved):
            tell("moved", partitions=over)
            self._held -= moved
        self._ends = dict(ends)
        still = [tp for tp in ends if now - self._asked[tp] >= STANDSTILL_SECONDS]
        if still:
            self._asked |= dict.fromkeys(still, now)
            self.look(cluster, {tp: ends[tp] for tp in still})

    def look(self, cluster: Cluster, ends: Mapping[TopicPartition, int]) -> None:
        """Warn of transactions older than STANDSTILL_SECONDS that hold these partitions at their ends, and
        tell `eoslog.metrics` which these are."""
        try:
            marks = list_offsets(cluster, dict.fromkeys(ends, LATEST), committed=False)
            held = {tp: mark for tp, mark in marks.items() if mark > ends[tp]}
            self._held |= held.keys()
            tell("held", every=STANDSTILL_SECONDS, partitions=sorted(held))
            fresh = [tp for tp in sorted(held) if (tp, ends[tp]) not in self._said]
            if fresh:
                self._report(cluster, fresh, ends, held)
        except (EoslogError, KafkaError) as error:
            if isinstance(error, KafkaError):  # it would be refused again
                self._said |= {(tp, ends[tp]) for tp in ends}
            logger.warning(
                "no committed record can be read beyond the ends of %s, although their logs continue; whose "
                "transaction is open there could not be found out: %s. "
                f"{_SEE}",
                _named(ends),
                error,
            )

    def _report(
        self,
        cluster: Cluster,
        places: Sequence[TopicPartition],
        ends: Mapping[TopicPartition, int],
        marks: Mapping[TopicPartition, int],
    ) -> None:
        held = []
        for found in oldest(producers(cluster, places)):
            young = found.last_timestamp > (time.time() - STANDSTILL_SECONDS) * 1000
            if not young or found.where in self._stands():
                held.append(found)
                self._said.add((found.where, ends[found.where]))
        by_producer: dict[int, list[Holder]] = {}
        for holder in holders(cluster, held):
            by_producer.setdefault(holder.producer.producer_id, []).append(holder)
        for mine in by_producer.values():
            _say(mine, marks)

    def _stands(self) -> set[TopicPartition]:
        now = time.monotonic()
        return {tp for tp, since in self._since.items() if now - since >= STANDSTILL_SECONDS}


def _say(of_one: Sequence[Holder], marks: Mapping[TopicPartition, int]) -> None:
    """Warn of one producer's transaction."""
    first = of_one[0]
    places = [holder.producer.where for holder in of_one]
    others = f" (and {_named(places[1:])})" if len(places) > 1 else ""
    logger.warning(
        "%s-%d%s: no committed record can be read from offset %d on, though the log continues to %d: an open "
        f"transaction begins there; it belongs to %s: %s. {_SEE}",
        *first.producer.where,
        others,
        first.producer.start,
        marks[first.producer.where],
        _whose(first),
        first.way_out(),
    )


def _whose(holder: Holder) -> str:
    producer, found = holder.producer, holder.found
    if holder.name is None:
        return (
            f"producer id {producer.producer_id}, epoch {producer.epoch}, last written at "
            f"{clock(producer.last_timestamp)}, whose transactional id is unknown"
        )
    of = "" if holder.sink is None else f" of the sink {holder.sink}"
    since = "" if found is None else f", open since {clock(found.start_ms)}, {found.state}"
    return f"transactional id {holder.name}{of}, producer id {producer.producer_id}{since}"


def _named(places: Sequence[TopicPartition] | Mapping[TopicPartition, int]) -> str:
    names = [f"{topic}-{partition}" for topic, partition in sorted(places)]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more partitions" if more > 0 else "")
