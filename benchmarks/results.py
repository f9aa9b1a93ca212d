"""What a benchmark says: figures of subjects taken in turns, a goal, and whether it was met; the results as
tables, and docs/benchmarks.json, from which pages are made.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psutil

from tests.kit.kafka_nodes import spark_kafka

# -- figures ---------------------------------------------------------------------------------------

FLUSHED, PAGE_CACHE, NOTHING_KEPT = "flushed", "page cache", "-"
EXACTLY, AT_LEAST, NO_WRITE = "exactly once", "at least once", "read only"

Kind = Literal["ratio", "times", "above", "most", "flat", "shown"]


@dataclass(frozen=True)
class Goal:
    """ratio: the first figure over the second, at least `bound`. times: the same, at most. above: the
    first minus the second, at most. most: the first itself, at most. flat: the largest over the smallest, at
    most. shown: no goal."""

    kind: Kind
    bound: float = 0.0

    def text(self) -> str:
        return {
            "ratio": f">= {self.bound:g}",
            "times": f"<= {self.bound:g} times",
            "above": f"<= {self.bound:g} above",
            "most": f"<= {self.bound:g}",
            "flat": f"within {self.bound - 1:.0%}",
            "shown": "-",
        }[self.kind]


@dataclass(frozen=True)
class Figure:
    """One subject's values, a value a turn, and what its writes are worth."""

    subject: str
    values: list[float]
    durability: str
    guarantee: str

    @property
    def middle(self) -> float:
        """The median."""
        return statistics.median(self.values)


@dataclass(frozen=True)
class Result:
    """A line of the table."""

    line: str
    work: str
    unit: str
    goal: Goal
    figures: list[Figure]
    note: str = ""

    def reached(self) -> tuple[float, float, float]:
        """What the goal is about: from the medians, and the lowest and highest of the single turns."""
        first, rest = self.figures[0], self.figures[1:]
        if self.goal.kind in ("most", "shown"):
            return first.middle, min(first.values), max(first.values)
        if self.goal.kind == "flat":
            middles = [figure.middle for figure in self.figures]
            spread = max(middles) / min(middles)
            return spread, spread, spread
        each = [self._compare(a, b) for a, b in zip(first.values, rest[0].values, strict=True)]
        return self._compare(first.middle, rest[0].middle), min(each), max(each)

    def _compare(self, first: float, second: float) -> float:
        return first - second if self.goal.kind == "above" else first / second

    def met(self) -> bool:
        """Whether the goal is reached."""
        value, bound = self.reached()[0], self.goal.bound
        return self.goal.kind == "shown" or (value >= bound if self.goal.kind == "ratio" else value <= bound)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Result:
        figures = [Figure(**figure) for figure in told["figures"]]
        return cls(**{**told, "goal": Goal(**told["goal"]), "figures": figures})


@dataclass
class Sizes:
    """How much a run does."""

    rounds: int = 5
    share: float = 1.0
    """Of the records that a full run takes."""
    spark_rounds: int = 5
    spark_warm_ups: int = 2
    """A JVM gets faster for longer than one turn, whoever's code it runs."""
    broker_warm_ups: int = 5
    """Turns of writes before the first that is timed: the peer's broker is a JVM too."""
    spark_bytes: tuple[int, ...] = (100, 1000)
    """Of a record, in Spark's lines."""

    def records(self, full: int) -> int:
        return max(int(full * self.share), 1)


@dataclass(frozen=True)
class Section:
    """Lines that are measured together. `measure` gets what it needs from its caller's context."""

    name: str
    measure: Callable[[Any], list[Result]]


