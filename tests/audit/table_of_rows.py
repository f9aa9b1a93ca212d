"""An audit of a table without a cluster, of rows that are given; and a plain judge to compare with."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa

from eoslog.audit import run
from eoslog.audit.bounds import AuditedRange
from eoslog.audit.findings import Findings
from eoslog.audit.lines import Lines
from eoslog.audit.run import AuditedCluster, AuditedTable
from eoslog.audit.table.columns import Columns
from eoslog.audit.table.files import TableFile
from eoslog.commands.progress import ProgressListener
from tests.audit.audit_of_rows import Silent

SCHEMA = pa.schema([
    ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.string())
])  # fmt: skip
Slot = str | None
"""What the log has at an offset: ABORTED, a value, or nothing."""
ABORTED = "(aborted)"


class Row(NamedTuple):
    """A row of a table."""

    topic: str | None
    partition: int | None
    offset: int | None
    value: str | None


@dataclass(frozen=True)
class Partition:
    """The offsets `start`.. of a partition of topic t."""

    slots: Sequence[Slot]
    start: int = 0
    compacted: bool = False

    @property
    def end(self) -> int:
        """Behind the last offset."""
        return self.start + len(self.slots)


class RowsTable:
    """A table in memory, of some files."""

    version, schema = "rows", SCHEMA

    def __init__(self, files: Sequence[Sequence[Row]], at_once: int) -> None:
        self._rows, self._at_once = files, at_once
        self.files = [TableFile(f"file {n}", len(rows)) for n, rows in enumerate(files)]

    def batches(self, number: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """As Table says."""
        for first in range(0, len(self._rows[number]), self._at_once):
            piece = [row._asdict() for row in self._rows[number][first : first + self._at_once]]
            yield pa.RecordBatch.from_pylist(piece, SCHEMA).select(list(columns))


def table_judged(
    log: Sequence[Partition], files: Sequence[Sequence[Row]], *, limit: int = 4, show: int = 1000,
    from_start: bool = True, to_end: bool = True, settled: Sequence[int] | None = None,
    columns: Mapping[str, str] | None = None, watch: ProgressListener | None = None,
) -> Findings:  # fmt: skip
    """What an audit of topic t finds in a table with these rows, with so many rows in memory at a time."""
    ranges = [AuditedRange("t", None, n, part.start, part.end) for n, part in enumerate(log)]

    def records_of(_: Any, place: AuditedRange, *, committed: bool) -> Any:
        part = log[place.partition]
        there = [
            (offset, value) for offset, value in enumerate(part.slots, part.start)
            if value is not None and (value != ABORTED or not committed)
        ]  # fmt: skip
        for first in range(0, len(there), limit):
            offsets, values = zip(*there[first : first + limit], strict=True)
            yield _Records(pa.array(offsets, pa.int64()), pa.array([v.encode() for v in values], pa.binary()))

    def compacted(_: Any, number: int) -> bool:
        return log[number].compacted

    with (
        tempfile.TemporaryDirectory() as directory,
        patch.object(run, "records_of", records_of),
        patch.object(run, "_compacted", compacted),
    ):
        job = run.Job(
            Path(directory), [place.end for place in ranges] if settled is None else settled, show, limit
        )
        lines = Lines(ranges, from_start=from_start, to_end=to_end)
        none: Any = None
        table = AuditedTable(RowsTable(files, limit), Columns.of(SCHEMA, columns or {}))
        found = run.audit_places(AuditedCluster(none, ranges), table, lines, job, watch or Silent())
        assert not list(Path(directory).iterdir()), "files are left"
        return found


class _Records(SimpleNamespace):
    def __init__(self, offset: pa.Array, value: pa.Array) -> None:
        super().__init__(offset=offset, key=pa.nulls(len(offset), pa.binary()), value=value)

    def __len__(self) -> int:
        return len(self.offset)


def whole(log: Sequence[Partition]) -> list[Row]:
    """The rows of a right table."""
    return [
        Row("t", number, offset, value)
        for number, part in enumerate(log)
        for offset, value in enumerate(part.slots, part.start)
        if value not in (None, ABORTED)
    ]


def counts(found: Findings) -> dict[str, int]:
    """How many of each kind that there are any of."""
    kinds = ("lost", "pending", "doubled", "altered", "phantom", "foreign", "unchecked")
    return {kind: found[kind].count for kind in kinds if found[kind].count}


def plainly(log: Sequence[Partition], files: Sequence[Sequence[Row]]) -> dict[str, int]:
    """The same rules, with dictionaries and one row after the other."""
    said: Counter[str] = Counter()
    times: Counter[tuple[int, int]] = Counter()
    for row in (row for rows in files for row in rows):
        known = row.topic == "t" and row.partition is not None and 0 <= row.partition < len(log)
        if not known or row.partition is None or row.offset is None or row.offset < 0:
            said["foreign"] += 1
            continue
        part, offset = log[row.partition], row.offset
        slot = part.slots[offset - part.start] if part.start <= offset < part.end else None
        if offset < part.start or (offset < part.end and slot is None and part.compacted):
            said["doubled" if times[row.partition, offset] else "unchecked"] += 1
        elif slot is None or slot == ABORTED:
            said["phantom"] += 1
        else:
            said["doubled"] += times[row.partition, offset] > 0
            said["altered"] += slot != row.value
        times[row.partition, offset] += 1
    said["lost"] += sum(
        not times[number, offset]
        for number, part in enumerate(log)
        for offset, value in enumerate(part.slots, part.start)
        if value not in (None, ABORTED)
    )
    return {kind: count for kind, count in said.items() if count}
