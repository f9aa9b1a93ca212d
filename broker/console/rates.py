"""The broker's throughput, second by second: a short history while the console runs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from eoslog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from eoslog.broker.core.broker import Broker
    from eoslog.broker.metrics.metrics import Metrics

EVERY = 1.0
"""Seconds between samples."""
KEPT = 300

_NAMED = {ApiKey.PRODUCE: "produce", ApiKey.FETCH: "fetch"}
REQUESTS = ("produce", "fetch", "other")


class Sample(NamedTuple):
    """Counters at one moment. `at`: seconds of a monotonic clock. `ends`: the sum of all end offsets.

    `produce_seconds`: the total time of all Produce requests.
    """

    at: float
    ends: int
    bytes_in: int
    bytes_out: int
    requests: dict[str, int]
    produce_seconds: float


def sample(broker: Broker, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> Sample:
    """Read the counters; on the broker's loop."""
    requests = dict.fromkeys(REQUESTS, 0)
    for key, histogram in metrics.latency.items():
        requests[_NAMED.get(ApiKey(key), "other")] += sum(histogram.counts)
    ends = sum(partition.high_watermark for partition in broker.topics.all_partitions())
    produced = metrics.latency.get(ApiKey.PRODUCE)
    seconds = produced.total if produced is not None else 0.0
    return Sample(clock(), ends, metrics.bytes_in, metrics.bytes_out, requests, seconds)


class History:
    """The latest samples, and the rates between them."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=KEPT + 1)

    def add(self, taken: Sample) -> None:
        """Add a sample, and drop the oldest one."""
        self._samples.append(taken)

    def rates(self) -> dict[str, Any]:
        """Rates per second, oldest first. `ago`: how many seconds ago the interval ended.

        `records` counts written offsets, including markers; it is 0 where topics were deleted. `produce_ms`
        is the mean time of a Produce request, 0 without any.
        """
        samples = list(self._samples)
        pairs = [(a, b) for a, b in pairwise(samples) if b.at > a.at]

        def rate(value: Callable[[Sample], int]) -> list[float]:
            return [round(max(0, value(b) - value(a)) / (b.at - a.at), 1) for a, b in pairs]

        newest = samples[-1].at if samples else 0.0
        return {
            "ago": [round(newest - b.at, 1) for _, b in pairs],
            "records": rate(lambda one: one.ends),
            "bytes_in": rate(lambda one: one.bytes_in),
            "bytes_out": rate(lambda one: one.bytes_out),
            "requests": {name: rate(_counted(name)) for name in REQUESTS},
            "produce_ms": [_mean_ms(a, b) for a, b in pairs],
        }


def _counted(name: str) -> Callable[[Sample], int]:
    return lambda one: one.requests[name]


def _mean_ms(a: Sample, b: Sample) -> float:
    count = b.requests["produce"] - a.requests["produce"]
    return round(1000 * (b.produce_seconds - a.produce_seconds) / count, 2) if count > 0 else 0.0
