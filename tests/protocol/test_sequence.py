"""Sequence numbers go from 2^31-1 back to 0."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.protocol.sequence import NO_SEQUENCE, add, last_of, next_sequence

TOP = 2**31 - 1


@pytest.mark.parametrize(
    ("start", "count", "result"),
    [(0, 0, 0), (0, 5, 5), (TOP, 1, 0), (TOP, 2, 1), (TOP - 1, 1, TOP), (TOP, TOP, TOP - 1), (0, -1, TOP)],
)
def test_adding(start: int, count: int, result: int) -> None:
    assert add(start, count) == result


def test_after_the_highest_comes_zero() -> None:
    assert next_sequence(TOP) == 0
    assert next_sequence(TOP - 1) == TOP


def test_a_batch_may_span_the_end() -> None:
    assert last_of(TOP - 1, 4) == 1
    assert last_of(TOP, 1) == TOP


def test_no_sequence_stays_none() -> None:
    assert last_of(NO_SEQUENCE, 10) == NO_SEQUENCE


@settings(deadline=None)
@given(st.integers(0, TOP), st.integers(1, 2**20), st.integers(1, 2**20))
def test_batches_follow_each_other(base: int, first: int, second: int) -> None:
    following = next_sequence(last_of(base, first))
    assert following == add(base, first)
    assert last_of(following, second) == add(base, first + second - 1)
