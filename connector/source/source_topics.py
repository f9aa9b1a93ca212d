"""Finds the partitions that a query's options name, and where they begin and end."""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from eoslog.client.admin import groups as group_offsets
from eoslog.client.admin.topics import epoch_ends, list_offsets, list_places
from eoslog.client.wire.cluster import Cluster, TopicInfo, no_partition, shared_cluster
from eoslog.client.wire.retry import check, retrying
from eoslog.connector.checkpoint.cluster_check import check_cluster
from eoslog.connector.checkpoint.new_checkpoint import starting_offsets
from eoslog.connector.commit.faults import ParticipantsLost, StartsElsewhere
from eoslog.connector.commit.leave_sink import fence
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets import plan
from eoslog.connector.offsets.group_notes import Note, check_notes, read_note
from eoslog.connector.offsets.offsets import (
    COMMITTED,
    EARLIEST,
    LATEST,
    AtTime,
    Bound,
    Epochs,
    Offsets,
    TakenFrom,
    TopicIds,
)
from eoslog.connector.options.source_options import SourceOptions
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.errors import OptionError, RetriesExhausted, UnknownTopic, report_loss
from eoslog.errors.pages import see
from eoslog.protocol.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")

_HELD_PAUSE_S = 0.2
_HELD = (
    "{}: transactions that hold records before this time are open on {}, for longer than {} ms "
    "(kafka.default.api.timeout.ms). A batch that ends there would leave these records out, and nothing was "
    "read. Start it again when they have ended; eoslog transactions holders TOPIC says whose they are"
)
PENDING_MS = 90_000
"""How long a group's offsets may be pending. A sink that was killed while it decided leaves them so until its
own transaction times out (OWN_TIMEOUT_MS), and brokers look for such transactions every 10 s."""


