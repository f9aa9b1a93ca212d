"""What is saved under a decision, and what a restore makes of it, on a real broker without Spark."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eoslog.checkpoint import restore
from eoslog.checkpoint.edit_numbers import NotRestorable
from eoslog.checkpoint.restore import is_empty
from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.noted_places import NotedPlaces
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.decide import Terms, commit
from eoslog.connector.commit.faults import BatchRefused, CheckpointOlder, SinkFenced
from eoslog.connector.commit.prepare import stamp_of
from eoslog.connector.commit.saved_state import Saved, Written
from eoslog.connector.commit.task_reports import Empty
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.connector.offsets.offsets import position_from_json
from eoslog.connector.options.sink_options import StateOptions
from eoslog.connector.run.runner import Runner
from eoslog.connector.saved import state_files
from eoslog.connector.saved.run_again import check_restored, check_state_topic
from eoslog.connector.saved.state_files import DECIDED, FILE, MANIFEST, Content, DecidedBatch, Key, Manifest
from eoslog.errors import OptionError
from eoslog.testing import EmbeddedBroker
from tests.connector.saved.saved_world import SavedWorld, operator


@pytest.fixture
def world(broker: EmbeddedBroker, tmp_path: Path) -> SavedWorld:
    return SavedWorld(broker, tmp_path / "checkpoint")


def names(world: SavedWorld) -> list[str]:
    return sorted(key.name for key in world.live() if key.kind == FILE)


def written(world: SavedWorld) -> int:
    return len(world.kafka.rows(world.state, committed=False))


def test_a_restore_is_the_checkpoint_of_the_last_decision(world: SavedWorld) -> None:
    for number in range(4):
        world.decide(number)
    before = world.files()
    world.lose()
    restored = world.restore()
    assert restored is not None and (restored.query, restored.batch, restored.decided) == ("query", 3, 3)
    kept = ["offsets/2", "offsets/3", "commits/2", "metadata", "state/0/_metadata/metadata"]
    kept += [f"state/0/0/{version}.delta" for version in (1, 2, 3)]
    assert world.files() == {name: before[name] for name in sorted(kept)}


def test_only_what_is_new_is_written(world: SavedWorld) -> None:
    for number in range(4):
        world.decide(number)
    before = written(world)
    world.decide(4)
    kinds = [json.loads(key)[2:4] for _, _, key, *_ in world.kafka.rows(world.state)][before:]
    gone = [["file", "commits/2"], ["file", "offsets/2"]]
    new = [["file", name] for name in ("commits/3", "offsets/4", "state/0/0/4.delta")]
    ran = [["decided", "3"], ["decided", "4"]]  # the one before goes
    assert sorted(kinds) == sorted([*gone, *new, *ran, ["manifest", ""]])


def test_what_is_not_needed_is_removed(world: SavedWorld) -> None:
    for number in range(6):
        world.decide(number)
    world.write("state/0/0/6.snapshot", "whole")
    world.decide(6)
    fixed = ["commits/5", "metadata", "offsets/5", "offsets/6"]
    assert names(world) == [*fixed, "state/0/0/6.snapshot", "state/0/_metadata/metadata"]


def test_a_file_that_has_changed_is_written_again(world: SavedWorld) -> None:
    """Files of the state's versions do not change, others may."""
    world.decide(0)
    world.write("eoslog/sink", "first")
    world.decide(1)
    world.write("eoslog/sink", "second")
    world.decide(2)
    assert {key.name: value for key, value in world.live().items()}["eoslog/sink"] == b"second"
    world.lose()
    assert world.restore() is not None
    assert (world.folder / "eoslog" / "sink").read_text() == "second"


@pytest.mark.parametrize("loss", ["the note", "the note and the topic"])
def test_without_a_note_the_topic_is_read(world: SavedWorld, loss: str) -> None:
    for number in range(3):
        world.decide(number)
    (world.folder / "eoslog" / "saved").unlink()
    if loss != "the note":
        world.kafka.make_anew(world.state)
        world.cluster.forget_topic(world.state)
    world.decide(3)
    expected = {*names(world)}
    assert {f"state/0/0/{version}.delta" for version in (1, 2, 3)} < expected and "offsets/1" not in expected
    before = world.files()
    world.lose()
    assert world.restore() is not None
    assert world.files().items() <= before.items()


