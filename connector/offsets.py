"""Offsets by topic and partition: Spark's JSON for them, and what a user may write as a bound.

JSON is that of Spark's Kafka source, `{"topic":{"0":123}}`; in options, -2 stands for the earliest
offset and -1 for the latest, as in Kafka's ListOffsets. Pure: no sockets.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from eoslog.connector.errors import OptionError

TopicPartition = tuple[str, int]
Offsets = dict[TopicPartition, int]

LATEST = -1
EARLIEST = -2
WORDS = {"earliest": EARLIEST, "latest": LATEST}

Bound = int | Offsets
"""EARLIEST or LATEST for every partition, or an offset (or -2, -1) for each partition."""


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets as the nested dict that Spark stores; sorted, because Spark compares texts."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = int(offset)
    return nested


def from_json(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The reverse of to_json, for offsets that Spark hands back."""
    return {(topic, int(p)): int(offset) for topic, parts in nested.items() for p, offset in parts.items()}


def parse_bound(option: str, text: str) -> Bound:
    """The value of startingOffsets or endingOffsets; OptionError says what is wrong with it."""
    word = text.strip().lower()
    if word in WORDS:
        return WORDS[word]
    example = f'give {option} as earliest, latest, or JSON like {{"topic":{{"0":23,"1":-2}}}}'
    nested = _load(option, text, example)
    if not isinstance(nested, dict) or not nested:
        raise OptionError(f"{option}: {text!r} names no topic; {example}")
    return {
        (topic, partition): offset
        for topic, parts in nested.items()
        for partition, offset in _parse_topic(option, topic, parts, example)
    }


def _parse_topic(option: str, topic: str, parts: Any, example: str) -> Iterable[tuple[int, int]]:
    if not isinstance(parts, dict) or not parts:
        raise OptionError(f"{option}: topic {topic!r} has {parts!r} where its partitions belong; {example}")
    for partition, offset in parts.items():
        if not partition.isdecimal():
            raise OptionError(f"{option}: {partition!r} is no partition of topic {topic!r}; {example}")
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < EARLIEST:
            raise OptionError(
                f"{option}: {offset!r} is no offset for partition {partition} of topic {topic!r} "
                f"(a number from 0, -2 for earliest, -1 for latest); {example}"
            )
        yield int(partition), offset


def parse_assignment(option: str, text: str) -> tuple[TopicPartition, ...]:
    """The value of `assign`: JSON of partition lists by topic, as sorted topic-partitions."""
    example = f'give {option} as JSON like {{"topic":[0,1]}}'
    nested = _load(option, text, example)
    if not isinstance(nested, dict) or not nested:
        raise OptionError(f"{option}: {text!r} names no topic; {example}")
    found = {tp for topic, parts in nested.items() for tp in _parse_list(option, topic, parts, example)}
    return tuple(sorted(found))


def _parse_list(option: str, topic: str, parts: Any, example: str) -> list[TopicPartition]:
    wanted = isinstance(parts, list) and bool(parts)
    if not wanted or not all(isinstance(p, int) and not isinstance(p, bool) and p >= 0 for p in parts):
        raise OptionError(
            f"{option}: topic {topic!r} has {parts!r} where a list of partitions belongs; {example}"
        )
    return [(topic, p) for p in parts]


def _load(option: str, text: str, example: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_no_doubles)
    except ValueError as error:
        raise OptionError(f"{option}: {text!r} cannot be read: {error}; {example}") from error


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two entries for one topic or partition: one of them would be lost without a word."""
    keys = [key for key, _ in pairs]
    doubled = {key for key in keys if keys.count(key) > 1}
    if doubled:
        raise ValueError(f"{', '.join(sorted(doubled))} given twice")
    return dict(pairs)
