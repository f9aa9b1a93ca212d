"""`make trace-micro-batch`: one micro-batch of a small stream; every process is a lane, every call a bar.

The batch is the one of median length among some dozens, from a stream of 1,000 rows a second, copied on
the bundled broker or, with --kafka, on Apache Kafka. Spark's lane is what its progress report tells: its
phases follow one another.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "eoslog"
mpl.rcParams["svg.fonttype"] = "none"

from matplotlib import pyplot as plt  # noqa: E402  # after the backend is chosen

from benchmarks.spark import Bench  # noqa: E402
from benchmarks.spark_works import traced_batches  # noqa: E402
from benchmarks.traced import FILE, Traced  # noqa: E402

BATCHES = 40
_PHASES = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")
_LANES = {
    "Spark": "Spark (JVM)",
    "pyspark.sql.streaming.python_streaming_source_runner": "source's process",
    "pyspark.sql.worker.write_into_data_source": "sink's planner",
    "pyspark.worker": "tasks",
    "pyspark.sql.worker.python_streaming_sink_runner": "sink's process",
}
_CALL, _REQUEST, _PHASE = "#0b6e4f", "#e2a33c", "#c9d6df"


class Bar(NamedTuple):
    """Something that took time: in which lane, what, from and to in ms since the trigger."""

    lane: str
    what: str
    began_ms: float
    ended_ms: float
    is_request: bool = False


def phases_of(progress: dict[str, Any]) -> tuple[float, list[Bar]]:
    """When the trigger began, in seconds since 1970, and Spark's phases after it."""
    began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    bars, at = [], 0.0
    for phase in _PHASES:
        took = float(progress["durationMs"].get(phase, 0))
        bars.append(Bar("Spark", phase, at, at + took))
        at += took
    return began, bars


def bars_of(progress: dict[str, Any], notes: list[dict[str, Any]]) -> list[Bar]:
    """The bars of one micro-batch."""
    began, bars = phases_of(progress)
    length = float(progress["durationMs"]["triggerExecution"])
    for one in notes:
        bar = Bar(one["process"], one["what"], (one["began"] - began) * 1000, (one["ended"] - began) * 1000)
        if bar.ended_ms >= 0 and bar.began_ms <= length:
            bars.append(bar._replace(is_request=one["request"]))
    return bars


def draw(bars: list[Bar], title: str, to: Path) -> None:
    """A picture of them."""
    lanes = [lane for lane in _LANES if any(bar.lane == lane for bar in bars)]
    figure, axes = plt.subplots(figsize=(11, 0.8 + 0.8 * len(lanes)))
    for bar in bars:
        if bar.lane not in lanes:
            continue
        row = lanes.index(bar.lane)
        color = _PHASE if bar.lane == "Spark" else _REQUEST if bar.is_request else _CALL
        place, height = (row + 0.28, 0.24) if bar.is_request else (row - 0.36, 0.5)
        took = max(bar.ended_ms - bar.began_ms, 0.3)
        axes.broken_barh([(bar.began_ms, took)], (place, height), facecolors=color, edgecolors="white")
        if took > 9 and not bar.is_request:
            axes.text(bar.began_ms + 1, row - 0.1, f"{bar.what} {took:.0f}", fontsize=7, va="center")
    axes.set_yticks(range(len(lanes)), [_LANES[lane] for lane in lanes])
    axes.invert_yaxis()
    axes.set_xlabel("ms since the trigger; below each call the requests that it waits for")
    axes.set_title(title, fontsize=11)
    axes.grid(visible=True, axis="x", alpha=0.3)
    figure.savefig(to, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def told(bars: list[Bar]) -> str:
    """The same as lines of text."""
    ordered = sorted(
        bars, key=lambda bar: (list(_LANES).index(bar.lane) if bar.lane in _LANES else 9, bar.began_ms)
    )
    return "\n".join(
        f"{_LANES.get(bar.lane, bar.lane):18} {'  ' * bar.is_request}{bar.what:24} {bar.began_ms:7.1f} "
        f"to {bar.ended_ms:7.1f}  {bar.ended_ms - bar.began_ms:6.1f} ms"
        for bar in ordered
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kafka", type=Path, help="Apache Kafka's folder: trace on it, not on the bundled broker"
    )
    parser.add_argument(
        "--light", action="store_true", help="with the checkpoint that docs/starts.md recommends"
    )
    parser.add_argument("--tasks", action="store_true", help="let tasks read (small.batch.max.offsets=0)")
    parser.add_argument("--to", type=Path, default=Path("docs/pictures/micro-batch-trace.svg"))
    given = parser.parse_args()
    with tempfile.NamedTemporaryFile("r", prefix="eoslog-trace-") as notes:
        os.environ[FILE] = notes.name
        with ExitStack() as stack:
            bench = stack.enter_context(Bench(given.kafka or Path(), Path(".peers/spark-kafka-4.2.0")))
            if given.light:
                stack.enter_context(bench.light_checkpoints())
            bench.spark.dataSource.register(Traced)
            more = {"small.batch.max.offsets": "0"} if given.tasks else {}
            on = bench.peer if given.kafka else bench.own
            found = traced_batches(bench, Traced.name(), on, BATCHES, more)
        lines = [json.loads(line) for line in notes]
    found.sort(key=lambda one: float(one["durationMs"]["triggerExecution"]))
    chosen = found[len(found) // 2]
    bars = bars_of(chosen, lines)
    where = "Apache Kafka" if given.kafka else "the bundled broker"
    took = chosen["durationMs"]["triggerExecution"]
    title = f"A micro-batch of {chosen['numInputRows']} rows on {where}: {took} ms"
    print(title, told(bars), sep="\n")
    draw(bars, title, given.to)


if __name__ == "__main__":
    main()
