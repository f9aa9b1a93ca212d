"""A partition of a topic, and rows of partitions grouped by topic, as Kafka's requests have them."""

from collections.abc import Iterable
from typing import TypeVar

TopicPartition = tuple[str, int]
"""A topic's name and the partition's number."""
T = TypeVar("T")


def by_topic(rows: Iterable[tuple[str, int, T]]) -> list[tuple[str, list[T]]]:
    """Group (topic, partition, value) rows as (topic, values in order of partition), sorted by topic."""
    grouped: dict[str, dict[int, T]] = {}
    for topic, partition, value in rows:
        grouped.setdefault(topic, {})[partition] = value
    return [(topic, [parts[p] for p in sorted(parts)]) for topic, parts in sorted(grouped.items())]
