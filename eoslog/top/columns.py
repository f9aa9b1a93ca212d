"""The tables of `eoslog top`. A column is one row of a table here, and nothing else names it. Pure.

A column has its name in --json, its head in a table, its value, its text, what it says of several lines
together, and the word of --sort that sorts by it. A row is a dict of values by the columns' names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple

from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.top.cluster_snapshot import GroupView, Open, PartitionView

Row = dict[str, Any]

MIXED = "mixed"
"""Shown for several texts that differ."""
_OLD_S = 60.0
_UNITS = ("", "k", "M", "G", "T", "P")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class Partitions(NamedTuple):
    """What a row about partitions is made of: a topic's, a broker's, or all of them.

    `earlier`: the partitions `seconds` before; empty if there is no earlier snapshot.
    """

    name: str
    now: Mapping[TopicPartition, PartitionView]
    earlier: Mapping[TopicPartition, PartitionView]
    seconds: float

    @property
    def records_rate(self) -> float | None:
        """Records added in a second; None without an earlier snapshot. A partition adds nothing if its end
        went back (the topic was created again)."""
        added = sum(max(now.end - was.end, 0) for now, was in self._pairs())
        return added / self.seconds if self.earlier else None

    @property
    def bytes_rate(self) -> float | None:
        """Bytes added in a second; None if unknown. A log that got smaller (retention) adds nothing."""
        pairs = self._pairs()
        grown = [
            max(now.size - was.size, 0) for now, was in pairs if now.size is not None and was.size is not None
        ]
        return sum(grown) / self.seconds if self.earlier and (grown or not pairs) else None

    @property
    def size(self) -> int | None:
        """Bytes of the logs; None if unknown."""
        sizes = [partition.size for partition in self.now.values() if partition.size is not None]
        return sum(sizes) if sizes or not self.now else None

    def _pairs(self) -> list[tuple[PartitionView, PartitionView]]:
        return [(now, self.earlier[where]) for where, now in self.now.items() if where in self.earlier]


class Group(NamedTuple):
    """What a row about a group is made of. `sink`: the sink that made it for its decisions, which have no
    lag."""

    seen: GroupView
    sink: str | None
    partitions: Mapping[TopicPartition, PartitionView]

    @property
    def behind(self) -> int | None:
        """Offsets from the committed ones to the ends; None if unknown."""
        known = [
            max(self.partitions[where].end - offset, 0)
            for where, offset in self.seen.places.items()
            if where in self.partitions and self.sink is None
        ]
        return sum(known) if known else None


class Transaction(NamedTuple):
    """What a row about an open transaction is made of. `sink`: the one it belongs to."""

    seen: Open
    sink: str | None
    now_ms: int

    @property
    def seconds(self) -> float | None:
        """Its age; None if unknown."""
        return None if self.seen.began_ms is None else max(self.now_ms - self.seen.began_ms, 0) / 1000


def count(number: float | None) -> str:
    """A number with at most four digits and a unit of 1000, as in the console; - for None."""
    if number is None:
        return "-"
    for unit in _UNITS:
        if abs(number) < (9999.5 if unit == "" else 999.5) or unit == _UNITS[-1]:
            return f"{number:.0f}{unit}" if unit == "" or abs(number) >= 99.5 else f"{number:.1f}{unit}"
        number /= 1000
    raise AssertionError("the last unit takes any number")


def age(seconds: float | None) -> str:
    """A time span, in its two largest units."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{seconds:.1f}s" if seconds < 10 else f"{whole}s"
    for large, unit, small, part in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "m"),
        (_MINUTE, "m", 1, "s"),
    ):
        if whole >= large:
            return f"{whole // large}{unit}{whole % large // small:02}{part}"
    raise AssertionError("spans below a minute returned above")


def _is_old(seconds: float | None) -> bool:
    return (seconds or 0) >= _OLD_S


def _or_dash(text: str) -> str:
    return text or "-"


def _sum(numbers: Sequence[float | None]) -> float | None:
    """The sum of the known numbers; None if none is known."""
    known = [number for number in numbers if number is not None]
    return sum(known[1:], known[0]) if known else None


def _oldest(ages: Sequence[float | None]) -> float | None:
    return max((age for age in ages if age is not None), default=None)


def _common(texts: Sequence[str]) -> str:
    found = set(texts)
    return found.pop() if len(found) == 1 else MIXED


def _nobody(_: Sequence[str | None]) -> None:
    """Lines that share one belong to no sink."""


@dataclass(frozen=True)
class Column:
    """A column. `head` "": only --json has it. `words`: text, on the left and sorted upwards; numbers stand
    on the right, and the largest comes first."""

    name: str
    head: str
    value: Callable[[Any], Any]
    text: Callable[[Any], str] = str
    together: Callable[[Sequence[Any]], Any] = _sum
    sort: str = ""
    words: bool = False


