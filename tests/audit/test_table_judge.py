"""The auditor of tables judged: by a plain judge over the small worlds that hypothesis draws, and by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.audit.table_of_rows import ABORTED, Partition, Row, Slot, counts, plainly, table_judged, whole

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
