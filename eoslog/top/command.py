"""`eoslog top`: the command line, the loop of the live view, and the keys pressed in it."""

from __future__ import annotations

import dataclasses
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from eoslog.commands.output import show_json
from eoslog.commands.session import CommandSession, cluster_command
from eoslog.errors import EoslogError
from eoslog.protocol.errors import KafkaError
from eoslog.top.cluster_snapshot import ClusterSnapshot, look
from eoslog.top.columns import DEFAULT, SORTS, DisplayOptions
from eoslog.top.figures import as_text, figures

# -- keys ------------------------------------------------------------------------------------------
# Reads single keys from a terminal, without waiting for the end of a line.


Pressed = Callable[[float], str]
"""Waits this many seconds for a key. Returns "" if none was pressed, or one without a meaning here."""

ESCAPE, END = "\x1b", "\x04"
_SOON_S = 0.02  # the bytes of one key arrive together
_LEADING = ((0xF0, 3), (0xE0, 2), (0xC0, 1))
"""The least first byte of a character in UTF-8, and how many more bytes follow."""


@contextmanager
def pressed_keys() -> Iterator[Pressed]:
    """Reads keys of standard input while the context lasts; without a terminal it only waits."""
    if not sys.stdin.isatty():
        yield _wait
        return
    place = sys.stdin.fileno()
    before = termios.tcgetattr(place)
    try:
        tty.setcbreak(place)
        yield lambda seconds: _key(place, seconds)
    finally:
        termios.tcsetattr(place, termios.TCSADRAIN, before)


def _wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _key(place: int, seconds: float) -> str:
    if not _is_ready(place, seconds):
        return ""
    first = os.read(place, 1)
    if not first:
        return END  # the terminal is gone: nobody is watching
    if first == ESCAPE.encode():
        return _escaped(place)
    more = next((more for most, more in _LEADING if first[0] >= most), 0)
    rest = os.read(place, more) if more and _is_ready(place, _SOON_S) else b""
    return (first + rest).decode(errors="replace")


def _escaped(place: int) -> str:
    """Esc, or "" for a key of several bytes, such as an arrow."""
    if not _is_ready(place, _SOON_S):
        return ESCAPE
    os.read(place, 64)
    return ""


def _is_ready(place: int, seconds: float) -> bool:
    return bool(select.select([place], [], [], max(seconds, 0))[0])


# -- the command -----------------------------------------------------------------------------------
# `eoslog top`: the command line, and the loop of the live view.


_SORT_KEYS = {
    "r": "records", "b": "bytes", "s": "size", "h": "held", "n": "name", "l": "lag", "a": "age", "t": "state",
}  # fmt: skip
_ENTER, _BACK = ("\r", "\n"), ("\x7f", "\b")


@dataclasses.dataclass(frozen=True)
class Shown:
    """What the user has chosen by keys."""

    wish: DisplayOptions = DEFAULT
    typing: bool = False
    """The user is typing the filter."""
    over: bool = False
    now: bool = False
    """Ask the cluster again without waiting."""

    def pressed(self, key: str) -> Shown:
        """The choice after a key was pressed."""
        if self.typing:
            return self._typed(key)
        if key in _SORT_KEYS:
            return self._wishing(self.wish.sorted_by(_SORT_KEYS[key]))
        if key == "i":
            return self._wishing(dataclasses.replace(self.wish, internal=not self.wish.internal))
        if key == "f":
            return self._wishing(dataclasses.replace(self.wish, unfolded=not self.wish.unfolded))
        if key == ESCAPE:
            return self._wishing(dataclasses.replace(self.wish, text=""))
        return dataclasses.replace(self, typing=key == "/", over=key in ("q", "Q", END), now=key == " ")

    def _typed(self, key: str) -> Shown:
        text = self.wish.text
        if key in _ENTER or key == END:
            return dataclasses.replace(self, typing=False, over=key == END)
        if key == ESCAPE:
            return dataclasses.replace(self, typing=False, wish=dataclasses.replace(self.wish, text=""))
        changed = text[:-1] if key in _BACK else text + key if key.isprintable() else text  # "" is printable
        return self._wishing(dataclasses.replace(self.wish, text=changed))

    def _wishing(self, wish: DisplayOptions) -> Shown:
        return dataclasses.replace(self, wish=wish, now=False)


