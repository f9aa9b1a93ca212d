"""Long lists: filtered by a text, sorted, in pages by name, or cut off where they are too long. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, TypeVar

Item = TypeVar("Item")
Row = dict[str, Any]

MOST = 200
"""The most items in one answer."""

MOST_LOOKED_AT = 2000
"""The most items that are sorted by other columns; where more match, they are sorted by name."""

NAME = "name"


@dataclass(frozen=True)
class PageQuery:
    """A list's parameters. `fold`: one line for all items of a sink. `sink`: only the items of this sink."""

    after: str = ""
    contains: str = ""
    limit: int = MOST
    sort: str = NAME
    down: bool = False
    fold: bool = False
    sink: str = ""


def matching(items: Iterable[Item], name: Callable[[Item], str], contains: str) -> list[Item]:
    """The names that contain a text in either case, plain or quoted as in sinks' ids."""
    plain = contains.lower()
    quoted = plain.replace("%", "%25").replace("/", "%2f")
    return [item for item in items if plain in name(item).lower() or quoted in name(item).lower()]


def chosen(
    items: Iterable[Item], name: Callable[[Item], str], want: PageQuery
) -> tuple[list[Item], str | None]:
    """For a list by name: a page, and where the next one begins. For other orders: all, by name."""
    if want.sort == NAME and not want.down:
        return page(items, name, after=want.after, limit=want.limit)
    if want.sort == NAME:
        return sorted(items, key=name, reverse=True)[: want.limit], None
    return sorted(items, key=name), None


def arranged(rows: Iterable[Row], want: PageQuery) -> list[Row]:
    """The rows of `chosen` items, sorted as wanted and cut off; unknown values come last."""
    found, column = list(rows), want.sort
    if column == NAME:
        return found
    known = [row for row in found if row[column] is not None]
    known.sort(key=lambda row: row[column], reverse=want.down)
    return [*known, *(row for row in found if row[column] is None)][: want.limit]


def page(
    items: Iterable[Item],
    name: Callable[[Item], str],
    *,
    after: str = "",
    contains: str = "",
    limit: int = MOST,
) -> tuple[list[Item], str | None]:
    """The first `limit` items by name that come after `after` and contain `contains` (in either case).

    Also returns the name after which the next page begins; None at the end.
    """
    wanted = contains.lower()
    left = (item for item in items if name(item) > after and wanted in name(item).lower())
    found = nsmallest(min(limit, MOST) + 1, left, key=name)
    more = len(found) > min(limit, MOST)
    found = found[:-1] if more else found
    return found, name(found[-1]) if more else None
