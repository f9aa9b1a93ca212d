"""Filters as Spark pushes them down, drawn at random, each with what SQL says of a row."""

import operator
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from hypothesis import strategies as st
from pyspark.sql import datasource as ds


class Row(NamedTuple):
    """The columns that filters may be about. `time` in microseconds since 1970."""

    topic: str
    partition: int
    offset: int
    time: int
    value: bytes | None = None


class Drawn(NamedTuple):
    """A filter and SQL's answer for a row: None is null."""

    filter: ds.Filter
    passes: Callable[[Row], bool | None]


COLUMNS = {"topic": 0, "partition": 1, "offset": 2, "timestamp": 3, "value": 4}
COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ds.EqualTo: operator.eq,
    ds.GreaterThan: operator.gt,
    ds.GreaterThanOrEqual: operator.ge,
    ds.LessThan: operator.lt,
    ds.LessThanOrEqual: operator.le,
}


def moment(microseconds: int) -> datetime:
    """A time as Spark gives it to Python."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def passing(rows: Sequence[Row], drawn: Sequence[Drawn]) -> list[Row]:
    """The rows for which all filters are true."""
    return [row for row in rows if all(one.passes(row) is True for one in drawn)]


def drawn_filters(
    topics: Sequence[str], offsets: st.SearchStrategy[int], times: st.SearchStrategy[int]
) -> st.SearchStrategy[list[Drawn]]:
    """One to three filters on the columns. `times` in microseconds."""
    values: dict[str, st.SearchStrategy[Any]] = {
        "topic": st.sampled_from([*topics, "other", ""]),
        "partition": st.integers(-1, 4),
        "offset": offsets,
        "timestamp": times,
        "value": st.sampled_from([b"", b"1"]),
    }
    weights = ["topic", "partition", "partition", "offset", "offset", *["timestamp"] * 4, "value"]
    one = st.sampled_from(weights).flatmap(lambda column: _on(column, values[column]))
    return st.lists(one, min_size=1, max_size=3)


def _on(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Drawn]:
    plain = st.one_of(
        st.builds(lambda kind, at: _compared(column, kind, at), st.sampled_from(list(COMPARISONS)), values),
        st.builds(lambda kind: _compared(column, kind, None), st.sampled_from(list(COMPARISONS))),
        st.builds(lambda at: _null_safe(column, at), st.none() | values),
        st.builds(lambda some: _in(column, some), st.lists(st.none() | values, min_size=1, max_size=4)),
        st.builds(lambda null: _null(column, null), st.booleans()),
    )
    texts = st.sampled_from(list(TEXTS))
    if column == "topic":
        plain = plain | st.builds(_text, texts, values.map(lambda text: text[:3]))
    return st.builds(lambda one, turned: _not(one) if turned else one, plain, st.booleans())


def _literal(column: str, value: Any) -> Any:
    return moment(value) if column == "timestamp" and value is not None else value


def _compared(column: str, kind: type, value: Any) -> Drawn:
    at, compare = COLUMNS[column], COMPARISONS[kind]

    def passes(row: Row) -> bool | None:
        return None if value is None or row[at] is None else compare(row[at], value)

    return Drawn(kind((column,), _literal(column, value)), passes)


def _null_safe(column: str, value: Any) -> Drawn:
    at = COLUMNS[column]
    return Drawn(ds.EqualNullSafe((column,), _literal(column, value)), lambda row: bool(row[at] == value))


def _in(column: str, some: list[Any]) -> Drawn:
    at = COLUMNS[column]

    def passes(row: Row) -> bool | None:
        if row[at] is None:
            return None
        return (
            True if row[at] in [one for one in some if one is not None] else None if None in some else False
        )

    return Drawn(ds.In((column,), tuple(_literal(column, one) for one in some)), passes)


def _null(column: str, null: bool) -> Drawn:
    at, kind = COLUMNS[column], ds.IsNull if null else ds.IsNotNull
    return Drawn(kind((column,)), lambda row: (row[at] is None) == null)


TEXTS: dict[type, Callable[[str, str], bool]] = {
    ds.StringStartsWith: lambda text, piece: text.startswith(piece),
    ds.StringEndsWith: lambda text, piece: text.endswith(piece),
    ds.StringContains: lambda text, piece: piece in text,
}


def _text(kind: type, text: str) -> Drawn:
    return Drawn(kind(("topic",), text), lambda row: TEXTS[kind](row.topic, text))


def _not(one: Drawn) -> Drawn:
    def passes(row: Row) -> bool | None:
        inner = one.passes(row)
        return None if inner is None else not inner

    return Drawn(ds.Not(one.filter), passes)
