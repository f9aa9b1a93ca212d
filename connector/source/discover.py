"""What there is to read: the partitions a query's options name, and where they begin and end."""

import logging
import re
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from eoslog.connector.checkpoint.which_cluster import check_cluster
from eoslog.connector.client.admin import offsets as group_offsets
from eoslog.connector.client.admin.epochs import epoch_ends
from eoslog.connector.client.admin.listing import list_offsets, list_places
from eoslog.connector.client.wire.cluster import Cluster, TopicInfo, no_partition
from eoslog.connector.client.wire.retry import check, retrying
from eoslog.connector.client.wire.shared import shared_cluster
from eoslog.connector.commit.leave import fence
from eoslog.connector.commit.names import Sink
from eoslog.connector.errors import OptionError, UnknownTopic, report_loss
from eoslog.connector.offsets import plan
from eoslog.connector.offsets.group_notes import check_notes, read_note
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
    TopicPartition,
)
from eoslog.connector.options.both import SourceOptions
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner

log = logging.getLogger(__name__)

T = TypeVar("T")

PENDING_MS = 90_000
"""How long offsets of a group may be pending: a sink that was killed while it decided leaves them so until
its own transaction times out (OWN_TIMEOUT_MS), and brokers look for such transactions every 10 s."""


class Log:
    """The topics of one query as they are now; every call asks the brokers.

    `lenient`: what the options name and the cluster does not have is left out, and kept in `absent`; who
    goes on from where a query stood finds out what it has lost. Else it is UnknownTopic.
    """

    def __init__(self, options: SourceOptions, *, lenient: bool = False) -> None:
        self.options, self._lenient = options, lenient
        self.absent: dict[str, UnknownTopic] = {}
        """Topics, and partitions of `assign`, that are not there, as last seen."""
        self.epochs: Epochs = {}
        """Leader epochs in which the partitions' ends were told, as last seen; brokers older than 2.1 tell
        none."""
        self.ids: TopicIds = {}
        """Ids of the topics, as last seen; brokers older than 2.8 tell none."""
        self.cluster_id: str | None = None
        """Id of the cluster, as last seen."""
        self.taken: frozenset[TakenFrom] = frozenset()
        """From whom a query that begins at its group's offsets has taken them."""

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
        """Where each partition ends: what read_committed readers may see, or all (kafka.isolation.level).

        An end before `position` is asked for again a few times: a new leader may not know yet how far the
        log goes (fetchOffset.numRetries and retryIntervalMs). So is a partition that is not told of: a broker
        may not have heard of it yet, and taken for gone it would later be read from its beginning.
        """
        for left in reversed(range(self.options.end_tries)):
            found = self.ends(self.partitions(), LATEST)
            waited = {tp: at for tp, at in (position or {}).items() if not self._is_absent(tp)}
            if not left or all(found.get(tp, -1) >= at for tp, at in waited.items()):
                return found
            time.sleep(self.options.end_pause_ms / 1000)
        raise AssertionError("fetchOffset.numRetries is 1 at least")

    def check_absent(self) -> None:
        """Raises UnknownTopic where something that the options name is not there."""
        for error in self.absent.values():
            raise error

    def parted(self, position: Offsets, epochs: Epochs) -> dict[TopicPartition, plan.Divergence]:
        """Partitions whose log is another one below `position`, which it reached in these leader epochs."""
        ends = epoch_ends(self.cluster, epochs) if epochs else {}
        return {
            tp: plan.Divergence(position[tp], epochs[tp], end.offset, end.leader_epoch)
            for tp, end in ends.items()
            if end.leader_epoch < 0 or end.offset < position[tp]
        }

    def met_cluster(self) -> str | None:
        """The cluster's id; asked for where nothing has been asked yet. Raises BrokerUnreachable."""
        if self.cluster_id is None:
            self.cluster.meet()
            self.cluster_id = self._ask("Metadata", lambda: self.cluster.metadata([])).cluster_id
        return self.cluster_id

    def beginnings(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The first offset that each partition still holds."""
        return list_offsets(
            self.cluster, dict.fromkeys(partitions, EARLIEST), committed=self.options.committed
        )

    def ends(self, partitions: Iterable[TopicPartition], which: int) -> Offsets:
        """LATEST or EARLIEST of each partition."""
        wanted = dict.fromkeys(partitions, which)
        found = list_places(self.cluster, wanted, committed=self.options.committed)
        if which == LATEST:
            self.epochs |= {tp: at.leader_epoch for tp, at in found.items() if at.leader_epoch >= 0}
        return {tp: at.offset for tp, at in found.items()}

    def resolve(self, option: str, bound: Bound) -> Offsets:
        """A bound as real offsets, -1 and -2 replaced, checked against what the log holds."""
        partitions = self.partitions()
        if isinstance(bound, AtTime):
            return self._at(option, bound, partitions)
        if bound == COMMITTED:
            return self._committed(partitions)
        if isinstance(bound, int):
            return self.ends(partitions, bound)
        bound = {tp: at for tp, at in bound.items() if not self._is_absent(tp)}
        if option == "startingOffsets" and self.options.stored is not None:
            bound = {**dict.fromkeys(partitions, EARLIEST), **bound}  # new since the line was written
        self._check_names(option, bound, partitions)
        asked = {tp: at for tp, at in bound.items() if at in (EARLIEST, LATEST)}
        found = list_offsets(self.cluster, asked, committed=self.options.committed) if asked else {}
        plain = {tp: at for tp, at in bound.items() if tp not in asked}
        return {**found, **self._as_stored(option, plain)}

    def _as_stored(self, option: str, wanted: Offsets) -> Offsets:
        """Offsets by hand; those of a checkpoint's line are compared with what it says of its log, as a query
        that goes on from there does. Raises DataLoss, WrongCluster."""
        stored = self.options.stored if option == "startingOffsets" else None
        if stored is None or check_cluster(stored.cluster, self.cluster_id, self.options.moved_to):
            return self._within(option, wanted)
        anew = plan.made_anew(stored.ids, self.ids)
        if anew:
            report_loss(self.options.fail_on_data_loss, f"{option}: {plan.Losses((), {}, anew)}")
        begins = self.ends([tp for tp in wanted if tp[0] in anew], EARLIEST)
        same = {tp: at for tp, at in wanted.items() if tp not in begins}
        epochs = {tp: epoch for tp, epoch in stored.epochs.items() if tp in same}
        return {**begins, **self._not_parted(option, self._within(option, same), same, epochs)}

    def _at(self, option: str, bound: AtTime, partitions: list[TopicPartition]) -> Offsets:
        """The first offsets of at least a time. Raises OptionError."""
        if not isinstance(bound.times, int):
            named = {tp: at for tp, at in bound.times if not self._is_absent(tp)}
            self._check_names(f"{option}ByTimestamp", named, partitions)
        wanted = {tp: bound.of(tp) for tp in partitions}
        found = list_offsets(self.cluster, wanted, committed=self.options.committed)
        none = [tp for tp, at in found.items() if at < 0]
        if none and not bound.none_is_latest:
            said = ", ".join(f"{t}-{p} (at {wanted[t, p]} ms)" for t, p in none)
            raise OptionError(
                f"{option}: no record is as young as the time asked for in {said}; give an earlier time, or "
                "startingOffsetsByTimestampStrategy=latest to begin at the end there"
            )
        return {**found, **self.ends(none, LATEST)}

    def _committed(self, partitions: list[TopicPartition]) -> Offsets:
        """Where the group stands; partitions it has never committed are new to it and read from their start.

        A sink whose place this query takes is stopped first, or it would move the group after it was read.
        Raises OptionError where the group holds nothing, or offsets that the log does not hold; CommitFault.
        """
        group = str(self.options.group_id)
        if self.options.taken_over is not None:
            Runner(self.cluster, OWN_TIMEOUT_MS).run(fence(Sink(self.options.taken_over)))
        stored = group_offsets.fetch_with_epochs(self.cluster, group, partitions, least_ms=PENDING_MS)
        notes = {tp: read_note(found.metadata) for tp, found in stored.items()}
        for warning in check_notes(group, notes):
            log.warning(warning)
        self.taken = frozenset(TakenFrom(note.sink, group) for note in notes.values() if note)
        at = {tp: found.offset for tp, found in stored.items() if found.offset >= 0}
        if not at and self.absent:
            return {}
        if not at:
            raise OptionError(
                f"startingOffsets=committed: group {group} has committed no offset of what is to be read; "
                "check kafka.group.id, or give startingOffsets as earliest, latest or offsets. To go on from "
                "a checkpoint whose query had no group, give the last line of the newest file in its "
                "offsets/ that is in its commits/ as well: it is compared with the log"
            )
        new = [tp for tp in partitions if tp not in at]
        within = self._within(f"startingOffsets (group {group})", at)
        told = {tp: stored[tp].leader_epoch for tp in at if stored[tp].leader_epoch >= 0}
        whose = f"startingOffsets=committed: the offsets of group {group}"
        return {**self.ends(new, EARLIEST), **self._not_parted(whose, within, at, told)}

    def _not_parted(self, whose: str, within: Offsets, at: Offsets, told: Epochs) -> Offsets:
        """Offsets in the log that they were read from; or where that ends, if data may be lost."""
        asked = {tp: epoch for tp, epoch in told.items() if self.epochs.get(tp, epoch) != epoch}
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
        """Topics of the pattern; none may be there yet, as with Spark's connector."""
        pattern = re.compile(self.options.pattern or "")

        def look() -> Iterable[TopicInfo]:
            found = self.cluster.metadata(None)
            for name, code in found.errors.items():
                if pattern.fullmatch(name):
                    check(code, f"Metadata of {name}")  # not told of now, it would look as if it were gone
            return found.topics.values()

        found = self._ask("Metadata", look)
        topics = [t.name for t in found if not t.internal and pattern.fullmatch(t.name)]
        if not topics:
            log.warning(
                "no topic matches subscribePattern %r, which must match the whole name: nothing to read. "
                "See connector-options.md",
                self.options.pattern,
            )
        return topics

    def _find(self, topic: str, absent: dict[str, UnknownTopic]) -> TopicInfo | None:
        """A topic; None and a note in `absent` where there is none. One that was absent is looked for with
        one question, not for a second."""
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
        return retrying(
            self.cluster,
            what,
            ask,
            timeout_ms=self.options.client.api_timeout_ms,
            option="kafka.default.api.timeout.ms",
            forget=lambda: None,
        )
