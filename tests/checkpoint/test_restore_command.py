"""`eoslog checkpoint restore`: what it says, and how it ends. What it restores: tests/connector/saved."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eoslog.checkpoint import restore_checkpoint
from eoslog.cli import main
from eoslog.client.wire.cluster import Cluster
from eoslog.errors import OptionError
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.plain_checkpoint import (
    copy_topic,
    decide,
    group_of,
    last,
    lines,
    plan,
    run,
    sink_of,
)
from tests.connector.saved.saved_world import SavedWorld, operator
from tests.connector.stock_kafka import Kafka


@pytest.fixture
def world(broker: EmbeddedBroker, tmp_path: Path) -> SavedWorld:
    """A query that has decided four batches, and saved the first and the fourth."""
    world = SavedWorld(broker, tmp_path / "checkpoint", every=3)
    for number in range(5):
        world.decide(number)
    return world


def restore(world: SavedWorld, *more: str) -> Result:
    given = ["--transactional-id", world.sink.id, "--bootstrap-server", world.kafka.bootstrap, *more]
    return CliRunner().invoke(main, ["checkpoint", "restore", str(world.folder), *given])


def test_it_says_what_the_next_start_does(world: SavedWorld) -> None:
    world.lose()
    done = restore(world)
    assert done.exit_code == 0, done.output
    assert "of query query is restored: 8 files" in done.output
    assert done.output.endswith("Its next start runs batches 3 to 4 again, for the state alone\n")
    shown = CliRunner().invoke(
        main, ["checkpoint", "show", str(world.folder), "--bootstrap-server", world.kafka.bootstrap]
    )
    assert shown.exit_code == 0, shown.output


def test_for_a_script(world: SavedWorld) -> None:
    world.lose()
    done = restore(world, "--json")
    said = json.loads(done.stdout)
    assert (said["query"], said["batch"], said["decided"], said["files"]) == ("query", 3, 4, 8)
    assert said["bytes"] > 0


def test_a_checkpoint_that_is_there(world: SavedWorld) -> None:
    done = restore(world)
    assert done.exit_code == 1 and "has batches: name an empty folder" in done.output


def test_a_query_that_has_decided_nothing(world: SavedWorld) -> None:
    world.lose()
    done = restore(world, "--transactional-id", "never-heard-of")
    assert done.exit_code == 0 and "has decided nothing: start the query with a new checkpoint" in done.output
    done = restore(world, "--transactional-id", "never-heard-of", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout) is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--bootstrap-server", "127.0.0.1:1", "--timeout", "0.5"), "127.0.0.1:1"),
        (("--decision-topic", "no-such-topic", "--timeout", "0.5"), "no-such-topic"),
    ],
)
def test_what_cannot_be_reached(world: SavedWorld, given: tuple[str, ...], says: str) -> None:
    world.lose()
    done = restore(world, *given)
    assert done.exit_code == 1 and says in done.output, done.output
    assert list(world.folder.iterdir()) == []


def lose(checkpoint: Path) -> dict[str, str]:
    """Lose a checkpoint: its files, but for eoslog's notes of edits, saves and starts."""
    paths = (path for path in sorted(checkpoint.rglob("*")) if path.is_file())
    files = {str(path.relative_to(checkpoint)): path.read_text() for path in paths}
    shutil.rmtree(checkpoint)
    others = re.compile(r"eoslog/(edit|claim|saved|starts)")
    return {name: text for name, text in files.items() if not others.match(name)}


def comes_back(broker: EmbeddedBroker, checkpoint: Path, sink: str) -> None:
    """The checkpoint is lost, restored from what the last decision names, and the next start goes on."""
    shown = json.loads(run(broker, "show", checkpoint, "--json").stdout)
    files = lose(checkpoint)
    done = run(broker, "restore", checkpoint, "--transactional-id", sink)
    assert done.exit_code == 0 and "goes on after batch" in done.output, done.output
    checked = run(broker, "check", checkpoint)
    assert checked.exit_code == 0, checked.output
    now = json.loads(run(broker, "show", checkpoint, "--json").stdout)
    assert {name for name in shown if now[name] != shown[name]} <= {"last_edit", "coordinator"}
    assert lose(checkpoint).items() <= files.items()
    assert run(broker, "restore", checkpoint, "--transactional-id", sink).exit_code == 0