class SourceTopics:
    """The topics of one query as they are now. Every call asks the brokers.

    `lenient`: topics and partitions that the options name and the cluster does not have are left out and kept
    in `absent`; the caller then finds out what the query has lost. Otherwise they raise UnknownTopic.
    """

    def __init__(self, options: SourceOptions, *, lenient: bool = False) -> None:
        self.options, self._lenient = options, lenient
        self.absent: dict[str, UnknownTopic] = {}
        """Topics, and partitions of `assign`, that did not exist when last looked up."""
        self.epochs: Epochs = {}
        """Leader epochs of the partitions' ends, as last seen. Brokers before 2.1 do not report them."""
        self.ids: TopicIds = {}
        """Ids of the topics, as last seen. Brokers before 2.8 do not report them."""
        self.cluster_id: str | None = None
        """Id of the cluster, as last seen."""
        self.taken: frozenset[TakenFrom] = frozenset()
        """Which sinks have committed the group offsets at which the query begins."""

    @property
    def cluster(self) -> Cluster:
        """This process's connections."""
        return shared_cluster(self.options.client)

    def partitions(self) -> list[TopicPartition]:
        """The partitions to read. Raises UnknownTopic, BrokerUnreachable."""
        if self.options.assign is not None:
            topics: Iterable[str] = sorted({topic for topic, _ in self.options.assign})
        elif self.options.subscribe is not None:
            topics = self.options.subscribe
        else:
            topics = self._matching()
        absent: dict[str, UnknownTopic] = {}
        found = {topic: info for topic in topics if (info := self._find(topic, absent)) is not None}
        for topic, p in self.options.assign or ():
            if topic in found and p not in found[topic].leaders:
                absent[f"{topic}-{p}"] = no_partition(found[topic], p)
        self.absent = absent
        if not self._lenient:
            self.check_absent()
        self.ids = {topic: info.topic_id for topic, info in found.items() if info.topic_id is not None}
        self.cluster_id = self.cluster.cluster_id
        if self.options.assign is not None:
            return [(t, p) for t, p in self.options.assign if t in found and p in found[t].leaders]
        return sorted((topic, p) for topic, info in found.items() for p in info.leaders)

    def latest(self, position: Offsets | None = None) -> Offsets:
        """Where each partition ends, for readers of committed records or of all (kafka.isolation.level).

        If an end is before `position`, it is looked up again a few times, because a new leader may not know
        yet how far the log goes (fetchOffset.numRetries and retryIntervalMs). So is a partition that is
        missing in the answer: a broker may not know it yet, and if it were taken for gone, it would later be
        read from its beginning.
        """
        for left in reversed(range(self.options.end_tries)):
            found = self.ends(self.partitions(), LATEST)
            waited = {tp: at for tp, at in (position or {}).items() if not self._is_absent(tp)}
            if not left or all(found.get(tp, -1) >= at for tp, at in waited.items()):
                return found
            time.sleep(self.options.end_pause_ms / 1000)
        raise AssertionError("fetchOffset.numRetries is 1 at least")

    def check_absent(self) -> None:
        """Raise UnknownTopic if a topic or partition that the options name does not exist."""
        for error in self.absent.values():
            raise error

    def parted(self, position: Offsets, epochs: Epochs) -> dict[TopicPartition, plan.Divergence]:
        """Partitions whose log below `position` is no longer the one that was read in these leader epochs."""
        ends = epoch_ends(self.cluster, epochs) if epochs else {}
        return {
            tp: plan.Divergence(position[tp], epochs[tp], end.offset, end.leader_epoch)
            for tp, end in ends.items()
            if end.leader_epoch < 0 or end.offset < position[tp]
        }

    def met_cluster(self) -> str | None:
        """The cluster's id, looked up if it is not yet known. Raises BrokerUnreachable."""
        if self.cluster_id is None:
            self.cluster.meet()
            self.cluster_id = self._ask("Metadata", lambda: self.cluster.metadata([])).cluster_id
        return self.cluster_id

    def beginnings(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The first offset that each partition still has."""
        return list_offsets(
            self.cluster, dict.fromkeys(partitions, EARLIEST), committed=self.options.committed
        )

    def ends(self, partitions: Iterable[TopicPartition], which: int) -> Offsets:
        """The latest or earliest offset of each partition. `which`: LATEST or EARLIEST."""
        wanted = dict.fromkeys(partitions, which)
        found = list_places(self.cluster, wanted, committed=self.options.committed)
        if which == LATEST:
            self.epochs |= {tp: at.leader_epoch for tp, at in found.items() if at.leader_epoch >= 0}
        return {tp: at.offset for tp, at in found.items()}

    def resolve(self, option: str, bound: Bound) -> Offsets:
        """A bound as real offsets, with -1 and -2 replaced, and checked against the log."""
        partitions = self.partitions()
        if isinstance(bound, AtTime):
            at = self._at if option == "startingOffsets" else self._decided_until
            return at(option, bound, partitions)
        if bound == COMMITTED:
            return self._committed(partitions)
        if isinstance(bound, int):
            return self.ends(partitions, bound)
        bound = {tp: at for tp, at in bound.items() if not self._is_absent(tp)}
        if option == "startingOffsets" and self.options.stored is not None:
            known = self.options.stored.back_in(partitions, self.ids).offsets
            left = {tp: known.get(tp, EARLIEST) for tp in partitions}  # EARLIEST: newer than the line
            bound = {**left, **bound}
        self._check_names(option, bound, partitions)
        asked = {tp: at for tp, at in bound.items() if at in (EARLIEST, LATEST)}
        found = list_offsets(self.cluster, asked, committed=self.options.committed) if asked else {}
        plain = {tp: at for tp, at in bound.items() if tp not in asked}
        return {**found, **self._as_stored(option, plain)}

    def _as_stored(self, option: str, wanted: Offsets) -> Offsets:
        """Offsets that the user gave. If they are a line of a checkpoint, they are compared with the log, as
        they are in a query that continues from it. Raises DataLoss, WrongCluster."""
        stored = self.options.stored if option == "startingOffsets" else None
        if stored is None or check_cluster(stored.cluster, self.cluster_id, self.options.moved_to):
            return self._within(option, wanted)
        stored = stored.back_in(wanted, self.ids)
        recreated = plan.recreated(stored.ids, self.ids)
        if recreated:
            report_loss(self.options.fail_on_data_loss, f"{option}: {plan.Losses((), {}, recreated)}")
        begins = self.ends([tp for tp in wanted if tp[0] in recreated], EARLIEST)
        same = {tp: at for tp, at in wanted.items() if tp not in begins}
        epochs = {tp: epoch for tp, epoch in stored.epochs.items() if tp in same}
        return {**begins, **self._not_parted(option, self._within(option, same), same, epochs)}

    def _at(self, option: str, bound: AtTime, partitions: list[TopicPartition]) -> Offsets:
        """The first offsets whose timestamps are not before the given time. Raises OptionError."""
        wanted = self._times(option, bound, partitions)
        found = list_offsets(self.cluster, wanted, committed=self.options.committed)
        none = [tp for tp, at in found.items() if at < 0]
        if none and not bound.none_is_latest:
            said = ", ".join(f"{t}-{p} (at {wanted[t, p]} ms)" for t, p in none)
            raise OptionError(
                f"{option}: no record has the given time or a later one in {said}; give an earlier time, or "
                "startingOffsetsByTimestampStrategy=latest to begin at the end there"
            )
        return {**found, **self.ends(none, LATEST)}

    def _times(
        self, option: str, bound: AtTime, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Each partition's time. Raises OptionError if one has none."""
        if not isinstance(bound.times, int):
            named = {tp: at for tp, at in bound.times if not self._is_absent(tp)}
            self._check_names(f"{option}ByTimestamp", named, partitions)
        return {tp: bound.of(tp) for tp in partitions}

    def _decided_until(self, option: str, bound: AtTime, partitions: list[TopicPartition]) -> Offsets:
        """The same for an end, when no open transaction has records before it.

        A batch that ended before them would leave them out, and so would the next one, which begins at that
        time. Raises RetriesExhausted if they stay open, OptionError.
        """
        if not self.options.committed:
            return self._at(option, bound, partitions)
        ends = list_offsets(self.cluster, self._times(option, bound, partitions), committed=False)
        none = [tp for tp, at in ends.items() if at < 0]
        ends |= list_offsets(self.cluster, dict.fromkeys(none, LATEST), committed=False)
        limit_ms = self.cluster.config.api_timeout_ms
        until = time.monotonic() + limit_ms / 1000
        while True:
            stable = self.ends(partitions, LATEST)
            held = [f"{topic}-{part}" for (topic, part), end in ends.items() if stable[topic, part] < end]
            if not held:
                return ends
            if time.monotonic() > until:
                raise RetriesExhausted(_HELD.format(option, ", ".join(held[:3]), limit_ms))
            time.sleep(_HELD_PAUSE_S)

    def _committed(self, partitions: list[TopicPartition]) -> Offsets:
        """The group's committed offsets. Partitions without one are new to it and read from their start.

        If this query replaces another one, that one's sink is fenced first, or it would change the group's
        offsets after they were read. Raises OptionError if the group has no offset, DataLoss if the log does
        not have its offsets, and CommitFault.
        """
        group = str(self.options.group_id)
        if self.options.taken_over is not None:
            runner = Runner(self.cluster, OWN_TIMEOUT_MS, decisions=self.options.decision_topic)
            try:
                runner.run(fence(Sink(self.options.taken_over)))
            except ParticipantsLost as loss:  # the sink says so, too, where its options may accept it
                logger.warning(f"%s. {see('participantslost')}", loss)
        stored = group_offsets.fetch_with_epochs(self.cluster, group, partitions, least_ms=PENDING_MS)
        notes = {tp: read_note(found.metadata) for tp, found in stored.items()}
        self._check_one_place(group, partitions, {tp: (at.offset, notes[tp]) for tp, at in stored.items()})
        for warning in check_notes(group, notes):
            logger.warning(warning)
        self.taken = frozenset(TakenFrom(note.sink, group) for note in notes.values() if note)
        at = {tp: found.offset for tp, found in stored.items() if found.offset >= 0}
        if not at and self.absent:
            return {}
        if not at:
            raise OptionError(
                f"startingOffsets=committed: group {group} has committed no offset of these partitions; "
                "check kafka.group.id, or give startingOffsets as earliest, latest or offsets. To take the "
                "place of another query, start that one once, to finish its last batch; then give the last "
                "line of the newest file in its offsets/: it is compared with the log"
            )
        new = [tp for tp in partitions if tp not in at]
        within = self._within(f"startingOffsets (group {group})", at)
        epochs = {tp: stored[tp].leader_epoch for tp in at if stored[tp].leader_epoch >= 0}
        whose = f"startingOffsets=committed: the offsets of group {group}"
        return {**self.ends(new, EARLIEST), **self._not_parted(whose, within, at, epochs)}

    def _check_one_place(
        self,
        group: str,
        partitions: list[TopicPartition],
        stored: Mapping[TopicPartition, tuple[int, Note | None]],
    ) -> None:
        """Raise StartsElsewhere if several sources of the last query have read a partition to different ends:
        which of them takes this one's place, it cannot tell."""
        apart = {tp: note.apart for tp, (_, note) in stored.items() if note and note.decided and note.apart}
        if not apart:
            return
        names = dict.fromkeys(name for ends in apart.values() for name, _ in ends)
        ends = {
            tp: dict(apart.get(tp, ())) or dict.fromkeys(names, stored[tp][0] if tp in stored else EARLIEST)
            for tp in partitions
        }
        (topic, p), found = next(iter(apart.items()))
        said = ", ".join(f"{at} in source {name}" for name, at in found)
        raise StartsElsewhere(
            f"startingOffsets=committed: the sources of group {group}'s query have read {topic}-{p} to "
            f"different offsets ({said}), and this source cannot tell which of them it is. Nothing was "
            f"written. Start each source where it ended: {starting_offsets(ends)}"
        )

    def _not_parted(self, whose: str, within: Offsets, at: Offsets, epochs: Epochs) -> Offsets:
        """The offsets, if the log is still the one that they were read from. Otherwise reports the loss; if
        data may be lost, returns where the common log ends."""
        asked = {tp: epoch for tp, epoch in epochs.items() if self.epochs.get(tp, epoch) != epoch}
        parted = self.parted(at, {tp: epoch for tp, epoch in asked.items() if within[tp] == at[tp]})
        if parted:
            lost = plan.Losses((), {}, parted=parted)
            report_loss(self.options.fail_on_data_loss, f"{whose}: {lost}")
        ends = {tp: found.offset for tp, found in parted.items() if found.offset >= 0}
        first = self.ends(ends, EARLIEST) if ends else {}
        return {**within, **{tp: max(end, first[tp]) for tp, end in ends.items()}}

    def _within(self, option: str, wanted: Offsets) -> Offsets:
        first, last = self.ends(wanted, EARLIEST), self.ends(wanted, LATEST)
        odd = [tp for tp, at in wanted.items() if not first[tp] <= at <= last[tp]]
        if odd:
            said = "; ".join(f"{t}-{p} has {first[t, p]} to {last[t, p]}, not {wanted[t, p]}" for t, p in odd)
            report_loss(self.options.fail_on_data_loss, f"{option} lies outside of the log: {said}")
        return {tp: min(max(at, first[tp]), last[tp]) for tp, at in wanted.items()}

    def _check_names(self, option: str, bound: Offsets, partitions: list[TopicPartition]) -> None:
        missing, extra = sorted(set(partitions) - set(bound)), sorted(set(bound) - set(partitions))
        if missing:
            names = ", ".join(f"{t}-{p}" for t, p in missing)
            raise OptionError(
                f"{option} leaves out {names}: name every partition (-1 is latest, -2 earliest)"
            )
        if extra:
            names = ", ".join(f"{t}-{p}" for t, p in extra)
            raise OptionError(f"{option} names {names}, which is not among the partitions read: leave it out")

    def _matching(self) -> list[str]:
        """The topics that match the pattern. There may be none yet, as with Spark's connector."""
        pattern = re.compile(self.options.pattern or "")

        def look() -> Iterable[TopicInfo]:
            found = self.cluster.metadata(None)
            for name, code in found.errors.items():
                if pattern.fullmatch(name):
                    check(code, f"Metadata of {name}")  # left out, the topic would look deleted
            return found.topics.values()

        found = self._ask("Metadata", look)
        topics = [t.name for t in found if not t.internal and pattern.fullmatch(t.name)]
        if not topics:
            logger.warning(
                "no topic matches subscribePattern %r, which must match the whole name: nothing to read. "
                "See connector-options.md",
                self.options.pattern,
            )
        return topics

    def _find(self, topic: str, absent: dict[str, UnknownTopic]) -> TopicInfo | None:
        """A topic, or None and an entry in `absent`. If it was absent before, only one request
        is sent, without a second of retries."""
        what = f"Metadata of {topic}"
        if (
            topic in self.absent
            and topic not in self._ask(what, lambda: self.cluster.metadata([topic])).topics
        ):
            absent[topic] = self.absent[topic]
            return None
        try:
            return self._ask(what, lambda: self.cluster.describe(topic))
        except UnknownTopic as error:
            absent[topic] = error
            return None

    def _is_absent(self, place: TopicPartition) -> bool:
        return place[0] in self.absent or f"{place[0]}-{place[1]}" in self.absent

    def _ask(self, what: str, ask: Callable[[], T]) -> T:
        return retrying(self.cluster, what, ask)