def test_a_topic_that_was_made_anew_gets_everything(world: SavedWorld) -> None:
    for number in range(3):
        world.decide(number)
    world.kafka.make_anew(world.state)
    world.cluster.forget_topic(world.state)
    world.decide(3)
    world.lose()
    assert world.restore() is not None


def test_another_topic_gets_everything(world: SavedWorld) -> None:
    for number in range(3):
        world.decide(number)
    other = world.kafka.topic(3, cleanup_policy="compact")
    decision = world.decide(3, topic=other)
    assert decision.saved is not None and decision.saved.topic == other
    world.lose()
    restored = world.restore()
    assert restored is not None and restored.batch == 3


def test_another_topic_gets_everything_at_once(world: SavedWorld) -> None:
    world.every = 5
    world.decide(0)
    other = world.kafka.topic(cleanup_policy="compact")
    decision = world.decide(1, topic=other)
    assert decision.saved is not None and (decision.saved.topic, decision.saved.batch) == (other, 1)


@pytest.mark.parametrize("every", [1, 5])
def test_a_batch_whose_saved_records_are_deleted_before_it_is_decided_is_refused(
    world: SavedWorld, every: int
) -> None:
    """Restored from what is left, the state would be another one."""
    world.every = every
    world.decide(0)
    batch, begun = world.begin(1)

    def delete(command: c.Command[Any]) -> None:
        if isinstance(command, c.AskOpen):
            world.cut()

    with pytest.raises(BatchRefused, match=f"batch 1 of .* was not decided.*{world.state}-0 begins at"):
        world.end(batch, begun, runner=Runner(world.cluster, 60_000, before=delete))
    world.decide(1)
    world.lose()
    restored = world.restore()
    assert restored is not None and restored.decided == 1


def test_a_query_that_was_set_back_saves_its_files_again(world: SavedWorld) -> None:
    """An edit can take a query with state back: files of the same names have new contents then."""
    for number in range(5):
        decision = world.decide(number)
    world.fill = "y"
    batch = world.plan(3)
    own = Participant("another", world.runner.run(c.demand(c.Acquire("another"), "")))
    saved = world.saving(batch).write(own, decision.saved, ((), ())).saved
    world.runner.run(c.demand(c.End(True, (own,)), ""))
    assert saved is not None and saved.batch == 3
    found = {key.name: value for key, value in world.live().items()}
    assert found["state/0/0/3.delta"] == b"y3" and "state/0/0/4.delta" not in found


def test_what_was_saved_less_often_is_removed(world: SavedWorld) -> None:
    world.every = 10
    for number in range(3):
        world.decide(number)
    world.every = 1
    world.decide(3)
    assert [key.name for key in world.live() if key.kind == DECIDED] == ["3"]
    world.decide(4)
    assert [key.name for key in world.live() if key.kind == DECIDED] == ["4"]


@pytest.mark.parametrize("often", [1, 2])
def test_a_checkpoint_that_is_saved_less_often_from_now_on_can_be_restored(
    world: SavedWorld, often: int
) -> None:
    """The batch that was saved last runs again, too, under whatever option it was saved."""
    for number in range(3):
        world.decide(number)
    world.every = 5
    for number in range(3, 3 + often):
        world.decide(number)
    world.lose()
    restored = world.restore()
    assert restored is not None and restored.decided == 2 + often


def test_operators_are_looked_at_when_the_option_changes(world: SavedWorld) -> None:
    world.write("state/0/_metadata/metadata", operator("symmetricHashJoin"))
    world.decide(0)
    world.every = 5
    with pytest.raises(OptionError, match="symmetricHashJoin"):
        world.decide(1)


