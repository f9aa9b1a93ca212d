"""Kafka's requests nest partitions under their topics; these calls do that and no more."""

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def by_topic(rows: Iterable[tuple[str, int, T]]) -> list[tuple[str, list[T]]]:
    """(topic, partition, value) rows as (topic, values by partition), topics and partitions sorted."""
    grouped: dict[str, dict[int, T]] = {}
    for topic, partition, value in rows:
        grouped.setdefault(topic, {})[partition] = value
    return [(topic, [parts[p] for p in sorted(parts)]) for topic, parts in sorted(grouped.items())]
