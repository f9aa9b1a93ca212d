"""Topics and their partitions. Sizes on disk need DESCRIBE on the cluster, as in DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from eoslog.broker.console.broker_access import (
    END,
    MOST_LOOKED_AT,
    NAME,
    START,
    BrokerAccess,
    Caller,
    PageQuery,
    Row,
    arranged,
    by_topic,
    check,
    chosen,
    matching,
    offsets,
    pieces,
)
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.protocol.typed import DESCRIBE_LOG_DIRS, METADATA

if TYPE_CHECKING:
    from eoslog.protocol.typed import DescribeLogDirsRequestTopicDraft, MetadataResponseTopic

SORTS = (NAME, "partitions", "records", "held_back", "bytes")


async def topics(inside: BrokerAccess, caller: Caller, want: PageQuery) -> Row:
    """The wanted topics that the caller may describe, with partitions, records and bytes.

    `held_back`: offsets that open transactions hide from read_committed readers.
    """
    answer = await inside.ask(caller, METADATA, 12, {"topics": None, "allow_auto_topic_creation": False})
    known = [topic for topic in answer["topics"] if not topic["error_code"]]
    found = matching(known, _name, want.contains)
    if sum(len(topic["partitions"]) for topic in found) > MOST_LOOKED_AT and want.sort != NAME:
        want = replace(want, sort=NAME, down=False)
    listed, more = chosen(found, _name, want)
    facts = await _facts(inside, caller, [place for topic in listed for place in _places(topic)])
    rows = arranged([_row(topic, [facts[place] for place in _places(topic)]) for topic in listed], want)
    return {"topics": rows, "total": len(known), "matching": len(found), "sorted": want.sort, "next": more}


def _name(topic: MetadataResponseTopic) -> str:
    return topic["name"] or ""  # null for an unknown id alone, and none is asked for


def _row(topic: MetadataResponseTopic, parts: list[Row]) -> Row:
    return {
        "name": topic["name"],
        "internal": topic["is_internal"],
        "partitions": len(parts),
        "records": _sum([_span(part, "start", "high_watermark") for part in parts]),
        "held_back": _sum([_span(part, "stable", "high_watermark") for part in parts]),
        "bytes": _sum([part["bytes"] for part in parts]),
    }


async def partitions(inside: BrokerAccess, caller: Caller, topic: str) -> Row:
    """The partitions of a topic: offsets, bytes, and whether each can be read. Raises KafkaError."""
    answer = await inside.ask(
        caller, METADATA, 12, {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    )
    (found,) = answer["topics"]
    check(found["error_code"], f"topic {topic}")
    facts = await _facts(inside, caller, _places(found))
    return {"name": topic, "internal": found["is_internal"], "partitions": list(facts.values())}


def _places(topic: MetadataResponseTopic) -> list[TopicPartition]:
    return [(_name(topic), index) for index in sorted(p["partition_index"] for p in topic["partitions"])]


async def _facts(
    inside: BrokerAccess, caller: Caller, places: Sequence[TopicPartition]
) -> dict[TopicPartition, Row]:
    """The row of each partition; None for what is unknown or not for this caller."""
    starts = await offsets(inside, caller, places, START)
    ends = await offsets(inside, caller, places, END)
    stable = await offsets(inside, caller, places, END, committed=True)
    sizes = await _sizes(inside, caller, places)
    return {
        place: {
            "partition": place[1],
            "start": starts.get(place),
            "stable": stable.get(place),
            "high_watermark": ends.get(place),
            "bytes": sizes.get(place),
        }
        for place in places
    }


async def _sizes(
    inside: BrokerAccess, caller: Caller, places: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Bytes of the segments; empty for a caller that may not describe the cluster."""
    if not await inside.may_see_cluster(caller):
        return {}
    found: dict[TopicPartition, int] = {}
    for piece in pieces(places):
        wanted: list[DescribeLogDirsRequestTopicDraft] = [
            {"topic": topic, "partitions": indexes} for topic, indexes in by_topic(piece).items()
        ]
        answer = await inside.ask(caller, DESCRIBE_LOG_DIRS, 4, {"topics": wanted})
        found |= {
            (topic["name"], part["partition_index"]): part["partition_size"]
            for directory in answer["results"]
            for topic in directory["topics"]
            for part in topic["partitions"]
        }
    return found


def _span(part: Row, low: str, high: str) -> int | None:
    """The distance between two offsets, None if one is unknown."""
    return None if part[low] is None or part[high] is None else max(0, part[high] - part[low])


def _sum(numbers: Sequence[int | None]) -> int | None:
    """The sum, None if one value is unknown."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
