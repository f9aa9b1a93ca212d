"""The judge of `make soak-fanout` is judged: each kind of hurt place has to be counted."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fanout.soak_fanout import PARTITIONS, judge

RIGHT = [(partition, offset) for partition in range(PARTITIONS) for offset in range(50)]


@pytest.mark.parametrize(
    ("found", "counted"),
    [
        (RIGHT, (0, 0, 0)),
        (RIGHT[:-3], (3, 0, 0)),
        ([*RIGHT, *RIGHT[:7]], (0, 7, 0)),
        ([*RIGHT, *RIGHT[:7], *RIGHT[:2]], (0, 9, 0)),
        ([*RIGHT, (0, 50)], (0, 0, 1)),
        ([*RIGHT[1:], RIGHT[5]], (1, 1, 0)),
    ],
)
def test_a_hurt_place_is_counted(found: list[tuple[int, int]], counted: tuple[int, int, int]) -> None:
    assert judge(Counter(found), 50 * PARTITIONS) == counted
