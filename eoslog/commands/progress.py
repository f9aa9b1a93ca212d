"""Shows the progress of long work: a bar on standard error if that is a terminal, otherwise nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress


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
def shown() -> Iterator[ProgressListener]:
    """A listener that shows the progress while the context lasts."""
    if not sys.stderr.isatty():
        yield _Quiet()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress)
