"""Option combinations drawn at random: everything that decides which rows a read gives. Pure."""

import json
from dataclasses import dataclass
from random import Random

from eoslog.protocol.topic_partitions import TopicPartition

T = 1_700_000_000_000


@dataclass(frozen=True)
class Topic:
    """A log to read: by partition its first offset and its end (high watermark)."""

    name: str
    bounds: dict[int, tuple[int, int]]


def draw(random: Random, topics: list[Topic], *, stream: bool) -> dict[str, str]:
    """Options of one read, without the brokers' addresses."""
    chosen = random.sample(topics, random.randint(1, 3))
    bounds = {(t.name, p): bound for t in chosen for p, bound in t.bounds.items()}
    options, bounds = _where(random, chosen, bounds)
    options |= _start(random, bounds, stream)
    if not stream:
        options |= _end(random, bounds)
    if random.random() < 0.4:
        options["minPartitions"] = str(random.randint(1, 9))
    if random.random() < 0.3:
        options["maxRecordsPerPartition"] = str(random.randint(5, 200))
    options["includeHeaders"] = random.choice(("true", "false", "TRUE"))
    options["kafka.isolation.level"] = random.choice(("read_committed", "read_uncommitted"))
    options["failOnDataLoss"] = random.choice(("true", "false"))
    return {_any_case(random, name): value for name, value in options.items()}


def _where(
    random: Random, chosen: list[Topic], bounds: dict[TopicPartition, tuple[int, int]]
) -> tuple[dict[str, str], dict[TopicPartition, tuple[int, int]]]:
    names = [t.name for t in chosen]
    how = random.choice(("subscribe", "subscribePattern", "assign"))
    if how == "subscribe":
        return {how: random.choice((",", " , ")).join(names)}, bounds
    if how == "subscribePattern":
        return {how: "|".join(names)}, bounds
    some = dict(random.sample(sorted(bounds.items()), random.randint(1, len(bounds))))
    return {how: json.dumps(_nested(dict.fromkeys(some, 0), listed=True))}, some


def _start(random: Random, bounds: dict[TopicPartition, tuple[int, int]], stream: bool) -> dict[str, str]:
    word = random.choice(("earliest", "Earliest", " earliest "))
    each = {
        place: -2 if random.random() < 0.3 else random.randint(first, (first + end) // 2)
        for place, (first, end) in bounds.items()
    }
    times = {place: T + random.randint(-50, 400) for place in bounds}
    forms: list[dict[str, str]] = [
        {"startingOffsets": word},
        {"startingOffsets": json.dumps(_nested(each))},
        {"startingTimestamp": str(T + random.randint(-50, 400))},
        {"startingOffsetsByTimestamp": json.dumps(_nested(times))},
        {"startingOffsets": word, "startingTimestamp": str(T + random.randint(0, 200))},
        {"startingOffsets": word, "startingOffsetsByTimestamp": json.dumps(_nested(times))},
    ]
    if not stream:
        forms.append({})
    form = random.choice(forms)
    if random.random() < 0.7:
        form["startingOffsetsByTimestampStrategy"] = random.choice(("latest", "LATEST"))
    return form


def _end(random: Random, bounds: dict[TopicPartition, tuple[int, int]]) -> dict[str, str]:
    each = {
        place: -1 if random.random() < 0.3 else random.randint((first + end + 1) // 2, end)
        for place, (first, end) in bounds.items()
    }
    times = {place: T + random.randint(100, 700) for place in bounds}
    return random.choice(
        (
            {},
            {"endingOffsets": "latest"},
            {"endingOffsets": json.dumps(_nested(each))},
            {"endingTimestamp": str(T + random.randint(200, 700))},
            {"endingOffsetsByTimestamp": json.dumps(_nested(times))},
            {"endingOffsets": "latest", "endingTimestamp": str(T + random.randint(200, 700))},
        )
    )


def _nested(numbers: dict[TopicPartition, int], *, listed: bool = False) -> dict[str, object]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), number in numbers.items():
        found.setdefault(topic, {})[str(partition)] = number
    if listed:
        return {topic: [int(p) for p in parts] for topic, parts in found.items()}
    return dict(found)


def _any_case(random: Random, name: str) -> str:
    return random.choice((name, name, name.lower(), name.upper()))
