"""The judge of the copy soaks is judged: each kind of wrong copy has to be counted."""

from collections.abc import Callable

import pytest

from tests.soaks.copy_audit import POISON, Row, Seen, Verdict, id_of, ids, judge, row

ROWS, PARTITIONS = 600, 3


def copy() -> list[Seen]:
    """A right one: each source partition in order, a key in one target partition."""
    return [(len(made.key or b"-") % 2, made) for made in (row(*name) for name in ids(ROWS, PARTITIONS))]


def test_a_right_copy_is_right() -> None:
    verdict = judge(copy(), ROWS, PARTITIONS)
    assert verdict.right and verdict.rows == ROWS


def test_each_row_tells_its_id_and_is_like_no_other() -> None:
    made = [row(*name) for name in ids(ROWS, PARTITIONS)]
    assert [id_of(one) for one in made] == list(ids(ROWS, PARTITIONS))
    assert len(set(made)) == ROWS
    kinds = {(r.key is None, r.value is None, not r.headers) for r in made}
    assert {(True, False, False), (False, True, False), (False, False, True)} <= kinds


def _swap(rows: list[Seen]) -> None:
    first = next(at for at, seen in enumerate(rows) if seen[1].key is not None)
    second = next(at for at in range(first + PARTITIONS, ROWS, PARTITIONS) if rows[at][0] == rows[first][0])
    rows[first], rows[second] = rows[second], rows[first]


def _change(**fields: object) -> Callable[[list[Seen]], None]:
    def change(rows: list[Seen]) -> None:
        rows[50] = (rows[50][0], rows[50][1]._replace(**fields))  # type: ignore[arg-type]

    return change


def _move(rows: list[Seen]) -> None:
    at = next(at for at in range(300, ROWS) if rows[at][1].key is not None)
    rows[at] = (5, rows[at][1])


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        (lambda rows: rows.pop(77), {"lost": 1}),
        (lambda rows: rows.append(rows[10]), {"doubled": 1}),
        (lambda rows: rows.extend(rows[-40:]), {"doubled": 40}),
        (lambda rows: rows.append((0, Row(None, POISON, ()))), {"damaged": 1}),
        (lambda rows: rows.append((0, row(9, 1))), {"damaged": 1}),
        (_change(value=b"0:0 no"), {"damaged": 1, "lost": 1}),
        (_change(key=b"another"), {"damaged": 1, "lost": 1}),
        (_change(headers=()), {"damaged": 1, "lost": 1}),
        (_move, {"split_keys": 1}),
    ],
)
def test_a_wrong_copy_is_counted(harm: Callable[[list[Seen]], None], expected: dict[str, int]) -> None:
    rows = copy()
    harm(rows)
    verdict = judge(rows, ROWS, PARTITIONS)
    assert not verdict.right
    counts = {name: getattr(verdict, name) for name in ("lost", "doubled", "reordered", "damaged")}
    counts["split_keys"] = verdict.split_keys if "split_keys" in expected else 0
    assert counts == dict.fromkeys(counts, 0) | expected


def test_a_copy_out_of_order_is_counted() -> None:
    rows = copy()
    _swap(rows)
    verdict = judge(rows, ROWS, PARTITIONS)
    assert verdict.reordered >= 1 and not (verdict.lost or verdict.doubled or verdict.damaged)


def test_readers_held_back_and_a_group_elsewhere_are_no_right_copy() -> None:
    assert not Verdict(held_back=1).right
    assert not Verdict(group_off=1).right
