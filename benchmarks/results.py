"""What a benchmark says: figures of subjects taken in turns, a goal, and whether it was met; the results as
tables, and docs/benchmarks.json, from which pages are made.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import psutil

from benchmarks.peers import spark_kafka

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
