"""The machine of `make histories`, and a few of the histories that it draws."""

from random import Random

import pytest

from tests.histories.draw import history
from tests.histories.run_histories import play, told

HISTORIES = 160
"""In parts, so that one that fails is named. Each takes some 50 ms."""
PARTS = 8


def test_a_seed_draws_the_same_history_again() -> None:
    first, again = (history(Random("7 3")) for _ in range(2))
    assert first == again
    assert play(first).findings == play(again).findings


@pytest.mark.parametrize("part", range(PARTS))
def test_no_promise_is_broken(part: int) -> None:
    for number in range(part, HISTORIES, PARTS):
        acts = history(Random(f"20 {number}"))
        world = play(acts)
        assert not world.findings, (world.findings, told(acts), world.told)
