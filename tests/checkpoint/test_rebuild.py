"""`eoslog checkpoint rebuild` and `restore`: a checkpoint from the last decision, or from what was saved."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, TopicPartition

from eoslog.checkpoint import restore_checkpoint
from eoslog.checkpoint.edit_numbers import NotRestorable
from eoslog.cli import main
from eoslog.client.admin.groups import delete_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.files import LocalFiles
from eoslog.connector.checkpoint.noted_places import NotedPlaces
from eoslog.connector.checkpoint.source_changes import SourcesChanged
from eoslog.connector.commit.faults import CommitFault, StartsElsewhere, TakenOver
from eoslog.connector.commit.move_decision import move_decision
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.connector.sink.committer import begin_batch
from eoslog.errors import OptionError
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.checkpointkit import (
    SETTINGS,
    copy_topic,
    decide,
    group_of,
    last,
    lines,
    plan,
    run,
    sink_of,
)
from tests.checkpoint.copy_query import EXACT, CopyQuery, Killed
from tests.connector.brokers import Kafka
from tests.connector.saved.saved_world import SavedWorld, operator
from tests.docs.reader import ADDRESS, ROOT, all_match, blocks_of, steps

# -- rebuild ---------------------------------------------------------------------------------------
# `eoslog checkpoint rebuild`: what a checkpoint has lost of the last decided batch is written again from the
# sink's decision.


def lose(checkpoint: Path, *batches: int) -> None:
    """As a power cut, or a copy that was made before."""
    for batch in batches:
        for log in ("offsets", "commits"):
            (checkpoint / log / str(batch)).unlink()


def next_start(broker: EmbeddedBroker, checkpoint: Path) -> str:
    """What it does, which no check contradicts."""
    checked = run(broker, "check", checkpoint)
    assert checked.exit_code == 0, checked.output
    return str(json.loads(run(broker, "show", checkpoint, "--json").stdout)["next_start"])


def test_the_page_s_blocks_of_checkpoints_md(broker: EmbeddedBroker, decided: Path, topic: str) -> None:
    """A batch is lost, then all of it."""
    lose(decided, 1)
    of_page = [one for one in blocks_of(ROOT / "docs" / "checkpoints.md") if one.language == "console"]
    names = {"./checkpoint": str(decided), ADDRESS: broker.bootstrap, "orders-copy": sink_of(topic)}
    for block in of_page:
        for typed, wanted in steps(block.code):
            command = [names.get(word, word) for word in typed.split()]
            if command[0] == "rm":
                shutil.rmtree(decided)
                continue
            watch = ["--watch", "0"] if "rebuild" in command else []
            done = CliRunner().invoke(main, [*command[1:], *watch])
            assert all_match(done.output.splitlines(), wanted), f"{typed} printed\n{done.output}"
    assert len(of_page) == 2 and next_start(broker, decided).startswith("finish")


@pytest.mark.parametrize("planned_anew", [False, True])
def test_the_last_batch_is_planned_as_it_was_decided(
    broker: EmbeddedBroker, decided: Path, topic: str, planned_anew: bool
) -> None:
    before = (decided / "offsets" / "1").read_text()
    lose(decided, 1)
    if planned_anew:
        (decided / "offsets" / "1").write_text(lines({topic: {"0": 25}}))
        assert "CheckpointMismatch" in run(broker, "check", decided).output
    assert run(broker, "rebuild", decided).exit_code == 0
    assert json.loads((decided / "offsets" / "1").read_text().splitlines()[2]) == {topic: {"0": 20}}
    assert (decided / "offsets" / "1").read_text().splitlines()[1:] == before.splitlines()[1:]
    assert next_start(broker, decided).startswith("finish")


def test_more_than_the_last_batch(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str
) -> None:
    """The next start looks at the batch before as well; what it has read is written, whatever it was."""
    plan(decided, 2, lines({topic: {"0": 24}}))
    decide(cluster, decided, topic, 2, last(cluster, topic))
    lose(decided, 1, 2)
    (decided / "offsets" / "1").write_text(lines({topic: {"0": 29}}))
    assert run(broker, "check", decided).exit_code == 1
    assert run(broker, "rebuild", decided).exit_code == 0
    ends = [(decided / "offsets" / name).read_text().splitlines()[2] for name in ("1", "2")]
    assert [json.loads(end)[topic]["0"] for end in ends] == [24, 24]
    assert next_start(broker, decided).startswith("finish")


def test_it_is_taken_back(broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str) -> None:
    lose(decided, 1)
    (decided / "offsets" / "1").write_text(lines({topic: {"0": 25}}))
    then = last(cluster, topic)
    assert run(broker, "rebuild", decided).exit_code == 0
    assert run(broker, "undo", decided).exit_code == 0
    assert (decided / "offsets" / "1").read_text() == lines({topic: {"0": 25}})
    assert last(cluster, topic).batch == then.batch
    assert run(broker, "rebuild", decided).exit_code == 0  # the decision still has the plan


def test_it_says_what_it_would_do(broker: EmbeddedBroker, decided: Path) -> None:
    lose(decided, 1)
    said = run(broker, "rebuild", decided, "--dry-run")
    assert said.exit_code == 0 and "writes offsets/1\n" in said.output
    assert not (decided / "offsets" / "1").exists()
    told = json.loads(run(broker, "rebuild", decided, "--json").stdout)
    assert (told["edit"], told["files"], told["done"]) == ("rebuild", ["offsets/1"], True)


def lost_as_a_whole(checkpoint: Path) -> dict[str, str]:
    """What it had in Spark's files; then the folder is deleted."""
    had = {name: (checkpoint / name).read_text() for name in ("metadata", "offsets/1")}
    shutil.rmtree(checkpoint)
    return had


