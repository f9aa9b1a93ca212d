"""First and last offsets of partitions, by ListOffsets in small pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from eoslog.broker.console.broker_access import BrokerAccess, Caller
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.protocol.typed import LIST_OFFSETS

if TYPE_CHECKING:
    from eoslog.protocol.typed import ListOffsetsRequestTopicDraft


START, END = -2, -1
AT_ONCE = 200
"""Partitions in one request, so that each is short work for the broker's loop."""


def pieces(places: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """Split into pieces of `AT_ONCE`."""
    rest = iter(places)
    while piece := list(islice(rest, AT_ONCE)):
        yield piece


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic."""
    found: dict[str, list[int]] = {}
    for topic, index in places:
        found.setdefault(topic, []).append(index)
    return found


async def offsets(
    inside: BrokerAccess,
    caller: Caller,
    places: Sequence[TopicPartition],
    time: int,
    *,
    committed: bool = False,
) -> dict[TopicPartition, int]:
    """Offsets of partitions: `START`, `END` (the last stable offset if `committed`), or for a time in ms.

    Partitions that give an error, or have no record at or after that time, are omitted.
    """
    found: dict[TopicPartition, int] = {}
    for piece in pieces(places):
        topics: list[ListOffsetsRequestTopicDraft] = [
            {"name": topic, "partitions": [{"partition_index": i, "timestamp": time} for i in indexes]}
            for topic, indexes in by_topic(piece).items()
        ]
        answer = await inside.ask(
            caller,
            LIST_OFFSETS,
            7,
            {"replica_id": -1, "isolation_level": int(committed), "topics": topics},
        )
        found |= {
            (topic["name"], part["partition_index"]): part["offset"]
            for topic in answer["topics"]
            for part in topic["partitions"]
            if not part["error_code"] and part["offset"] >= 0
        }
    return found
