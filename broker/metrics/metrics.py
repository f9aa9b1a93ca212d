"""What the broker counts while it runs: plain numbers, on the event loop's thread, cheap for each request.

Nothing here knows Prometheus: `metrics_server` makes a page of these numbers, and of the state of the
broker's parts, when it is asked for one.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping

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
