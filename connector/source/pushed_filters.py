"""What the filters that Spark pushes down say of topics, partitions, offsets and times. Pure.

Spark gives filters that are all to hold. A filter on topic or partition chooses partitions; one on offset or
timestamp bounds what is read of each. These four columns are never null. A filter is exact if the reader
returns no row that fails it; Spark has to apply all others again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from eoslog.connector.spark.versions import PLANS_EACH_SCAN

_CHOOSING: dict[str, type] = {"topic": str, "partition": int}
"""Columns that have one value in all of a partition."""
_COMPARED: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Span(NamedTuple):
    """Whole numbers from `first` to below `behind`; None: no bound."""

    first: int | None = None
    behind: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no number is in it."""
        return self.first is not None and self.behind is not None and self.first >= self.behind

    def within(self, other: Span) -> Span:
        """The numbers in both."""
        firsts = [at for at in (self.first, other.first) if at is not None]
        behinds = [at for at in (self.behind, other.behind) if at is not None]
        return Span(max(firsts, default=None), min(behinds, default=None))


NOTHING = Span(0, 0)

_SPANS: dict[type[Filter], Callable[[int], Span]] = {
    EqualTo: lambda at: Span(at, at + 1),
    EqualNullSafe: lambda at: Span(at, at + 1),
    GreaterThan: lambda at: Span(at + 1),
    GreaterThanOrEqual: Span,
    LessThan: lambda at: Span(None, at),
    LessThanOrEqual: lambda at: Span(None, at + 1),
}


class Pushed(NamedTuple):
    """Filters as a read uses them. `times` are milliseconds since 1970."""

    choosing: tuple[Filter, ...] = ()
    offsets: Span = Span()
    times: Span = Span()

    def chooses(self, topic: str, partition: int) -> bool:
        """Whether rows of a partition may pass."""
        value = {"topic": topic, "partition": partition}
        return all(_holds(one, value[_column(one)]) is True for one in self.choosing)


def push(filters: Sequence[Filter]) -> tuple[Pushed, list[Filter]]:
    """What the filters say together, and those that Spark has to apply again, in their order."""
    pushed, left = Pushed(), []
    for one in filters:
        pushed, exact = _push_one(pushed, one)
        if not exact:
            left.append(one)
    return pushed, left


def _push_one(pushed: Pushed, one: Filter) -> tuple[Pushed, bool]:
    column = _column(one)
    if column in _CHOOSING:
        if not _is_choice(one, _CHOOSING[column]):
            return pushed, False
        return pushed._replace(choosing=(*pushed.choosing, one)), True
    if column not in ("offset", "timestamp"):
        return pushed, False
    found = _span(one, _whole if column == "offset" else _microseconds)
    if found is None:
        return pushed, False
    span, exact = found
    if column == "offset":
        return pushed._replace(offsets=pushed.offsets.within(span)), exact
    times = Span(*(None if at is None else -(-at // 1000) for at in span))
    return pushed._replace(times=pushed.times.within(times)), span in (Span(), NOTHING)


def _column(one: Filter) -> str:
    """The column that a filter is about; "" if it is none of the source's."""
    while isinstance(one, Not):
        one = one.child
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _is_choice(one: Filter, kind: type) -> bool:
    """Whether `_holds` can judge a filter on a column of this type."""
    if isinstance(one, Not):
        return _is_choice(one.child, kind)
    if isinstance(one, IsNull | IsNotNull):
        return True
    if isinstance(one, In):
        return all(value is None or type(value) is kind for value in one.value)
    value = getattr(one, "value", None)
    return (type(one) in _COMPARED or isinstance(one, EqualNullSafe)) and (
        value is None or type(value) is kind
    )


def _holds(one: Filter, value: Any) -> bool | None:
    """Whether a value, which is not null, passes a filter; None: SQL's null, with which no row passes."""
    if isinstance(one, Not):
        inner = _holds(one.child, value)
        return None if inner is None else not inner
    if isinstance(one, IsNull | IsNotNull):
        return isinstance(one, IsNotNull)
    if isinstance(one, In):
        return True if value in one.value else None if None in one.value else False
    wanted = one.value  # type: ignore[attr-defined]  # _is_choice has looked at its class
    if isinstance(one, EqualNullSafe):
        return bool(value == wanted)
    return None if wanted is None else _COMPARED[type(one)](value, wanted)


def _span(one: Filter, number: Callable[[Any], int | None]) -> tuple[Span, bool] | None:
    """The numbers that may pass, and whether all of them do. None: not known."""
    if isinstance(one, IsNull | IsNotNull):
        return (Span() if isinstance(one, IsNotNull) else NOTHING), True
    values = one.value if isinstance(one, In) else [getattr(one, "value", None)]
    numbers = {number(value) for value in values if value is not None}
    if None in numbers or not (isinstance(one, In) or type(one) in _SPANS):
        return None
    known = sorted(at for at in numbers if at is not None)
    if not known:
        return NOTHING, True  # compared with null alone
    if isinstance(one, In):
        return Span(known[0], known[-1] + 1), known[-1] - known[0] + 1 == len(known)
    return _SPANS[type(one)](known[0]), True


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _microseconds(value: Any) -> int | None:
    """Microseconds since 1970, as Spark counts. None for a time without zone, which means another moment in
    each."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)


class PushFilters:
    """What Spark calls as the reader's method; it is none. Spark refuses to read with a class that has the
    method, unless the session has spark.sql.python.filterPushdown.enabled, which is false by default. It
    looks at the attribute `__func__`. Without the setting it calls no pushFilters, and the rows are the same.

    `pushed`: what the filters say, None if nothing is pushed down.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, wanted: str) -> None:
        """`wanted`: the option filter.push.down."""
        self._wanted = wanted
        self.pushed: Pushed | None = None

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """Note the filters that are understood, and return those that Spark has to apply again."""
        if self._wanted == "false" or (self._wanted == "auto" and not PLANS_EACH_SCAN):
            return filters
        self.pushed, left = push(filters)
        return left
