"""Metrics in Prometheus's form: families with their samples, of a broker, of a cluster, of queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Family(NamedTuple):
    """A metric: its name (a counter's without `_total`), kind and labels, what it means, what is normal."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    normal: str = ""


class Classes(NamedTuple):
    """A histogram: the upper bounds of its classes, how many values are in each and above all, their sum."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class Sample(NamedTuple):
    """A value of a family. A histogram's is `Classes`."""

    family: str
    labels: tuple[str, ...]
    value: float | Classes


def prometheus(families: Iterable[Family], samples: Iterable[Sample]) -> Iterator[Any]:
    """The families with their samples, as prometheus_client has them."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    kinds = {COUNTER: CounterMetricFamily, GAUGE: GaugeMetricFamily, HISTOGRAM: HistogramMetricFamily}
    made = {one.name: kinds[one.kind](one.name, one.meaning, labels=one.labels) for one in families}
    for family, labels, value in samples:
        if isinstance(value, Classes):
            total, buckets = 0, []
            for bound, count in zip((*map(str, value.bounds), "+Inf"), value.counts, strict=True):
                total += count  # Prometheus counts upwards: each bucket holds those below it too
                buckets.append((bound, float(total)))
            made[family].add_metric(labels, buckets, value.sum)
        else:
            made[family].add_metric(labels, value)
    yield from made.values()
