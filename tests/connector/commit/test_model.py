"""The judge of the commit protocol: whatever is killed, lost, repeated, late, hung or timed out, the readers
of the model cluster see every row once, or somebody says loudly that it is not so.

`pytest -s` prints what each shape of histories covers, and which fault struck at which request.
"""

from collections.abc import Callable
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.connector.commit.model_coverage import Coverage
from tests.connector.commit.model_history import BY_ITSELF, Choices, Fault, Shape
from tests.connector.commit.model_judge import explore, judge
from tests.connector.commit.model_shapes import STRIKES, Case, names, suite
from tests.connector.commit.model_spark import Simulation

SUITE = suite()


@cache
def covered(shape: Shape) -> Coverage:
    return explore(shape)


@pytest.mark.parametrize("case", SUITE, ids=names(SUITE))
def test_every_history(case: Case) -> None:
    """Two tasks, up to three batches: a fault, or two, at each request in turn."""
    found = covered(case.shape)
    print(f"\n{case.name}: {found}")
    assert set(found.ends) == case.ends
    assert found.ends.total() > 20


def test_what_is_lost_is_lost_to_a_time_out_after_the_decision() -> None:
    """Between the decision and the last winner's commit, and only there: seven places in each batch, two of
    them around a request that nobody waits for."""
    for case in SUITE:
        if case.name.startswith("3 batches, one strike") and not case.shape.keeps:
            assert covered(case.shape).ends["lost"] == 21, case.name


def test_every_request_of_every_step_was_hit_by_every_fault() -> None:
    """Requests that are made after another fault only, too: those of recovery and of giving up."""
    whole, forgetting = Coverage(), Coverage()
    for case in SUITE:
        repairs_follow = Fault.FORGET in case.shape.kinds or not case.shape.verifies
        (forgetting if repairs_follow else whole).merge(covered(case.shape))
    print(f"\nin all: {whole}\n{whole.table()}")
    kinds = [kind for kind in STRIKES if kind is not Fault.EXPIRE]  # that needs an open transaction
    # Made only after two faults: abort takes over what is sealed; a commit without an answer,
    # timed out as well, looks for what is held open. `make model` strikes there.
    deeper = {"abort: InitProducerId(keep) of a participant", "commit: DescribeProducers of the sink"}
    assert deeper <= whole.labels
    missing = [place for place in whole.missing(kinds) if place[0] not in deeper]
    # A second look after an end is two faults deep: shapes of END with others have it.
    # So is what a query asks that was handed over.
    two_deep = ("abort again", "begin: OffsetFetch of the user's group")
    assert [place for place in missing if not place[0].startswith(two_deep)] == []
    assert len(whole.labels) > 25
    # What is asked only where markers are lost: killed there, too.
    repairs = {label for label in forgetting.labels if label.startswith("prove")}
    assert {"begin: WriteTxnMarkers", "prove: WriteTxnMarkers"} <= forgetting.labels
    assert not repairs & {label for label, _ in forgetting.missing([Fault.KILL])}


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    seed=st.integers(0, 2**32),
    tv=st.sampled_from([1, 2]),
    faults=st.integers(1, 8),
    late_markers=st.booleans(),
    tells_holder=st.booleans(),
    last_epoch=st.sampled_from([4, 32_766]),
    twice=st.booleans(),
)
def test_large_histories_of_sealed_batches_at_random(
    seed: int, tv: int, faults: int, late_markers: bool, tells_holder: bool, last_epoch: int, twice: bool
) -> None:
    shape = Shape(
        tv=tv, batches=4, partitions=3, faults=faults, kinds=BY_ITSELF, spread=True, keeps=True,
        late_markers=late_markers, tells_holder=tells_holder, last_epoch=last_epoch, twice=twice,
    )  # fmt: skip
    judge(Simulation(shape, Choices(fallback=mostly_zero(seed))).run())


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(
    seed=st.integers(0, 2**32),
    tv=st.sampled_from([1, 2]),
    faults=st.integers(1, 8),
    late_markers=st.booleans(),
    last_epoch=st.sampled_from([3, 32_766]),
    twice=st.booleans(),
)
def test_large_histories_at_random(
    seed: int, tv: int, faults: int, late_markers: bool, last_epoch: int, twice: bool
) -> None:
    """Four batches of three partitions with speculative attempts, zombie tasks, and any mix of faults."""
    shape = Shape(
        tv=tv, batches=4, partitions=3, faults=faults, kinds=BY_ITSELF, spread=True, twice=twice,
        late_markers=late_markers, last_epoch=last_epoch, empty=frozenset({(1, 2)}),
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
