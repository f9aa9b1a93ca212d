"""An open transaction that holds a source back: who has it open, and how to end it.

Readers of committed records stop at the last stable offset. Where that stands still although the log goes
on, the query plans no batch and nothing is wrong with it: so it says what it waits for. The end of the log
is asked for only where the last stable offset has not moved for STANDSTILL_SECONDS, and as seldom again.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from eoslog.connector.client import transactions
from eoslog.connector.client.cluster import Cluster
from eoslog.connector.client.listing import LATEST, list_offsets
from eoslog.connector.client.producers import Producer, producers
from eoslog.connector.errors import EoslogError
from eoslog.connector.offsets import Offsets, TopicPartition
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.sink_names import sink_of

log = logging.getLogger(__name__)

_SEE = "See troubleshooting.md#no-committed-record-can-be-read"

STANDSTILL_SECONDS = 60.0
NEVER_MS = 2**31 - 1
"""The time-out of a transaction under two-phase commit (KIP-939): it is sealed, and nothing but its sink, or
somebody's hand, ends it."""
_NAMED = 3
"""Partitions named in a warning."""


class Standstill:
    """Watches where the partitions of one query end for readers of committed records."""

    def __init__(self) -> None:
        self._ends: Offsets = {}
        self._since: dict[TopicPartition, float] = {}
        self._asked: dict[TopicPartition, float] = {}
        self._said: set[tuple[TopicPartition, int]] = set()

    def watch(self, cluster: Cluster, ends: Mapping[TopicPartition, int]) -> None:
        """Look at the ends that were just asked for; warns once of each transaction that holds some back."""
        now = time.monotonic()
        for tp, end in ends.items():
            if self._ends.get(tp) != end:
                self._since[tp] = self._asked[tp] = now
        self._ends = dict(ends)
        still = [tp for tp in ends if now - self._asked[tp] >= STANDSTILL_SECONDS]
        if still:
            self._asked |= dict.fromkeys(still, now)
            self.look(cluster, {tp: ends[tp] for tp in still})

    def look(self, cluster: Cluster, ends: Mapping[TopicPartition, int]) -> None:
        """Warn of what holds these partitions back at their ends, if it is older than the time."""
        try:
            marks = list_offsets(cluster, dict.fromkeys(ends, LATEST), committed=False)
            held = {tp: mark for tp, mark in marks.items() if mark > ends[tp]}
            fresh = [tp for tp in sorted(held) if (tp, ends[tp]) not in self._said]
            if fresh:
                self._tell(cluster, fresh, ends, held)
        except (EoslogError, KafkaError) as error:
            if isinstance(error, KafkaError):  # it will be refused again
                self._said |= {(tp, ends[tp]) for tp in ends}
            log.warning(
                "no committed record can be read from the ends of %s on, where they go on; who has a "
                "transaction open there could not be found out: %s. "
                f"{_SEE}",
                _named(ends),
                error,
            )

    def _tell(
        self,
        cluster: Cluster,
        places: Sequence[TopicPartition],
        ends: Mapping[TopicPartition, int],
        marks: Mapping[TopicPartition, int],
    ) -> None:
        by_producer: dict[int, list[Producer]] = {}
        for found in _oldest(producers(cluster, places)):
            young = found.last_timestamp > (time.time() - STANDSTILL_SECONDS) * 1000
            if not young or found.where in self._stands():
                by_producer.setdefault(found.producer_id, []).append(found)
                self._said.add((found.where, ends[found.where]))
        if not by_producer:
            return
        listed = transactions.list_transactions(cluster, "", producer_ids=sorted(by_producer))
        names = {listing.producer_id: listing.transactional_id for listing in listed}
        for producer_id, mine in by_producer.items():
            name = names.get(producer_id)
            if name is None:
                self._say_unknown(mine, marks)
            else:
                self._say(mine, marks, name, transactions.describe(cluster, [name])[name])

    def _stands(self) -> set[TopicPartition]:
        now = time.monotonic()
        return {tp for tp, since in self._since.items() if now - since >= STANDSTILL_SECONDS}

    def _say(
        self,
        places: Sequence[Producer],
        marks: Mapping[TopicPartition, int],
        name: str,
        found: transactions.Description | None,
    ) -> None:
        sealed = found is not None and found.timeout_ms == NEVER_MS
        sink = sink_of(name)
        of = "" if sink is None else f" of the sink {sink}"
        since = "" if found is None else f", open since {_clock(found.start_ms)}, {found.state}"
        if sealed:
            how = (
                "it is sealed for a two-phase commit and never times out: start the query of that sink "
                "again, which ends it; if nobody will, "
            )
        else:
            how = "it ends when its producer ends it, or its time-out does; if it is to end now, "
        log.warning(
            "%s; it is that of transactional id %s%s, producer id %d%s. %seoslog transactions abort "
            f"--transactional-id %s%s. {_SEE}",
            _stands_at(places, marks),
            name,
            of,
            places[0].producer_id,
            since,
            how,
            name,
            " --force" if sealed else "",
        )

    def _say_unknown(self, places: Sequence[Producer], marks: Mapping[TopicPartition, int]) -> None:
        first = places[0]
        log.warning(
            "%s; it is that of producer id %d, epoch %d, last written at %s, whose transactional id is not "
            "told: no coordinator knows it, or the right Describe on it is missing. If nobody ends it, "
            f"eoslog transactions abort --topic %s --partition %d --start-offset %d. {_SEE}",
            _stands_at(places, marks),
            first.producer_id,
            first.epoch,
            _clock(first.last_timestamp),
            *first.where,
            first.start,
        )


def _oldest(found: Iterable[Producer]) -> list[Producer]:
    """Of each partition the open transaction that begins first: it is the one that holds readers back."""
    oldest: dict[TopicPartition, Producer] = {}
    for producer in found:
        known = oldest.get(producer.where)
        if producer.start >= 0 and (known is None or producer.start < known.start):
            oldest[producer.where] = producer
    return list(oldest.values())


def _stands_at(places: Sequence[Producer], marks: Mapping[TopicPartition, int]) -> str:
    first = places[0]
    others = f" (and {_named([p.where for p in places[1:]])})" if len(places) > 1 else ""
    return (
        f"{first.where[0]}-{first.where[1]}{others}: no committed record can be read from offset "
        f"{first.start} on, though the log goes on to {marks[first.where]}: an open transaction begins there"
    )


def _named(places: Sequence[TopicPartition] | Mapping[TopicPartition, int]) -> str:
    names = [f"{topic}-{partition}" for topic, partition in sorted(places)]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} partitions more" if more > 0 else "")


def _clock(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))
