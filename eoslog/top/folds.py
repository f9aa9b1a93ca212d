"""Shortens long lists: one line for what a sink made; other names share lines by prefix. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeVar

from eoslog.top.rows import Age, Figures, Lag, Row

Item = TypeVar("Item")

DEEPEST = 4
"""The most words in a prefix."""
MIXED = "mixed"
"""Shown for several values that differ."""

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
        groups=[lag for lag in page.groups if lag.sink is None],
        transactions=[age for age in page.transactions if age.sink is None],
    )


def sinks_unfolded(page: Figures) -> Figures:
    """The page with what sinks made among all the rest, and no lines for sinks."""
    return replace(page, sinks=[])


def fitted(page: Figures, rooms: Mapping[str, int]) -> Figures:
    """Let topics, groups and open transactions share lines if `rooms`, by title, has too few for them."""
    return replace(
        page,
        topics=_fitted(page.topics, rooms.get("topics"), lambda row: row.name, _rows),
        groups=_fitted(page.groups, rooms.get("groups"), lambda lag: lag.name, _lags),
        transactions=_fitted(
            page.transactions, rooms.get("open transactions"), lambda age: age.transactional_id, _ages
        ),
    )


def _fitted(
    items: list[Item],
    room: int | None,
    name: Callable[[Item], str],
    together: Callable[[str, list[Item]], Item],
) -> list[Item]:
    folds = fit([name(item) for item in items], len(items) if room is None else room)
    return [
        items[fold.places[0]]
        if len(fold.places) == 1
        else together(fold.label, [items[at] for at in fold.places])
        for fold in folds
    ]


def _rows(label: str, rows: list[Row]) -> Row:
    return Row(
        label,
        sum(row.partitions for row in rows),
        sum(row.records for row in rows),
        _sum([row.size for row in rows]),
        _sum([row.records_rate for row in rows]),
        _sum([row.bytes_rate for row in rows]),
        sum(row.held for row in rows),
    )


def _lags(label: str, lags: list[Lag]) -> Lag:
    state, kind = _common(lag.state for lag in lags), _common(lag.kind for lag in lags)
    return Lag(label, state, kind, sum(lag.partitions for lag in lags), _sum([lag.behind for lag in lags]))


def _ages(label: str, ages: list[Age]) -> Age:
    oldest = max((age.seconds for age in ages if age.seconds is not None), default=None)
    return Age(label, _common(age.state for age in ages), oldest, sum(age.partitions for age in ages))


Number = TypeVar("Number", int, float)


def _sum(numbers: Sequence[Number | None]) -> Number | None:
    """The sum of the known numbers; None if none is known."""
    known = [number for number in numbers if number is not None]
    return sum(known[1:], known[0]) if known else None


def _common(texts: Iterable[str]) -> str:
    found = set(texts)
    return found.pop() if len(found) == 1 else MIXED
