"""`eoslog top`: the command line, and the loop of the live view."""

from __future__ import annotations

import dataclasses
import sys
import time

import click

from eoslog.commands.output import show_json
from eoslog.commands.session import Session, cluster_command
from eoslog.connector.errors import EoslogError
from eoslog.protocol.errors import KafkaError
from eoslog.top.figures import SORTS, Figures, figures
from eoslog.top.look import Look, look
from eoslog.top.text import Table, summary, tables

_SORT_KEYS = {"r": "records", "b": "bytes", "s": "size", "h": "held", "n": "name"}


@dataclasses.dataclass(frozen=True)
class Shown:
    """What the keys choose."""

    sort: str
    internal: bool
    over: bool = False
    now: bool = False
    """Look again without waiting."""

    def pressed(self, key: str) -> Shown:
        """What is chosen after a key."""
        if key in _SORT_KEYS:
            return dataclasses.replace(self, sort=_SORT_KEYS[key])
        if key == "i":
            return dataclasses.replace(self, internal=not self.internal)
        return dataclasses.replace(self, over=key in ("q", "Q"), now=key == " ")


@click.command()
@click.option(
    "--interval", type=click.FloatRange(0.1), default=2.0, show_default=True, metavar="SECONDS",
    help="From one look to the next.",
)  # fmt: skip
@click.option(
    "--sort", type=click.Choice(list(SORTS)), default="records", show_default=True, help="Of topics."
)
@click.option("--internal", is_flag=True, help="Show topics that brokers keep for themselves.")
@click.option("--once", is_flag=True, help="Print one page and end: --batch -n 1.")
@click.option("--batch", is_flag=True, help="Print pages, one an interval, instead of a live view.")
@click.option("-n", "pages", type=click.IntRange(1), help="End after so many pages.  [default: go on]")
@cluster_command
def command(
    session: Session, interval: float, sort: str, internal: bool, once: bool, batch: bool, pages: int | None
) -> None:
    """Watch brokers, topics, groups and open transactions, as top does a machine. Ctrl-C ends it.

    Rates are taken over one interval. Keys of the live view: q ends it, r b s h n sort topics (by records and
    bytes a second, size, what open transactions hold back, name), i shows internal topics, space looks now.
    """
    shown = Shown(sort, internal)
    try:
        if once or batch or session.as_json:
            _print_pages(session, interval, 1 if once else pages, shown)
        elif not sys.stdout.isatty():
            raise click.UsageError("standard output is no terminal: give --once or --batch")
        else:
            _live(session, interval, pages, shown)
    except KeyboardInterrupt:
        return


def _print_pages(session: Session, interval: float, left: int | None, shown: Shown) -> None:
    """Pages as text, or with --json a document a line; each with the rates of the interval before it."""
    before, first = look(session.cluster), True
    while left is None or left > 0:
        time.sleep(interval)
        seen = look(session.cluster)
        page = figures(seen, before, sort=shown.sort, internal=shown.internal)
        if session.as_json:
            show_json(dataclasses.asdict(page), indent=None)
        else:
            click.echo(as_text(page) if first else "\n" + as_text(page))
        sys.stdout.flush()
        before, first = seen, False
        left = None if left is None else left - 1


def as_text(page: Figures) -> str:
    """A page in plain columns."""
    return "\n".join([summary(page), *page.problems, *map(_as_text, tables(page))])


def _as_text(table: Table) -> str:
    cells = [[column.upper() for column in table.columns], *table.rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(["", table.title, *(line.rstrip() for line in lines)])


def _live(session: Session, interval: float, left: int | None, shown: Shown) -> None:
    from rich.console import Console
    from rich.live import Live

    from eoslog.top.keys import pressed_keys
    from eoslog.top.view import picture

    console = Console()
    seen, before, note = look(session.cluster), None, ""
    with pressed_keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while not shown.over:
            due = time.monotonic() + interval
            shown = dataclasses.replace(shown, now=False)
            while not (shown.over or shown.now or time.monotonic() >= due):
                page = figures(seen, before, sort=shown.sort, internal=shown.internal)
                live.update(picture(page, lines=console.height, sort=shown.sort, note=note), refresh=True)
                shown = shown.pressed(pressed(due - time.monotonic()))
            left = None if left is None else left - 1
            if left == 0 or shown.over:
                return
            latest, note = _look_again(session, seen)
            if latest is not seen:
                seen, before = latest, seen


def _look_again(session: Session, seen: Look) -> tuple[Look, str]:
    """A new look; where the cluster cannot be asked just now, the old one and why."""
    try:
        return look(session.cluster), ""
    except (EoslogError, KafkaError) as error:
        return seen, f"the cluster did not answer, these are the figures before: {error}"
