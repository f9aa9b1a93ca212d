"""Batch writes judged as streams are (test_model.py): histories with a fault at each request, and rules that
are broken by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from eoslog.connector.commit import begin, decide, decision, prepare, seal, write_token
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.write_token import RememberedTokens
from tests.connector.commit.model_history import Fault, Shape
from tests.connector.commit.model_judge import explore
from tests.connector.commit.model_shapes import LOSSES, STRIKES
from tests.connector.commit.model_spark import Simulation
from tests.connector.commit.model_writes import Anonymous, Writes, WritesOfOthers, judge_writes

ANEW = (Fault.WIPE,)
Break = Callable[[pytest.MonkeyPatch], None]


def ends(shape: Shape, kind: type[Simulation]) -> set[str]:
    found = explore(shape, kind, judge_writes)
    print(f"\n{kind.__name__}: {found}")
    assert found.ends.total() > 20
    return set(found.ends)


@pytest.mark.parametrize("late", [False, True], ids=["", "late markers"])
@pytest.mark.parametrize("keeps", [None, True], ids=["", "sealed"])
@pytest.mark.parametrize("tv", [1, 2])
def test_every_write_with_a_token_is_there_once(tv: int, keeps: bool | None, late: bool) -> None:
    shape = Shape(tv=tv, batches=3, kinds=STRIKES, keeps=keeps, late_markers=late)
    assert ends(shape, Writes) == ({"whole"} if keeps else {"whole", "lost"})


@pytest.mark.parametrize("tv", [1, 2])
def test_drivers_and_tasks_that_hang_and_a_commit_called_twice(tv: int) -> None:
    other = Shape(tv=tv, keeps=tv == 1 or None, late_markers=tv == 2)
    assert ends(Shape(**{**other.__dict__, "kinds": (Fault.SUSPEND,)}), Writes) == {"whole"}
    assert ends(Shape(**{**other.__dict__, "kinds": (Fault.HANG,)}), Writes) == {"whole"}
    assert ends(Shape(**{**other.__dict__, "kinds": LOSSES, "twice": True}), Writes) == {"whole"}


@pytest.mark.parametrize("tv", [1, 2])
def test_the_checkpoint_is_made_anew(tv: int) -> None:
    """The same rows pass; others are said, unless the token was not decided before."""
    assert ends(Shape(tv=tv, batches=3, kinds=ANEW, keeps=tv == 2 or None), Writes) == {"whole"}
    shape = Shape(tv=tv, batches=3, kinds=ANEW, keeps=tv == 1 or None)
    assert "refused" in ends(shape, WritesOfOthers)


def test_a_token_that_is_forgotten_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_token, "KEPT_TOKENS", 1)
    assert ends(Shape(batches=3, kinds=ANEW), Writes) == {"whole", "refused"}


@pytest.mark.parametrize("keeps", [None, False, True])
@pytest.mark.parametrize("tv", [1, 2])
def test_a_write_without_a_name_leaves_nothing_open(tv: int, keeps: bool | None) -> None:
    """Nor rows in part, but for a death between its decision and its last commit."""
    assert ends(Shape(tv=tv, kinds=STRIKES, keeps=keeps), Anonymous) == {"whole", "failed", "in part"}


def not_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RememberedTokens, "get", lambda self, token: None)


def floor_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(write_token, "KEPT_TOKENS", 1)
    patch.setattr(RememberedTokens, "forgot", lambda self, token: False)


def contents_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide, "_check_content", lambda *told: None)


def no_roll_forward(patch: pytest.MonkeyPatch) -> None:
    def nothing(last: Any) -> c.Rules[None]:
        return
        yield

    patch.setattr(begin, "finish_late", nothing)


def parity_ignored(patch: pytest.MonkeyPatch) -> None:
    for module in (prepare, decision, decide):
        patch.setattr(module, "parity", lambda batch_id: 0)


def sealed_without_a_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(seal, "of_write", lambda policy, named: policy)


BROKEN: list[tuple[Break, type[Simulation], Shape]] = [
    (not_remembered, Writes, Shape(batches=3, kinds=ANEW)),
    (floor_not_looked_at, Writes, Shape(batches=3, kinds=ANEW)),
    (contents_not_compared, WritesOfOthers, Shape(batches=3, kinds=ANEW)),
    (no_roll_forward, Writes, Shape(kinds=LOSSES)),
    (parity_ignored, Writes, Shape(kinds=LOSSES)),
    (sealed_without_a_name, Anonymous, Shape(kinds=LOSSES, keeps=True)),
]


@pytest.mark.parametrize(("break_rule", "kind", "shape"), BROKEN, ids=[rule.__name__ for rule, *_ in BROKEN])
def test_a_broken_rule_is_seen(
    break_rule: Break, kind: type[Simulation], shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rule(monkeypatch)
    with pytest.raises(AssertionError):
        explore(shape, kind, judge_writes)
