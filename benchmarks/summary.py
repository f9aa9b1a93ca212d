"""The results in short: the chart and the figures of docs/benchmarks.md, beside Spark's own connector."""

from __future__ import annotations

import re
from html import escape
from typing import NamedTuple

from benchmarks.results import Result, Store, shown


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


def found(store: Store) -> dict[str, Result]:
    """The result of each line."""
    results = {(line.section, one.work): one for line in LINES for one in store.results([line.section])}
    return {line.says: results[line.section, line.work] for line in LINES}


def as_fast(result: Result) -> float:
    """How many times as fast eoslog is: of rates the first figure over the second, of times the reverse."""
    ours, theirs = (one.middle for one in result.figures[:2])
    return ours / theirs if result.unit.endswith("/s") else theirs / ours


def figures(store: Store) -> str:
    """The five figures as a table, and where eoslog is the slower one."""
    results = found(store)
    rows = [
        f"| {says} | {_told(results[line], 0)} | {_told(results[line], 1)} | {as_fast(results[line]):.1f} |"
        for says, line in TOLD
    ]
    ages = {one.work: one for one in store.results(["delay"])}
    delays = [
        f"{which} {_told(ages[AGES.format(which)], 0)} beside {_told(ages[AGES.format(which)], 1)}"
        for which in ("p50", "p99")
    ]
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
            _measured(store),
        ]
    )


def _measured(store: Store) -> str:
    """With what and on which machines."""
    sections = sorted({line.section for line in LINES} | {"delay"})
    machines, loads = zip(*store.runs(sections), strict=True)
    cpus = {section: _cpu(one) for section, one in zip(sections, machines, strict=True)}
    usual = max(sorted(set(cpus.values())), key=list(cpus.values()).count)
    others = sorted({cpu for cpu in cpus.values() if cpu != usual})
    elsewhere = [
        f"{cpu} (section {', '.join(one for one in sections if cpus[one] == cpu)})" for cpu in others
    ]
    versions = {found for one in machines for found in re.findall(r"pyspark (\S+),.*connector (\S+)", one)}
    ((pyspark, connector),) = versions
    return (
        f"PySpark {pyspark} with Spark's connector {connector}. Measured on "
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
    lines = [(says, as_fast(result)) for says, result in found(store).items()]
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
