"""Long lists in pages: by name, after the last one shown, those that hold a text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import TypeVar

Item = TypeVar("Item")

MOST = 200
"""The most of a list in one answer."""


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
