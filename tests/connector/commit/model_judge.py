"""What a history must have come to, the walk through all histories of a shape, and `make model`."""

import argparse
import time
from collections.abc import Callable
from random import Random

from tests.connector.commit.model_history import BY_ITSELF, LATE, Case, Choices, Fault, Shape, deep
from tests.connector.commit.model_programs import SOURCE, USER_GROUP
from tests.connector.commit.model_spark import Coverage, Simulation

# -- the judge -----------------------------------------------------------------------------------
# What a history must have come to, and the walk through all histories of a shape.


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


# -- make model ----------------------------------------------------------------------------------
# The deep part of the model test, for `make model`: more faults in one history, then large ones at random.
#
#     python -m tests.connector.commit.model_judge --depth 2 --minutes 10 --seed 7
#
# Every history up to `depth` faults of the shapes in deep(), shape by shape, as long as there is
# time for half of the minutes; the rest of the time random histories of four batches of three partitions.
# Prints what was covered; the first history that breaks the guarantee ends it, with the way to repeat it.


def one(shape: Shape, choices: Choices, covered: Coverage, repeat: object) -> None:
    """Run and judge one history. AssertionError says how to repeat it."""
    done = Simulation(shape, choices)
    try:
        covered.add(judge(done.run()), done)
    except AssertionError as wrong:
        raise AssertionError(f"{wrong}\n{shape}\n{repeat}\n{done.places}\n{done.faults}") from wrong


def every_history(case: Case, until: float) -> tuple[Coverage, bool]:
    """All histories of a shape, or as many as there is time for; and whether it was all."""
    covered = Coverage()
    given: tuple[int, ...] | None = ()
    while given is not None and time.monotonic() < until:
        choices = Choices(given)
        one(case.shape, choices, covered, given)
        given = choices.following()
    assert set(covered.ends) <= case.ends, (case.name, covered.ends)
    return covered, given is None


def random_shape(dice: Random) -> Shape:
    """A large one, on any kind of cluster."""
    return Shape(
        tv=dice.choice((1, 2)),
        batches=4,
        partitions=3,
        faults=dice.randint(1, 10),
        kinds=BY_ITSELF,
        spread=True,
        twice=dice.random() < 0.3,
        late_markers=dice.random() < 0.5,
        keeps=dice.choice((None, True)),
        tells_holder=dice.random() < 0.3,
        last_epoch=dice.choice((4, 32_766)),
        replays=dice.random() < 0.5,
        empty=frozenset({(1, 2)}) if dice.random() < 0.3 else frozenset(),
    )


def at_random(seed: int, until: float) -> Coverage:
    """Large histories until the time is over."""
    covered = Coverage()
    while time.monotonic() < until:
        dice = Random(seed)
        shape = random_shape(dice)
        one(shape, Choices(fallback=_mostly_zero(dice)), covered, f"SEED={seed}")
        seed += 1
    return covered


def _mostly_zero(dice: Random) -> Callable[[int], int]:
    often = dice.choice((0.05, 0.2, 0.4))
    return lambda options: dice.randrange(options) if dice.random() < often else 0


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    began = time.monotonic()
    whole = Coverage()
    cases = deep(asked.depth)
    share = asked.minutes * 30 / len(cases)
    for number, case in enumerate(cases):
        # What a shape leaves of its time is for those after it.
        until = max(time.monotonic() + share, began + share * (number + 1))
        found, all_of_them = every_history(case, until)
        print(f"{'all' if all_of_them else 'the first'} of {case.name}: {found}", flush=True)
        whole.merge(found)
    found = at_random(asked.seed, max(began + asked.minutes * 60, time.monotonic() + 10))
    print(f"at random from SEED={asked.seed}: {found}")
    whole.merge(found)
    print(f"\nin all: {whole}\n{whole.table()}")


if __name__ == "__main__":
    main()
