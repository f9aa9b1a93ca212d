"""The machine of `make histories` itself. What that draws at random is kept, once judged, in test_kept.py."""

from random import Random

from tests.histories.draw import history
from tests.histories.run_histories import play


def test_a_seed_draws_the_same_history_again() -> None:
    first, again = (history(Random("7 3")) for _ in range(2))
    assert first == again
    assert play(first).findings == play(again).findings