@dataclass(frozen=True)
class Table:
    """A table: its columns, the first of which names a line. `page`: the field of a page that has its rows.
    `order`: the field of DisplayOptions that says what it is sorted by; "": it keeps its order.
    `alarms`: whether a row needs attention."""

    title: str
    page: str
    columns: tuple[Column, ...]
    order: str = ""
    alarms: Callable[[Row], bool] = field(default=lambda row: False)

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns that people see."""
        return tuple(column for column in self.columns if column.head)

    @property
    def sorts(self) -> dict[str, Column]:
        """The columns to sort by, by their words of --sort."""
        return {column.sort: column for column in self.columns if column.sort}

    def row(self, of: Any) -> Row:
        """The row of one thing."""
        return {column.name: column.value(of) for column in self.columns}

    def name(self, row: Row) -> str:
        """What a row is about."""
        name: str = row[self.columns[0].name]
        return name

    def in_order(self, rows: Iterable[Row], wish: DisplayOptions) -> list[Row]:
        """Rows in the order that the user wants; equal ones by name, equal texts by the default first."""
        by, default = self.sorts[wish.order(self)], self.sorts[DEFAULT.order(self)]

        def key(row: Row) -> tuple[Any, ...]:
            first = (row[by.name], -(row[default.name] or 0)) if by.words else (-(row[by.name] or 0),)
            return *first, self.name(row)

        return sorted(rows, key=key)

    def together(self, label: str, rows: Sequence[Row]) -> Row:
        """One row for several."""
        names, *others = self.columns
        return {names.name: label} | {
            column.name: column.together([row[column.name] for row in rows]) for column in others
        }


_OF_PARTITIONS = (
    Column("partitions", "parts", lambda of: len(of.now)),
    Column("records_rate", "records/s", attrgetter("records_rate"), count, sort="records"),
    Column("bytes_rate", "bytes/s", attrgetter("bytes_rate"), count, sort="bytes"),
    # between start and end; markers and compacted records count too
    Column("records", "offsets", lambda of: sum(one.end - one.start for one in of.now.values()), count),
    Column("size", "size", attrgetter("size"), count, sort="size"),
    # what open transactions hide from read_committed readers
    Column(
        "held",
        "held back",
        lambda of: sum(one.end - one.stable for one in of.now.values()),
        count,
        sort="held",
    ),
)
BROKERS = Table(
    "brokers", "brokers", (Column("name", "broker", attrgetter("name"), words=True), *_OF_PARTITIONS)
)
TOPICS = Table(
    "topics",
    "topics",
    (Column("name", "topic", attrgetter("name"), words=True, sort="name"), *_OF_PARTITIONS),
    order="topics",
    alarms=lambda row: bool(row["held"]),
)
GROUPS = Table(
    "groups",
    "groups",
    (
        Column("name", "group", attrgetter("seen.name"), words=True, sort="name"),
        Column("state", "state", attrgetter("seen.state"), together=_common, words=True, sort="state"),
        Column("kind", "type", attrgetter("seen.kind"), _or_dash, together=_common, words=True),
        Column("partitions", "parts", lambda of: len(of.seen.committed)),
        Column("behind", "lag", attrgetter("behind"), count, sort="lag"),
        Column("sink", "", attrgetter("sink"), together=_nobody),
    ),
    order="groups",
)
SINKS = Table(
    "sinks",
    "sinks",
    (
        Column("sink", "sink", attrgetter("sink"), words=True, sort="name"),
        Column("ids", "ids", attrgetter("ids")),
        Column("open", "open", attrgetter("open"), sort="state"),
        Column("oldest", "oldest", attrgetter("oldest"), age, together=_oldest, sort="age"),
        Column("groups", "groups", attrgetter("groups")),
    ),
    order="transactions",
    alarms=lambda row: _is_old(row["oldest"]),
)
TRANSACTIONS = Table(
    "open transactions",
    "transactions",
    (
        Column(
            "transactional_id",
            "transactional id",
            attrgetter("seen.transactional_id"),
            words=True,
            sort="name",
        ),
        Column("state", "state", attrgetter("seen.state"), together=_common, words=True, sort="state"),
        Column("seconds", "age", attrgetter("seconds"), age, together=_oldest, sort="age"),
        Column("partitions", "parts", attrgetter("seen.partitions")),
        Column("sink", "", attrgetter("sink"), together=_nobody),
    ),
    order="transactions",
    alarms=lambda row: _is_old(row["seconds"]),
)
TABLES = (BROKERS, TOPICS, GROUPS, SINKS, TRANSACTIONS)
"""All tables, the most important first."""
SORTS = tuple(dict.fromkeys(word for table in (TOPICS, GROUPS, TRANSACTIONS) for word in table.sorts))
"""The words of --sort."""


@dataclass(frozen=True)
class DisplayOptions:
    """What to show: the order of the tables, internal topics, a filter of names, everything unfolded."""

    topics: str = "records"
    groups: str = "lag"
    transactions: str = "age"
    internal: bool = False
    text: str = ""
    unfolded: bool = False

    def sorted_by(self, word: str) -> DisplayOptions:
        """The same, with every table that has the column sorted by it."""
        orders = {table.order: word for table in (TOPICS, GROUPS, TRANSACTIONS) if word in table.sorts}
        return replace(self, **orders)  # type: ignore[arg-type]  # the orders are texts

    def order(self, table: Table) -> str:
        """The word of --sort that a table is sorted by; "" if it keeps its order."""
        word: str = getattr(self, table.order) if table.order else ""
        return word

    def has(self, name: str) -> bool:
        """Whether a name passes the filter, in upper or lower case."""
        return self.text.casefold() in name.casefold()


DEFAULT = DisplayOptions()
