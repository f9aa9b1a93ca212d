"""A page as text: the line above the tables, and the tables' cells. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from eoslog.top.columns import SINKS, TABLES, Table, count
from eoslog.top.figures import Figures
from eoslog.top.folds import sinks_folded, sinks_unfolded


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
