"""What the broker counts while it runs: plain numbers, on the event loop's thread, cheap for each request.

Nothing here knows Prometheus: `metrics_server` makes a page of these numbers, and of the state of the
broker's parts, when it is asked for one.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from eoslog.broker.coordinator.transactions.transaction_state import PREPARED, TransactionState
from eoslog.broker.log.reserve import READY_BYTES
from eoslog.prometheus import Classes
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.names_by_sink import is_anchor

if TYPE_CHECKING:
    from eoslog.broker.core.broker import Broker

BOUNDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the histograms' buckets, in seconds. One more bucket is for longer times."""


class Histogram:
    """Counts of durations, by bucket."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    @property
    def classes(self) -> Classes:
        """What it has counted so far."""
        return Classes(BOUNDS, tuple(self.counts), self.total)


class Metrics:
    """The counters of one broker."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.latency: dict[int, Histogram] = {}
        self.errors: dict[tuple[int, int], int] = {}
        """Error codes in answers, by API. An answer about several partitions may have several."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_opened = 0
        self.connections_refused = 0
        self.syncs = Histogram()
        self.failed_syncs = 0

    def answered(self, key: int, seconds: float, errors: Mapping[int, int]) -> None:
        """Count a request that took `seconds`; `errors`: how often its answer has each code."""
        histogram = self.latency.get(key)
        if histogram is None:
            histogram = self.latency[key] = Histogram()
        histogram.observe(seconds)
        for code, count in errors.items():
            self.errors[key, code] = self.errors.get((key, code), 0) + count

    def synced(self, seconds: float, failed: bool) -> None:
        """Count a sync of a partition's files, or a failed one."""
        self.syncs.observe(seconds)
        self.failed_syncs += failed


# -- metrics snapshot ------------------------------------------------------------------------------
# A snapshot of a running broker's numbers for its metrics, copied on the event loop in one go.
#
# Names, labels and text are added elsewhere, where that may take longer.


class PartitionSnapshot(NamedTuple):
    """One partition; offsets count records, `size` is in bytes."""

    topic: str
    partition: int
    start: int
    end: int
    high_watermark: int
    last_stable_offset: int
    size: int
    offline: bool
    damaged: int
    """Segments in which the scrub has found damage."""
    unchecked: int
    """Bytes that the scrub has still to read."""


class LagSnapshot(NamedTuple):
    """A group's committed offset of a partition, and its distance from the high watermark. Notes of sinks
    are no places, so they have none."""

    group: str
    topic: str
    partition: int
    committed: int
    lag: int


@dataclass
class MetricsSnapshot:
    """The state of a broker at one moment."""

    uptime: float
    partitions: list[PartitionSnapshot]
    transactions: Counter[str] = field(default_factory=Counter)
    """Transactional ids by the state of their transaction."""
    open_transactions: int = 0
    oldest_transaction: float = 0.0
    """Age of the oldest open transaction in seconds, 0 if there is none."""
    groups: Counter[str] = field(default_factory=Counter)
    lags: list[LagSnapshot] = field(default_factory=list)
    unavailable: list[str] = field(default_factory=list)
    """The coordinators that could not answer: "transactions", "groups"."""
    disk_bytes: int = 0
    disk_free_bytes: int = READY_BYTES
    """Of the volume of the data directory; free are those that the broker's user may fill."""

    @property
    def has_room(self) -> bool:
        """Whether the disk takes more than a few batches."""
        return self.disk_free_bytes >= READY_BYTES

    @property
    def healthy(self) -> bool:
        """Whether every partition is online and both coordinators answer."""
        return not self.unavailable and not any(partition.offline for partition in self.partitions)


def look(broker: Broker, metrics: Metrics) -> MetricsSnapshot:
    """Take all numbers; on the event loop's thread."""
    found = MetricsSnapshot(time.monotonic() - metrics.started, _partitions(broker))
    try:
        found.disk_bytes, found.disk_free_bytes = broker.topics.fs.space(broker.topics.data_dir)
    except OSError:  # /readyz says that there is no room: nobody can write there
        found.disk_bytes = found.disk_free_bytes = 0
    try:
        _transactions(broker, found)
    except KafkaError:
        found.unavailable.append("transactions")
    try:
        found.groups.update(group.state.value for group in broker.groups.list_groups())
    except KafkaError:
        found.unavailable.append("groups")
    ends = {(p.topic, p.partition): p.high_watermark for p in found.partitions}
    for group, (topic, index), committed in broker.groups.committed_offsets():
        if (topic, index) in ends and not is_anchor(group, topic, committed.metadata):
            lag = max(ends[topic, index] - committed.offset, 0)
            found.lags.append(LagSnapshot(group, topic, index, committed.offset, lag))
    return found


def _partitions(broker: Broker) -> list[PartitionSnapshot]:
    topics = [broker.topics.get(name) for name in broker.topics.names()]
    return [
        PartitionSnapshot(
            partition.topic,
            partition.index,
            partition.log_start_offset,
            partition.log_end_offset,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.size,
            partition.offline is not None,
            partition.damaged_segments,
            sum(one.size for _, one in partition.unchecked_segments()),
        )
        for topic in topics
        if topic is not None
        for partition in topic.partitions
    ]


def _transactions(broker: Broker, found: MetricsSnapshot) -> None:
    now_ms, oldest_ms = broker.clock.now_ms(), None
    for known in broker.transactions.list():
        found.transactions[known.state.text] += 1
        if known.state is TransactionState.ONGOING or known.state in PREPARED:
            found.open_transactions += 1
            if oldest_ms is None or known.start_ms < oldest_ms:
                oldest_ms = known.start_ms
    if oldest_ms is not None:
        found.oldest_transaction = max(now_ms - oldest_ms, 0) / 1000