@click.command()
@click.option(
    "--interval", type=click.FloatRange(0.1), default=2.0, show_default=True, metavar="SECONDS",
    help="Time from one update to the next.",
)  # fmt: skip
@click.option(
    "--sort", type=click.Choice(SORTS), multiple=True, metavar="COLUMN",
    help=f"Sort tables with this column: {', '.join(SORTS)}; repeatable.  "
    "[default: topics by records, groups by lag, transactions by age]",
)  # fmt: skip
@click.option("--filter", "text", default="", metavar="TEXT", help="Only names that contain this.")
@click.option("--all", "unfolded", is_flag=True, help="A line for each name that sinks made, too.")
@click.option("--internal", is_flag=True, help="The brokers' own topics too.")
@click.option("--once", is_flag=True, help="Print one page and exit: --batch -n 1.")
@click.option("--batch", is_flag=True, help="Print a page each interval.")
@click.option("-n", "pages", type=click.IntRange(1), help="Exit after this many pages.  [default: never]")
@cluster_command
def command(
    session: CommandSession,
    interval: float, sort: tuple[str, ...], text: str, unfolded: bool, internal: bool,
    once: bool, batch: bool, pages: int | None,
) -> None:  # fmt: skip
    """Watch brokers, topics, groups and open transactions, as top does a machine. Ctrl-C ends it.

    Rates are averages over one interval. Keys: q ends it, / starts a filter, f shows what sinks made name by
    name, i shows internal topics, space updates now. Sort by r records, b bytes, s size, h what open
    transactions hold back, l lag, a age, t state, n name.
    """
    wish = DisplayOptions(internal=internal, text=text, unfolded=unfolded)
    for column in sort:
        wish = wish.sorted_by(column)
    try:
        if once or batch or session.as_json:
            _print_pages(session, interval, 1 if once else pages, wish)
        elif not sys.stdout.isatty():
            raise click.UsageError("standard output is not a terminal: give --once or --batch")
        else:
            _live(session, interval, pages, Shown(wish))
    except KeyboardInterrupt:
        return


def _print_pages(session: CommandSession, interval: float, left: int | None, wish: DisplayOptions) -> None:
    """Print pages as text, or with --json one document a line, each with the rates since the one before."""
    before, first = look(session.cluster), True
    while left is None or left > 0:
        time.sleep(interval)
        seen = look(session.cluster)
        page = figures(seen, before, wish)
        if session.as_json:
            show_json(dataclasses.asdict(page), indent=None)
        else:
            click.echo(("" if first else "\n") + as_text(page, wish.unfolded))
        sys.stdout.flush()
        before, first = seen, False
        left = None if left is None else left - 1


def _live(session: CommandSession, interval: float, left: int | None, shown: Shown) -> None:
    from rich.console import Console
    from rich.live import Live

    from eoslog.top.view import picture

    console = Console()
    seen, before, note = look(session.cluster), None, ""
    with pressed_keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while not shown.over:
            due = time.monotonic() + interval
            shown = dataclasses.replace(shown, now=False)
            while not (shown.over or shown.now or time.monotonic() >= due):
                page = figures(seen, before, shown.wish)
                drawn = picture(page, lines=console.height, wish=shown.wish, note=note, typing=shown.typing)
                live.update(drawn, refresh=True)
                shown = shown.pressed(pressed(due - time.monotonic()))
            left = None if left is None else left - 1
            if left == 0 or shown.over:
                return
            latest, note = _look_again(session, seen)
            if latest is not seen:
                seen, before = latest, seen


def _look_again(session: CommandSession, seen: ClusterSnapshot) -> tuple[ClusterSnapshot, str]:
    """A new snapshot. If the cluster cannot be asked now, the old one and the reason."""
    try:
        return look(session.cluster), ""
    except (EoslogError, KafkaError) as error:
        return seen, f"the cluster did not answer, these are the earlier figures: {error}"
