"""What a benchmark says: figures of subjects taken in turns, a goal, and whether it was met."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

FLUSHED, PAGE_CACHE, NOTHING_KEPT = "flushed", "page cache", "-"
EXACTLY, AT_LEAST, NO_WRITE = "exactly once", "at least once", "read only"

Kind = Literal["ratio", "times", "cost", "above", "most", "flat", "shown"]


@dataclass(frozen=True)
class Goal:
    """ratio: the first figure over the second, at least `bound`. times: the same, at most. cost: by how much
    the first is less than the second, at most. above: the first minus the second, at most. most: the first
    itself, at most. flat: the largest over the smallest, at most. shown: no goal."""

    kind: Kind
    bound: float = 0.0

    def text(self) -> str:
        return {
            "ratio": f">= {self.bound:g}",
            "times": f"<= {self.bound:g} times",
            "cost": f"<= {self.bound:.0%}",
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
        if self.goal.kind == "above":
            return first - second
        return 1 - first / second if self.goal.kind == "cost" else first / second

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
