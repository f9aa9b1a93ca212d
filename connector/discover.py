"""What there is to read: the partitions a query's options name, and where they begin and end."""

import logging
import re
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from eoslog.connector.client import offsets as group_offsets
from eoslog.connector.client.cluster import Cluster, TopicInfo
from eoslog.connector.client.listing import list_offsets
from eoslog.connector.client.retry import check, retrying
from eoslog.connector.client.shared import shared
from eoslog.connector.crosscheck import check_notes, read_note
from eoslog.connector.errors import OptionError, report_loss
from eoslog.connector.offsets import (
    COMMITTED,
    EARLIEST,
    LATEST,
    AtTime,
    Bound,
    Offsets,
    TopicIds,
    TopicPartition,
)
from eoslog.connector.options import SourceOptions

log = logging.getLogger(__name__)

T = TypeVar("T")

PENDING_MS = 90_000
"""How long offsets of a group may be pending: a sink that was killed while it decided leaves them so until
its own transaction times out (sink.OWN_TIMEOUT_MS), and brokers look for such transactions every 10 s."""


class Log:
    """The topics of one query as they are now; every call asks the brokers."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.ids: TopicIds = {}
        """Ids of the topics, as last seen; brokers older than 2.8 tell none."""
        self.cluster_id: str | None = None
        """Id of the cluster, as last seen."""

    @property
    def cluster(self) -> Cluster:
        """This process's connections."""
        return shared(self.options.client)

    def partitions(self) -> list[TopicPartition]:
        """The partitions to read. Raises UnknownTopic, BrokerUnreachable."""
        if self.options.assign is not None:
            topics: Iterable[str] = sorted({topic for topic, _ in self.options.assign})
        elif self.options.subscribe is not None:
            topics = self.options.subscribe
        else:
            topics = self._matching()
        found = {topic: self._describe(topic) for topic in topics}
        self.ids = {topic: info.topic_id for topic, info in found.items() if info.topic_id is not None}
        self.cluster_id = self.cluster.cluster_id
        if self.options.assign is not None:
            return list(self.options.assign)
        return sorted((topic, p) for topic, info in found.items() for p in info.leaders)

    def latest(self, position: Offsets | None = None) -> Offsets:
        """Where each partition ends: what read_committed readers may see, or all (kafka.isolation.level).

        An end before `position` is asked for again a few times: a new leader may not know yet how far the
        log goes (fetchOffset.numRetries and retryIntervalMs). So is a partition that is not told of: a broker
        may not have heard of it yet, and taken for gone it would later be read from its beginning.
        """
        for left in reversed(range(self.options.end_tries)):
            found = self.ends(self.partitions(), LATEST)
            if not left or all(found.get(tp, -1) >= at for tp, at in (position or {}).items()):
                return found
            time.sleep(self.options.end_pause_ms / 1000)
        raise AssertionError("fetchOffset.numRetries is 1 at least")

    def met_cluster(self) -> str | None:
        """The cluster's id; asked for where nothing has been asked yet. Raises BrokerUnreachable."""
        if self.cluster_id is None:
            self.cluster_id = self._ask("Metadata", lambda: self.cluster.metadata([])).cluster_id
        return self.cluster_id

    def beginnings(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The first offset that each partition still holds."""
        return list_offsets(
            self.cluster, dict.fromkeys(partitions, EARLIEST), committed=self.options.committed
        )

    def ends(self, partitions: Iterable[TopicPartition], which: int) -> Offsets:
        """LATEST or EARLIEST of each partition."""
        return list_offsets(self.cluster, dict.fromkeys(partitions, which), committed=self.options.committed)

    def resolve(self, option: str, bound: Bound) -> Offsets:
        """A bound as real offsets, -1 and -2 replaced, checked against what the log holds."""
        partitions = self.partitions()
        if isinstance(bound, AtTime):
            return self._at(option, bound, partitions)
        if bound == COMMITTED:
            return self._committed(partitions)
        if isinstance(bound, int):
            return self.ends(partitions, bound)
        self._check_names(option, bound, partitions)
        asked = {tp: at for tp, at in bound.items() if at in (EARLIEST, LATEST)}
        found = list_offsets(self.cluster, asked, committed=self.options.committed) if asked else {}
        plain = {tp: at for tp, at in bound.items() if tp not in asked}
        return {**found, **self._within(option, plain)}

    def _at(self, option: str, bound: AtTime, partitions: list[TopicPartition]) -> Offsets:
        """The first offsets of at least a time. Raises OptionError."""
        if not isinstance(bound.times, int):
            self._check_names(f"{option}ByTimestamp", dict(bound.times), partitions)
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

        Raises OptionError where the group holds nothing, or offsets that the log does not hold.
        """
        group = str(self.options.group_id)
        stored = group_offsets.fetch_committed(self.cluster, group, partitions, least_ms=PENDING_MS)
        for warning in check_notes(group, {tp: read_note(text) for tp, (_, text) in stored.items()}):
            log.warning(warning)
        at = {tp: offset for tp, (offset, _) in stored.items() if offset >= 0}
        if not at:
            raise OptionError(
                f"startingOffsets=committed: group {group} has committed no offset of what is to be read; "
                "check kafka.group.id, or give startingOffsets as earliest, latest or offsets"
            )
        new = [tp for tp in partitions if tp not in at]
        return {**self.ends(new, EARLIEST), **self._within(f"startingOffsets (group {group})", at)}

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
                "no topic matches subscribePattern %r, which must match the whole name: nothing to read",
                self.options.pattern,
            )
        return topics

    def _describe(self, topic: str) -> TopicInfo:
        return self._ask(f"Metadata of {topic}", lambda: self.cluster.describe(topic))

    def _ask(self, what: str, ask: Callable[[], T]) -> T:
        return retrying(
            self.cluster,
            what,
            ask,
            timeout_ms=self.options.client.api_timeout_ms,
            option="kafka.default.api.timeout.ms",
            forget=lambda: None,
        )
