"""The live picture: tables that share the terminal's lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from eoslog.top.figures import Figures
from eoslog.top.text import Table, summary, tables

KEYS = "q quit   r b s h n sort by records, bytes, size, held back, name   i internal topics   space look now"
_FRAME = 4  # lines of a table beside its rows: a blank one, title, head, rule
_AROUND = 3  # lines of summary and keys, and a blank one
_NUMBERS_FROM = {"brokers": 1, "topics": 1, "groups": 3, "open transactions": 2}


def picture(shown: Figures, *, lines: int, sort: str, note: str = "") -> Group:
    """What the terminal shows, in at most so many lines where that is possible."""
    all_tables = [table for table in tables(shown) if table.rows]
    rooms = share([len(table.rows) for table in all_tables], lines - _AROUND - _FRAME * len(all_tables))
    parts: list[RichTable | Text] = [Text(summary(shown), style="bold", no_wrap=True, overflow="ellipsis")]
    for problem in [*([note] if note else []), *shown.problems]:
        parts.append(Text(problem, style="bold red"))
    for table, room in zip(all_tables, rooms, strict=True):
        parts += [Text(), _drawn(table, room, sort)]
    parts.append(Text("\n" + KEYS, style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def share(wanted: Sequence[int], lines: int) -> list[int]:
    """Lines for each of several tables: all it wants if there is room, else a fair part, one at least."""
    given = [0] * len(wanted)
    left = max(lines, len(wanted))
    while left > 0 and (open_ := [n for n, want in enumerate(wanted) if given[n] < want]):
        for n in open_[:left]:
            given[n] += 1
        left -= len(open_[:left])
    return given


def _drawn(table: Table, room: int, sort: str) -> RichTable:
    more = len(table.rows) - room
    if more > 0:
        room = max(room - 1, 1)
        more = len(table.rows) - room
    title = table.title + (f" by {sort}" if table.title == "topics" else "")
    drawn = RichTable(
        box=SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True,
        title=title, title_justify="left", title_style="bold cyan",
    )  # fmt: skip
    for number, column in enumerate(table.columns):
        right = number >= _NUMBERS_FROM[table.title]
        drawn.add_column(
            column,
            justify="right" if right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=None if number else 1,
        )
    for number, row in enumerate(table.rows[:room]):
        drawn.add_row(*map(Text, row), style="yellow" if number in table.alarming else None)
    if more > 0:
        drawn.add_row(Text(f"... and {more} more", style="dim"))
    return drawn
