"""What the filters that Spark pushes down say of topics, partitions, offsets and times. Pure.

Spark gives filters that are all to hold. A filter on topic or partition chooses partitions; one on offset or
timestamp bounds what is read of each. These four columns are never null. A filter is exact if the reader
returns no row that fails it; Spark has to apply all others again.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

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

from eoslog.client.admin.topics import list_offsets, newest, topic_configs
from eoslog.connector.offsets.offsets import Offsets
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.connector.spark.versions import PLANS_EACH_SCAN
from eoslog.errors import EoslogError
from eoslog.errors.pages import see
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.topic_partitions import TopicPartition

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


# -- ranges ----------------------------------------------------------------------------------------
# The offsets in which rows may pass the filters that Spark pushed down: what is left of a batch's range.
#
# A time becomes an offset by ListOffsets: the first record that is not older. All records before it are
# older, whatever their order, as Kafka searches for the first segment, batch and record with such a time.
# So a lower bound is safe in every log. Behind it records may be older again, so an upper bound is safe
# only where the brokers set the time. They set it by their clocks, and the topic may have had its
# producers' times earlier: hence CLOCKS_APART_MS, and a look at the record there.


logger = logging.getLogger(__name__)

_SEE = see("a-filter-on-timestamp-is-not-pushed-down")
_TYPE = "message.timestamp.type"
_LOG_APPEND_TIME = 1
_LAST = 2**63 - 1

K = TypeVar("K")
V = TypeVar("V")

CLOCKS_APART_MS = 600_000
"""How far the brokers' clocks may be apart: an upper bound is looked up this much later."""


def narrowed(source: SourceTopics, pushed: Pushed, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
    """The parts of the ranges `start` to `end` that may have rows which pass. Others are left out.

    Look up `end` first: a record that is written after its time was looked up is then behind the range.
    """
    nothing = pushed.offsets.is_empty or pushed.times.is_empty
    chosen = [] if nothing else [tp for tp in end if pushed.chooses(*tp)]
    first, behind = pushed.offsets
    start = {tp: start[tp] if first is None else max(start[tp], first) for tp in chosen}
    end = {tp: end[tp] if behind is None else min(end[tp], behind) for tp in chosen}
    since, until = pushed.times
    if since is not None and since > 0:  # below are ListOffsets' words for the ends
        begins = _begins(source, _not_empty(start, end), since, end)
        start = {tp: max(at, begins.get(tp, at)) for tp, at in start.items()}
    if until is not None and until > 0:
        end = {**end, **_ends(source, _not_empty(start, end), until, end)}
    return start, end


def _not_empty(start: Offsets, end: Offsets) -> list[TopicPartition]:
    return [tp for tp in end if start[tp] < end[tp]]


def _begins(source: SourceTopics, places: list[TopicPartition], since: int, end: Offsets) -> Offsets:
    """Where the first record from `since` on is; the range's end if there is none.

    The answer "none" is not believed alone: Kafka also gives it if that time is only in a segment whose
    records of that time were deleted or compacted away, whatever follows. The partition's largest time has to
    be older, too.
    """
    found = _at(source, places, since)
    none = [tp for tp, at in found.items() if at < 0]
    times = _unless_refused(none, lambda: newest(source.cluster, none))
    older = {tp: end[tp] for tp, at in times.items() if 0 <= at < since}
    return {**{tp: at for tp, at in found.items() if at >= 0}, **older}


def _ends(source: SourceTopics, places: list[TopicPartition], until: int, end: Offsets) -> Offsets:
    """Behind which offset no record is older than `until`, where that can be known."""
    if source.options.times_rise:
        found = _at(source, places, until)
        return {tp: at for tp, at in found.items() if 0 <= at < end[tp]}
    topics = sorted({topic for topic, _ in places})
    types = _unless_refused(places, lambda: topic_configs(source.cluster, topics, [_TYPE]))
    by_brokers = [tp for tp in places if types.get(tp[0], {}).get(_TYPE) == "LogAppendTime"]
    found = _at(source, by_brokers, until + CLOCKS_APART_MS)
    inside = {tp: at for tp, at in found.items() if 0 <= at < end[tp]}
    return {tp: at for tp, at in inside.items() if _is_by_broker(source, tp, at, end[tp])}


def _is_by_broker(source: SourceTopics, place: TopicPartition, first: int, behind: int) -> bool:
    """Whether a broker has set the time of the first record from `first` on, if there is one."""
    from eoslog.client.records.fetch import fetch  # only here a process that plans needs the codec

    records = fetch(
        source.cluster, *place, first, behind, committed=False, topic_id=source.ids.get(place[0]), max_bytes=1
    )
    types = (int(one.timestamp_type[0].as_py()) for one in records)
    found = _unless_refused([place], lambda: {place: next(types, _LOG_APPEND_TIME)})
    return found.get(place) == _LOG_APPEND_TIME


def _at(source: SourceTopics, places: list[TopicPartition], time_ms: int) -> Offsets:
    """The first record from a time on, also in transactions that are open or aborted; -1: none."""
    wanted = dict.fromkeys(places, min(time_ms, _LAST))
    return _unless_refused(places, lambda: list_offsets(source.cluster, wanted, committed=False))


def _unless_refused(places: list[TopicPartition], ask: Callable[[], dict[K, V]]) -> dict[K, V]:
    """What is asked about these places, or nothing: without an answer more is read, and no row is missing."""
    if not places:
        return {}
    try:
        return ask()
    except (EoslogError, KafkaError) as error:
        named = ", ".join(f"{topic}-{partition}" for topic, partition in places)
        logger.warning(
            "%s: a filter on timestamp is not pushed down, all is read: %s. %s", named, error, _SEE
        )
        return {}
