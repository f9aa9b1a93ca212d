"""Turns two snapshots into a page: rates, sizes, lag, ages; long lists shortened; the page as text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate
from typing import NamedTuple

from eoslog.connector.commit.write_token import WRITER
from eoslog.protocol.names_by_sink import made, sinks_of_groups, sinks_of_ids
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.top.cluster_snapshot import ClusterSnapshot
from eoslog.top.columns import (
    DEFAULT,
    GROUPS,
    SINKS,
    TABLES,
    TOPICS,
    TRANSACTIONS,
    DisplayOptions,
    Group,
    Partitions,
    Row,
    Table,
    Transaction,
    count,
)

# -- figures ---------------------------------------------------------------------------------------
# Turns two snapshots into what is shown: rates, sizes, lag, ages. Pure.
#
# A rate is what was added between the snapshots, divided by the time between them; the first snapshot has
# none.


@dataclass(frozen=True)
class Figures:
    """All that is shown of a snapshot: a page."""

    cluster_id: str | None
    now_ms: int
    total: Row
    brokers: list[Row]
    topics: list[Row]
    groups: list[Row]
    transactions: list[Row]
    without_leader: int
    problems: list[str]
    sinks: list[Row]
    """What eoslog's sinks made, one line each; their ids and groups are in the other lists too."""


def figures(look: ClusterSnapshot, before: ClusterSnapshot | None, wish: DisplayOptions = DEFAULT) -> Figures:
    """What to show of a snapshot, with rates since the one before."""
    seconds = 0.0 if before is None else look.at - before.at
    earlier = {} if before is None or seconds <= 0 else before.partitions

    def row(name: str, chosen: Iterable[TopicPartition]) -> Row:
        now = {where: look.partitions[where] for where in chosen}
        return TOPICS.row(Partitions(name, now, earlier, seconds))

    by_topic: dict[str, list[TopicPartition]] = {}
    by_broker: dict[int, list[TopicPartition]] = {broker.node: [] for broker in look.brokers}
    for where, partition in look.partitions.items():
        by_topic.setdefault(where[0], []).append(where)
        by_broker.setdefault(partition.leader, []).append(where)
    names = [name for name in by_topic if wish.has(name) and (wish.internal or name not in look.internal)]
    ids, sinks = _sinks(look, wish)
    groups = [Group(group, sinks.get(group.name), look.partitions) for group in look.groups]
    opened = [Transaction(one, ids.get(one.transactional_id), look.now_ms) for one in look.transactions]
    ages = {one.seen.transactional_id: one.seconds for one in opened}
    return Figures(
        look.cluster_id,
        look.now_ms,
        row("", look.partitions),
        [row(f"{broker.node} {broker.address}", by_broker[broker.node]) for broker in look.brokers],
        TOPICS.in_order([row(name, by_topic[name]) for name in names], wish),
        GROUPS.in_order([GROUPS.row(one) for one in groups if wish.has(one.seen.name)], wish),
        TRANSACTIONS.in_order(
            [TRANSACTIONS.row(one) for one in opened if wish.has(one.seen.transactional_id)], wish
        ),
        look.without_leader,
        look.problems,
        SINKS.in_order(map(SINKS.row, made(ids, _notes_as_one(ids, sinks), ages)), wish),
    )


def _sinks(look: ClusterSnapshot, wish: DisplayOptions) -> tuple[dict[str, str], dict[str, str]]:
    """The sink of each transactional id and of each group that a sink made, if the filter shows it."""
    groups = sinks_of_groups({group.name: group.topics for group in look.groups})
    names = {*look.ids, *(found.transactional_id for found in look.transactions)}
    ids = sinks_of_ids(names, groups.values())
    return _wished(ids, wish), _wished(groups, wish)


def _notes_as_one(ids: dict[str, str], groups: dict[str, str]) -> dict[str, str]:
    """The sink of each group. What queries have noted of their writes in foreachBatch shares a line: such a
    sink is named by the query's id, and has no transactional ids once its writes are forgotten."""
    writing = set(ids.values())
    notes = f"{WRITER}:"
    return {
        name: f"{notes}*" if sink.startswith(notes) and sink not in writing else sink
        for name, sink in groups.items()
    }


def _wished(sinks: dict[str, str], wish: DisplayOptions) -> dict[str, str]:
    return {name: sink for name, sink in sinks.items() if wish.has(name) or wish.has(sink)}


# -- folds -----------------------------------------------------------------------------------------
# Shortens long lists: one line for what a sink made; other names share lines by prefix. Pure.


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


# -- text ------------------------------------------------------------------------------------------
# A page as text: the line above the tables, and the tables' cells. Pure.


class TableText(NamedTuple):
    """A table's rows as text. `alarming`: the rows that need attention."""

    of: Table
    rows: list[list[str]]
    alarming: frozenset[int]


def summary(shown: Figures) -> str:
    """The top line."""
    now = datetime.fromtimestamp(shown.now_ms / 1000, UTC).strftime("%H:%M:%S UTC")
    total = shown.total
    parts = [
        f"eoslog top  {now}",
        _several(len(shown.brokers), "broker"),
        _several(total["partitions"], "partition"),
        f"{count(total['records_rate'])} records/s",
        f"{count(total['bytes_rate'])}B/s",
        f"{count(total['size'])}B",
        f"cluster {shown.cluster_id or '-'}",
    ]
    if shown.without_leader:
        parts.insert(1, f"{shown.without_leader} WITHOUT LEADER")
    return "  ".join(parts)


def _several(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def tables(shown: Figures) -> list[TableText]:
    """All tables, the most important first; that of sinks only if there are any."""
    found = []
    for table in TABLES:
        rows = getattr(shown, table.page)
        cells = [[column.text(row[column.name]) for column in table.shown] for row in rows]
        alarming = frozenset(number for number, row in enumerate(rows) if table.alarms(row))
        if rows or table is not SINKS:
            found.append(TableText(table, cells, alarming))
    return found


def as_text(page: Figures, unfolded: bool = False) -> str:
    """A page in plain columns. What a sink made is one line, or all of it."""
    page = sinks_unfolded(page) if unfolded else sinks_folded(page)
    return "\n".join([summary(page), *page.problems, *map(_as_text, tables(page))])


def _as_text(table: TableText) -> str:
    cells = [[column.head.upper() for column in table.of.shown], *table.rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(["", table.of.title, *(line.rstrip() for line in lines)])
