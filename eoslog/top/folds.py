"""Shortens long lists: one line for what a sink made; other names share lines by prefix. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from eoslog.top.columns import GROUPS, TOPICS, TRANSACTIONS, Row, Table
from eoslog.top.figures import Figures

DEEPEST = 4
"""The most words in a prefix."""

_WORD = re.compile(r"[^-._/: ]*[-._/: ]")
_NUMBERED = re.compile(r"(.*\D)\d+")


@dataclass(frozen=True)
class Fold:
    """A line for one name, or for several with a common prefix; `places` are their indexes."""

    label: str
    places: tuple[int, ...]


def fit(names: Sequence[str], room: int) -> list[Fold]:
    """Lines for these names, in their order: at most `room`, if prefixes allow that.

    The first names have a line each: half of the lines, or more if there is room. Those after them share
    lines by the longest prefix that fits. If prefixes neither fit nor save half of the lines, every name has
    its line.
    """
    alone = [Fold(name, (place,)) for place, name in enumerate(names)]
    if len(names) <= room:
        return alone
    prefixes = {depth: [_prefix(name, depth) for name in names] for depth in range(1, DEEPEST + 1)}
    left = {depth: _distinct_from(found) for depth, found in prefixes.items()}
    half = room // 2
    depth = max((depth for depth, lines in left.items() if half + lines[half] <= room), default=1)
    first = max((at for at, lines in enumerate(left[depth]) if at + lines <= room), default=0)
    if first + left[depth][first] > max(room, len(names) // 2):
        return alone
    shared: dict[str, list[int]] = {}
    for place in range(first, len(names)):
        shared.setdefault(prefixes[depth][place], []).append(place)
    return alone[:first] + [_fold(names, prefix, places) for prefix, places in shared.items()]


def _fold(names: Sequence[str], prefix: str, places: Sequence[int]) -> Fold:
    label = f"{prefix}* ({len(places)})" if len(places) > 1 else names[places[0]]
    return Fold(label, tuple(places))


def _prefix(name: str, words: int) -> str:
    """The first words of a name, each with its separator; a name of one word without its number."""
    found = _WORD.findall(name)[:words]
    if found:
        return "".join(found)
    numbered = _NUMBERED.fullmatch(name)
    return numbered[1] if numbered else name


def _distinct_from(prefixes: Sequence[str]) -> list[int]:
    """For each place, the number of different prefixes from there on."""
    seen: set[str] = set()

    def more(counted: int, prefix: str) -> int:
        seen.add(prefix)
        return len(seen)

    return list(accumulate(reversed(prefixes), more, initial=0))[::-1]


def sinks_folded(page: Figures) -> Figures:
    """The page with one line for each sink, and without the groups and transactions that sinks made."""
    return replace(
        page,
        groups=[row for row in page.groups if row["sink"] is None],
        transactions=[row for row in page.transactions if row["sink"] is None],
    )


def sinks_unfolded(page: Figures) -> Figures:
    """The page with what sinks made among all the rest, and no lines for sinks."""
    return replace(page, sinks=[])


def fitted(page: Figures, rooms: Mapping[str, int]) -> Figures:
    """Let topics, groups and open transactions share lines if `rooms`, by title, has too few for them."""
    shared = {
        table.page: _fitted(table, getattr(page, table.page), rooms[table.title])
        for table in (TOPICS, GROUPS, TRANSACTIONS)
        if table.title in rooms
    }
    return replace(page, **shared)  # type: ignore[arg-type]  # these fields are lists of rows


def _fitted(table: Table, rows: list[Row], room: int) -> list[Row]:
    return [
        rows[fold.places[0]]
        if len(fold.places) == 1
        else table.together(fold.label, [rows[at] for at in fold.places])
        for fold in fit([table.name(row) for row in rows], room)
    ]
