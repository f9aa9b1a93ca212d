"""`eoslog checkpoint restore`: what it says, and how it ends. What it restores: tests/connector/saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eoslog.checkpoint import restore_checkpoint
from eoslog.cli import main
from eoslog.connector.errors import OptionError
from eoslog.testing import EmbeddedBroker
from tests.connector.saved.saved_world import SavedWorld


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