def test_a_manifest_of_other_files_is_refused(world: SavedWorld) -> None:
    """Whoever can write decisions does not write anywhere on the disk."""
    batch = world.plan(0)
    begun, _ = world.runner.run(begin(world.sink, batch))
    text = Manifest("query", 0, {"../../x": Content.of(b"x")}).text()
    for key, value in ((Key(world.sink.id, MANIFEST, ""), text), (Key(world.sink.id, FILE, "../../x"), "x")):
        world.kafka.put(world.state, [value.encode()], key=key.packed())

    class Forged:
        topic = world.state

        def write(self, *_: object) -> Written:
            return Written(Saved(world.state, 0, 0, *Content.of(text.encode()), True))

    world.runner.run(commit(world.sink, [Empty(stamp_of(begun), 0)], 0, terms=Terms(saving=Forged())))
    world.lose()
    with pytest.raises(NotRestorable, match="it has files that are no checkpoint's"):
        world.restore()


def test_large_files_are_cut(world: SavedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_files, "PIECE", 50)
    world.fill = "z" * 333
    world.decide(0)
    world.decide(1)
    assert len([key for key in world.live() if key.name == "state/0/0/1.delta"]) == 7
    before = world.files()
    world.lose()
    assert world.restore() is not None
    assert world.files().items() <= before.items()
    world.decide(2)


class Dies(Exception):
    """The driver is gone."""


@pytest.mark.parametrize("after", [c.SaveState, c.StageOffsets])
def test_what_was_not_decided_was_not_saved(world: SavedWorld, after: type[c.Command[Any]]) -> None:
    for number in range(3):
        world.decide(number)
    live = world.live()

    def die(command: c.Command[Any]) -> None:
        if isinstance(command, after):
            raise Dies

    with pytest.raises(Dies):
        world.decide(3, runner=Runner(world.cluster, 60_000, after=die))
    world.lose()
    restored = world.restore()
    assert restored is not None and restored.decided == 2
    assert world.live() == live
    world.decide(2)  # runs again, and is decided
    world.decide(3)
    world.lose()
    restored = world.restore()
    assert restored is not None and restored.decided == 3


def test_a_driver_that_was_replaced_saves_nothing(world: SavedWorld) -> None:
    for number in range(3):
        world.decide(number)

    def stop(command: c.Command[Any]) -> None:
        if isinstance(command, c.SaveState):
            world.runner.run(c.demand(c.Acquire(world.sink.coordinator), ""))

    with pytest.raises(SinkFenced):
        world.decide(3, runner=Runner(world.cluster, 60_000, before=stop))
    assert "state/0/0/3.delta" not in names(world)


def test_less_often(world: SavedWorld) -> None:
    world.every = 3
    for number in range(6):
        world.decide(number)
    assert sorted(key.name for key in world.live() if key.kind == DECIDED) == ["3", "4", "5"]
    ends = {number: world.files()[f"offsets/{number}"].splitlines()[2] for number in range(6)}
    world.lose()
    restored = world.restore()
    assert restored is not None and (restored.batch, restored.decided) == (3, 5)
    assert NotedPlaces.read(Checkpoint.at(str(world.folder))).newest == 5
    files = world.files()
    assert "offsets/4" not in files and "state/0/0/4.delta" not in files and "commits/3" not in files
    position = position_from_json(json.loads(files["offsets/3"].splitlines()[2]))
    assert position.offsets == {("in", 0): 30} and position.then == (ends[4], ends[5])
    planned = Checkpoint.at(str(world.folder)).planned(3)
    assert planned.leads_to.batch_id == 5 and planned.leads_to.sources == (ends[5],)


def test_a_manifest_that_is_not_the_decisions_is_refused(world: SavedWorld) -> None:
    for number in range(3):
        world.decide(number)
    key = next(key for key in world.live() if key.kind == MANIFEST)
    world.kafka.put(world.state, [b"{}"], key=key.packed())
    world.lose()
    with pytest.raises(NotRestorable, match="has lost the save of batch 2"):
        world.restore()
    assert world.files() == {}