@dataclass
class Turns:
    """Values of subjects, taken in turns after a warm-up of each."""

    values: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def take(cls, subjects: Mapping[str, Callable[[], float]], rounds: int, warm_ups: int = 1) -> Turns:
        """A B A B ...; the first turns of each are thrown away."""
        found: dict[str, list[float]] = {name: [] for name in subjects}
        for turn in range(warm_ups + rounds):
            for name, run in subjects.items():
                value = run()
                if turn >= warm_ups:
                    found[name].append(value)
        return cls(found)

    def figures(self, worth: Mapping[str, tuple[str, str]]) -> list[Figure]:
        """As figures; `worth`: durability and guarantee of each subject, in the order of the table."""
        return [Figure(name, self.values[name], *worth[name]) for name in worth]


def shown(number: float) -> str:
    """A number with about three digits that count, or all of a large one."""
    if abs(number) >= 100:
        return f"{number:,.0f}"
    return (
        f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}" if abs(number) >= 0.1 else f"{number:.3f}"
    )


def spread(values: Sequence[float]) -> str:
    """The lowest to the highest."""
    return f"{shown(min(values))} to {shown(max(values))}"


# -- tables ----------------------------------------------------------------------------------------

BEGIN, END = "<!-- made by make bench: begin -->", "<!-- made by make bench: end -->"
_WITH = " with PySpark "
_PACKAGES = ("pyspark", "pyarrow", "numpy", "confluent-kafka")


def table(results: Iterable[Result]) -> str:
    """Markdown."""
    lines = [
        "| work | figures: median (lowest to highest); durability; guarantee | ratio or value (turns) "
        "| goal | met |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_row, results)])


def _row(result: Result) -> str:
    value, low, high = result.reached()
    said = "; <br>".join(
        f"{one.subject}: {shown(one.middle)} {result.unit}"
        f"{f' ({spread(one.values)})' if len(one.values) > 1 else ''}"
        f"{f'; {one.durability}; {one.guarantee}' if one.durability != '-' or one.guarantee != '-' else ''}"
        for one in result.figures
    )
    if result.goal.kind == "shown":
        told = "-"
    else:
        told = shown(value) + (f" ({shown(low)} to {shown(high)})" if low != high else "")
    met = "-" if result.goal.kind == "shown" else "yes" if result.met() else "**no**"
    note = f"<br>{result.note}" if result.note else ""
    return f"| {result.work}{note} | {said} | {told} | {result.goal.text()} | {met} |"


def machine() -> str:
    """What it ran on, and with what."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    java = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=True
    ).stderr.splitlines()[0]
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    connector = spark_kafka().name.rpartition("-")[2]
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} cores of {cpu}, {memory:.0f} GiB, {platform.system()} {platform.release()}; "
        f"Python {platform.python_version()}, {packages}; {java}; "
        f"Apache Kafka 4.3.1; Spark's Kafka connector {connector} (kafka-clients 3.9.1)"
    )


class Store:
    """The results of the last runs, a section's results replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._told = json.loads(path.read_text()) if path.exists() else {}

    def put(self, section: str, results: list[Result], load: float, spark: str = "") -> None:
        """Keep the results, with the date, the machine and how busy it was. `spark`: the PySpark, if it is
        not the environment's own."""
        self._told[f"{section}{_WITH}{spark}" if spark else section] = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "machine": machine(),
            "load": round(load, 1),
            "results": [result.as_json() for result in results],
        }
        self.path.write_text(json.dumps(self._told, indent=1, sort_keys=True) + "\n")

    def others(self) -> list[str]:
        """The other PySparks that have results."""
        found = {spark for _, given, spark in (name.partition(_WITH) for name in self._told) if given}
        return sorted(found)

    def results(self, sections: Iterable[str]) -> list[Result]:
        """Results of these sections, in this order."""
        found = (self._told[name]["results"] for name in sections if name in self._told)
        return [Result.from_json(told) for results in found for told in results]

    def runs(self, sections: Iterable[str]) -> list[tuple[str, float]]:
        """The machine and its load of each of these sections."""
        found = (self._told[name] for name in sections if name in self._told)
        return [(told["machine"], told["load"]) for told in found]

    def heads(self, sections: Iterable[str]) -> list[str]:
        """When and where the sections ran, told once for those that ran together."""
        found: dict[tuple[str, str], list[str]] = {}
        for name in sections:
            if name in self._told:
                told = self._told[name]
                found.setdefault((told["date"][:10], told["machine"]), []).append(f"{name} {told['load']}")
        return [
            f"{date}: {where}. Load average at the start of each section: {', '.join(names)}."
            for (date, where), names in found.items()
        ]


