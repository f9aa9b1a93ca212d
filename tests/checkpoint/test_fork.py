"""`eoslog checkpoint fork`, on a checkpoint in Spark's layout, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from confluent_kafka.admin import AdminClient, NewPartitions

from eoslog.checkpoint import carry_out, fork
from eoslog.client.admin.groups import fetch_committed
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.commit.decide import SourceOffsets
from eoslog.connector.commit.decision import decode
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.group_notes import Note, read_note
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.checkpointkit import group_of, run, sink_of
from tests.connector.brokers import Kafka


@pytest.fixture
def checkpoint(decided: Path) -> Path:
    """With a note of eoslog's that is the copy's, too, and a checksum that is not."""
    (decided / "eoslog" / "sources").write_text("of sources that were removed")
    (decided / ".metadata.crc").write_text("of the old metadata")
    return decided


def forked(broker: EmbeddedBroker, checkpoint: Path, new: Path | str, topic: str, *more: str) -> Result:
    names = ["--transactional-id", f"new-{sink_of(topic)}", "--group", f"new-{group_of(topic)}"]
    return run(broker, "fork", checkpoint, str(new), *names, *more)


ACCEPTED = ("--accept-duplicates", "10")


def test_a_copy_stands_where_the_query_stands(
    broker: EmbeddedBroker, checkpoint: Path, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """Under names of its own; nothing of the old query changes."""
    new = tmp_path.parent / f"{tmp_path.name}-new"
    before = {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}
    said = forked(broker, checkpoint, new, topic)
    assert said.exit_code == 1 and "give --accept-duplicates 10" in said.output and not new.exists()
    assert forked(broker, checkpoint, new, topic, "--dry-run").exit_code == 0 and not new.exists()
    said = forked(broker, checkpoint, new, topic, *ACCEPTED, "--json")
    assert said.exit_code == 0, said.output
    told = json.loads(said.stdout)
    assert told["options"] == {
        "checkpointLocation": str(new),
        "transactional.id": f"new-{sink_of(topic)}",
        "kafka.group.id": f"new-{group_of(topic)}",
    }
    assert told["rows"]["twice"] == 10 and told["stands_after"] == 1
    copy = Checkpoint.at(str(new))
    assert copy.query_id() == told["query"] != "q"
    assert copy.text("eoslog/sources") is not None and not (new / ".metadata.crc").exists()
    end = copy.planned(1)
    sink = Sink(f"new-{sink_of(topic)}")
    kept = fetch_committed(cluster, sink.group, None)
    decision = decode(sink, {number: one for (_, number), one in kept.items()})
    assert decision is not None and decision.batch == Batch(told["query"], 1, end.digest)
    ((_, (at, text)),) = fetch_committed(cluster, f"new-{group_of(topic)}", None).items()
    assert (at, read_note(text)) == (20, Note(sink.id, told["query"], 1))
    for path in (checkpoint, new):
        assert run(broker, "check", path).exit_code == 0
        assert run(broker, "diff", path, str(checkpoint)).exit_code == 0
    assert before == {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}


def test_a_copy_of_a_query_with_the_group_by_default_has_its_own(
    broker: EmbeddedBroker, checkpoint: Path, topic: str, tmp_path: Path
) -> None:
    found, new = Checkpoint.at(str(checkpoint)), tmp_path.parent / f"{tmp_path.name}-new"
    note = NotedSink.read(found)
    assert note is not None and note.sink is not None
    note._replace(group=Sink(note.sink).offsets_group).write(found)
    names = ["--transactional-id", f"new-{sink_of(topic)}"]
    said = run(broker, "fork", checkpoint, str(new), *names, *ACCEPTED, "--json")
    assert said.exit_code == 0, said.output
    own = {"checkpointLocation": str(new), "transactional.id": f"new-{sink_of(topic)}"}
    assert json.loads(said.stdout)["options"] == own
    copied = NotedSink.read(Checkpoint.at(str(new)))
    assert copied is not None and copied.group == f"new-{sink_of(topic)}/offsets"
    assert run(broker, "check", new).exit_code == 0


def test_partitions_that_the_query_has_not_read_yet(
    broker: EmbeddedBroker, checkpoint: Path, topic: str, tmp_path: Path
) -> None:
    """Both queries read them from the beginning."""
    kafka = Kafka(broker.bootstrap)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    kafka.put(topic, [b"x", b"y"], partition=1)
    new = tmp_path.parent / f"{tmp_path.name}-new"
    said = forked(broker, checkpoint, new, topic, *ACCEPTED)
    assert said.exit_code == 1 and "-1: from 0 to 2: 2 rows twice" in said.output, said.output
    assert forked(broker, checkpoint, new, topic, "--accept-duplicates", "12").exit_code == 0


class Died(Exception):
    """The command's process is dead."""