def test_where_later_rows_are_visible_nothing_is_restored(
    world: SavedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster has lost decisions: a restored query would write these rows again."""
    decision = world.decide(0)
    world.lose()
    asked: list[Any] = []

    def visible(_: Any, sink: str, last: Any) -> tuple[str, ...]:
        asked.append((sink, last.batch))
        return ("out-0 has 2 rows from offset 4 on",)

    monkeypatch.setattr(restore, "undecided_behind", visible)
    said = r"visible \(out-0 has 2 rows.*start\.accepted=without-state:[\w-]+:1"
    with pytest.raises(NotRestorable, match=said):
        world.restore()
    assert asked == [(world.sink.id, decision.batch)] and world.files() == {}


@pytest.mark.parametrize("value", [b"y2", b"x22", None])
def test_a_file_that_is_not_the_manifests_is_refused(world: SavedWorld, value: bytes | None) -> None:
    for number in range(3):
        world.decide(number)
    key = next(key for key in world.live() if key.name == "state/0/0/2.delta")
    producer = world.kafka.producer()
    producer.produce(world.state, value, key.packed(), 0)
    producer.flush()
    world.lose()
    with pytest.raises(NotRestorable, match=r"has lost state/0/0/2.delta of the save of batch 2"):
        world.restore()
    assert list(world.folder.iterdir()) == []


@pytest.mark.parametrize("every", [1, 5])
def test_a_topic_that_was_cut_gets_everything_at_once(
    world: SavedWorld, every: int, caplog: pytest.LogCaptureFixture
) -> None:
    """At the next decision, and no later; in a query that runs and in one that starts."""
    world.every = every
    for number in range(3):
        world.decide(number)
    world.cut()
    decision = world.decide(3)
    assert decision.saved is not None and decision.saved.batch == 3
    assert "errors/warnings.md#the-state-is-saved-again" in caplog.text
    world.decide(4)
    before = world.files()
    world.lose()
    restored = world.restore()
    assert restored is not None and restored.decided == 4
    planned = f"offsets/{3 if every == 5 else 4}"
    kept = {name: text for name, text in world.files().items() if name != planned}
    assert kept.items() <= before.items() and "state/0/0/3.delta" in kept
    assert caplog.text.count("saved-again") == 1


def test_a_topic_that_was_made_anew_gets_everything_between_two_saves(world: SavedWorld) -> None:
    world.every = 5
    for number in range(2):
        world.decide(number)
    world.kafka.make_anew(world.state)
    world.decide(2)
    world.lose()
    restored = world.restore()
    assert restored is not None and restored.batch == 2


def test_what_cannot_be_restored_leaves_nothing_behind(world: SavedWorld) -> None:
    """Else no start would take the folder: each would say that it has to be restored again."""
    for number in range(3):
        world.decide(number)
    world.cut()
    world.lose()
    for _ in range(2):
        with pytest.raises(
            NotRestorable, match=r"or its first records.*start\.accepted=without-state:[\w-]+:3,"
        ):
            world.restore()
        assert list(world.folder.iterdir()) == []
    check_restored(Checkpoint.at(str(world.folder)))


def test_a_restore_that_was_interrupted_is_not_whole(
    world: SavedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        world.decide(number)
    world.lose()

    def die(*_: object) -> None:
        raise Dies

    with monkeypatch.context() as patch, pytest.raises(Dies):
        patch.setattr(restore, "note_restored", die)
        world.restore()
    with pytest.raises(CheckpointUnreadable, match=r"it was being restored.*as NotRestorable says"):
        check_restored(Checkpoint.at(str(world.folder)))
    assert is_empty(Checkpoint.at(str(world.folder)))
    assert world.restore() is not None
    check_restored(Checkpoint.at(str(world.folder)))


def test_a_checkpoint_that_is_there_is_not_restored(world: SavedWorld) -> None:
    world.decide(0)
    with pytest.raises(NotRestorable, match=r"is planned and not done.* Else: start the query with it$"):
        world.restore()
    world.decide(1)
    with pytest.raises(NotRestorable, match=r"has batches: start the query with it$"):
        world.restore()


def test_the_folder_of_a_stopped_start_is_restored_after_what_the_message_says(
    world: SavedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A start without the restore has planned its first batch, and stopped with StartsElsewhere: the command
    and the function both say how to get out."""
    for number in range(3):
        world.decide(number)
    before = world.files()
    options = {
        "kafka.bootstrap.servers": world.kafka.bootstrap, "topic": "out", "transactional.id": world.sink.id,
        "state.topic": world.state,
    }  # fmt: skip
    for way in (world.restore, partial(restore.restore_checkpoint, str(world.folder), options)):
        world.lose()
        world.write("metadata", '{"id":"another"}')
        world.write("sources/0/0", "what a source has noted")
        world.plan(0)
        caplog.clear()
        try:
            assert way() is None
            said = caplog.text
        except NotRestorable as error:
            said = str(error)
        assert "StartsElsewhere" in said
        (command,) = re.findall(r"\((rm -r .*?)\)", said)
        subprocess.run(shlex.split(command), check=True)
        restored = way()
        assert restored is not None and restored.decided == 2
        assert world.files().items() <= before.items()


def test_nothing_is_lost_before_the_first_decision(world: SavedWorld) -> None:
    world.lose()
    assert world.restore() is None


def test_a_batch_between_two_saves_that_is_not_there_is_refused(world: SavedWorld) -> None:
    world.every = 5
    for number in range(4):
        world.decide(number)
    key = next(key for key in world.live() if (key.kind, key.name) == (DECIDED, "2"))
    producer = world.kafka.producer()
    producer.produce(world.state, None, key.packed(), 0)
    producer.flush()
    world.lose()
    with pytest.raises(NotRestorable, match="has lost batch 2, decided since batch 0 was saved"):
        world.restore()


def test_batches_that_do_not_end_at_the_decision_are_refused(world: SavedWorld) -> None:
    world.every = 5
    for number in range(3):
        world.decide(number)
    key = next(key for key in world.live() if (key.kind, key.name) == (DECIDED, "2"))
    other = DecidedBatch('v1\n{}\n{"in":{"0":17}}', (0,), (0,))
    world.kafka.put(world.state, [other.text().encode()], key=key.packed())
    world.lose()
    with pytest.raises(NotRestorable, match="has lost the source offsets of batch 2"):
        world.restore()


def test_a_checkpoint_that_leads_elsewhere_is_older(world: SavedWorld) -> None:
    """Batches are run again only if they end where the last decision does."""
    world.every = 5
    for number in range(4):
        world.decide(number)
    world.plan(1)
    with pytest.raises(CheckpointOlder):
        world.decide(1)


def test_operators_that_do_not_run_again_are_refused(world: SavedWorld) -> None:
    world.write("state/0/_metadata/metadata", operator("symmetricHashJoin"))
    world.decide(0)
    world.every = 2
    with pytest.raises(OptionError, match="symmetricHashJoin"):
        world.decide(2)


def test_transactions_of_others_are_waited_for(world: SavedWorld) -> None:
    """They hold back what this sink has committed behind them."""
    world.decide(0)
    other = world.kafka.transactional("other")
    other.begin_transaction()
    other.produce(world.state, b"x", b"y", 0)
    other.flush()
    for number in (1, 2):
        world.decide(number)
    world.lose()
    ends = threading.Timer(1.0, other.commit_transaction)
    began = time.monotonic()
    ends.start()
    restored = world.restore()
    ends.join()
    assert restored is not None and restored.decided == 2 and time.monotonic() - began > 0.9


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_forgets_is_refused(world: SavedWorld, policy: str) -> None:
    planned = _planned(world)
    check_state_topic(world.cluster, StateOptions(world.state, 1), planned)
    topic = world.kafka.topic(cleanup_policy=policy)
    with pytest.raises(OptionError, match=f"its cleanup.policy is {policy}"):
        check_state_topic(world.cluster, StateOptions(topic, 1), planned)


def test_a_topic_that_is_missing_is_refused(world: SavedWorld) -> None:
    with pytest.raises(OptionError, match=r"there is no such topic: make one with"):
        check_state_topic(world.cluster, StateOptions("no-such-topic", 1), _planned(world))


def test_a_source_that_cannot_plan_again_needs_every_batch(world: SavedWorld) -> None:
    planned = _planned(world)
    check_state_topic(world.cluster, StateOptions(world.state, 1), planned)
    with pytest.raises(OptionError, match=r"set state.every.batches to 1"):
        check_state_topic(world.cluster, StateOptions(world.state, 2), planned)


def _planned(world: SavedWorld) -> Any:
    world.plan(0)
    return Checkpoint.at(str(world.folder)).planned(0)