def with_others(store: Store, sections: list[str]) -> list[str]:
    """When other PySparks ran, and a table of what they reach beside Spark's connector of their line: the
    ratio, and how good that is beside the one of the environment's own."""
    sparks, heads, rows = store.others(), [], []
    for spark in sparks:
        heads += store.heads([f"{name}{_WITH}{spark}" for name in sections])
    for name in sections:
        reached = {
            (one.work, spark): one for spark in sparks for one in store.results([f"{name}{_WITH}{spark}"])
        }
        for own in store.results([name]):
            found = [reached.get((own.work, spark)) for spark in sparks]
            if own.goal.kind in ("ratio", "times") and any(found):
                cells = [
                    f"{shown(one.reached()[0])} ({as_good(one, own):.2f})" if one else "-" for one in found
                ]
                told = [own.work, own.goal.text(), shown(own.reached()[0]), *cells]
                rows.append(f"| {' | '.join(told)} |")
    if not rows:
        return []
    first = f"| work | goal | PySpark of the table above | {' | '.join(sparks)} |"
    return [*heads, "\n".join([first, "|---" * (len(sparks) + 3) + "|", *rows])]


def as_good(one: Result, own: Result) -> float:
    """How good a ratio is beside another PySpark's of the same line: above 1, better."""
    ratio, value = one.reached()[0], own.reached()[0]
    return value / ratio if own.goal.kind == "times" else ratio / value


def write_tables(page: Path, store: Store, sections: list[str]) -> None:
    """Replace the generated part of the page."""
    results = store.results(sections)
    reached = [result for result in results if result.goal.kind != "shown"]
    met = sum(result.met() for result in reached)
    said = [*store.heads(sections), f"Goals met: {met} of {len(reached)}.", table(results)]
    replace_made_part(page, "\n\n".join([*said, *with_others(store, sections)]))


