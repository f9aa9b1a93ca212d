"""Kafka's three memories of a micro-batch, each put back to an earlier moment of it.

`__transaction_state` (how transactions stand), `__consumer_offsets` (the decision and the source offsets) and
the sink's partitions (rows and markers) are logs of their own. After a power cut of every replica, a restored
copy or an unclean election they may end at different moments. A cell says where each of them ends:

0: before the batch has written anything. 1: its rows are there, and the decision is pending. 2: it is
decided, and no task's transaction has ended. 3: all is committed. a, b, c: as 0, 1, 2, of the batch before.

These logs have partitions, which may end apart, too. A cell beyond the table says where six of them end: the
sink's own transaction, those of its tasks, its group, the group of its source offsets, and out-0 and out-1.
"""

import re
from collections import Counter
from collections.abc import Mapping
from math import inf
from pathlib import Path
from random import Random
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
TOKENS = f"{SINK}:job-:out"
"""The sink of its writes with a token in foreachBatch."""
EARLIER, MOMENTS = "abc", "0123"
DRIVERS = ("living", "unnoted", "noted")
"""The driver goes on with its next batch; was killed before Spark's note of this one; was killed after it."""
BEFORE_THE_NOTE = ("kill", ("spark: before commits", 1))


class Mode(NamedTuple):
    """What kind of a cluster, and whether time-outs pass before anybody comes back. `token`: the query writes
    in foreachBatch, with write.token. `marks`: its user has the right ClusterAction."""

    tv: int = 2
    keeps: bool = False
    rests: bool = False
    token: bool = False
    marks: bool = True


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


def drawn(seed: int, count: int) -> list[tuple[str, str, str]]:
    """Cells beyond the table, each with its mode and driver."""
    found, luck = list[tuple[str, str, str]](), Random(seed)
    for _ in range(count):
        name, driver = luck.choice(list(MODES)), luck.choice(DRIVERS)
        moments = [m for m in EARLIER + MOMENTS if not (MODES[name].keeps and m in "c2")]
        found.append((name, driver, "".join(luck.choice(moments) for _ in range(6))))
    return found


def play(folder: Path, mode: Mode, driver: str, cell: str, ground: Ground | None = None) -> str:
    """How it ends: errors and the ways out that were taken, and what readers get; after a "!", what was
    broken. `ground`: as World has it."""
    world, _ = played(folder, mode, driver, cell, ground)
    errors = [told.split(": ")[1] for told in world.told]
    ways = [way.split(": ")[1] for way in world.ways]
    told = ", ".join(dict.fromkeys(errors)) + (f" ({', '.join(ways)})" if ways else "")
    broken = "".join(f" ! {finding}" for finding in world.findings)
    return f"{told}{': ' if told else ''}{_outcome(world)}{broken}"


def played(
    folder: Path, mode: Mode, driver: str, cell: str, ground: Ground | None = None
) -> tuple[World, Mapping[str, int]]:
    """The end of a cell; and of one beyond the table, in which partition each row was before it."""
    world, where = World(folder, ground), dict[str, int]()
    with world.around():
        moments = _until_the_batch_is_done(world, mode, driver, cell)
        cluster: Any = world.cluster
        if len(cell) == 3:
            cluster.put_back(*(moments[moment] for moment in cell), "out")
        else:
            where = {row: n for n in range(cluster.partitions("out")) for row in cluster.seen("out", n)}
            _put_back_apart(cluster, *(moments[moment] for moment in cell))
            world.parted = True
        if mode.rests:
            world.clock.sleep(MINUTES_20)
        if driver == "living":
            world.do_produce("in", 4)
            world.do_run("A", 2)
        end(world)
    return world, where


def _put_back_apart(cluster: Any, own: Any, tasks: Any, decision: Any, offsets: Any, *logs: Any) -> None:
    cluster.put_back_apart(
        lambda name: own if name == SINK else tasks,
        lambda group: decision if group == SINK else offsets,
        lambda number: logs[int(number)],
        "out",
    )


