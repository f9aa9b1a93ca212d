"""`make histories`: draws, plays and judges histories; what breaks a promise is shrunk and told.

    python -m tests.histories.run_histories --histories 100000 --seed 1 --minutes 60 --jobs 2

Prints how histories ended, errors, ways out that were taken, and how many histories a minute.
Exits with 1 if a promise was broken.
"""

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from tests.histories.draw import history
from tests.histories.judge import Finding
from tests.histories.shapes import Act
from tests.histories.shrink import shrink
from tests.histories.world import World

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def play(acts: Sequence[Act]) -> World:
    """One history, in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="histories-", dir=MEMORY))
    world = World(folder)
    try:
        world.play(acts)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} at {Path(where.filename).name}:{where.lineno}"
        world.findings.append(Finding("crash", told))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return world


def kinds(world: World) -> set[str]:
    """What went wrong, without its details: a shrunk history has to fail alike."""
    return {f.kind if f.kind != "no way out" else f"{f.kind}: {f.what.split(':')[0]}" for f in world.findings}


@dataclass
class Totals:
    """Counts of a whole run."""

    histories: int = 0
    acts: int = 0
    requests: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    warned: Counter[str] = field(default_factory=Counter)
    failed: dict[str, list[list[Act]]] = field(default_factory=dict)

    def add(self, acts: list[Act], world: World) -> None:
        """One more history."""
        self.histories += 1
        self.acts += world.acts_done
        self.requests += world.cluster.requests
        self.errors += world.errors
        self.ways += world.ways
        self.warned += world.warned
        if world.findings:
            self.ended["broken"] += 1
            for kind in kinds(world):
                self.failed.setdefault(kind, []).append(acts)
        elif world.ways:
            self.ended["loud, and the way out worked"] += 1
        elif world.errors:
            self.ended["loud, and exact"] += 1
        else:
            self.ended["exact"] += 1

    def merge(self, other: "Totals") -> None:
        """Those of another process."""
        self.histories += other.histories
        self.acts += other.acts
        self.requests += other.requests
        for name in ("ended", "errors", "ways", "warned"):
            getattr(self, name).update(getattr(other, name))
        for kind, failed in other.failed.items():
            self.failed.setdefault(kind, []).extend(failed)


def run(numbers: Iterable[int], seed: int, minutes: float) -> Totals:
    """The histories of these numbers, or as many as there is time for."""
    totals, until = Totals(), time.monotonic() + minutes * 60
    for number in numbers:
        if time.monotonic() > until:
            break
        acts = history(Random(f"{seed} {number}"))
        world = play(acts)
        totals.add(acts, world)
        if world.findings:
            print(
                f"history {number}: {'; '.join(map(str, world.findings))[:300]}", file=sys.stderr, flush=True
            )
    return totals


def run_beside(jobs: int, count: int, seed: int, minutes: float) -> Totals:
    """The same in processes of their own: each takes every so-manieth history."""
    totals = Totals()
    with ProcessPoolExecutor(jobs) as processes:
        parts = [processes.submit(run, range(part, count, jobs), seed, minutes) for part in range(jobs)]
        for part in parts:
            totals.merge(part.result())
    return totals


def told(acts: Sequence[Act]) -> str:
    """A history as it can be pasted into test_kept.py."""
    return "[\n" + "".join(f"    {act!r},\n" for act in acts) + "]"


def _print(name: str, counted: Counter[str]) -> None:
    print(f"\n{name}:")
    for what, count in counted.most_common():
        print(f"  {count:8d}  {what}")


def _found(kind: str, tried: Sequence[Act]) -> bool:
    return kind in kinds(play(tried))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--shrink", type=int, default=2, help="histories to shrink of each kind")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes side by side")
    given = parser.parse_args()
    begun = time.monotonic()
    totals = run_beside(given.jobs, given.histories, given.seed, given.minutes)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    took, spent = time.monotonic() - begun, children.ru_utime + children.ru_stime
    for kind, failed in sorted(totals.failed.items()):
        for acts in sorted(failed, key=len)[: given.shrink]:
            small = shrink(acts, partial(_found, kind))
            done = play(small)
            print(
                f"\n{kind} (in {len(failed)} histories): {'; '.join(map(str, done.findings))}\n{told(small)}"
            )
            print("\n".join(f"  {line[:400]}" for line in done.told))
    rate = totals.histories / took * 60
    print(f"\n{totals.histories} histories, {totals.acts} acts, {totals.requests} requests")
    print(f"{rate:.0f} histories a minute, {totals.histories / spent * 60:.0f} in a minute of one core")
    _print("how they ended", totals.ended)
    _print("errors", totals.errors)
    _print("ways out taken", totals.ways)
    _print("warnings", totals.warned)
    sys.exit(bool(totals.failed))


if __name__ == "__main__":
    main()
