"""The auditor of tables judged: by a plain judge over the small worlds that hypothesis draws, and by hand."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.audit import run
from eoslog.audit.bounds import AuditedRange
from eoslog.audit.findings import Findings
from eoslog.audit.identity import Deletes
from eoslog.audit.lines import Lines
from eoslog.audit.run import AuditedCluster, AuditedTable
from eoslog.audit.table.columns import Columns
from eoslog.audit.table.files import BadTable, TableFile
from eoslog.commands.output import ProgressListener
from tests.audit.auditkit import Silent

# -- a table of rows that are given --------------------------------------------------------------
# An audit of a table without a cluster, of rows that are given; and a plain judge to compare with.

SCHEMA = pa.schema([
    ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.string())
])  # fmt: skip
Slot = str | None
"""What the log has at an offset: ABORTED, a value, or nothing."""
ABORTED = "(aborted)"
DELETES = "-"
"""What a value ends with that is null."""


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
    keys: Callable[[str, int], str] | None = None,
) -> Findings:  # fmt: skip
    """What an audit of topic t finds in a table with these rows, with so many rows in memory at a time.
    `keys`: the key of a value in a partition; the table has the newest of each alone."""
    ranges = [AuditedRange("t", None, n, part.start, part.end) for n, part in enumerate(log)]

    def records_of(_: Any, place: AuditedRange, *, committed: bool) -> Any:
        part = log[place.partition]
        there = [
            (offset, value) for offset, value in enumerate(part.slots, part.start)
            if value is not None and (value != ABORTED or not committed)
        ]  # fmt: skip
        for first in range(0, len(there), limit):
            offsets, values = zip(*there[first : first + limit], strict=True)
            yield _Records(
                pa.array(offsets, pa.int64()),
                pa.array([None if v.endswith(DELETES) else v.encode() for v in values], pa.binary()),
                pa.array([None if keys is None else keys(v, place.partition) for v in values], pa.binary()),
            )

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
        newest = None if keys is None else Deletes()
        found = run.audit_places(AuditedCluster(none, ranges), table, lines, job, watch or Silent(), newest)
        assert not list(Path(directory).iterdir()), "files are left"
        return found


class _Records(SimpleNamespace):
    def __init__(self, offset: pa.Array, value: pa.Array, key: pa.Array) -> None:
        super().__init__(offset=offset, key=key, value=value)

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
    return {kind: found[kind].count for kind in found.kinds if found[kind].count}


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


# -- the judge -----------------------------------------------------------------------------------

SLOTS = st.lists(st.sampled_from(["a", "b", ABORTED]), max_size=12)
PARTITION = st.builds(Partition, SLOTS, st.integers(0, 4)) | st.builds(
    Partition,
    st.lists(st.sampled_from(["a", "b", ABORTED, None]), max_size=12),
    st.integers(0, 4),
    st.just(True),
)
ROW = st.builds(
    Row, st.sampled_from(["t", "t", "t", "other", None]), st.sampled_from([0, 0, 1, 1, 2, -1, None]),
    st.sampled_from([*range(16), -1, None]), st.sampled_from(["a", "b", None]),
)  # fmt: skip


@settings(max_examples=150)
@given(
    st.lists(PARTITION, min_size=1, max_size=2), st.lists(st.lists(ROW, max_size=30), max_size=3),
    st.sampled_from([2, 5, 1000]),
)  # fmt: skip
def test_any_table_is_judged_as_a_plain_judge_does(
    log: list[Partition], files: list[list[Row]], limit: int
) -> None:
    assert counts(table_judged(log, files, limit=limit)) == plainly(log, files)


@settings(max_examples=60)
@given(st.lists(PARTITION, min_size=1, max_size=2), st.sampled_from([2, 5, 1000]))
def test_a_right_table_has_no_findings(log: list[Partition], limit: int) -> None:
    found = table_judged(log, [whole(log)[::-1]], limit=limit)
    assert counts(found) == {} and found.matched == len(whole(log))


Hurt = Callable[[list[Row]], object]
HURTS: dict[str, tuple[Hurt, dict[str, int]]] = {
    "removed": (lambda rows: rows.pop(500), {"lost": 1}),
    "doubled": (lambda rows: rows.append(rows[500]), {"doubled": 1}),
    "altered": (lambda rows: rows.append(rows.pop(500)._replace(value="other")), {"altered": 1}),
    "emptied": (lambda rows: rows.append(rows.pop(500)._replace(value=None)), {"altered": 1}),
    "moved to another partition": (
        lambda rows: rows.append(rows.pop(500)._replace(partition=1)),
        {"lost": 1, "doubled": 1, "altered": 1},
    ),
    "moved to an aborted offset": (
        lambda rows: rows.append(rows.pop(500)._replace(offset=3)), {"lost": 1, "phantom": 1},
    ),
    "behind the end": (lambda rows: rows.append(rows[500]._replace(offset=1000)), {"phantom": 1}),
    "of another topic": (lambda rows: rows.append(rows[500]._replace(topic="other")), {"foreign": 1}),
    "without an offset": (lambda rows: rows.append(rows[500]._replace(offset=None)), {"foreign": 1}),
}  # fmt: skip


def thousand() -> list[Partition]:
    values: list[Slot] = [f"value {n}" for n in range(1000)]
    values[3] = ABORTED
    return [Partition(values), Partition([f"other {n}" for n in range(1000)])]


@pytest.mark.parametrize("how", HURTS)
@pytest.mark.parametrize("limit", [64, 10_000])
def test_one_row_that_is_hurt_is_found(how: str, limit: int) -> None:
    hurt, expected = HURTS[how]
    rows = whole(thousand())
    hurt(rows)
    assert counts(table_judged(thousand(), [rows[:700], rows[700:]], limit=limit)) == expected


def test_findings_name_rows_and_records() -> None:
    rows = whole(thousand())
    found = table_judged(thousand(), [rows, [rows[500], rows[501]._replace(value="x")]], limit=64)
    offset, next_offset = rows[500].offset, rows[501].offset
    assert found["doubled"].listed(found.places) == [
        {
            "at": {"file": "file 1", "row": row},
            "source": {"topic": "t", "partition": 0, "offset": at},
            "other": {"file": "file 0", "row": first},
        }
        for row, at, first in ((0, offset, 500), (1, next_offset, 501))
    ]
    (altered,) = found["altered"].listed(found.places)
    assert altered["at"] == {"file": "file 1", "row": 1}


@pytest.mark.parametrize("limit", [7, 1000])
def test_one_record_again_and_again_is_judged_in_pieces(limit: int) -> None:
    log = [Partition(["a", ABORTED, "b"], start=1), Partition(["a", None, "c"], compacted=True)]
    rows = [Row("t", 0, 1, "a")] * 50 + [Row("t", 0, 2, "a")] * 40 + [Row("t", 0, 0, "a")] * 30
    rows += [Row("t", 1, 1, "x")] * 20 + [Row("t", 1, 2, "x")] * 60
    found = counts(table_judged(log, [rows], limit=limit))
    assert found == plainly(log, [rows])
    assert found == {
        "doubled": 49 + 29 + 19 + 59, "altered": 60, "phantom": 40, "unchecked": 2, "lost": 2,
    }  # fmt: skip


def test_outside_of_given_bounds_nothing_is_judged() -> None:
    log = [Partition(["a", "b", "c"], start=10)]
    rows = [*whole(log), Row("t", 0, 9, "x"), Row("t", 0, 9, "x"), Row("t", 0, 13, "x")]
    assert counts(table_judged(log, [rows])) == {"unchecked": 1, "doubled": 1, "phantom": 1}
    within = table_judged(log, [rows], from_start=False, to_end=False)
    assert counts(within) == {} and within.outside == 3 and within.matched == 3
    assert counts(table_judged(log, [rows], from_start=False)) == {"phantom": 1}
    assert counts(table_judged(log, [rows], to_end=False)) == {"unchecked": 1, "doubled": 1}


def test_what_may_still_come_is_pending() -> None:
    log = [Partition(["a", "b", "c"], start=10)]
    assert counts(table_judged(log, [whole(log)[:1]], settled=[12])) == {"lost": 1, "pending": 1}


def test_without_a_value_column_nothing_is_altered() -> None:
    log = [Partition(["a", "b"])]
    rows = [row._replace(value="x") for row in whole(log)]
    assert counts(table_judged(log, [rows])) == {"altered": 2}
    assert counts(table_judged(log, [rows], columns={"value": ""})) == {}
    assert counts(table_judged(log, [[row._replace(topic=None) for row in rows]], columns={"value": ""})) == {
        "foreign": 2, "lost": 2,
    }  # fmt: skip
    named = {"value": "", "topic": ""}
    assert counts(table_judged(log, [[row._replace(topic=None) for row in rows]], columns=named)) == {}


def test_the_files_of_a_table_are_one_phase() -> None:
    """A table may have thousands of them; each phase ends where it was foretold to end."""
    phases: list[list[object]] = []

    class Noting:
        def begin(self, what: str, total: int) -> None:
            phases.append([what, total, 0])

        def advance(self, steps: int) -> None:
            phases[-1][2] = int(str(phases[-1][2])) + steps

    log = [Partition([str(number) for number in range(100)])]
    table_judged(log, [[row] for row in whole(log)], watch=Noting())
    assert phases == [["reading t-0", 100, 100], ["reading 100 files", 100, 100], ["comparing", 200, 200]]


# -- the newest of each key ----------------------------------------------------------------------

CHANGES = st.lists(
    st.lists(st.sampled_from(["a1", "a2", "a-", "b1", "b-", ABORTED]), max_size=12).map(Partition),
    min_size=1, max_size=2,
)  # fmt: skip


def key_of(value: str, partition: int) -> str:
    return f"{value[0]} of {partition}"


def newest_of(log: Sequence[Partition]) -> list[Row]:
    """The rows of a right table."""
    last = {
        (number, value[0]): (offset, value)
        for number, part in enumerate(log)
        for offset, value in enumerate(part.slots, part.start)
        if value not in (None, ABORTED)
    }
    return [Row("t", n, at, value) for (n, _), (at, value) in last.items() if not value.endswith(DELETES)]


@settings(max_examples=150)
@given(CHANGES, st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(0, 12)), max_size=15),
       st.sampled_from([2, 5, 1000]))  # fmt: skip
def test_a_table_of_the_newest_is_judged_as_a_plain_judge_does(
    log: list[Partition], at: list[tuple[int, int]], limit: int
) -> None:
    right = {(row.partition, row.offset): row.value for row in newest_of(log)}
    slots = {(n, offset): value for n, part in enumerate(log) for offset, value in enumerate(part.slots)}
    rows = [Row("t", partition, offset, slots.get((partition, offset))) for partition, offset in at]
    times = Counter(at)
    plain = Counter(lost=len(right.keys() - times.keys()))
    for one, n in times.items():
        if one in right:
            plain["doubled"] += n - 1
        elif slots.get(one, ABORTED) != ABORTED:
            plain["older"] += n
        else:
            plain["phantom" if one[0] < len(log) else "foreign"] += n
    found = table_judged(log, [rows], limit=limit, keys=key_of)
    assert counts(found) == {kind: count for kind, count in plain.items() if count}
    whole_found = table_judged(log, [newest_of(log)], limit=limit, keys=key_of)
    assert counts(whole_found) == {} and whole_found.matched == len(right)


@pytest.mark.parametrize("limit", [7, 1000])
def test_a_lost_a_doubled_an_older_and_an_altered_row_are_named(limit: int) -> None:
    """One key has more records than fit into memory."""
    log = [Partition([*(f"a{n}" for n in range(100)), "b1", "c1", "d1", "b-"])]
    assert newest_of(log) == [Row("t", 0, 99, "a99"), Row("t", 0, 101, "c1"), Row("t", 0, 102, "d1")]
    rows = [Row("t", 0, 98, "a98"), Row("t", 0, 101, "c1"), Row("t", 0, 101, "c1"), Row("t", 0, 102, "x"),
            Row("t", 0, 100, "b1")]  # fmt: skip
    found = table_judged(log, [rows], limit=limit, keys=key_of)
    assert counts(found) == {"lost": 1, "doubled": 1, "older": 2, "altered": 1}
    assert [one["at"]["offset"] for one in found["lost"].listed(found.places)] == [99]
    assert [(one["at"]["row"], one["source"]["offset"]) for one in found["older"].listed(found.places)] == [
        (0, 98), (4, 100),
    ]  # fmt: skip


def test_after_compaction_the_newest_are_there_and_no_other_row_is_right() -> None:
    log = [Partition([None, None, "a3", None, "b-"], compacted=True)]
    rows = [Row("t", 0, 0, "a1"), Row("t", 0, 2, "a3"), Row("t", 0, 3, "b1")]
    assert counts(table_judged(log, [rows], keys=key_of)) == {"phantom": 2}


@pytest.mark.parametrize("limit", [3, 1000])
def test_a_key_in_two_partitions_has_no_newest_record(limit: int) -> None:
    log = [Partition(["b1", *["a1"] * 9]), Partition(["a2"])]
    with pytest.raises(
        BadTable, match=r"offset \d of t-[01] and offset \d of t-[01]: which one is the newest"
    ):
        table_judged(log, [[]], limit=limit, keys=lambda value, _: value[0])
