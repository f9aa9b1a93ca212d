"""The live view of the demo and its closing table."""

from rich.console import Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.flights.audit import Verdict
from examples.flights.watch import Watch


def live(watch: Watch, total: int, guarantee: str, events: list[str], seconds: float) -> Panel:
    """One picture of the running demo."""
    progress = watch.latest
    bars = Table.grid(padding=(0, 2))
    published = progress.records.get("flights", 0)
    for label, done in [("published", published), *progress.consumed.items()]:
        bars.add_row(label, ProgressBar(total, min(done, total), width=40), f"{done:,} of {total:,}")
    queries = Table(box=None, pad_edge=False)
    for heading in ("query", "batch", "rows", "records written"):
        queries.add_column(heading)
    outputs = {"route": ("flights_late", "flights_other"), "count": ("carrier_counts",)}
    for query, topics in outputs.items():
        written = "  ".join(f"{t} {progress.records.get(t, 0):,}" for t in topics)
        queries.add_row(query, str(watch.batch(query)), f"{watch.rows(query):,}", written)
    state = "" if progress.broker_answers else "  (broker does not answer)"
    title = f"flights, {guarantee}, {seconds:.0f} s{state}"
    return Panel(Group(bars, Text(), queries, Text(), *map(Text, events[-10:])), title=title)


def closing(verdict: Verdict, kills: int, seconds: float, peak_bytes: int, guarantee: str) -> Table:
    """The table with the verdict."""
    table = Table(title=f"audit of {guarantee}", show_header=False)
    rows: list[tuple[str, object]] = [
        ("flights published", f"{verdict.published:,}"),
        ("flights delivered", f"{verdict.flights:,}"),
        ("lost", verdict.lost),
        ("doubled", verdict.doubled),
        ("in the wrong topic", verdict.misrouted),
        ("out of their aircraft's order", verdict.disordered),
        ("damaged", verdict.damaged),
        ("counts", "; ".join(verdict.wrong_counts[:3]) or "equal to a plain computation"),
        ("source offsets in the groups", "; ".join(verdict.uncommitted_offsets) or "at the end"),
        ("kills with SIGKILL", kills),
        ("time, peak memory", f"{seconds:.0f} s, {peak_bytes / 2**30:.1f} GiB"),
    ]
    if verdict.publish_faults:
        rows.append(("published wrongly", "; ".join(verdict.publish_faults[:3])))
    for name, value in rows:
        table.add_row(name, str(value))
    good = "[bold green]every flight exactly once" if verdict.holds else "[bold red]not exactly once"
    table.add_row("[bold]verdict", good)
    return table
