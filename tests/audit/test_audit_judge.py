"""The auditor judged: by a plain judge over the small worlds that hypothesis draws, and by hand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.audit.match import DigestsCollide
from tests.audit import auditkit
from tests.audit.auditkit import GAP, Expected, Records, at, judged, partition, plainly

SIDE = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=14), min_size=1, max_size=3
)
KINDS = ("lost", "doubled", "foreign", "reordered")


def side(drawn: list[list[tuple[int, int]]]) -> list[Records]:
    return [partition([i for i, _ in part], [k for _, k in part]) for part in drawn]


def assert_as_plainly(source: list[Records], target: list[Records], limit: int, by_key: bool) -> Expected:
    found, said = judged(source, target, limit=limit, by_key=by_key), plainly(source, target, by_key=by_key)
    for kind in KINDS:
        assert found[kind].count == len(getattr(said, kind)), kind
        assert at(found, kind) == getattr(said, kind), kind
    assert (found.matched, found.loose) == (said.matched, said.loose)
    return said


@settings(max_examples=60, deadline=None)
@given(SIDE, SIDE, st.sampled_from([2, 5, 1000]), st.booleans())
def test_any_two_sides_are_judged_as_a_plain_judge_does(
    a: list[list[tuple[int, int]]], b: list[list[tuple[int, int]]], limit: int, by_key: bool
) -> None:
    assert_as_plainly(side(a), side(b), limit, by_key)


@settings(max_examples=60, deadline=None)
@given(
    SIDE, st.randoms(use_true_random=False), st.integers(1, 3), st.sampled_from([2, 7, 1000]), st.booleans()
)
def test_a_copy_that_is_hurt_is_judged_as_a_plain_judge_does(
    a: list[list[tuple[int, int]]], rng: random.Random, parts: int, limit: int, by_key: bool
) -> None:
    """Copies in order to partitions by key, with a few records lost, doubled or swapped."""
    target: list[list[tuple[int, int]]] = [[] for _ in range(parts)]
    for records in a:
        for ident, key in records:
            target[key % parts] += [(ident, key)] * rng.choice([0, 1, 1, 1, 1, 2])
    for records in target:
        if len(records) > 1 and rng.random() < 0.5:
            i = rng.randrange(len(records) - 1)
            records[i], records[i + 1] = records[i + 1], records[i]
    assert_as_plainly(side(a), side(target), limit, by_key)


@pytest.mark.parametrize("limit", [3, 1000])
def test_a_correct_copy_has_no_findings(limit: int) -> None:
    source = [partition(range(100)), partition(range(100, 150))]
    target = [partition([n for n in range(150) if n % 3 == k]) for k in range(3)]
    said = assert_as_plainly(source, target, limit, by_key=False)
    assert said == Expected(matched=150)


def test_one_lost_one_doubled_one_swapped() -> None:
    source = [partition(range(1000))]
    copy = list(range(1000))
    copy.remove(500)
    copy.insert(700, 3)
    copy[100], copy[101] = copy[101], copy[100]
    found = judged(source, [partition(copy)], limit=64)
    assert at(found, "lost") == {(0, 500 * GAP)}
    assert at(found, "doubled") == {(0, 700 * GAP)}
    assert found["reordered"].listed(found.places) == [
        {
            "at": {"topic": "b", "partition": 0, "offset": 101 * GAP},
            "source": {"topic": "a", "partition": 0, "offset": 100 * GAP},
            "other": {"topic": "b", "partition": 0, "offset": 100 * GAP},
            "other_source": {"topic": "a", "partition": 0, "offset": 101 * GAP},
        }
    ]
    assert found.matched == 999


def test_many_records_of_one_identity_are_judged_in_pieces() -> None:
    """More than fit into memory, with others beside them that share the file."""
    source = [partition([7] * 500 + list(range(100, 130)))]
    target = [partition([7] * 503 + list(range(100, 130)))]
    said = assert_as_plainly(source, target, 10, by_key=False)
    assert len(said.doubled) == 3
    assert len(assert_as_plainly(target, source, 10, by_key=False).lost) == 3
    assert len(assert_as_plainly([partition([1])], target, 10, by_key=False).foreign) == 533
    assert assert_as_plainly(target, target, 10, by_key=False) == Expected(matched=533)


def test_a_group_that_does_not_fit_is_checked_for_order_all_the_same() -> None:
    copy = list(range(300))
    copy[10], copy[11] = copy[11], copy[10]
    said = assert_as_plainly([partition(range(300))], [partition(copy)], 8, by_key=True)
    assert len(said.reordered) == 1


def test_half_a_digest_alike_is_another_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are more of them than memory holds, the run is given up: nothing tells them apart."""
    monkeypatch.setattr(auditkit, "spread", lambda number: number // 2)
    source = [partition([0, 1, 2, 3, 1, 5])]
    assert assert_as_plainly(source, [partition([0, 1, 2, 3, 1, 5])], 50, by_key=False) == Expected(matched=6)
    said = assert_as_plainly(source, [partition([1, 0, 2, 2, 4])], 50, by_key=False)
    assert (len(said.lost), len(said.doubled), len(said.foreign)) == (3, 1, 1)
    with pytest.raises(DigestsCollide, match="run the audit again"):
        judged(source, source, limit=3)


def test_the_order_is_that_of_keys_only_where_asked() -> None:
    source = [partition([1, 2, 3], keys=[0, 1, 0])]
    other_keys = [partition([2, 1, 3], keys=[1, 0, 0])]
    same_key = [partition([3, 2, 1], keys=[0, 1, 0])]
    assert judged(source, other_keys)["reordered"].count == 1
    assert judged(source, other_keys, by_key=True)["reordered"].count == 0
    assert judged(source, same_key, by_key=True)["reordered"].count == 1
    assert judged(source, same_key, in_order=False)["reordered"].count == 0


def test_what_may_still_come_is_pending() -> None:
    source = [partition([1, 2, 3]), partition([4, 5])]
    found = judged(source, [partition([4])], settled=[GAP, 2 * GAP])
    assert at(found, "lost") == {(0, 0), (1, GAP)}
    assert at(found, "pending") == {(0, GAP), (0, 2 * GAP)}


def test_the_list_is_bounded_and_begins_with_the_first() -> None:
    found = judged([partition(range(200))], [[]], show=3)
    assert found["lost"].count == 200
    assert at(found, "lost") == {(0, 0), (0, GAP), (0, 2 * GAP)}
    assert judged([partition(range(200))], [[]], show=0)["lost"].count == 200
