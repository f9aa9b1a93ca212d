"""The events that the stateful queries read, what must come of them, and what a reader sees.

Event time runs one second a row. What the queries make of the events must not depend on where micro-batches
end, so that one computation is true for all of them: rows are either in time, however the watermark moves
with batches of `BATCH` rows, or so late that it has passed them long before (`LATE`). The judge checks
besides that two runs did cut the same batches.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, TopicPartition

from tests.connector.brokers import LATEST, Kafka, bare

START = 1_767_225_600  # 2026-01-01, seconds
PARTITIONS = 2
KEYS = 40
BATCH = 540
"""Rows of a source in a micro-batch, and so the seconds by which the watermark moves."""
DELAY = 600
"""The watermark stays so far behind the latest event. Seconds, like all below."""
WINDOW = 600  # longer than BATCH: at most one window of a key closes in a micro-batch
JITTER = 240
LATE = 3_600
WITHIN = 300  # a click belongs to an impression so much older at most
QUIET = 900  # a session ends when its key was silent for so long
SESSION = 216
AFTER_ALL = 10_000  # the closing rows come so much later, and carry the watermark past everything


LOSABLE = ("aggregation", "inner-join", "outer-join", "sessions")
"""The queries of the streaming sink, which can save their state; `updates` is written by foreachBatch."""


class Row(NamedTuple):
    """A record of a source topic or of the target."""

    key: str
    value: str


@dataclass(frozen=True)
class Case:
    """A query's input by source, and the rows that must be in its target, each once.

    `ordered`: the rows of a key stand in the order given; otherwise their order is not defined.
    """

    sources: dict[str, list[Row]]
    expected: list[Row]
    ordered: bool


def _row(key: str, **value: Any) -> Row:
    return Row(key, json.dumps(value, separators=(",", ":")))


def partition_of(row: Row) -> int:
    """Where the row is put: keys with even and odd numbers take turns, so partitions move on evenly."""
    return int(row.key) % PARTITIONS


def aggregation(batches: int, seed: int) -> Case:
    """Sums by key and window of `WINDOW` seconds; append mode: each window once, when it is closed."""
    random, rows = Random(seed), []
    sums: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    latest = 0
    for seq in range(batches * BATCH):
        key, amount = str(2 * random.randrange(KEYS // 2) + seq % 2), random.randrange(1000)
        late = seq > 4 * BATCH and random.random() < 0.03
        at = START + seq - (LATE if late else random.randrange(JITTER))
        rows.append(_row(key, ts=at, v=amount))
        latest = max(latest, at)
        if not late:
            window = sums[key, at - at % WINDOW + WINDOW]
            window[0], window[1] = window[0] + 1, window[1] + amount
    expected = [
        _row(key, end=end, n=count, sum=total)
        for (key, end), (count, total) in sorted(sums.items(), key=lambda item: item[0][1])
        if end <= latest - DELAY
    ]
    return Case({"events": rows}, expected, ordered=True)


def _join(batches: int, seed: int, *, outer: bool) -> Case:
    random, expected = Random(seed), []
    impressions, clicks = [], []
    for number in range(batches * BATCH - 1):
        at = START + number - random.randrange(JITTER)
        impressions.append(_row(str(number), ts=at))
        # Two thirds are clicked, some twice, some too late or too early to count.
        waits = [random.choice((random.randrange(WITHIN + 1), WITHIN + 60, -30)) for _ in range(2)]
        waits = waits[: random.choice((0, 1, 2))]
        clicks += [(at + wait, number, click) for click, wait in enumerate(waits)]
        matches = [(click, wait) for click, wait in enumerate(waits) if 0 <= wait <= WITHIN]
        expected += [_row(str(number), ts=at, click=click, cts=at + wait) for click, wait in matches]
        if outer and not matches:
            expected.append(_row(str(number), ts=at))
    number, at = batches * BATCH, START + batches * BATCH + AFTER_ALL
    impressions.append(_row(str(number), ts=at))
    clicked = [_row(str(n), cts=cts, click=click) for cts, n, click in sorted(clicks)]
    clicked.append(_row(str(number), cts=at, click=0))
    expected.append(_row(str(number), ts=at, click=0, cts=at))
    return Case({"impressions": impressions, "clicks": clicked}, expected, ordered=False)


def inner_join(batches: int, seed: int) -> Case:
    """Each impression with each click on it within `WITHIN` seconds."""
    return _join(batches, seed, outer=False)


def outer_join(batches: int, seed: int) -> Case:
    """The same, and each impression that was not clicked, once nobody can click it any more."""
    return _join(batches, seed, outer=True)


def sessions(batches: int, seed: int) -> Case:
    """For each row the running count and sum of its key's session; its end when a timer finds it quiet.

    Two keys at a time have a session of `SESSION` seconds; they come back when their timers have long fired.
    """
    random, rows = Random(seed), []
    found: dict[str, list[list[int]]] = defaultdict(list)  # key -> sessions -> amounts
    last = ""
    for seq in range(batches * BATCH - 1):
        key, amount = str(2 * (seq // SESSION % (KEYS // 2)) + seq % 2), random.randrange(1000)
        rows.append(_row(key, ts=START + seq - random.randrange(10), seq=seq, v=amount))
        if last not in (key, str(int(key) ^ 1)):
            for one in (key, str(int(key) ^ 1)):
                found[one].append([])
        found[key][-1].append(amount)
        last = key
    rows.append(_row(str(KEYS), ts=START + len(rows) + AFTER_ALL, seq=len(rows), v=1))
    expected = [_row(str(KEYS), what="row", n=1, sum=1)]
    for key, amounts in ((key, session) for key, all_of_it in found.items() for session in all_of_it):
        sums = list(accumulate(amounts))
        expected += [_row(key, what="row", n=n, sum=total) for n, total in enumerate(sums, 1)]
        expected.append(_row(key, what="end", n=len(sums), sum=sums[-1]))
    return Case({"events": rows}, expected, ordered=True)


def updates(batches: int, seed: int) -> Case:
    """Output mode update: the new count and sum of each key that a micro-batch has touched.

    The one query whose rows depend on where micro-batches end: after every `BATCH` rows, as both partitions
    hold equally many.
    """
    random, rows, expected = Random(seed), [], []
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for number in range(batches):
        touched = set()
        for seq in range(number * BATCH, (number + 1) * BATCH):
            key, amount = str(2 * random.randrange(KEYS // 2) + seq % 2), random.randrange(1000)
            rows.append(_row(key, ts=START + seq, v=amount))
            sums[key][0] += 1
            sums[key][1] += amount
            touched.add(key)
        expected += [_row(key, n=sums[key][0], sum=sums[key][1]) for key in sorted(touched)]
    return Case({"events": rows}, expected, ordered=True)


CASES: dict[str, Callable[[int, int], Case]] = {
    "aggregation": aggregation,
    "inner-join": inner_join,
    "outer-join": outer_join,
    "sessions": sessions,
    "updates": updates,
}


# -- the judge -----------------------------------------------------------------------------------
# What a reader of committed rows sees in the target of a stateful query, against what must be there.


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