def replace_made_part(page: Path, body: str) -> None:
    """Write a page with this between its marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}")


# -- in short: the chart and the figures of docs/benchmarks.md, beside Spark's own connector -------


class Line(NamedTuple):
    """What a line of the chart says, and where its result is."""

    says: str
    section: str
    work: str


LINES = [
    Line("read, 100 B", "spark-source", "Spark source, batch, both on Apache Kafka, 100 B"),
    Line("read, 1,000 B", "spark-source", "Spark source, batch, both on Apache Kafka, 1,000 B"),
    Line("write a batch, 100 B", "spark-sink-batch", "Spark sink, batch, both on Apache Kafka, 100 B"),
    Line("write a batch, 1,000 B", "spark-sink-batch", "Spark sink, batch, both on Apache Kafka, 1,000 B"),
    Line("write a stream, 100 B", "spark-sink-stream", "Spark sink, stream, both on Apache Kafka, 100 B"),
    Line("write a stream, 1,000 B", "spark-sink-stream", "Spark sink, stream, both on Apache Kafka, 1,000 B"),
    Line(
        "copy a topic, 100 B",
        "spark-copy",
        "Spark copy topic to topic, 4,000,000 rows, both on Apache Kafka, 100 B",
    ),
    Line(
        "copy a topic, 1,000 B",
        "spark-copy",
        "Spark copy topic to topic, 800,000 rows, both on Apache Kafka, 1,000 B",
    ),
    Line(
        "start a query, copy a million rows, stop",
        "spark-short",
        "copy of 1,000,000 rows of 100 B, availableNow: mostly the start of a query, both on Apache Kafka",
    ),
    Line(
        "micro-batch of a stream of 1,000 rows/s",
        "micro-batch",
        "micro-batch p50, a stream of 1,000 rows/s to a topic, both on Apache Kafka",
    ),
    Line(
        "micro-batch of 200 rows that Spark makes",
        "micro-batch",
        "micro-batch p50, 200 rows of Spark to a topic, both on Apache Kafka",
    ),
    Line(
        "df.write of 1,000 rows in 100 tasks",
        "small-write",
        "df.write of 1,000 rows in 100 tasks, both on Apache Kafka",
    ),
]
TOLD = (
    ("Read a topic in a batch, 100 B a row", "read, 100 B"),
    ("Write a stream, 100 B a row", "write a stream, 100 B"),
    ("Copy a topic, 100 B a row", "copy a topic, 100 B"),
    (
        "Start a query in a running session, copy a million rows, stop",
        "start a query, copy a million rows, stop",
    ),
    ("Micro-batch of a stream of 1,000 rows/s, topic to topic", "micro-batch of a stream of 1,000 rows/s"),
)
"""The five figures: what the page calls them, and their lines."""
LARGER = ("read, 1,000 B", "write a stream, 1,000 B", "copy a topic, 1,000 B")
"""The first three with larger rows."""
AGES = "age {} of a record when it is readable in the sink, trigger 0 s, both on Apache Kafka"
"""How long a row takes from topic to topic: works of the section `delay`."""
SLOWER = ("micro-batch of 200 rows that Spark makes", "df.write of 1,000 rows in 100 tasks")
SIZE = "micro-batch p50, a copy of 10,000 rows of 100 B a batch"
"""The work of the section `batch-sizes` in which eoslog is slowest beside Spark's connector."""


def of_lines(store: Store) -> dict[str, Result]:
    """The result of each line."""
    results = {(line.section, one.work): one for line in LINES for one in store.results([line.section])}
    return {line.says: results[line.section, line.work] for line in LINES}


def as_fast(result: Result) -> float:
    """How many times as fast eoslog is: of rates the first figure over the second, of times the reverse."""
    ours, theirs = (one.middle for one in result.figures[:2])
    return ours / theirs if result.unit.endswith("/s") else theirs / ours


def in_short(store: Store) -> str:
    """The five figures as a table, and where eoslog is the slower one."""
    results = of_lines(store)
    rows = [
        f"| {says} | {_told(results[line], 0)} | {_told(results[line], 1)} | {as_fast(results[line]):.1f} |"
        for says, line in TOLD
    ]
    ages = {one.work: one for one in store.results(["delay"])}
    delays = [
        f"{which} {_told(ages[AGES.format(which)], 0)} beside {_told(ages[AGES.format(which)], 1)}"
        for which in ("p50", "p99")
    ]
    copied = next(one for one in store.results(["batch-sizes"]) if one.work == SIZE)
    larger = [f"{as_fast(results[line]):.1f}" for line in LARGER]
    slower = [f"{line}, {_told(results[line], 0)} beside {_told(results[line], 1)}" for line in SLOWER]
    return "\n".join(
        [
            "![How many times as fast as Spark's connector eoslog is, work by work](pictures/benchmarks.svg)",
            "",
            "| work | eoslog | Spark's connector | times as fast |",
            "|---|---|---|---|",
            *rows,
            "",
            f"With 1,000 B a row the first three are {', '.join(larger)} times as fast.",
            "",
            f"A row's way through a query, until a reader of the sink's topic gets it: {'; '.join(delays)}.",
            "",
            f"eoslog is slower where Spark makes a few rows in several tasks: {'; '.join(slower)}.",
            "",
            f"It is also slower in a copy of 10,000 rows a micro-batch: {_told(copied, 0)} beside "
            f"{_told(copied, -1)}.",
            "",
            _measured(store),
        ]
    )


