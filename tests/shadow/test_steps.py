"""Which rows of a shadow are compared with which of the running query."""

import json

import pytest

from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.offsets.offsets import Offsets, ShadowCut, position_from_json, to_json
from eoslog.shadow.steps import NoShadow, Step, steps

A, B, S = ("totals", 0), ("new", 0), ("orders", 0)


def planned(batch: int, decision: int, ends: tuple[int, int, int], began: int | None = None) -> Planned:
    """Ends of the source, of the running query's rows, and of the shadow's before the batch."""
    cut = ShadowCut("v1/a:b", "group", decision, {A: ends[1]}, {B: ends[2]})
    first: Offsets | None = None if began is None else {S: began}
    return Planned(batch, (json.dumps(to_json({S: ends[0]}, began=first, shadow=cut)),))


def test_a_cut_survives_the_checkpoint() -> None:
    cut = ShadowCut("v1/a:b", "g:1", 7, {A: 5, ("totals", 1): 5}, {B: 0})
    text = json.dumps(to_json({S: 3}, {"orders": "id"}, "cluster", shadow=cut))
    assert position_from_json(json.loads(text)).shadow == cut
    assert Planned(0, (text,)).shadows() == [cut]


def test_a_step_for_each_decision() -> None:
    """A query that began at the group's offsets: its first batch is empty, and says where all begins."""
    batches = [
        planned(0, 3, (10, 100, 0), began=10),
        planned(1, 4, (20, 111, 0)),
        planned(2, 6, (40, 133, 11)),
    ]
    one = Step(1, 1, 3, 4, {A: (100, 111)}, {B: (0, 11)})
    assert steps(batches, None) == [one]
    assert steps(batches, {B: 33}) == [one, Step(2, 2, 4, 6, {A: (111, 133)}, {B: (11, 33)})]


def test_a_query_from_the_beginning() -> None:
    """Its first batch is compared with all that the running query has written; the checkpoint is whole."""
    batches = [planned(0, 3, (10, 100, 0), began=0), planned(1, 4, (20, 111, 99))]
    assert steps(batches, None) == [Step(0, 0, None, 3, {A: (0, 100)}, {B: (0, 99)})]
    assert steps([planned(7, 3, (10, 100, 0)), *batches[1:]], {B: 120}) == [
        Step(1, 1, 3, 4, {A: (100, 111)}, {B: (99, 120)})
    ], "what comes before batch 7 is not known"


def test_batches_that_end_at_the_same_decision_are_one_step() -> None:
    batches = [planned(n, at, (10, 10 * at, n), began=None if n else 0) for n, at in enumerate((1, 1, 2))]
    assert steps(batches, {B: 9}) == [
        Step(0, 1, None, 1, {A: (0, 10)}, {B: (0, 2)}), Step(2, 2, 1, 2, {A: (10, 20)}, {B: (2, 9)})
    ]  # fmt: skip


def test_no_shadow() -> None:
    with pytest.raises(NoShadow, match=r"batch 4 ends at no decision of another query.*--from-batch"):
        steps([Planned(4, (json.dumps(to_json({S: 1})),))], {})