def test_a_checkpoint_that_is_lost_as_a_whole(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str
) -> None:
    had = lost_as_a_whole(decided)
    sink = ["--transactional-id", sink_of(topic)]
    assert "name its query, --transactional-id" in run(broker, "rebuild", decided).output
    said = run(broker, "rebuild", decided, "--dry-run", *sink)
    assert said.exit_code == 0 and not decided.exists(), said.output
    assert "writes metadata, writes eoslog/starts, writes eoslog/places, writes eoslog/sink" in said.output
    done = run(broker, "rebuild", decided, *sink)
    assert done.exit_code == 0, done.output
    assert {name: (decided / name).read_text() for name in had} == had
    assert next_start(broker, decided).startswith("finish")
    assert "has files" in run(broker, "rebuild", decided, *sink).output


@pytest.mark.parametrize("step", range(16))
def test_a_command_that_dies_is_given_again(
    broker: EmbeddedBroker, decided: Path, topic: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any of its writes; what is there then is taken for no checkpoint that is right."""
    had, done = lost_as_a_whole(decided), list[str]()
    put = LocalFiles.put

    def dying(self: LocalFiles, folder: str, name: str, data: bytes, *, durable: bool = True) -> None:
        if len(done) == step:
            raise OSError("the process is dead")
        done.append(name)
        put(self, folder, name, data, durable=durable)

    sink = ["--transactional-id", sink_of(topic)]
    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "put", dying)
        died = run(broker, "rebuild", decided, *sink).exit_code != 0
    assert died or done[-1].startswith("edit-"), done
    if died:
        again = run(broker, "rebuild", decided, *sink)
        if again.exit_code:
            assert "eoslog checkpoint undo" in again.output or "has files" in again.output, again.output
            undone = run(broker, "undo", decided, "--edit-has-ended")
            assert undone.exit_code == 0, undone.output
            again = run(broker, "rebuild", decided, *sink)
        assert again.exit_code == 0, again.output
    assert {name: (decided / name).read_text() for name in had} == had
    assert next_start(broker, decided).startswith("finish")


def test_what_a_refused_start_has_left_is_to_be_removed(
    broker: EmbeddedBroker, decided: Path, topic: str
) -> None:
    lost_as_a_whole(decided)
    (decided / "offsets").mkdir(parents=True)
    (decided / "metadata").write_text('{"id":"new"}')
    (decided / "offsets" / "0").write_text(lines({topic: {"0": 30}}))
    sink = ["--transactional-id", sink_of(topic)]
    assert f"remove the folder (rm -r {decided})" in run(broker, "rebuild", decided, *sink).output
    shutil.rmtree(decided)
    assert run(broker, "rebuild", decided, *sink).exit_code == 0


def test_a_checkpoint_of_a_sink_that_has_decided_nothing(
    broker: EmbeddedBroker, decided: Path, topic: str
) -> None:
    lost_as_a_whole(decided)
    for more in (
        ["--transactional-id", "unknown"],
        ["--transactional-id", sink_of(topic), "--decision-topic", topic],
    ):
        said = run(broker, "rebuild", decided, *more)
        assert said.exit_code == 1 and "no query has decided a batch here" in said.output
    assert not decided.exists()


def test_a_checkpoint_whose_state_is_saved(broker: EmbeddedBroker, saved: Path, topic: str) -> None:
    lost_as_a_whole(saved)
    said = run(broker, "rebuild", saved, "--transactional-id", sink_of(topic))
    assert "eoslog checkpoint restore" in said.output and not saved.exists()


def test_nothing_is_lost(broker: EmbeddedBroker, decided: Path) -> None:
    assert "has the plan of batch 1" in run(broker, "rebuild", decided).output


def test_another_query_s_checkpoint(broker: EmbeddedBroker, decided: Path, topic: str) -> None:
    (decided / "offsets" / "1").write_text(lines({topic: {"0": 25}}))  # and it is done
    assert "Bring the right checkpoint back" in run(broker, "rebuild", decided).output


def test_a_checkpoint_that_has_gone_on(broker: EmbeddedBroker, decided: Path, topic: str) -> None:
    (decided / "offsets" / "2").write_text(lines({topic: {"0": 25}}))
    (decided / "offsets" / "1").write_text(lines({topic: {"0": 21}}))
    (decided / "commits" / "1").unlink()
    assert "nothing that it has is missing" in run(broker, "rebuild", decided).output


def test_state_of_two_batches_is_not_made_again(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str
) -> None:
    plan(decided, 2, lines({topic: {"0": 24}}))
    decide(cluster, decided, topic, 2, last(cluster, topic))
    lose(decided, 1, 2)
    (decided / "state" / "0" / "0").mkdir(parents=True)
    assert "eoslog checkpoint restore" in run(broker, "rebuild", decided).output


def test_a_decision_without_its_plan(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str
) -> None:
    then = last(cluster, topic)
    rules = move_decision(Sink(sink_of(topic)), then, then.batch, None, 1)
    Runner(cluster, OWN_TIMEOUT_MS).run(rules)
    lose(decided, 1)
    assert "does not hold its plan" in run(broker, "rebuild", decided).output


def test_rows_that_only_the_checkpoint_knew(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str
) -> None:
    """Of a source with a log of its own the plan says only how far it is."""
    then = last(cluster, topic)
    files = then.batch._replace(digest="0123456789abcdef")
    rules = move_decision(Sink(sink_of(topic)), then, files, None, 1, ends='v1\n{}\n{"logOffset":1}')
    Runner(cluster, OWN_TIMEOUT_MS).run(rules)
    lose(decided, 1)
    assert "Bring the right checkpoint back" in run(broker, "rebuild", decided).output


def entries(number: int, *names: str) -> str:
    """An entry of a file source's own log."""
    return "\n".join(["v1", *(json.dumps({"path": n, "timestamp": 1, "batchId": number}) for n in names)])


@pytest.fixture
def of_files(tmp_path: Path, cluster: Cluster, topic: str) -> Path:
    """The checkpoint of a query of Spark's file source, whose sink has decided batch 1."""
    for folder in ("offsets", "commits", "sources/0"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "metadata").write_text('{"id":"q"}')
    (tmp_path / "sources" / "0" / "0").write_text(entries(0, "a", "b"))
    (tmp_path / "sources" / "0" / "1").write_text(entries(1, "c"))
    for batch in (0, 1):
        plan(tmp_path, batch, f'{SETTINGS}{{"logOffset":{batch}}}')
    decide(cluster, tmp_path, topic, 1)
    return tmp_path


def test_the_files_that_a_batch_has_read(broker: EmbeddedBroker, of_files: Path) -> None:
    """Later ones are found again by the source."""
    lose(of_files, 1)
    own = of_files / "sources" / "0"
    (own / "1").write_text(entries(1, "c", "d"))
    (own / "2").write_text(entries(2, "e"))
    (of_files / "offsets" / "1").write_text(f'{SETTINGS}{{"logOffset":2}}')
    assert "CheckpointMismatch" in run(broker, "check", of_files).output
    assert run(broker, "rebuild", of_files).exit_code == 0
    assert (own / "1").read_text() == entries(1, "c") and not (own / "2").exists()
    assert next_start(broker, of_files).startswith("finish")
    assert run(broker, "undo", of_files).exit_code == 0
    assert (own / "2").read_text() == entries(2, "e")


@pytest.mark.parametrize("was_decided", [True, False])
@pytest.mark.parametrize("entry", [entries(0, "a", "b"), None])
def test_the_files_of_more_than_one_batch(
    broker: EmbeddedBroker, of_files: Path, entry: str | None, was_decided: bool
) -> None:
    """A start that was refused may have planned the batch before anew, with files that are not written: its
    entry would say that they are read."""
    NotedPlaces(((0, ()),) if was_decided else ()).write(Checkpoint.at(str(of_files)))
    lose(of_files, 0, 1)
    own = of_files / "sources" / "0"
    (own / "1").unlink()
    (own / "0").unlink() if entry is None else (own / "0").write_text(entry)
    said = run(broker, "rebuild", of_files)
    if entry is None or not was_decided:
        assert "the checkpoint does not have batch 0 as it was decided" in said.output
        assert not (of_files / "offsets" / "0").exists() and not (own / "1").exists()
        return
    assert said.exit_code == 0
    assert (of_files / "offsets" / "0").read_text().splitlines()[2] == '{"logOffset":0}'
    assert next_start(broker, of_files).startswith("finish")


@pytest.mark.parametrize("gone_on", [False, True])
@pytest.mark.parametrize("entry", [None, entries(1, "c", "d")])
def test_the_files_of_a_batch_that_is_done(
    broker: EmbeddedBroker, of_files: Path, entry: str | None, gone_on: bool
) -> None:
    """Spark does not start without them. What was planned after the batch is planned anew."""
    own, offsets = of_files / "sources" / "0", of_files / "offsets"
    (own / "1").unlink() if entry is None else (own / "1").write_text(entry)
    planned = f'{SETTINGS}{{"logOffset":2}}'
    if gone_on:
        (own / "2").write_text(entries(2, "e"))
        (offsets / "2").write_text(planned)
    before = {path: path.read_text() for path in of_files.rglob("[0-9]") if path.is_file()}
    assert "CheckpointMismatch" in run(broker, "check", of_files).output
    said = run(broker, "rebuild", of_files)
    assert said.exit_code == 0, said.output
    assert (own / "1").read_text() == entries(1, "c") and (of_files / "commits" / "1").exists()
    assert not (own / "2").exists() and not (offsets / "2").exists()
    assert next_start(broker, of_files).startswith("go on")
    assert run(broker, "undo", of_files).exit_code == 0
    assert {path: path.read_text() for path in of_files.rglob("[0-9]") if path.is_file()} == before


def test_another_query_s_checkpoint_of_files(broker: EmbeddedBroker, of_files: Path) -> None:
    (of_files / "sources" / "0" / "2").write_text(entries(2, "e"))
    (of_files / "offsets" / "1").write_text(f'{SETTINGS}{{"logOffset":2}}')  # and it is done
    assert "Bring the right checkpoint back" in run(broker, "rebuild", of_files).output


def test_a_compacted_log_of_files_is_not_made_again(broker: EmbeddedBroker, of_files: Path) -> None:
    lose(of_files, 1)
    own = of_files / "sources" / "0"
    (own / "1").unlink()
    (own / "1.compact").write_text(entries(1, "d"))
    assert "cannot be made again" in run(broker, "rebuild", of_files).output


# -- restore ---------------------------------------------------------------------------------------
# `eoslog checkpoint restore`: what it says, and how it ends. What it restores: tests/connector/saved.


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
    assert done.exit_code == 1 and "has batches: start the query with it" in done.output


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


def lose_restored(checkpoint: Path) -> dict[str, str]:
    """Lose a checkpoint: its files, but for eoslog's notes of edits, saves and starts."""
    paths = (path for path in sorted(checkpoint.rglob("*")) if path.is_file())
    files = {str(path.relative_to(checkpoint)): path.read_text() for path in paths}
    shutil.rmtree(checkpoint)
    others = re.compile(r"eoslog/(edit|claim|saved|starts|places)")
    return {name: text for name, text in files.items() if not others.match(name)}


def comes_back(broker: EmbeddedBroker, checkpoint: Path, sink: str) -> None:
    """The checkpoint is lost, restored from what the last decision names, and the next start goes on."""
    shown = json.loads(run(broker, "show", checkpoint, "--json").stdout)
    files = lose_restored(checkpoint)
    done = run(broker, "restore", checkpoint, "--transactional-id", sink)
    assert done.exit_code == 0 and "goes on after batch" in done.output, done.output
    checked = run(broker, "check", checkpoint)
    assert checked.exit_code == 0, checked.output
    now = json.loads(run(broker, "show", checkpoint, "--json").stdout)
    assert {name for name in shown if now[name] != shown[name]} <= {"last_edit", "coordinator"}
    assert lose_restored(checkpoint).items() <= files.items()
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
    lose_restored(saved)
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
    lose_restored(saved)
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


# -- a new checkpoint at the group's offsets, of a sink whose decisions are forgotten ----------------------


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("by", ["a stranger", "deletion", "another group", "nobody"])
def test_a_group_that_does_not_say_where_the_query_ended(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, named: bool
) -> None:
    """One partition of it is noted as it was left, another one is not; or kafka.group.id was left out since.
    `named`: the source names the sink whose place it takes."""
    kafka = Kafka(broker.bootstrap)
    source, target = kafka.topic(2), kafka.topic()
    names = {"transactional.id": f"s-{source}", "kafka.group.id": f"g-{source}"}
    query = CopyQuery(tmp_path / "checkpoint", kafka, source, target, names, monkeypatch)
    ungrouped = replace(query, sink={"transactional.id": names["transactional.id"]})
    for first in (0, 10):
        kafka.put(source, [b"b%d" % number for number in range(first, first + 10)], 1)
        query.puts(first)
        assert (ungrouped if by == "another group" and first else query).start()
    moved = TopicPartition(source, 1, 0)
    if by == "a stranger":
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": names["kafka.group.id"]})
        consumer.commit(offsets=[moved], asynchronous=False)
        consumer.close()
    if by == "deletion":
        with Cluster(ClientConfig((("127.0.0.1", broker.port),))) as cluster:
            delete_offsets(cluster, names["kafka.group.id"], [(source, 1)])
    kafka.admin.delete_consumer_groups([names["transactional.id"]])[names["transactional.id"]].result(30)
    given = names if named else {"kafka.group.id": names["kafka.group.id"]}
    again = replace(query, place=tmp_path / "new", reads={"startingOffsets": "committed", **given})
    query.puts(20)
    if by == "nobody":
        while again.start():
            pass
        assert len(kafka.rows(target)) == len(kafka.rows(source, 2)) == 50
        return
    for _ in range(2):
        with pytest.raises(StartsElsewhere, match="The cluster has forgotten which"):
            again.start()


def restored(query: CopyQuery) -> None:
    where = {"kafka.bootstrap.servers": query.kafka.bootstrap, "topic": query.target, **query.sink}
    given = str(query.place / "restored"), where | {"state.topic": "state"}
    if not query.place.exists():
        assert restore_checkpoint(*given) is None
        return
    with pytest.raises(NotRestorable, match="has forgotten which batch was decided last"):
        restore_checkpoint(*given)


def killed(query: CopyQuery) -> None:
    with pytest.raises((Killed, CommitFault)):
        query.start(killed=True)


def refused(query: CopyQuery) -> None:
    """A new checkpoint, whose first start has acquired the sink."""
    word = {"start.accepted": "new-checkpoint:0"}
    killed(replace(query, place=query.place / "new", sink={**query.sink, **word}))


def at_least_once(query: CopyQuery) -> None:
    killed(replace(query, place=query.place / "less", sink={**query.sink, "guarantee": "at_least_once"}))


def plain_write(query: CopyQuery) -> None:
    """It ends before it decides."""
    where = {"kafka.bootstrap.servers": query.kafka.bootstrap, "topic": query.target}
    assert begin_batch(sink_options({**where, **query.sink}, stream=False)) is not None


def none_acquired(_query: CopyQuery) -> None:
    """Nobody has been there since."""


@pytest.mark.parametrize("by", [none_acquired, killed, refused, restored, at_least_once, plain_write])
@pytest.mark.parametrize("decided", [True, False])
def test_who_acquires_a_sink_leaves_the_trace_that_it_has_decided(
    broker: EmbeddedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by: Callable[[CopyQuery], None],
    decided: bool,
) -> None:
    """Its decisions are forgotten, it is acquired twice, and the checkpoint is lost: a new one that begins
    somewhere is refused. A sink that was acquired alike and has never decided is free."""
    kafka = Kafka(broker.bootstrap)
    source, target = kafka.topic(), kafka.topic()
    names = {"transactional.id": f"s-{source}"}
    query = CopyQuery(tmp_path / "checkpoint", kafka, source, target, names, monkeypatch)
    query.puts(0)
    if decided:
        assert query.start()
        for done in kafka.admin.delete_consumer_groups([f"s-{source}", f"s-{source}/offsets"]).values():
            done.result(30)
        query.puts(10)
    else:
        killed(query)  # it is there, at least
        shutil.rmtree(query.place)
    for _ in range(2):
        by(query)
    shutil.rmtree(query.place, ignore_errors=True)
    if not decided:
        assert query.start() and query.astray == EXACT
        return
    for _ in range(2):
        with pytest.raises(StartsElsewhere, match=r"has forgotten which|of an earlier query"):
            query.start()


@pytest.mark.parametrize("grouped", [True, False])
def test_a_topic_that_was_left_before_another_connectors_batch(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grouped: bool
) -> None:
    """That batch names what it reads alone: an older one, which Spark has kept, tells where the topic was
    left. The way out ends."""
    kafka = Kafka(broker.bootstrap)
    one, two, target = kafka.topic(), kafka.topic(), kafka.topic()
    names = {"transactional.id": f"s-{one}", "commit.source.offsets": str(grouped).lower()}
    query = CopyQuery(tmp_path / "checkpoint", kafka, f"{one},{two}", target, names, monkeypatch)
    alone = replace(query, source=one, reads={"failOnDataLoss": "false"})
    alone.puts(0)
    for begin, end in ((0, 2), (2, 5)):
        kafka.put(two, [b"b%d" % number for number in range(begin, end)])
        assert query.start()
    alone.puts(10)
    assert alone.start()
    for log, text in (("offsets", f'v1\n{{}}\n{{"{one}": {{"0": 20}}}}'), ("commits", "v1\n{}")):
        (query.place / log / "3").write_text(text)
    alone.puts(20)
    kafka.put(two, [b"b%d" % number for number in range(5, 8)])
    assert alone.start()
    alone.puts(30)
    with pytest.raises(SourcesChanged, match=rf"what was read before \({two}-0 up to 5\)") as told:
        query.start()
    take_up(query, str(told.value))


def take_up(query: CopyQuery, said: str) -> None:
    """The way out that the error names ends: each row of the sources is there once."""
    named = re.search(
        r"(?i)give eoslog (checkpoint add-topic) CHECKPOINT (\S+)( --start '(.*?)')?; then", said
    )
    assert named is not None, said
    start = ["--start", named[4]] if named[3] else []
    typed = [*named[1].split(), str(query.place), named[2], *start, "--watch", "0", "--fence"]
    done = CliRunner().invoke(main, [*typed, "--bootstrap-server", query.kafka.bootstrap])
    assert done.exit_code == 0, done.output
    while query.start():
        pass
    rows = sorted(row[3] for row in query.kafka.rows(query.target))
    read = query.source.split(",")
    assert rows == sorted(row[3] for topic in read for row in query.kafka.rows(topic))


@pytest.mark.parametrize(
    "told_by, by_spark, renamed",
    [
        ("note", "source", ""),
        ("note", "source", "before"),
        ("note", "source and sink", "after"),
        ("decision", "source and sink", ""),
        ("decision", "source and sink", "after"),
        ("group", "source", "after"),
    ],
)
def test_a_topic_that_was_left_before_more_batches_than_spark_keeps(
    broker: EmbeddedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told_by: str,
    by_spark: str,
    renamed: str,
) -> None:
    """Another connector has run them, so no batch that is kept names it: the checkpoint notes where it was
    left, or a decision of this name or the former one has the plan, or the group tells of the query."""
    kafka = Kafka(broker.bootstrap)
    one, two, target, group = *(kafka.topic() for _ in range(3)), f"g-{kafka.topic()}"
    grouped = {"kafka.group.id": group} if told_by == "group" else {"commit.source.offsets": "false"}
    names = {"transactional.id": f"s-{one}", **grouped}
    query = CopyQuery(tmp_path / "checkpoint", kafka, f"{one},{two}", target, names, monkeypatch)
    alone = replace(query, source=one, reads={"failOnDataLoss": "false"})
    anew = {**names, "transactional.id": f"n-{one}"}
    alone.puts(0)
    kafka.put(two, [b"b%d" % number for number in range(5)])
    assert query.start()
    if told_by == "note":
        alone.puts(10)
        assert alone.start()
        assert json.loads((query.place / "eoslog" / "left").read_text())["left"][0][0] == 0
    if renamed == "before":
        query, alone = replace(query, sink=anew), replace(alone, sink=anew)
    first = alone._newest("commits") + 1
    for batch in (first, first + 1):
        alone.puts(10 * batch)
        (query.place / "offsets" / str(batch)).write_text(
            f'v1\n{{}}\n{{"{one}": {{"0": {10 * batch + 10}}}}}'
        )
        if by_spark == "source":
            assert alone.start()
        else:
            kafka.put(target, [b"r%d" % number for number in range(10 * batch, 10 * batch + 10)])
            (query.place / "commits" / str(batch)).write_text("v1\n{}")
    for batch in range(first + 1):
        for log in ("offsets", "commits"):
            (query.place / log / str(batch)).unlink()
    if told_by != "note":
        (query.place / "eoslog" / "left").unlink(missing_ok=True)  # an earlier version has written none
    if renamed == "after":
        query, alone = replace(query, sink=anew), replace(alone, sink=anew)
    kafka.put(two, [b"b%d" % number for number in range(5, 8)])
    alone.puts(100)
    with pytest.raises(SourcesChanged, match=rf"what was read before \({two}-0 up to 5\)") as told:
        query.start()
    checked = run(broker, "check", query.place)
    assert checked.exit_code == 1 and f"SourcesChanged: {told.value}"[:300] in checked.output, checked.output
    take_up(query, str(told.value))


@pytest.mark.parametrize("way", ["at once", "after a new checkpoint"])
def test_a_topic_that_was_left_out_with_a_new_checkpoint(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """An earlier query of the sink has read it: it is no successor. The way out that each message names
    ends."""
    kafka = Kafka(broker.bootstrap)
    one, two, target = kafka.topic(), kafka.topic(), kafka.topic()
    names = {"transactional.id": f"s-{one}", "kafka.group.id": f"g-{one}"}
    first = CopyQuery(tmp_path / "first", kafka, f"{one},{two}", target, names, monkeypatch)
    kafka.put(one, [b"a%d" % number for number in range(10)])
    kafka.put(two, [b"b%d" % number for number in range(5)])
    assert first.start()
    committed = {"startingOffsets": "committed", **names}
    alone = replace(first, place=tmp_path / "alone", source=one, reads=committed)
    kafka.put(one, [b"a%d" % number for number in range(10, 20)])
    with pytest.raises(StartsElsewhere, match=r"are left out") as refused:
        alone.start()
    word = str(refused.value).rpartition("start.accepted=")[2]
    assert replace(alone, sink={**names, "start.accepted": word}).start()
    kafka.put(one, [b"a%d" % number for number in range(20, 30)])
    assert alone.start()
    for topic, rows in ((one, range(30, 40)), (two, range(5, 8))):
        kafka.put(topic, [b"c%d" % number for number in rows])
    both = replace(alone, source=f"{one},{two}", reads={})
    with pytest.raises(SourcesChanged, match=f"what was read before .{two}-0 up to 5") as stopped:
        both.start()
    said = str(stopped.value)
    checked = CliRunner().invoke(
        main, ["checkpoint", "check", str(both.place), "--bootstrap-server", broker.bootstrap]
    )
    assert checked.exit_code == 1 and f"SourcesChanged: {said}"[:300] in checked.output, checked.output
    if way == "after a new checkpoint":
        anew = replace(both, place=tmp_path / "anew", reads=committed)
        with pytest.raises(StartsElsewhere, match=f"{two}-0 at 5") as elsewhere:
            anew.start()
        said = str(elsewhere.value)
    take_up(both, said)


def test_a_topic_that_a_successor_has_read_first(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has taken over, although this query never stood where that one stands."""
    kafka = Kafka(broker.bootstrap)
    one, two, target = kafka.topic(), kafka.topic(), kafka.topic()
    names = {"transactional.id": f"s-{one}", "kafka.group.id": f"g-{one}"}
    old = CopyQuery(tmp_path / "old", kafka, one, target, names, monkeypatch)
    old.puts(0)
    assert old.start()
    kafka.put(two, [b"b"])
    both = replace(old, source=f"{one},{two}", reads={"startingOffsets": "committed", **names})
    assert replace(both, place=tmp_path / "successor").start()
    with pytest.raises(TakenOver, match=f"{two}-0 at 1, this query stands at None"):
        replace(both, reads={}).start()


def test_a_successor_without_rows_yet_whose_decision_is_forgotten(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands where the query stands that has left the name. Both would read on from there."""
    kafka = Kafka(broker.bootstrap)
    source, target, sink = kafka.topic(), kafka.topic(), f"s-{kafka.topic()}"
    names = {"transactional.id": sink, "kafka.group.id": f"g-{source}"}
    old = CopyQuery(tmp_path / "old", kafka, source, target, names, monkeypatch)
    old.puts(0)
    assert old.start()
    successor = replace(old, place=tmp_path / "new", reads={"startingOffsets": "committed", **names})
    assert successor.start(empty=True)
    kafka.admin.delete_consumer_groups([sink])[sink].result(30)
    old.puts(10)
    with pytest.raises(TakenOver, match=f"{source}-0 at 10, this query stands at 10"):
        old.on(kafka, transactional_id="another").start()
