"""What a history must have come to, and the walk through all histories of a shape."""

from collections.abc import Callable

from tests.connector.commit.model_coverage import Coverage
from tests.connector.commit.model_history import LATE, Choices, Fault, Shape
from tests.connector.commit.model_programs import SOURCE, USER_GROUP
from tests.connector.commit.model_spark import Simulation


def judge(done: Simulation) -> str:
    """The guarantee, from the readers' view; returns how the history ended."""
    visible, wanted = done.broker.visible(), done.all_rows()
    assert set(visible) <= set(wanted), "rows that nobody wrote"
    assert len(set(visible)) == len(visible), "doubled"
    missing = set(wanted) - set(visible)
    if done.lost:
        # An InitProducerId that comes late ends what is open under its name, and hides what was committed.
        anew = any(kind in LATE and "InitProducerId" in label for label, kind in done.places)
        gone = {Fault.EXPIRE, Fault.RESTORE} & set(done.used)
        assert gone or anew, "lost without a time-out"
        assert missing or anew, "loud without need"
        return "lost"
    if done.broker.stray_groups():
        # Loud as well, at the next start: a copy of TxnOffsetCommit may come after its commit, too.
        assert not done.shape.verifies and set(LATE) & set(done.used), "offsets are pending for ever"
        assert not missing or done.held, "lost silently"
        return "held"
    if done.broker.held:
        # Transaction.version 1: a fresh start cannot tell the last transaction from those before it.
        assert done.shape.tv == 1 and Fault.FORGET in done.used, f"held for ever: {done.broker.held}"
        assert done.held or set(done.broker.held) == {USER_GROUP}, "the decision cannot be read, silently"
        return "held"
    assert not done.held, "stopped without need"
    if not done.shape.spread and set(done.used) <= {Fault.HANG}:
        assert not done.broker.ongoing(done.sink.prefix), "an attempt that came late holds readers back"
    assert not done.broker.stray(), "rows that came late hold readers back for ever"
    batches = [int(row.split("/")[0]) for row in visible]
    assert batches == sorted(batches), "a batch stands in the log before an earlier one"
    assert done.broker.groups[USER_GROUP][SOURCE][0] == done.slices, "source offsets"
    if missing:
        assert done.shape.at_most_once, "lost silently"
        parts = {row.split("/")[0] for row in missing} & {row.split("/")[0] for row in visible}
        assert not parts, "a batch in part"
        return "dropped"
    return "whole"


def explore(
    shape: Shape, kind: type[Simulation] = Simulation, verdict: Callable[[Simulation], str] = judge
) -> Coverage:
    """Every history of this shape and kind, one by one; returns what they covered. AssertionError names the
    first history that breaks the guarantee."""
    covered = Coverage()
    given: tuple[int, ...] | None = ()
    while given is not None:
        choices = Choices(given)
        done = kind(shape, choices)
        try:
            covered.add(verdict(done.run()), done)
        except AssertionError as wrong:
            raise AssertionError(f"{wrong}\n{shape}\n{given}\n{done.used}\n{done.faults}") from wrong
        given = choices.following()
    return covered
