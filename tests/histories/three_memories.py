"""Kafka's three memories of a micro-batch, each put back to an earlier moment of it.

`__transaction_state` (how transactions stand), `__consumer_offsets` (the decision and the source offsets) and
the sink's partitions (rows and markers) are logs of their own. After a power cut of every replica, a restored
copy or an unclean election they may end at different moments. A cell says where each of them ends:

0: before the batch has written anything. 1: its rows are there, and the decision is pending. 2: it is
decided, and no task's transaction has ended. 3: all is committed.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

from eoslog.client.admin import transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.histories import judge
from tests.histories.ending import MINUTES_20, end
from tests.histories.ground import Ground
from tests.histories.run_histories import MEMORY
from tests.histories.shapes import SINKS
from tests.histories.world import World

TABLE = Path(__file__).parent / "three_memories.txt"
"""How each cell ends."""
SINK = "x"
MOMENTS = "0123"
DRIVERS = ("living", "unnoted", "noted")
"""The driver goes on with its next batch; was killed before Spark's note of this one; was killed after it."""


class Mode(NamedTuple):
    """What kind of a cluster, and whether time-outs pass before anybody comes back."""

    tv: int = 2
    keeps: bool = False
    rests: bool = False


MODES = {
    "tv2": Mode(),
    "tv1": Mode(tv=1),
    "tv2 rests": Mode(rests=True),
    "tv1 rests": Mode(tv=1, rests=True),
    "two-phase": Mode(keeps=True),
}


def cells(mode: Mode) -> list[str]:
    """Transactions, groups, log. After a rest only open transactions differ; with two-phase commit a decision
    and its transactions end at once."""
    moments = MOMENTS.replace("2", "") if mode.keeps else MOMENTS
    opened = "12" if mode.rests else moments
    return [t + g + at for t in opened for g in moments for at in moments]


def play(folder: Path, mode: Mode, driver: str, cell: str, ground: Ground | None = None) -> str:
    """How it ends: errors and the ways out that were taken, and what readers get; after a "!", what was
    broken. `ground`: as World has it."""
    world = World(folder, ground)
    with world.around():
        moments = _until_the_batch_is_done(world, mode, driver)
        of_transactions, of_groups, of_rows = (moments[moment] for moment in cell)
        world.cluster.put_back(of_transactions, of_groups, of_rows, "out")
        if mode.rests:
            world.clock.sleep(MINUTES_20)
        if driver == "living":
            world.do_produce("in", 4)
            world.do_run("A", 2)
        end(world)
        outcome = _outcome(world)
    errors = [told.split(": ")[1] for told in world.told]
    ways = [way.split(": ")[1] for way in world.ways]
    told = ", ".join(dict.fromkeys(errors)) + (f" ({', '.join(ways)})" if ways else "")
    broken = "".join(f" ! {finding}" for finding in world.findings)
    return f"{told}{': ' if told else ''}{outcome}{broken}"


def _outcome(world: World) -> str:
    """What readers get, whoever has accepted what."""
    names, seen = [line.name for line in world.lineages], judge.seen(world.cluster, SINKS)
    counts = [sum(seen[f"{name}:{uid}"] for name in names) for uid in judge.in_log(world.cluster, "in")]
    lost, double = counts.count(0), sum(count > 1 for count in counts)
    said = [f"lacks {lost}"] * bool(lost) + [f"doubles {double}"] * bool(double)
    return ", ".join(said) or "exact"


def _until_the_batch_is_done(world: World, mode: Mode, driver: str) -> dict[str, Any]:
    """Three batches. Copies of the cluster at the moments of the last one."""
    cluster, moments = world.cluster, dict[str, Any]()
    world.do_cluster(mode.tv, mode.keeps)
    world.do_query("A", {"id": SINK, "small": "0"})
    for _ in range(2):
        world.do_produce("in", 4)
        world.do_run("A", 1)
        world.clock.sleep(1)
    moments["0"], ends = cluster.snapshot(), transactions.end_txns

    def end_txns(client: Cluster, whose: Mapping[str, ProducerIdentity], commit: bool) -> Any:
        decides = SINK in whose and commit
        if decides:
            moments["1"] = cluster.snapshot()
        answers = ends(client, whose, commit)
        if decides:
            moments["2"] = cluster.snapshot()
        return answers

    world.do_produce("in", 4)
    with patch.object(transactions, "end_txns", end_txns):
        world.do_run("A", 1, ("kill", ("spark: before commits", 1)) if driver == "unnoted" else None)
    moments["3"] = cluster.snapshot()
    if driver == "noted":
        world.do_kill("A")
    return moments


def rows(folder: Path, name: str, driver: str) -> list[str]:
    """Of the table, those of a mode and a driver: the outcomes, each with its cells."""
    found, mode = dict[str, list[str]](), MODES[name]
    for cell in cells(mode):
        found.setdefault(play(folder / cell, mode, driver, cell), []).append(cell)
    return [f"{name}, {driver} | {outcome} | {' '.join(at)}" for outcome, at in sorted(found.items())]


def main() -> None:
    """Writes the table anew: python -m tests.histories.three_memories."""
    with TemporaryDirectory(dir=MEMORY) as folder:
        each = [rows(Path(folder) / name / driver, name, driver) for name in MODES for driver in DRIVERS]
    TABLE.write_text("".join(f"{row}\n" for found in each for row in found))


if __name__ == "__main__":
    main()