def test_a_copy_that_is_not_complete_starts_nowhere(
    broker: EmbeddedBroker,
    checkpoint: Path,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its newest batch cannot be read, whenever the command dies: before the decision, or after it."""
    move: Any = carry_out.move

    def died(*given: Any) -> None:
        raise Died

    def moved(*given: Any) -> None:
        move(*given)
        raise Died

    for number, step in enumerate((died, moved)):
        monkeypatch.setattr(carry_out, "move", step)
        new = tmp_path.parent / f"{tmp_path.name}-new-{number}"
        assert isinstance(forked(broker, checkpoint, new, topic, *ACCEPTED).exception, Died)
        said = run(broker, "check", new)
        assert said.exit_code == 1 and "it is damaged" in said.output
        assert (new / "metadata").exists() and (new / "commits" / "1").exists()


def test_a_query_that_goes_on_meanwhile_is_not_copied(
    broker: EmbeddedBroker, checkpoint: Path, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, put = tmp_path.parent / f"{tmp_path.name}-new", fork._put

    def goes_on(*given: Any) -> None:
        put(*given)
        (checkpoint / "offsets" / "2").write_text((checkpoint / "offsets" / "1").read_text())

    monkeypatch.setattr(fork, "_put", goes_on)
    said = forked(broker, checkpoint, new, topic, *ACCEPTED)
    assert said.exit_code == 1 and "has gone on while its checkpoint was copied" in said.output
    assert run(broker, "check", new).exit_code == 1


@pytest.mark.parametrize(
    ("place", "more", "says"),
    [
        ("used", [], "has files already"),
        ("CHECKPOINT/new", [], "lie in one another"),
        ("CHECKPOINT/..", [], "lie in one another"),
        ("file:CHECKPOINT/new", [], "lie in one another"),
        ("/proc/self/rootCHECKPOINT/new", [], "lie in one another"),
        ("new", ["--group", "old"], "the group old has offsets already"),
        ("new", ["--transactional-id", "SINK"], "--transactional-id: the group SINK has offsets already"),
        ("new", ["--group", "new-SINK"], "have to differ"),
    ],
)
def test_what_is_refused(
    broker: EmbeddedBroker,
    checkpoint: Path,
    cluster: Cluster,
    topic: str,
    tmp_path_factory: pytest.TempPathFactory,
    place: str,
    more: list[str],
    says: str,
) -> None:
    folder = tmp_path_factory.mktemp("places")
    (folder / "used").mkdir()
    (folder / "used" / "file").write_text("")
    carry_out.move(
        cluster, None, None, Batch("", 0), SourceOffsets("old", {(topic, 0): (3, "")}), None, "", ""
    )
    where = place.replace("CHECKPOINT", str(checkpoint)) if "/" in place else str(folder / place)
    named = [text.replace("SINK", sink_of(topic)) for text in more]
    said = forked(broker, checkpoint, where, topic, *ACCEPTED, *named)
    assert said.exit_code == 1 and says.replace("SINK", sink_of(topic)) in said.output, said.output


def test_names_that_do_not_fit(broker: EmbeddedBroker, checkpoint: Path, topic: str, tmp_path: Path) -> None:
    new = f"{tmp_path}-new"
    said = run(broker, "fork", checkpoint, new)
    assert f"commits its offsets to the group {group_of(topic)}" in said.output and said.exit_code == 1
    (checkpoint / "eoslog" / "sink").unlink()
    said = forked(broker, checkpoint, new, topic)
    assert "leave --transactional-id out" in said.output and said.exit_code == 1


def test_a_query_of_another_sink(broker: EmbeddedBroker, plain: Path, topic: str, tmp_path: Path) -> None:
    """The copy has its files and an id of its own; there is nothing to decide."""
    new = tmp_path.parent / f"{tmp_path.name}-new"
    said = run(broker, "fork", plain, str(new), *ACCEPTED)
    assert said.exit_code == 0, said.output
    assert (new / "offsets" / "1").read_text() == (plain / "offsets" / "1").read_text()
    assert not (new / "eoslog").exists() and json.loads((new / "metadata").read_text())["id"] != "q"
    assert Kafka(broker.bootstrap).admin.list_topics(timeout=10).topics[topic] is not None
