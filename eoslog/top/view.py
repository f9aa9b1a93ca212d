"""The live view: tables that share the terminal's lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from eoslog.top.columns import DEFAULT, DisplayOptions
from eoslog.top.figures import Figures, TableText, fitted, sinks_folded, sinks_unfolded, summary, tables

KEYS = "q quit / filter f unfold i internal   by: rbsh topics l lag a age t state n name"
MARK = "*"
"""Follows the name of the column that a table is sorted by."""
TYPING = "Enter keeps it  Esc clears it"
_FRAME = 4  # lines of a table in addition to its rows: a blank one, title, head, rule
_DENSE_FRAME = 1  # the head alone, if there are few lines
_FEW = 3  # rows per table; frames become dense if there would be fewer
_AROUND = 3  # the lines of the summary and the keys, and a blank one


def picture(
    shown: Figures, *, lines: int, wish: DisplayOptions = DEFAULT, note: str = "", typing: bool = False
) -> Group:
    """What the terminal shows, in at most `lines` lines if possible."""
    page = sinks_unfolded(shown) if wish.unfolded else sinks_folded(shown)
    notes = [*([note] if note else []), *shown.problems]
    wanted = {table.of.title: len(table.rows) for table in tables(page) if table.rows}
    left = lines - _AROUND - len(notes)
    dense = left - _FRAME * len(wanted) < min(sum(wanted.values()), _FEW * len(wanted))
    left -= (_DENSE_FRAME if dense else _FRAME) * len(wanted)
    rooms = dict(zip(wanted, share(list(wanted.values()), left), strict=True))
    if not wish.unfolded:
        page = fitted(page, rooms)
    parts: list[RichTable | Text] = [Text(summary(shown), style="bold", no_wrap=True, overflow="ellipsis")]
    parts += [Text(problem, style="bold red") for problem in notes]
    for table in tables(page):
        if table.rows:
            parts += [*([] if dense else [Text()]), _drawn(table, rooms[table.of.title], wish, dense)]
    parts.append(Text("\n" + keys(wish, typing), style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def keys(wish: DisplayOptions, typing: bool) -> str:
    """The bottom line: the filter, and what the keys do."""
    if typing:
        return f"/{wish.text}_  {TYPING}"
    said = KEYS.replace("unfold", "fold") if wish.unfolded else KEYS
    return f"filter: {wish.text} (Esc clears it)  {said}" if wish.text else said


def share(wanted: Sequence[int], lines: int) -> list[int]:
    """Lines for each of several tables: all it wants if there is room, else a fair share, at least one."""
    given = [0] * len(wanted)
    left = max(lines, len(wanted))
    while left > 0 and (open_ := [n for n, want in enumerate(wanted) if given[n] < want]):
        for n in open_[:left]:
            given[n] += 1
        left -= len(open_[:left])
    return given


def _drawn(table: TableText, room: int, wish: DisplayOptions, dense: bool) -> RichTable:
    more = len(table.rows) - room
    if more > 0:
        room = max(room - 1, 1)
        more = len(table.rows) - room
    drawn = _framed(table, wish, dense)
    for number, row in enumerate(table.rows[:room]):
        drawn.add_row(*map(Text, row), style="yellow" if number in table.alarming else None)
    if more > 0:
        drawn.add_row(Text(f"... and {more} more", style="dim"))
    return drawn


def _framed(table: TableText, wish: DisplayOptions, dense: bool) -> RichTable:
    """The table without its rows; the column it is sorted by is marked."""
    title, by = table.of.title, wish.order(table.of)
    drawn = RichTable(
        box=None if dense else SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True,
        title=None if dense else f"{title} by {by}" if by else title,
        title_justify="left", title_style="bold cyan", header_style="bold cyan" if dense else "bold",
    )  # fmt: skip
    for number, column in enumerate(table.of.shown):
        drawn.add_column(
            f"{column.head}{MARK}" if by and column.sort == by else column.head,
            justify="left" if column.words else "right",
            no_wrap=True,
            overflow="ellipsis",
            ratio=None if number else 1,
        )
    return drawn
