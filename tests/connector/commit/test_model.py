"""The judge of the commit protocol: whatever is killed, lost, repeated, hung or timed out, the readers of
the model cluster see every row once, or somebody says loudly that it is not so."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.connector.commit.model_history import Choices, Fault, Shape
from tests.connector.commit.model_judge import explore, judge
from tests.connector.commit.model_spark import Simulation

CRASHES = (Fault.KILL, Fault.TIMEOUT_LOST, Fault.TIMEOUT_DONE)


@pytest.mark.parametrize("late_markers", [False, True])
@pytest.mark.parametrize("tv", [1, 2])
def test_every_single_fault_at_every_request(tv: int, late_markers: bool) -> None:
    """Two batches of two partitions: crashes, lost requests and answers, repeats, hung drivers, time-outs."""
    ends = explore(Shape(tv=tv, kinds=tuple(Fault), late_markers=late_markers))
    assert ends["whole"] > 800
    assert ends["lost"] == 10, "a time-out between the decision and the last winner's commit, and only there"


@pytest.mark.parametrize("tv", [1, 2])
def test_every_pair_of_kills(tv: int) -> None:
    assert explore(Shape(tv=tv, faults=2, kinds=(Fault.KILL,)))["lost"] == 0


def test_every_pair_of_kills_and_unanswered_requests() -> None:
    shape = Shape(batches=1, faults=2, kinds=(Fault.KILL, Fault.TIMEOUT_DONE))
    assert explore(shape)["lost"] == 0


def test_every_pair_of_lost_requests_with_one_batch() -> None:
    kinds = (Fault.TIMEOUT_LOST, Fault.TIMEOUT_DONE)
    assert explore(Shape(batches=1, faults=2, kinds=kinds, tv=1))["lost"] == 0


@pytest.mark.parametrize("tv", [1, 2])
def test_every_single_fault_where_the_checkpoint_cannot_be_read(tv: int) -> None:
    assert explore(Shape(tv=tv, kinds=(*CRASHES, Fault.SUSPEND), blind=True))["lost"] == 0


@pytest.mark.parametrize("tv", [1, 2])
def test_a_lost_checkpoint_anywhere(tv: int) -> None:
    """A new query takes over the sink, at the offsets of the last decided batch, with numbers from 0."""
    ends = explore(Shape(tv=tv, batches=3, kinds=(Fault.WIPE,)))
    assert ends["lost"] == 0
    ends = explore(Shape(tv=tv, faults=2, kinds=(Fault.WIPE, Fault.KILL)))
    assert ends["lost"] == 0


@pytest.mark.parametrize("tv", [1, 2])
def test_every_single_fault_with_empty_tasks_and_an_empty_batch(tv: int) -> None:
    empty = frozenset({(0, 1), (1, 0), (1, 1)})
    assert explore(Shape(tv=tv, kinds=(*CRASHES, Fault.SUSPEND), empty=empty))["lost"] == 0


@pytest.mark.parametrize("tv", [1, 2])
def test_every_single_fault_as_producer_ids_rotate(tv: int) -> None:
    """Three epochs a producer id: the sink and the tasks change theirs in the middle of everything."""
    ends = explore(Shape(tv=tv, batches=3, kinds=CRASHES, last_epoch=2))
    assert ends["lost"] == 0


def test_at_most_once_drops_a_batch_rather_than_try_it_again() -> None:
    shape = Shape(kinds=(*CRASHES, Fault.SUSPEND), at_most_once=True)
    ends = explore(shape)
    assert ends["lost"] == 0 and ends["dropped"] > 50


KEEPS = pytest.mark.parametrize(
    "shape",
    [
        pytest.param(Shape(tv=1, kinds=tuple(Fault), keeps=True), id="anything, TV1"),
        pytest.param(
            Shape(tv=2, kinds=tuple(Fault), keeps=True, late_markers=True), id="anything, TV2, late markers"
        ),
        pytest.param(
            Shape(tv=1, kinds=tuple(Fault), keeps=True, tells_holder=True, late_markers=True),
            id="anything, TV1, late markers, holder told",
        ),
        pytest.param(
            Shape(tv=2, kinds=tuple(Fault), keeps=True, tells_holder=True), id="anything, TV2, holder told"
        ),
        pytest.param(Shape(tv=2, faults=2, kinds=(Fault.KILL,), keeps=True), id="two kills"),
        pytest.param(
            Shape(tv=1, batches=1, faults=2, kinds=(Fault.KILL, Fault.TIMEOUT_DONE), keeps=True),
            id="killed and unanswered",
        ),
        pytest.param(
            Shape(tv=2, batches=1, faults=2, kinds=(Fault.TIMEOUT_LOST, Fault.TIMEOUT_DONE), keeps=True),
            id="two requests lost",
        ),
        pytest.param(
            Shape(tv=2, batches=1, faults=2, kinds=(Fault.KILL, Fault.EXPIRE), keeps=True),
            id="killed and timed out",
        ),
        pytest.param(
            Shape(tv=1, kinds=(*CRASHES, Fault.SUSPEND), blind=True, keeps=True), id="checkpoint unreadable"
        ),
        pytest.param(Shape(tv=2, batches=3, kinds=(Fault.WIPE,), keeps=True), id="checkpoint lost"),
        pytest.param(
            Shape(tv=2, faults=2, kinds=(Fault.WIPE, Fault.KILL), keeps=True), id="checkpoint lost and killed"
        ),
        pytest.param(Shape(tv=2, batches=3, kinds=CRASHES, last_epoch=2, keeps=True), id="ids rotate, TV2"),
        pytest.param(Shape(tv=1, batches=3, kinds=CRASHES, last_epoch=3, keeps=True), id="ids rotate, TV1"),
    ],
)


@KEEPS
def test_sealed_batches_lose_nothing_whatever_happens(shape: Shape) -> None:
    """Time-outs too: they end only what is not decided."""
    ends = explore(shape)
    assert set(ends) == {"whole"} and ends["whole"] > 20


@pytest.mark.parametrize("tv", [1, 2])
def test_where_sealing_is_not_offered_everything_is_as_without(tv: int) -> None:
    assert explore(Shape(tv=tv, kinds=tuple(Fault), keeps=False))["lost"] == 10


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    seed=st.integers(0, 2**32),
    tv=st.sampled_from([1, 2]),
    faults=st.integers(1, 8),
    late_markers=st.booleans(),
    tells_holder=st.booleans(),
    last_epoch=st.sampled_from([4, 32_766]),
)
def test_large_histories_of_sealed_batches_at_random(
    seed: int, tv: int, faults: int, late_markers: bool, tells_holder: bool, last_epoch: int
) -> None:
    shape = Shape(
        tv=tv, batches=4, partitions=3, faults=faults, kinds=tuple(Fault), spread=True, keeps=True,
        late_markers=late_markers, tells_holder=tells_holder, last_epoch=last_epoch,
    )  # fmt: skip
    assert judge(Simulation(shape, Choices(fallback=mostly_zero(seed))).run()) == "whole"


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(
    seed=st.integers(0, 2**32),
    tv=st.sampled_from([1, 2]),
    faults=st.integers(1, 8),
    late_markers=st.booleans(),
    blind=st.booleans(),
    last_epoch=st.sampled_from([3, 32_766]),
)
def test_large_histories_at_random(
    seed: int, tv: int, faults: int, late_markers: bool, blind: bool, last_epoch: int
) -> None:
    """Four batches of three partitions with speculative attempts, zombie tasks, and any mix of faults."""
    shape = Shape(
        tv=tv, batches=4, partitions=3, faults=faults, kinds=tuple(Fault), spread=True,
        late_markers=late_markers, blind=blind, last_epoch=last_epoch, empty=frozenset({(1, 2)}),
    )  # fmt: skip

    judge(Simulation(shape, Choices(fallback=mostly_zero(seed))).run())


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), tv=st.sampled_from([1, 2]))
def test_without_faults_nobody_stops(seed: int, tv: int) -> None:
    """Whichever planner process begins a batch, and whatever late attempts do."""
    shape = Shape(tv=tv, batches=6, partitions=3, faults=0, spread=True, late_markers=True)
    done = Simulation(shape, Choices(fallback=mostly_zero(seed))).run()
    assert judge(done) == "whole" and done.restarts == 1 and not done.faults


def mostly_zero(seed: int) -> Callable[[int], int]:
    dice = Random(seed)
    return lambda options: dice.randrange(options) if dice.random() < 0.2 else 0
