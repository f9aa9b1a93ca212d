"""Where reads of whole micro-batches end: between two batches of the sinks of option read.whole.batches.

On Apache Kafka a batch's transactions are committed one after another, so a reader of committed records may
meet some of its rows and not yet the others, in other partitions and topics. Ends have all rows of a batch or
none if two things are true. The sink's last decision is the same before and after the ends are looked up: the
next batch's rows can be read after its decision only. And each end is behind the last row that the decision's
batch, or an earlier one, has in that partition.
"""

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.commit.commands import Refused
from eoslog.connector.commit.decision import KEPT_TOPICS, Decision
from eoslog.connector.commit.observe import observed
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.offsets import Offsets, TopicIds
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.errors import OptionError, RetriesExhausted
from eoslog.errors.pages import see
from eoslog.protocol.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

_LOOKS = 3
"""How often in a row ends are looked up that fall into the middle of a batch."""
_PAUSE_SECONDS = 0.02
"""Between looks of a reader that waits. A stream is asked again by Spark."""
STILL_SECONDS = 60.0
"""For how long a batch may stay a part before a stream warns of it, and between two such warnings."""
_NAMED = 3


class Decided(NamedTuple):
    """The last decision of each sink, by transactional.id, None: there is none; the topics' ids at that time;
    and `needs`: for partitions that have rows of these sinks, where committed records must end at least for
    all of them to be read."""

    last: dict[str, Decision | None]
    ids: TopicIds
    needs: dict[TopicPartition, int]

    def why_part(self, ends: Mapping[TopicPartition, int]) -> str:
        """Why a reader up to these ends may have a part of a batch; "": it has none."""
        if unknown := [name for name, decision in self.last.items() if decision is None]:
            return (
                f"sink {', '.join(unknown)} has decided nothing, or not for as long as the cluster keeps a "
                f"group's offsets: check the name, or {_without(self.last, unknown)}"
            )
        lacking = sorted((tp, need) for tp, need in self.needs.items() if ends.get(tp, need) < need)
        batches = ", ".join(f"{name} has decided {one.batch}" for name, one in self.last.items() if one)
        rows = (
            f"its rows in {topic}-{p} go to offset {need - 1}, and committed records end at {ends[topic, p]}"
            for (topic, p), need in lacking[:_NAMED]
        )
        return "; ".join([f"sink {batches}", *rows]) if lacking else ""


class WholeBatches:
    """The sinks whose batches one query reads as wholes. Every look asks the brokers."""

    def __init__(self, log: SourceTopics) -> None:
        self._log, self._options = log, log.options
        self._decided: Decided | None = None
        self._part_since: float | None = None  # on the monotonic clock
        self._held = "nothing was looked up"

    def ends(self, position: Offsets | None = None) -> Offsets | None:
        """Where each partition ends, between two batches. `position`: as in SourceTopics.latest; where an end
        is before it the log was cut, which is not judged here. None: the newest batch is a part now, or a
        sink has decided nothing. Raises OptionError, CommitFault, and what SourceTopics.latest raises."""
        for _ in range(_LOOKS):
            before = self._decided or self._look(None)
            ends = self._log.latest(position)
            self._decided = after = self._look(before)
            if any(ends.get(tp, at) < at for tp, at in (position or {}).items()):
                return ends
            if before is None or after is not before:
                self._held = "the sinks decide faster than their ends can be looked up"
                continue
            self._held = before.why_part(ends)
            if not self._held:
                self._part_since = None
                return ends
        self._say_part()
        return None

    def await_ends(self) -> Offsets:
        """The same, waited for. Raises RetriesExhausted after kafka.default.api.timeout.ms."""
        limit_ms = self._options.client.api_timeout_ms
        until = time.monotonic() + limit_ms / 1000
        while (found := self.ends()) is None:
            if time.monotonic() > until:
                raise RetriesExhausted(
                    f"read.whole.batches: no end between two batches was found within {limit_ms} ms "
                    f"(kafka.default.api.timeout.ms), and nothing was read: {self._held}. A sink that was "
                    "killed while it committed goes on when its query is started again"
                )
            time.sleep(_PAUSE_SECONDS)
        return found

    def _look(self, known: Decided | None) -> Decided | None:
        """The sinks' last decisions; `known` if they still are. What a cluster has forgotten since stays
        known. None: one is just being made. Raises OptionError if a sink was left for one that is not named,
        and CommitFault."""
        last = last_decisions(
            self._log.cluster, self._options.whole_batches or (), self._options.decision_topic
        )
        if last is None:
            return None
        if known is not None:
            last = {name: decision or known.last[name] for name, decision in last.items()}
            if (known.last, known.ids) == (last, self._log.ids):
                return known
        partitions = self._log.partitions()
        check_left(last)
        return decided(self._log.cluster, last, partitions, self._log.ids)

    def _say_part(self) -> None:
        now = time.monotonic()
        self._part_since = self._part_since or now
        if now - self._part_since >= STILL_SECONDS:
            self._part_since = now
            logger.warning(
                "read.whole.batches: for %d s no end between two batches was found, so nothing was read: %s. "
                f"{see('no-whole-batch-can-be-read')}",
                STILL_SECONDS,
                self._held,
            )


