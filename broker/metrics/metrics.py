"""What the broker counts while it runs: plain numbers, on the event loop's thread, cheap for each request.

Nothing here knows Prometheus: `metrics_page` turns these numbers, and what the rooms know of themselves,
into a page when somebody asks for it.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping

BOUNDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the histograms' buckets, in seconds; one more bucket takes what is above them."""


class Histogram:
    """How often something took how long."""

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
        """Error codes in answers, by API; an answer about several partitions may have several."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_opened = 0
        self.connections_refused = 0
        self.syncs = Histogram()
        self.failed_syncs = 0

    def answered(self, key: int, seconds: float, errors: Mapping[int, int]) -> None:
        """A request was carried out, `seconds` after it began; `errors`: how often its answer has which."""
        histogram = self.latency.get(key)
        if histogram is None:
            histogram = self.latency[key] = Histogram()
        histogram.observe(seconds)
        for code, count in errors.items():
            self.errors[key, code] = self.errors.get((key, code), 0) + count

    def synced(self, seconds: float, failed: bool) -> None:
        """A partition's files were synced, or could not be."""
        self.syncs.observe(seconds)
        self.failed_syncs += failed
