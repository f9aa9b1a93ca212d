"""The results drawn: throughput over record size, latency over trigger; ours and peers in one chart each."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "eoslog"  # the same results give the same file
mpl.rcParams["svg.fonttype"] = "none"

from matplotlib import pyplot as plt  # noqa: E402  # after the backend is chosen
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.ticker import NullFormatter, StrMethodFormatter  # noqa: E402

from benchmarks.lines import Result  # noqa: E402

_OURS, _THEIRS, _FLOOR = "#0b6e4f", "#b5541c", "#8a8a8a"
_CHARTS = {
    "bench-throughput-spark.svg": (
        "Spark: throughput over record size",
        ("spark-source", "spark-sink-batch", "spark-sink-stream", "spark-copy", "all-in-one"),
    ),
    "bench-throughput-broker.svg": (
        "Broker, confluent-kafka idempotent producer: throughput over record size",
        ("broker-produce", "broker-sizes"),
    ),
    "bench-latency.svg": ("Age of a record when it is readable in the sink, over the trigger", ("delay",)),
    "bench-batch-sizes.svg": ("A micro-batch of a copy, over its rows", ("batch-sizes",)),
}
_STYLES = ("-", "--", ":", "-.", (0, (1, 3)))
_IDEMPOTENT = "idempotent"


def draw(results: list[Result], directory: Path) -> list[tuple[str, str]]:
    """The charts that there are results for; returns file names and what they show."""
    directory.mkdir(exist_ok=True)
    drawn = []
    for name, (title, lines) in _CHARTS.items():
        mine = [one for one in results if one.line in lines and one.x is not None and _fits(one)]
        if not mine:
            continue
        figure, axes = plt.subplots(figsize=(8, 5))
        _plot(axes, mine, lines)
        latency = name.startswith("bench-latency")
        axes.set_title(title, fontsize=11)
        batches = name.startswith("bench-batch-sizes")
        axes.set_xlabel("trigger, s" if latency else "rows" if batches else "record size, bytes")
        axes.set_ylabel("ms, median" if latency or batches else "records/s, median")
        if latency:
            axes.set_ylim(bottom=0)
        else:
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xticks(sorted({one.x for one in mine if one.x is not None}))
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
        figure.savefig(directory / name, metadata={"Date": None}, bbox_inches="tight")
        plt.close(figure)
        drawn.append((name, title))
    return drawn


def _fits(result: Result) -> bool:
    return not result.line.startswith("broker") or _IDEMPOTENT in result.work


def _plot(axes: Axes, results: list[Result], lines: tuple[str, ...]) -> None:
    """A line for each subject of each kind of work, with the spread of its turns."""
    groups: dict[tuple[str, str], set[tuple[float, float, float, float]]] = {}
    for result in results:
        group = (
            "" if result.line in ("delay", "batch-sizes", "broker-produce", "broker-sizes") else result.line
        )
        for figure in result.figures:
            point = (result.x or 0.0, figure.middle, min(figure.values), max(figure.values))
            groups.setdefault((group, figure.subject), set()).add(point)
    for (group, subject), points in groups.items():
        x, middle, low, high = zip(*sorted(points), strict=True)
        down = [m - one for m, one in zip(middle, low, strict=True)]
        up = [one - m for m, one in zip(middle, high, strict=True)]
        axes.errorbar(
            x, middle, yerr=(down, up), label=f"{group}: {subject}".removeprefix(": "), capsize=3, marker="o",
            color=_OURS if subject.startswith("eoslog") else _FLOOR if "nothing" in subject else _THEIRS,
            linestyle=_STYLES[lines.index(group) if group else 0],
        )  # fmt: skip
