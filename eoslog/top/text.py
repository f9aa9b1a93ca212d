"""Figures in readable form, and the tables that both views show. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from eoslog.top.rows import Figures, Row

_UNITS = ("", "k", "M", "G", "T", "P")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_OLD_S = 60.0
SINKS = "sinks"


@dataclass(frozen=True)
class Table:
    """A title, names of columns, and rows of text. `alarming`: the rows that need attention."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]]
    alarming: frozenset[int] = frozenset()


def count(number: float | None, base: int = 1000) -> str:
    """A number with at most four digits and a unit; - for None."""
    if number is None:
        return "-"
    for unit in _UNITS:
        if abs(number) < (9999.5 if unit == "" else 999.5) or unit == _UNITS[-1]:
            return f"{number:.0f}{unit}" if unit == "" or abs(number) >= 99.5 else f"{number:.1f}{unit}"
        number /= base
    raise AssertionError("the last unit takes any number")


def size(number: float | None) -> str:
    """Bytes, in units of 1024."""
    return count(number, 1024)


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


def summary(shown: Figures) -> str:
    """The top line."""
    now = datetime.fromtimestamp(shown.now_ms / 1000, UTC).strftime("%H:%M:%S UTC")
    total = shown.total
    parts = [
        f"eoslog top  {now}",
        _several(len(shown.brokers), "broker"),
        _several(total.partitions, "partition"),
        f"{count(total.records_rate)} records/s",
        f"{size(total.bytes_rate)}B/s",
        f"{size(total.size)}B",
        f"cluster {shown.cluster_id or '-'}",
    ]
    if shown.without_leader:
        parts.insert(1, f"{shown.without_leader} WITHOUT LEADER")
    return "  ".join(parts)


def _several(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def tables(shown: Figures) -> list[Table]:
    """All tables, the most important first; that of sinks only if there are any."""
    columns = ["parts", "records/s", "bytes/s", "offsets", "size", "held back"]
    old = frozenset(n for n, one in enumerate(shown.transactions) if (one.seconds or 0) >= _OLD_S)
    held = frozenset(n for n, row in enumerate(shown.topics) if row.held)
    found = [
        Table("brokers", ["broker", *columns], [_cells(row) for row in shown.brokers]),
        Table("topics", ["topic", *columns], [_cells(row) for row in shown.topics], held),
        Table(
            "groups",
            ["group", "state", "type", "parts", "lag"],
            [[g.name, g.state, g.kind or "-", str(g.partitions), count(g.behind)] for g in shown.groups],
        ),
        _sinks(shown),
        Table(
            "open transactions",
            ["transactional id", "state", "age", "parts"],
            [[t.transactional_id, t.state, age(t.seconds), str(t.partitions)] for t in shown.transactions],
            old,
        ),
    ]
    return [table for table in found if table.rows or table.title != SINKS]


def _sinks(shown: Figures) -> Table:
    """What eoslog's sinks made, one line each."""
    old = frozenset(n for n, sink in enumerate(shown.sinks) if (sink.oldest or 0) >= _OLD_S)
    rows = [[s.sink, str(s.ids), str(s.open), age(s.oldest), str(s.groups)] for s in shown.sinks]
    return Table(SINKS, ["sink", "ids", "open", "oldest", "groups"], rows, old)


def _cells(row: Row) -> list[str]:
    rates = [count(row.records_rate), size(row.bytes_rate)]
    return [row.name, str(row.partitions), *rates, count(row.records), size(row.size), count(row.held)]
