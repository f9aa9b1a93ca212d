"""What a reader of committed rows sees in the target of a stateful query, against what must be there."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import IsolationLevel, TopicPartition

from tests.connector.stock_kafka import Kafka, bare
from tests.offset_specs import LATEST
from tests.stateful.stateful_input import PARTITIONS, Case, Row, partition_of


@dataclass(frozen=True)
class Seen:
    """A target topic: its rows by offset, how many more were written and taken back, and what is open."""

    rows: list[Row]
    taken_back: int
    held_back: list[str]

    @classmethod
    def of(cls, kafka: Kafka, topic: str) -> Seen:
        committed = [
            Row(key.decode(), value.decode()) for _, _, key, value, *_ in kafka.rows(topic, PARTITIONS)
        ]
        written = len(kafka.rows(topic, PARTITIONS, committed=False))
        return cls(committed, written - len(committed), _held_back(kafka, topic))


def _held_back(kafka: Kafka, topic: str) -> list[str]:
    """Partitions with an open transaction: what is behind it is held back from readers."""
    latest = {TopicPartition(topic, p): LATEST for p in range(PARTITIONS)}

    def ends(level: IsolationLevel) -> dict[int, int]:
        found = kafka.admin.list_offsets(latest, isolation_level=level)
        return {place.partition: answer.result(30).offset for place, answer in found.items()}

    stable, all_of_it = ends(IsolationLevel.READ_COMMITTED), ends(IsolationLevel.READ_UNCOMMITTED)
    return [f"{topic}-{p}: {stable[p]} of {all_of_it[p]}" for p in stable if stable[p] != all_of_it[p]]


def publish(kafka: Kafka, topics: str, case: Case) -> None:
    """Make the source topics and put all rows there."""
    for source, rows in case.sources.items():
        topic = kafka.topic(PARTITIONS, name=f"{topics}-{source}")
        producer = kafka.producer(enable_idempotence=True, linger_ms=5)
        for row in rows:
            producer.produce(topic, row.value, row.key, partition=partition_of(row))
            producer.poll(0)
        assert producer.flush(60) == 0


@dataclass(frozen=True)
class Verdict:
    """What is wrong; nothing if all is empty."""

    lost: int
    doubled: int
    strange: int
    disordered: list[str]
    held_back: list[str]

    @property
    def holds(self) -> bool:
        return not (self.lost or self.doubled or self.strange or self.disordered or self.held_back)


def judge(seen: Seen, expected: list[Row], *, ordered: bool) -> Verdict:
    """`seen` must hold exactly `expected`, each row once; `ordered`: each key's rows in this order."""
    found, wanted = Counter(seen.rows), Counter(expected)
    missing, surplus = wanted - found, found - wanted
    here, there = _by_key(seen.rows), _by_key(expected)
    return Verdict(
        lost=missing.total(),
        doubled=sum(number for row, number in surplus.items() if row in wanted),
        strange=sum(number for row, number in surplus.items() if row not in wanted),
        disordered=[key for key in there if ordered and here.get(key) != there[key]],
        held_back=seen.held_back,
    )


def _by_key(rows: Iterable[Row]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for key, value in rows:
        found[key].append(value)
    return found


def batches(checkpoint: Path) -> dict[int, tuple[int, list[str]]]:
    """The micro-batches that Spark has planned: watermark in ms, and where each source's part ends."""
    found = {}
    for path in (checkpoint / "offsets").iterdir():
        if path.name.isdigit():
            _, settings, *ends = path.read_text().splitlines()
            found[int(path.name)] = (json.loads(settings)["batchWatermarkMs"], [_bare(end) for end in ends])
    return found


def _bare(end: str) -> str:
    """A source's offsets, whatever its topics' names and ids are."""
    parts = bare(json.loads(end)) if end != "-" else {}
    return json.dumps([parts[topic] for topic in sorted(parts)])
