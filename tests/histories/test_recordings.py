"""The imitation of Spark beside recordings of the real one: the same calls, in the same order, with the same
offsets, and with the same batches in Spark's two logs when they come.

recorded/ is what record_spark.py wrote with Spark 4.3. Tasks of a job run side by side in real Spark, so only
their number is compared; and a query that waits asks for the latest offset as often as it likes.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.histories import recorded_source
from tests.histories.clock import Clock
from tests.histories.processes import Application, Strike
from tests.histories.record_spark import RECORDED, SCENARIOS, Life
from tests.histories.recorded_source import RecordedSource
from tests.histories.sim_connection import Killed, Network
from tests.histories.spark import Plan, Stopped, Stream
from tests.histories.world import World

ASKS = ("latestOffset", "prepareForTriggerAvailableNow")


def _told(lines: list[list[Any]]) -> list[list[Any]]:
    """A diary, made comparable."""
    kept: list[list[Any]] = []
    for line in lines:
        if line[0] == "initialOffset" and kept and kept[-1][0] == "initialOffset":
            continue  # asked again at once: the answer is kept
        if line[0] in ASKS and kept and kept[-1] == line:
            continue
        kept.append(line)
    return kept


def _imitated(lives: list[Life], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    world = World(folder / "world")
    world.folder.mkdir()
    file, checkpoint = folder / "diary", folder / "checkpoint"
    file.touch()
    for number, life in enumerate(lives):
        with world.around():
            world.do_produce("in", life.rows)
            with file.open("a") as diary:
                diary.write('["life"]\n')
            _live(world, life, file, checkpoint, f"app-{number}", monkeypatch)
    shutil.rmtree(world.folder, ignore_errors=True)
    return [json.loads(line) for line in file.read_text().splitlines()]


def _live(
    world: World, life: Life, file: Path, checkpoint: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Application(name)

    def die(_: Path) -> None:
        app.kill()
        raise Killed

    monkeypatch.setattr(recorded_source, "end", [die])
    monkeypatch.setattr(recorded_source, "wait", [lambda: Network.process.after("it was told to wait")])
    diary = {"diary.file": str(file), "diary.checkpoint": str(checkpoint), "diary.strike": life.strike}
    given = {"kafka.bootstrap.servers": "a:9092", **diary}
    plan = Plan(
        checkpoint,
        {**given, "subscribe": "in", "startingOffsets": life.starting, "small.batch.max.offsets": "0"},
        {**given, "topic": "out"},
        token="job" if life.each else None,
        kind=RecordedSource,
    )
    try:
        assert isinstance(world.clock, Clock)
        run = Stream(plan, app, world.clock)
        if life.trigger == "now":
            run.available_now()
        elif life.trigger == "stop":
            run.trigger(Strike("stop", ("task: after it was told to wait", 1)))
        else:
            for _ in range(life.batches):
                run.trigger()
            run.trigger()
            run.stop()
    except (Killed, Stopped):
        return
    except RuntimeError:
        run.stop()


@pytest.mark.parametrize(
    "name", [n for n in SCENARIOS if (RECORDED / f"{n.replace(' ', '_')}.json").exists()]
)
def test_the_imitation_calls_as_spark_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = json.loads((RECORDED / f"{name.replace(' ', '_')}.json").read_text())
    assert _told(_imitated(SCENARIOS[name], tmp_path, monkeypatch)) == _told(recorded)