def last_decisions(
    cluster: Cluster, names: Iterable[str], decisions: str
) -> dict[str, Decision | None] | None:
    """The last decision of each sink, by transactional.id, None: there is none. `decisions`: decision.topic.
    None: one is just being made. Raises CommitFault."""
    runner = Runner(cluster, OWN_TIMEOUT_MS, decisions=decisions)
    last: dict[str, Decision | None] = {}
    for name in names:
        found = runner.run(observed(Sink(name)))
        if isinstance(found, Refused):
            return None
        last[name] = found
    return last


def decided(
    cluster: Cluster, last: dict[str, Decision | None], partitions: Iterable[TopicPartition], ids: TopicIds
) -> Decided:
    """How far readers of these partitions have to come for all rows that were decided last. `ids`: those of
    the topics."""
    read = set(partitions)
    made = [decision for decision in last.values() if decision is not None]
    needs = {tp: at for tp, at in rows_end(made, ids).items() if tp in read}
    unplaced = [tp for tp in read if tp not in needs and any(may_have(d, tp) for d in made)]
    if unplaced:  # what is written there by now is at least what was decided
        needs |= list_offsets(cluster, dict.fromkeys(unplaced, LATEST), committed=False)
    return Decided(last, ids, needs)


def check_left(last: Mapping[str, Decision | None]) -> None:
    """Raise OptionError if the query of one of these sinks writes elsewhere now: parts would be met there."""
    for name, decision in last.items():
        left = None if decision is None else decision.left
        if left is not None and left.sink not in last:
            to = f"transactional.id={left.sink}" if left.sink else "processing.guarantee=at_least_once"
            way = f"name {left.sink} as well" if left.sink else _without(last, [name])
            raise OptionError(
                f"read.whole.batches: the query of sink {name} has gone on with {to} since batch "
                f"{left.batch_id}, and parts of its batches would be read. Nothing was read: {way}"
            )


def _without(last: Mapping[str, Decision | None], names: Collection[str]) -> str:
    """What to say where these sinks cannot be read: without them those have to go that were left for them."""
    out, lefts = {*names}, {name: one.left for name, one in last.items() if one is not None}
    while more := {n for n, left in lefts.items() if left is not None and left.sink in out and n not in out}:
        out |= more
    return f"leave {'read.whole.batches' if out == last.keys() else ', '.join(sorted(out))} out"


def rows_end(decisions: list[Decision], ids: TopicIds) -> dict[TopicPartition, int]:
    """Behind the last row of each partition, as decisions say; not of topics that were made anew since."""
    ends: dict[TopicPartition, int] = {}
    for place in (place for decision in decisions for place in decision.known_rows):
        where, anew = (place.topic, place.partition), {place.topic_id, ids.get(place.topic)} - {None}
        if len(anew) < 2:
            ends[where] = max(place.offset + 1, ends.get(where, 0))
    return ends


def may_have(decision: Decision, where: TopicPartition) -> bool:
    """Whether rows of the sink may be in a partition of which its decision has no place: where it had no
    room for it, or an earlier version has made it."""
    topics = {topic for topic, _ in decision.topics}
    return decision.is_write or where[0] in topics or where in decision.written or len(topics) >= KEPT_TOPICS
