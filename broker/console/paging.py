"""Long lists: those that hold a text, sorted, in pages by name or cut where there are too many. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, TypeVar

Item = TypeVar("Item")
Row = dict[str, Any]

MOST = 200
"""The most of a list in one answer."""

MOST_LOOKED_AT = 2000
"""Names of a list that are looked at for one answer: where more match, they are sorted by name alone."""

NAME = "name"


@dataclass(frozen=True)
class Want:
    """What is wanted of a list; `fold`: a line for what each sink made, `sink`: only what this one made."""

    after: str = ""
    contains: str = ""
    limit: int = MOST
    sort: str = NAME
    down: bool = False
    fold: bool = False
    sink: str = ""


def matching(items: Iterable[Item], name: Callable[[Item], str], contains: str) -> list[Item]:
    """Those whose names hold a text, upper or lower case, as it is or quoted as sinks quote their ids."""
    plain = contains.lower()
    quoted = plain.replace("%", "%25").replace("/", "%2f")
    return [item for item in items if plain in name(item).lower() or quoted in name(item).lower()]


def chosen(items: Iterable[Item], name: Callable[[Item], str], want: Want) -> tuple[list[Item], str | None]:
    """Of a list by name a page, and where the next one begins; of one in another order all, by name."""
    if want.sort == NAME and not want.down:
        return page(items, name, after=want.after, limit=want.limit)
    if want.sort == NAME:
        return sorted(items, key=name, reverse=True)[: want.limit], None
    return sorted(items, key=name), None


def arranged(rows: Iterable[Row], want: Want) -> list[Row]:
    """Rows of what was `chosen`: the first ones in the order that is wanted, unknown values last."""
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
    """The first `limit` items by name, of those after `after` that hold `contains` (upper or lower case).

    And the name to go on after, None at the end.
    """
    wanted = contains.lower()
    left = (item for item in items if name(item) > after and wanted in name(item).lower())
    found = nsmallest(min(limit, MOST) + 1, left, key=name)
    more = len(found) > min(limit, MOST)
    found = found[:-1] if more else found
    return found, name(found[-1]) if more else None
