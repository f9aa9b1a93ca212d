"""How commands print: tables, plain columns, JSON, and a bar while they work."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

if TYPE_CHECKING:
    from rich.progress import Progress

# -- results ---------------------------------------------------------------------------------------
# How commands print: a table on a terminal, plain columns into a pipe, one JSON document for programs.


Row = Mapping[str, Any]


def show(rows: Sequence[Row], columns: Sequence[str], *, as_json: bool) -> None:
    """Print rows under the columns' names; as JSON with all fields of the rows."""
    if as_json:
        show_json(list(rows))
    elif sys.stdout.isatty():
        _show_table(rows, columns)
    else:
        _show_plain(rows, columns)


def show_json(value: Any, indent: int | None = 2) -> None:
    """Print a value as one JSON document, on one line without `indent`. Escapes bytes that are not text."""
    click.echo(json.dumps(value, indent=indent, default=_as_text, ensure_ascii=False))


def text_of(value: Any) -> str:
    """A cell: empty for None, commas between a list's values, bytes as text where they are text."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(map(text_of, value)) or "-"
    return _as_text(value)


def several(number: int, noun: str) -> str:
    """`1 row`, `1,234 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _as_text(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)


def _title(column: str) -> str:
    return column.upper().replace("_", "-")


def _show_plain(rows: Sequence[Row], columns: Sequence[str]) -> None:
    lines = [[_title(column) for column in columns]]
    lines += [[text_of(row.get(column)) for column in columns] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _show_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    for column in columns:
        numbers = bool(rows) and all(isinstance(row.get(column), int) for row in rows)
        table.add_column(_title(column), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(text_of(row.get(column))) for column in columns))
    Console().print(table)


# -- progress --------------------------------------------------------------------------------------
# Shows the progress of long work: a bar on standard error if that is a terminal, otherwise nothing.


class ProgressListener(Protocol):
    """Is notified of the progress of work."""

    def begin(self, what: str, total: int) -> None:
        """A phase of `total` steps begins."""

    def advance(self, steps: int) -> None:
        """`steps` more steps are done."""


class _Quiet:
    """Shows nothing."""

    def begin(self, what: str, total: int) -> None:
        """Do nothing."""

    def advance(self, steps: int) -> None:
        """Do nothing."""


class _Bar:
    """One line for each phase."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", visible=False)
        self._total = 0

    def begin(self, what: str, total: int) -> None:
        """End the previous phase, and show the next."""
        self._progress.update(self._task, completed=self._total)
        self._total = max(total, 1)
        self._task = self._progress.add_task(what, total=self._total)

    def advance(self, steps: int) -> None:
        """Move the bar."""
        self._progress.advance(self._task, steps)


@contextmanager
def shown(*, sizes: bool = False, quiet: bool = False) -> Iterator[ProgressListener]:
    """A listener that shows progress while the context lasts, unless `quiet`. `sizes`: steps are bytes."""
    if quiet or not sys.stderr.isatty():
        yield _Quiet()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed

    done = DownloadColumn() if sizes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), done, Elapsed())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress)
