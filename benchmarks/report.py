"""The results as tables: the made part of docs/benchmark-tables.md, and the file that it is made from."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from benchmarks.lines import Result, shown, spread
from benchmarks.peer_kafka import spark_kafka

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
    if result.goal.kind == "cost":
        told = f"{value:.1%} ({low:.1%} to {high:.1%})"
    elif result.goal.kind == "shown":
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