EDITS = {
    "rewind": ("rewind", "--by", "5", "--accept-duplicates", "5"),
    "rewind behind the batch before": ("rewind", "--by", "15", "--accept-duplicates", "15"),
    "skip-to": ("skip-to", "--to", "latest", "--accept-loss", "10"),
    "rewind and undo": ("rewind", "--by", "5", "--accept-duplicates", "5"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_checkpoint_comes_back(
    broker: EmbeddedBroker, saved: Path, cluster: Cluster, topic: str, state: str, edit: str
) -> None:
    command, *more = EDITS[edit]
    done = run(broker, command, saved, *more)
    assert done.exit_code == 0, done.output
    if edit.endswith("undo"):
        assert run(broker, "undo", saved).exit_code == 0
    comes_back(broker, saved, sink_of(topic))
    plan(saved, 2, lines({topic: {"0": 30}}))
    decide(cluster, saved, topic, 2, last(cluster, topic), state)
    lose(saved)
    done = run(broker, "restore", saved, "--transactional-id", sink_of(topic))
    assert done.exit_code == 0 and "runs batch 2 again" in done.output, done.output


def test_an_edit_of_batches_comes_back(
    broker: EmbeddedBroker, saved: Path, cluster: Cluster, topic: str, state: str
) -> None:
    """A query with state goes back by batches."""
    for version in (1, 2, 3):
        path = saved / "state" / "0" / "0" / f"{version}.delta"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"state {version}")
    (saved / "state" / "0" / "_metadata").mkdir()
    (saved / "state" / "0" / "_metadata" / "metadata").write_text(operator("stateStoreSave"))
    plan(saved, 2, lines({topic: {"0": 30}}))
    decide(cluster, saved, topic, 2, last(cluster, topic), state)
    done = run(broker, "rewind", saved, "--to-batch", "1", "--accept-duplicates", "10")
    assert done.exit_code == 0, done.output
    (saved / "state" / "0" / "0" / "3.delta").unlink()  # of the batch that was taken back: nobody needs it
    comes_back(broker, saved, sink_of(topic))


def test_a_fork_comes_back(broker: EmbeddedBroker, saved: Path, topic: str, tmp_path: Path) -> None:
    new, names = tmp_path.parent / f"{tmp_path.name}-new", (f"new-{sink_of(topic)}", f"new-{group_of(topic)}")
    given = ["--transactional-id", names[0], "--group", names[1], "--accept-duplicates", "10"]
    done = run(broker, "fork", saved, str(new), *given)
    assert done.exit_code == 0, done.output
    comes_back(broker, new, names[0])
    lose(saved)
    assert run(broker, "restore", saved, "--transactional-id", sink_of(topic)).exit_code == 0


def test_a_query_that_has_moved_comes_back_on_its_new_cluster(
    broker: EmbeddedBroker, other: EmbeddedBroker, saved: Path, topic: str, state: str
) -> None:
    """It needs the topic of its state there; the error says how to make it."""
    copy_topic(Kafka(broker.bootstrap), Kafka(other.bootstrap), topic, 1, 7, 30)
    there = ["--to-bootstrap-server", other.bootstrap]
    refused = run(broker, "move-cluster", saved, *there)
    assert refused.exit_code == 1 and "Nothing was changed. Make the topic" in refused.output
    assert run(broker, "check", saved).exit_code == 0
    command = re.search(r"eoslog (topics create .*)", refused.output)
    assert command is not None
    made = CliRunner().invoke(main, [*command[1].split(), "--bootstrap-server", other.bootstrap])
    assert made.exit_code == 0, made.output
    done = run(broker, "move-cluster", saved, *there)
    assert done.exit_code == 0, done.output
    comes_back(other, saved, sink_of(topic))


def test_an_edit_that_cannot_save_changes_nothing(
    broker: EmbeddedBroker, saved: Path, cluster: Cluster, topic: str
) -> None:
    (saved / "offsets" / "0").unlink()
    before = last(cluster, topic)
    done = run(broker, *EDITS["rewind"][:1], saved, *EDITS["rewind"][1:])
    assert done.exit_code == 1 and "offsets/0 of 1 files" in done.output, done.output
    assert last(cluster, topic) == before and not list((saved / "eoslog").glob("edit-*"))


def test_the_name_is_needed(world: SavedWorld) -> None:
    done = CliRunner().invoke(main, ["checkpoint", "restore", str(world.folder)])
    assert done.exit_code == 2 and "--transactional-id" in done.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "the option state.topic is missing"),
        ({"state.topic": "s"}, "state.topic needs transactional.id"),
        (
            {"state.topic": "s", "transactional.id": "q", "processing.guarantee": "at_least_once"},
            "exactly_once",
        ),
        ({"state.topic": "t", "transactional.id": "q"}, "choose another state.topic"),
        ({"state.every.batches": "3"}, "state.every.batches needs state.topic"),
        ({"state.topic": "s", "transactional.id": "q", "state.every.batches": "0"}, "a whole number above 0"),
    ],
)
def test_wrong_options_of_the_function(tmp_path: Path, options: dict[str, str], says: str) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"} | options
    with pytest.raises(OptionError, match=says):
        restore_checkpoint(str(tmp_path / "checkpoint"), given)