def set_back(folder: Path, moments: str, *, lost: bool) -> World:
    """The end of a query whose checkpoint is put back, in one act with the sink's group, to the moment before
    its last batch. `moments`: of transactions and log. `lost`: nobody has the newer checkpoint any more."""
    world = World(folder)
    with world.around():
        copies = _until_the_batch_is_done(world, MODES["tv2"], "copied", "000")
        world.cluster.put_back(copies[moments[0]], copies["0"], copies[moments[1]], "out")
        world.do_restore("A")
        if lost:
            world.queries["A"].aside.clear()
        end(world)
    return world


def _outcome(world: World) -> str:
    """What readers get, whoever has accepted what."""
    names, seen = [line.name for line in world.lineages], judge.seen(world.cluster, SINKS)
    counts = [sum(seen[f"{name}:{uid}"] for name in names) for uid in judge.in_log(world.cluster, "in")]
    lost, double = counts.count(0), sum(count > 1 for count in counts)
    said = [f"lacks {lost}"] * bool(lost) + [f"doubles {double}"] * bool(double)
    return ", ".join(said) or "exact"


def fault(world: World, where: Mapping[str, int]) -> str:
    """What is wrong with the end of a cell; "": nothing. Rows may be there twice, or not at all, if an error
    has told so of their partition before the word was given, of no fewer than there are then."""
    if world.findings:
        return "; ".join(map(str, world.findings))
    seen, lost, double = judge.seen(world.cluster, SINKS), Counter[int](), Counter[int]()
    for uid in judge.in_log(world.cluster, "in"):
        rows = [f"{line.name}:{uid}" for line in world.lineages]
        at = next((where[row] for row in rows if row in where), -1)
        count = sum(seen[row] for row in rows)
        lost[at], double[at] = lost[at] + (not count), double[at] + (count > 1)
    said = [f"{n} rows of out-{at} lost" for at, n in lost.items() if n > _told_lost(world, at)]
    said += [f"{n} rows of out-{at} twice" for at, n in double.items() if n > _told_twice(world, at)]
    return ", ".join(said)


def _told_lost(world: World, partition: int) -> float:
    """Of how many lost rows errors have told: of all behind a place."""
    place = rf"out-{partition} (ends|begins) at|offset \d+ of out-{partition} holds"
    return inf if any(re.search(place, text) for text in world.told) else 0


def _told_twice(world: World, partition: int) -> int:
    """Of how many rows errors have told that they are there already."""
    told = (found for text in world.told for found in re.findall(rf"out-{partition} has (\d+)", text))
    return max(map(int, told), default=0)


def _until_the_batch_is_done(world: World, mode: Mode, driver: str, cell: str) -> dict[str, Any]:
    """Three batches. Copies of the cluster at the moments of the last one; of the one before, if the cell
    needs them."""
    cluster: Any = world.cluster
    moments = dict[str, Any]()
    world.do_cluster(mode.tv, mode.keeps)
    cluster.may_mark = mode.marks
    world.do_query("A", {"id": SINK, "small": "0"} | ({"token": "job"} if mode.token else {}))
    for named in ("", EARLIER if {*EARLIER} & {*cell} else "", MOMENTS):
        if named:
            moments[named[0]] = cluster.snapshot()
        if named == MOMENTS and driver == "copied":
            world.do_backup("A")
        world.do_produce("in", 4)
        is_last = named == MOMENTS
        with _copied(world, moments, named[1:3]):
            world.do_run("A", 1, BEFORE_THE_NOTE if is_last and driver == "unnoted" else None)
        if not is_last:
            world.clock.sleep(1)
    moments["3"] = cluster.snapshot()
    if driver in ("noted", "copied"):
        world.do_kill("A")
    return moments


def _copied(world: World, moments: dict[str, Any], named: str) -> Any:
    """Within it copies are made before a decision and after it."""
    ends = transactions.end_txns

    def end_txns(client: Cluster, whose: Mapping[str, ProducerIdentity], commit: bool) -> Any:
        decides = bool({SINK, TOKENS} & {*whose}) and commit and bool(named)
        if decides:
            moments[named[0]] = world.cluster.snapshot()
        answers = ends(client, whose, commit)
        if decides:
            moments[named[1]] = world.cluster.snapshot()
        return answers

    return patch.object(transactions, "end_txns", end_txns)


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
