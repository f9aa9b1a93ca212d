"""`make histories-spark`: drawn histories with real Spark on the bundled broker, judged as those without.

    python -m tests.histories.run_histories_spark --histories 24 --seed 1 --minutes 20
    python -m tests.histories.run_histories_spark --seed 1 --only 7

What differs from `make histories`: the broker has transaction.version 2 always, and is down for a moment when
its disk is copied; waits of more than five seconds end when nothing is open any more, and transactions time
out after 15 s for everybody; a history is not shrunk; and steps of tasks come in any order, so a seed repeats
what people do, but not always what strikes. Drawn are only histories that are struck twice or more where
Spark is imitated. Exits with 1 if a promise was broken.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from random import Random

from tests.histories.draw import history
from tests.histories.ground import SimGround
from tests.histories.judge import Finding
from tests.histories.run_histories import MEMORY, Totals, told
from tests.histories.shapes import FILES, Act
from tests.histories.spark_ground import Processes, SparkGround
from tests.histories.world import World
from tests.spark_session import set_environment

STRIKES = 2
"""So many kills, stops and the like have to strike a history."""


def play(acts: Sequence[Act], processes: Processes, struck: Counter[str]) -> World:
    """One history, on a broker of its own."""
    folder = Path(tempfile.mkdtemp(prefix="histories-spark-", dir=MEMORY))
    ground = SparkGround(folder, processes)
    world = World(folder, ground)
    try:
        world.play(acts)
    except Exception as error:
        world.told.append(traceback.format_exc())
        world.findings.append(Finding("crash", f"{type(error).__name__}: {str(error)[-1500:]}"))
    finally:
        struck.update(ground.struck)
        struck["lives"] += len(ground.apps)
        shutil.rmtree(folder, ignore_errors=True)
    return world


def drawn(seed: int, number: int) -> list[Act]:
    """With Spark it takes a minute, so it has to be worth it: with Spark imitated, enough strikes it."""
    for again in count():
        acts = possible(history(Random(f"{seed} {number} {again}")))
        if _strikes(acts) >= STRIKES:
            break
    return acts


def _strikes(acts: Sequence[Act]) -> int:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        ground = SimGround(Path(folder))
        World(Path(folder), ground).play(acts)
        return sum(len(app.met) for app in ground.apps)


def possible(acts: Sequence[Act]) -> list[Act]:
    """Without what the bundled broker or real time does not allow."""
    return [_possible(act) for act in acts if act[0] not in _IMITATED_ACTS]


_IMITATED_ACTS = (
    "forget", "blackout", "stranger", "compact", "mirror", "elsewhere", "move", "unmoved", "wrong",
)  # fmt: skip
"""Acts with Spark imitated alone, and those of two clusters."""
_IMITATED = (
    "kafka.transaction.timeout.ms",
    "union",
    "rows",
    "state",
    "each",
    "tables",
    "second",
    "deadletter.topic",
)
"""Options of a query with Spark imitated alone."""


def _possible(act: Act) -> Act:
    if act[0] == "cluster":
        return ("cluster", 2, act[2])
    if act[0] == "query":
        kept = {name: value for name, value in act[2].items() if name not in _IMITATED}
        kept |= {"in": "in"} if kept.get("in") == FILES else {}
        return ("query", act[1], kept)
    if act[0] in ("run", "write") and isinstance(act[-1], tuple) and act[-1][0] == "copy":
        return (*act[:-1], None)  # local[2] has no speculation
    return act


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first history")
    parser.add_argument("--only", type=int, help="number of the one history")
    parser.add_argument("--minutes", type=float, default=60)
    given = parser.parse_args()
    first, many = (given.first, given.histories) if given.only is None else (given.only, 1)
    set_environment()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the applications end too
    place = Path(tempfile.mkdtemp(prefix="histories-spark-"))
    processes, totals, struck = Processes(place), Totals(), Counter[str]()
    until = time.monotonic() + given.minutes * 60
    try:
        for number in range(first, first + many):
            if time.monotonic() > until:
                break
            begun, acts = time.monotonic(), drawn(given.seed, number)
            world = play(acts, processes, struck)
            totals.add(acts, world)
            found = "; ".join(map(str, world.findings)) or "right"
            print(f"{number}: {time.monotonic() - begun:.0f} s, {world.acts_done} acts, {found}", flush=True)
            if world.findings:
                print(told(acts), *world.told, sep="\n", flush=True)
    finally:
        processes.close()
        shutil.rmtree(place, ignore_errors=True)
    print(f"\n{totals.histories} histories, {totals.acts} acts, {processes.born} applications", flush=True)
    counts = {"how they ended": totals.ended, "errors": totals.errors, "ways out taken": totals.ways}
    for name, counted in {**counts, "struck": struck}.items():
        print(f"\n{name}:")
        for what, times in counted.most_common():
            print(f"  {times:6d}  {what}")
    sys.exit(bool(totals.failed))


if __name__ == "__main__":
    main()