def _measured(store: Store) -> str:
    """With what and on which machines."""
    sections = sorted({line.section for line in LINES} | {"delay", "batch-sizes"})
    machines, loads = zip(*store.runs(sections), strict=True)
    cpus = {section: _cpu(one) for section, one in zip(sections, machines, strict=True)}
    usual = max(sorted(set(cpus.values())), key=list(cpus.values()).count)
    others = sorted({cpu for cpu in cpus.values() if cpu != usual})
    elsewhere = [
        f"{cpu} (section {', '.join(one for one in sections if cpus[one] == cpu)})" for cpu in others
    ]
    versions = {found for one in machines for found in re.findall(r"pyspark (\S+),.*connector (\S+)", one)}
    ((pyspark, connector),) = versions
    newest = "" if pyspark.split(".")[:2] == connector.split(".")[:2] else ", the newest one"
    return (
        f"PySpark {pyspark} with Spark's connector {connector}{newest}. Measured on "
        f"{' and '.join([usual, *elsewhere])}. Load average before a section: {min(loads)} to {max(loads)}."
    )


def _cpu(machine: str) -> str:
    """The processor of a machine."""
    return machine.partition(",")[0].replace("(R)", "").replace(" Processor", "")


def _told(result: Result, subject: int) -> str:
    """A median with its unit."""
    return f"{shown(result.figures[subject].middle)} {result.unit}"


_ROW, _TOP, _LEFT, _TIMES, _WIDTH = 27, 74, 300, 150, 820
"""Of the chart, in pixels: a line, what is above the first, where bars begin, one time, all of it."""
_STYLE = """\
  .page { fill: #ffffff; stroke: #d5d8dc; }
  text { font: 13px system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #22303c; }
  .head { font-weight: 600; font-size: 15px; }
  .bar { fill: #0072b2; }
  .one { stroke: #22303c; stroke-width: 1.6; stroke-dasharray: 5 4; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #1d242b; stroke: #3a4650; }
    text { fill: #e3e9ee; }
    .bar { fill: #56b4e9; }
    .one { stroke: #e3e9ee; }
  }"""


def _beside(end: float) -> float:
    """Where a bar's number begins: behind the bar, and not on the line of Spark's connector."""
    one = _LEFT + _TIMES
    return (one if one - 40 < end < one else end) + 8


def chart(store: Store) -> str:
    """The bars: one colour, each with its number, beside a line where Spark's connector stands."""
    lines = [(says, as_fast(result)) for says, result in of_lines(store).items()]
    bottom, one = _TOP + _ROW * len(lines), _LEFT + _TIMES
    told = "; ".join(f"{says} {times:.2f}" for says, times in lines)
    bars = [
        f'<text x="{_LEFT - 10}" y="{_TOP + _ROW * number + 17}" text-anchor="end">{escape(says)}</text>'
        f'<rect class="bar" x="{_LEFT}" y="{_TOP + _ROW * number + 3}" width="{times * _TIMES:.1f}" '
        f'height="{_ROW - 7}" rx="2"/>'
        f'<text x="{_beside(_LEFT + times * _TIMES):.1f}" y="{_TOP + _ROW * number + 17}">{times:.2f}</text>'
        for number, (says, times) in enumerate(lines)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 20}" role="img" '
            'aria-labelledby="t d">',
            '<title id="t">How many times as fast as Spark\'s connector eoslog is</title>',
            f'<desc id="d">{escape(told)}.</desc>',
            f"<style>\n{_STYLE}\n</style>",
            f'<rect class="page" x="1" y="1" width="{_WIDTH - 2}" height="{bottom + 18}" rx="10"/>',
            '<text class="head" x="24" y="32">eoslog, exactly once: times as fast as Spark\'s connector, '
            "at least once</text>",
            f'<text x="{one}" y="58" text-anchor="middle">Spark\'s connector = 1</text>',
            *bars,
            f'<path class="one" d="M{one} {_TOP - 8}V{bottom + 4}"/>',
            "</svg>\n",
        ]
    )
