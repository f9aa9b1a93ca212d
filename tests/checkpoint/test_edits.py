"""The steps of an edit and of taking it back, without Spark; two edits at once; queries that run."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
from click.testing import Result

from eoslog.checkpoint import carry_out, edit_numbers, editing
from eoslog.checkpoint.backups import newest_backup
from eoslog.checkpoint.edit_numbers import LastEdit, NotEditable, claimed
from eoslog.checkpoint.edits import _end_of, order, order_back
from eoslog.checkpoint.standing import check_rests, standing
from eoslog.client.admin.groups import delete_offsets, fetch_committed
from eoslog.client.admin.transactions import init_producer_id
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.files import LocalFiles
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.task_reports import Batch, Run
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.offsets import epochs_from_json, to_json
from eoslog.connector.run import run_memory
from eoslog.connector.sink.start_of_run import cluster_id
from eoslog.connector.spark.processes import ProcessIdentity, this_process
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.checkpointkit import decide, group_of, last, lines, plan, run, sink_of
from tests.checkpoint.copy_query import EXACT, CopyQuery
from tests.connector.brokers import Kafka


class Died(Exception):
    """The command's process is dead."""


def test_in_which_order_files_are_changed() -> None:
    """A batch that is planned and not done is gone before the one below it changes; done is noted last."""
    changes = {("commits", 1): "", ("offsets", 1): "", ("commits", 3): None, ("offsets", 3): None}
    changes |= {("offsets", 2): None}
    there = order(changes)
    assert there == [("offsets", 3), ("offsets", 2), ("commits", 3), ("offsets", 1), ("commits", 1)]
    back = order_back(changes)
    assert back == [("commits", 1), ("commits", 3), ("offsets", 1), ("offsets", 2), ("offsets", 3)]


def rewound(broker: EmbeddedBroker, checkpoint: Path) -> Result:
    return run(broker, "rewind", checkpoint, "--by", "5", "--accept-duplicates", "5")


def test_an_edit_moves_decision_and_group_and_undo_moves_them_back(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str
) -> None:
    before = last(cluster, topic)
    assert rewound(broker, decided).exit_code == 0
    assert last(cluster, topic).batch.digest != before.batch.digest
    assert fetch_committed(cluster, group_of(topic), None)[topic, 0][0] == 15
    assert run(broker, "undo", decided).exit_code == 0
    assert last(cluster, topic).batch == before.batch
    assert fetch_committed(cluster, group_of(topic), None)[topic, 0][0] == 20
    assert run(broker, "check", decided).exit_code == 0


def test_where_rows_are_is_noted_of_a_query_that_has_noted_it(broker: EmbeddedBroker, decided: Path) -> None:
    """Another one's checkpoint has no such note after an edit, nor after it is taken back."""
    assert rewound(broker, decided).exit_code == 0 and not (decided / "eoslog" / "places").exists()
    assert run(broker, "undo", decided).exit_code == 0 and not (decided / "eoslog" / "places").exists()


@pytest.mark.parametrize("command", [["rewind", "--by", "5"], ["skip-to", "--by", "5"]])
def test_an_older_copy_is_not_edited(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str, command: list[str]
) -> None:
    """The sink's decision of a batch that the copy does not have would be moved."""
    plan(decided, 2, lines({topic: {"0": 25}}))
    decide(cluster, decided, topic, 2, last(cluster, topic))
    for log in ("offsets", "commits"):
        (decided / log / "2").unlink()
    before = last(cluster, topic)
    more = ["--accept-duplicates", "9", "--accept-loss", "9"]
    said = run(broker, command[0], decided, *command[1:], *more)
    assert said.exit_code == 1 and "the checkpoint has batch 1 as its newest" in said.output
    assert last(cluster, topic) == before
    assert run(broker, "rebuild", decided).exit_code == 0
    assert run(broker, command[0], decided, *command[1:], *more).exit_code == 0


@pytest.mark.parametrize(
    ("command", "price", "ends"),
    [
        pytest.param(["rewind", "--by", "5"], ("11 rows of the source twice", "0 never"), 15, id="back"),
        pytest.param(["skip-to", "--by", "2"], ("4 rows of the source twice", "2 never"), 22, id="into it"),
        pytest.param(["skip-to", "--by", "9"], ("0 rows of the source twice", "9 never"), 29, id="over it"),
    ],
)
def test_a_planned_batch_of_a_sink_without_decisions(
    broker: EmbeddedBroker, plain: Path, cluster: Cluster, topic: str,
    command: list[str], price: tuple[str, str], ends: int,
) -> None:  # fmt: skip
    """Errors name an edit when the batch is planned already. Its rows may be there: that is counted."""
    NotedSink(None, cluster_id(cluster), 0).write(Checkpoint.at(str(plain)))
    plan(plain, 2, lines({topic: {"0": 26}}))
    (plain / "commits" / "2").unlink()
    said = run(broker, command[0], plain, *command[1:])
    assert said.exit_code == 1 and ", ".join(price) in said.output, said.output
    more = ["--accept-duplicates", "11", "--accept-loss", "9"]
    said = run(broker, command[0], plain, *command[1:], *more[: 2 if command[0] == "rewind" else 4])
    assert said.exit_code == 0, said.output
    assert not (plain / "offsets" / "2").exists()
    assert json.loads((plain / "offsets" / "1").read_text().splitlines()[-1])[topic] == {"0": ends}
    assert run(broker, "undo", plain).exit_code == 0 and (plain / "offsets" / "2").exists()


def test_a_planned_batch_of_another_sink_is_not_dropped(broker: EmbeddedBroker, plain: Path) -> None:
    """Such a sink may know the batch by its number, and would drop the next one for it."""
    (plain / "commits" / "1").unlink()
    said = run(broker, "rewind", plain, "--by", "5", "--accept-duplicates", "9")
    assert said.exit_code == 1 and "names no sink of eoslog's" in said.output


def test_before_the_transaction_nothing_is_changed(
    broker: EmbeddedBroker, decided: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But the backup is there, and says how all was."""

    def died(*given: Any) -> None:
        raise Died

    before = (decided / "offsets" / "1").read_text()
    with monkeypatch.context() as patch:
        patch.setattr(carry_out, "_move", died)
        assert isinstance(rewound(broker, decided).exception, Died)
    assert (decided / "offsets" / "1").read_text() == before
    backup = newest_backup(Checkpoint.at(str(decided)))
    assert backup is not None and backup.is_open and backup.before["offsets", 1] == before
    assert "was interrupted" in run(broker, "check", decided).output
    assert "Take it back first" in rewound(broker, decided).output
    assert run(broker, "undo", decided).exit_code == 0
    assert run(broker, "check", decided).exit_code == 0


def test_a_query_that_goes_on_before_the_files_are_changed_keeps_them(
    broker: EmbeddedBroker, decided: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = carry_out._move

    def goes_on(*given: Any) -> None:
        move(*given)
        (decided / "offsets" / "2").write_text(lines({topic: {"0": 25}}))

    monkeypatch.setattr(carry_out, "_move", goes_on)
    before = (decided / "offsets" / "1").read_text()
    said = rewound(broker, decided)
    assert said.exit_code == 1 and "has gone on while its checkpoint was edited" in said.output
    assert (decided / "offsets" / "1").read_text() == before


def test_a_query_that_has_decided_since_it_was_judged_is_left_alone(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decides(*given: Any) -> None:
        plan(decided, 2, lines({topic: {"0": 25}}))
        decide(cluster, decided, topic, 2, last(cluster, topic))

    monkeypatch.setattr(editing, "check_rests", decides)
    said = rewound(broker, decided)
    assert said.exit_code == 1 and "Nothing was changed" in said.output
    assert last(cluster, topic).batch.batch_id == 2


def test_what_the_query_has_written_since_is_not_taken_back(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str
) -> None:
    assert rewound(broker, decided).exit_code == 0
    plan(decided, 2, lines({topic: {"0": 25}}))
    decide(cluster, decided, topic, 2, last(cluster, topic))
    said = run(broker, "undo", decided)
    assert said.exit_code == 1 and "the query has gone on since the edit" in said.output
    assert run(broker, "check", decided).exit_code == 0


@pytest.mark.parametrize("is_noted", [False, True])
@pytest.mark.parametrize("comes_again", [False, True])
@pytest.mark.parametrize("forgotten", [False, True])
def test_nor_what_it_has_written_under_another_name_or_after_a_long_rest(
    broker: EmbeddedBroker,
    decided: Path,
    cluster: Cluster,
    topic: str,
    is_noted: bool,
    comes_again: bool,
    forgotten: bool,
) -> None:
    """Decisions count from 1 again: the last one has the number of the one before the edit.

    `is_noted`: as done, or else the driver has died before. `comes_again`: the batch has the number of one
    that the edit has removed, as of a query with state."""
    if comes_again:
        state = decided / "state" / "0" / "0"
        state.mkdir(parents=True)
        for version in (1, 2):
            (state / f"{version}.delta").write_text("")
        said = run(broker, "rewind", decided, "--to-batch", "0", "--accept-duplicates", "10")
    else:
        said = rewound(broker, decided)
    assert said.exit_code == 0, said.output
    if forgotten:
        group = Sink(sink_of(topic)).group
        assert not any(delete_offsets(cluster, group, [*fetch_committed(cluster, group, None)]).values())
    batch = 1 if comes_again else 2
    plan(decided, batch, lines({topic: {"0": 25}}))
    decide(cluster, decided, topic, batch, named=None if forgotten else f"{sink_of(topic)}-2")
    if not is_noted:
        (decided / "commits" / str(batch)).unlink()
    files = {path: path.read_text() for path in decided.rglob("*") if path.is_file()}
    said = run(broker, "undo", decided)
    assert said.exit_code == 1 and "the query has gone on since the edit" in said.output, said.output
    assert files == {path: path.read_text() for path in decided.rglob("*") if path.is_file()}
    assert run(broker, "check", decided).exit_code == 0
    if not comes_again:
        assert rewound(broker, decided).exit_code == 0, "as the message says"


def test_nor_after_an_edit_that_was_interrupted(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its decision. The driver has died before the batch was noted as done."""

    def dies(*_given: Any) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(carry_out, "_move", dies)
        assert isinstance(rewound(broker, decided).exception, Died)
    plan(decided, 2, lines({topic: {"0": 25}}))
    decide(cluster, decided, topic, 2, named=f"{sink_of(topic)}-2")
    (decided / "commits" / "2").unlink()
    said = run(broker, "undo", decided)
    assert said.exit_code == 1 and (decided / "offsets" / "2").exists(), said.output


def test_nor_what_another_query_has_written_after_a_long_rest(
    broker: EmbeddedBroker, query: CopyQuery
) -> None:
    """Its decisions count from 1 again."""
    said = run(broker, "rewind", query.place, "--by", "5", "--accept-duplicates", "5", "--fence")
    assert said.exit_code == 0, said.output
    for group in (query.sink["transactional.id"], query.sink["kafka.group.id"]):
        query.kafka.admin.delete_consumer_groups([group])[group].result(30)
    ends = {query.source: {"0": 20}}
    reads = {"startingOffsets": json.dumps(ends)}
    place = query.place.with_name("successor")
    successor = replace(query.on(query.kafka, place, start_accepted="new-checkpoint:0"), reads=reads)
    for first in (20, 30):  # as many as before the edit
        query.puts(first)
        assert successor.start()
    said = run(broker, "undo", query.place)
    assert said.exit_code == 1 and "has taken the place of this one" in said.output, said.output


def test_nor_what_a_batch_has_whose_plan_was_written_again(
    broker: EmbeddedBroker, decided: Path, topic: str
) -> None:
    """Its plan would go, and that it is done would stay."""
    done = (decided / "commits" / "1").read_text()
    for log in ("offsets", "commits"):
        (decided / log / "1").unlink()
    assert run(broker, "rebuild", decided).exit_code == 0
    (decided / "commits" / "1").write_text(done)
    said = run(broker, "undo", decided)
    assert said.exit_code == 1 and "the query has gone on since the edit" in said.output, said.output
    assert run(broker, "check", decided).exit_code == 0


def test_the_same_of_a_sink_without_decisions(broker: EmbeddedBroker, plain: Path, topic: str) -> None:
    """Its files alone tell."""
    assert rewound(broker, plain).exit_code == 0
    plan(plain, 2, lines({topic: {"0": 25}}))
    said = run(broker, "undo", plain)
    assert said.exit_code == 1 and "the query has gone on since the edit" in said.output


def test_a_batch_that_was_only_planned_since_goes_with_the_edit(
    broker: EmbeddedBroker, decided: Path, topic: str
) -> None:
    assert rewound(broker, decided).exit_code == 0
    (decided / "offsets" / "2").write_text(lines({topic: {"0": 25}}))
    assert run(broker, "undo", decided).exit_code == 0
    assert not (decided / "offsets" / "2").exists()
    assert run(broker, "check", decided).exit_code == 0


@pytest.mark.parametrize(
    ("removed", "says"),
    [
        (["offsets/2"], "offsets/2 is missing between others"),
        (["offsets/3"], "commits/ has batch 3, and offsets/ has batch 2 as its newest"),
        (["commits/2", "commits/3"], "the batches between would be left out"),
    ],
)
def test_files_that_were_deleted_are_found(
    broker: EmbeddedBroker, plain: Path, topic: str, removed: list[str], says: str
) -> None:
    for batch, end in ((2, 25), (3, 30)):
        plan(plain, batch, lines({topic: {"0": end}}))
    assert run(broker, "check", plain).exit_code == 0
    for name in removed:
        (plain / name).unlink()
    said = run(broker, "check", plain)
    assert said.exit_code == 1 and says in said.output
    assert rewound(broker, plain).exit_code == 1


def test_what_the_log_has_lost_is_found(broker: EmbeddedBroker, plain: Path, topic: str) -> None:
    plan(plain, 2, lines({topic: {"0": 31}}))
    said = run(broker, "check", plain, "--json")
    assert said.exit_code == 1 and "DataLoss" in json.loads(said.stdout)["problems"][0]


@pytest.fixture
def query(broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CopyQuery:
    """A query that has run two batches of ten rows."""
    kafka = Kafka(broker.bootstrap)
    source, target = kafka.topic(), kafka.topic()
    names = {"transactional.id": f"s-{source}", "kafka.group.id": f"g-{source}"}
    query = CopyQuery(tmp_path / "checkpoint", kafka, source, target, names, monkeypatch)
    for first in (0, 10):
        query.puts(first)
        assert query.start()
    return query


def in_place_of(query: CopyQuery, name: str) -> CopyQuery:
    """A query with a new checkpoint that goes on where the sink's last one has ended."""
    reads = {"startingOffsets": "committed", **query.sink}
    return replace(query, place=query.place.with_name(name), reads=reads)


EDITS = {
    "rewind": ("--by", "5", "--accept-duplicates", "5"),
    "skip-to": ("--by", "5", "--accept-loss", "5"),
    "add-topic": (),
}


@pytest.mark.parametrize("killed", ["", "_move", "_check_files"])
@pytest.mark.parametrize("edit", EDITS)
def test_nor_what_a_query_has_written_that_has_taken_its_place(
    broker: EmbeddedBroker, query: CopyQuery, monkeypatch: pytest.MonkeyPatch, edit: str, killed: str
) -> None:
    """After the edit, or after one that was `killed` before or behind its decision. It wrote one batch."""

    def dies(*_given: Any) -> None:
        raise Died

    query.puts(20)
    topics = [query.kafka.topic()] if edit == "add-topic" else []
    with monkeypatch.context() as patch:
        if killed:
            patch.setattr(carry_out, killed, dies)
        said = run(broker, edit, query.place, *topics, *EDITS[edit], "--fence")
    assert isinstance(said.exception, Died) if killed else said.exit_code == 0, said.output
    successor = in_place_of(query, "successor")
    assert successor.start()
    before = query.astray
    said = run(broker, "undo", query.place)
    assert said.exit_code == 1, (said.output, query.start(), query.astray, before)
    assert "has taken the place of this one since the edit" in said.output
    again = run(broker, "rewind", query.place, "--by", "1", "--fence").output
    assert "the next start would stop, so no edit is safe" in again
    query.puts(30)
    with pytest.raises(CommitFault):
        replace(query, reads={"subscribe": ",".join([query.source, *topics])}).start()
    assert successor.start() and query.astray == before
    query.puts(40)
    back = in_place_of(query, "back")  # as the message says
    assert back.start() and query.astray == before


@pytest.mark.parametrize("gone", ["the group", "the topic"])
def test_offsets_that_are_gone_need_not_be_forgotten(
    broker: EmbeddedBroker, query: CopyQuery, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """The edit has ended before its decision, and names a partition that the group does not have."""

    def dies(*_given: Any) -> None:
        raise Died

    kafka, added = query.kafka, query.kafka.topic()
    with monkeypatch.context() as patch:
        patch.setattr(carry_out, "_move", dies)
        assert isinstance(run(broker, "add-topic", query.place, added, "--fence").exception, Died)
    if gone == "the group":
        group = query.sink["kafka.group.id"]
        kafka.admin.delete_consumer_groups([group])[group].result(30)
    else:
        kafka.admin.delete_topics([added])[added].result(30)
    assert "eoslog checkpoint undo" in run(broker, "rewind", query.place, "--by", "1", "--fence").output
    said = run(broker, "undo", query.place)
    assert said.exit_code == 0, said.output
    query.puts(20)
    assert query.start() and query.astray == EXACT


# -- two edits at once ---------------------------------------------------------------------------
# Two edits of one checkpoint at once: the second runs whole at each step of the first. Each is carried out as
# if it were alone, or changes nothing.

Act = Callable[[], bool]
ANOTHER = ProcessIdentity(1, "another process")
_FIRST, _BEFORE = 20, 17
"""Where the query stood before all edits, and before the two."""


def position(checkpoint: Path) -> int:
    """Where it stands: the end of its one partition."""
    (ends,) = json.loads((checkpoint / "offsets" / "1").read_text().splitlines()[2]).values()
    return int(ends["0"])


class Interrupted:
    """Runs `other` before step number `at` of what comes next; the steps: looks at the notes, and changes of
    files."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, other: Act) -> None:
        self.at, self.other, self.steps, self.succeeded = at, other, 0, False
        for name in ("names", "put", "remove"):
            patch.setattr(LocalFiles, name, self._stepping(getattr(LocalFiles, name)))

    def _stepping(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*given: Any, **named: Any) -> Any:
            step, self.steps = self.steps, self.steps + 1
            if step == self.at:
                self.succeeded = self.other()
            return call(*given, **named)

        return stepped


@pytest.mark.long
@pytest.mark.parametrize("kind", ["plain", "decided"])
@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ("rewind", "rewind", {_BEFORE - 7}),
        ("rewind", "undo", {_BEFORE, _FIRST - 5}),
        ("undo", "rewind", {_BEFORE, _FIRST - 2}),
    ],
)
def test_each_is_whole_or_changes_nothing(
    broker: EmbeddedBroker,
    request: pytest.FixtureRequest,
    kind: str,
    first: str,
    second: str,
    both: set[int],
) -> None:
    """`both`: where the query may stand if both have succeeded: in this order, or the other."""
    checkpoint: Path = request.getfixturevalue(kind)

    def other_process(act: Act) -> Act:
        def acting() -> bool:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(edit_numbers, "this_process", lambda: ANOTHER)
                return act()

        return acting

    def act(command: str, by: int) -> Act:
        more = ["--by", str(by), "--accept-duplicates", str(by)] if command == "rewind" else []
        return lambda: run(broker, command, checkpoint, *more).exit_code == 0

    alone = {("rewind", 5): _BEFORE - 5, ("rewind", 2): _BEFORE - 2}
    for at in count():
        assert act("rewind", 3)() and position(checkpoint) == _BEFORE
        with pytest.MonkeyPatch.context() as patch:
            between = Interrupted(patch, at, other_process(act(second, 2)))
            has = act(first, 5)()
        wanted = {
            (True, True): both,
            (True, False): {alone.get((first, 5), _FIRST)},
            (False, True): {alone.get((second, 2), _FIRST)},
        }
        assert position(checkpoint) in wanted[has, between.succeeded], f"step {at}"
        assert run(broker, "check", checkpoint).exit_code == 0, f"step {at}"
        if between.steps <= at:
            assert at > 3
            return
        back_to_the_first(broker, checkpoint)


@pytest.mark.parametrize("kind", ["plain", "decided"])
def test_an_edit_of_another_machine_is_left_alone(
    broker: EmbeddedBroker, request: pytest.FixtureRequest, kind: str
) -> None:
    """Nobody sees from here whether it is at work."""
    checkpoint: Path = request.getfixturevalue(kind)

    class Killed(Exception):
        pass

    def die(*_: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edit_numbers, "gethostname", lambda: "elsewhere")
        patch.setattr(carry_out, "_check_files", die)
        assert isinstance(
            run(broker, "rewind", checkpoint, "--by", "3", "--accept-duplicates", "3").exception, Killed
        )
    said = run(broker, "undo", checkpoint)
    assert said.exit_code == 1 and "begun on the machine elsewhere, and may be at work there" in said.output
    assert run(broker, "undo", checkpoint, "--edit-has-ended").exit_code == 0
    assert position(checkpoint) == _FIRST
    assert run(broker, "check", checkpoint).exit_code == 0


def back_to_the_first(broker: EmbeddedBroker, checkpoint: Path) -> None:
    """Go forward to where the query stood before all edits."""
    by = _FIRST - position(checkpoint)
    if by:
        run(broker, "skip-to", checkpoint, "--by", str(by), "--accept-loss", str(by))


def test_of_two_claims_at_least_one_stops(tmp_path: Path) -> None:
    """Both look before either has written its backup."""
    checkpoint = Checkpoint.at(str(tmp_path))
    seen = LastEdit.of(checkpoint)
    with claimed(checkpoint, seen) as name:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(edit_numbers, "this_process", lambda: ANOTHER)
            with pytest.raises(NotEditable, match="begins at this moment"), claimed(checkpoint, seen):
                pass
        checkpoint.note(name, "a backup")
    with pytest.raises(NotEditable, match="was made"), claimed(checkpoint, seen):
        pass
    assert checkpoint.notes() == ["edit-0001"]


@pytest.mark.parametrize(
    ("claim", "stops"),
    [
        ('["HERE", 1, "of a process that has died"]', False),
        ('["another machine", 1, "1"]', True),
        ("", True),
        ("[1]", True),
    ],
)
def test_a_claim_that_was_left(tmp_path: Path, claim: str, stops: bool) -> None:
    """Of an edit that has died on this machine it is in nobody's way."""
    checkpoint = Checkpoint.at(str(tmp_path))
    checkpoint.note(f"claim-{'0' * 32}", claim.replace("HERE", gethostname()))
    if stops:
        with (
            pytest.raises(NotEditable, match=r"delete eoslog/claim-0"),
            claimed(checkpoint, LastEdit(0, None)),
        ):
            pass
    else:
        with claimed(checkpoint, LastEdit(0, None)) as name:
            assert name == "edit-0001"
        assert checkpoint.notes() == []


# -- a query that runs ---------------------------------------------------------------------------
# A query that runs is not edited: its driver lives here, or what it does is seen while one looks.

WATCH_SECONDS = 0.6
RUN = Run(ProducerIdentity(7, 0), ProducerIdentity(7, 3), Batch("q", 1, "digest"))


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where drivers keep notes: of this test alone."""
    folder = tmp_path / "notes"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(run_memory, "driver_process", this_process)
    return folder


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    (tmp_path / "metadata").write_text('{"id":"q"}')
    (tmp_path / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"orders":{"0":1}}')
    (tmp_path / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    return Checkpoint.at(str(tmp_path))


def looked_at(cluster: Cluster, checkpoint: Checkpoint, meanwhile: Callable[[], object] = int) -> None:
    """Look whether the query rests; something happens meanwhile."""
    found = standing(cluster, checkpoint)
    later = threading.Timer(WATCH_SECONDS / 3, meanwhile)
    later.start()
    try:
        check_rests(cluster, found, WATCH_SECONDS)
    finally:
        later.join()


@pytest.mark.usefixtures("notes")
def test_a_driver_that_lives_on_this_machine(cluster: Cluster, checkpoint: Checkpoint) -> None:
    run_memory.keep(RUN, "key")
    with pytest.raises(NotEditable, match=rf"lives on this machine \(pid {os.getpid()}\)"):
        looked_at(cluster, checkpoint)


@pytest.mark.usefixtures("notes")
def test_one_that_has_ended(
    cluster: Cluster, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_memory, "driver_process", lambda: ProcessIdentity(os.getpid(), "before"))
    run_memory.keep(RUN, "key")
    looked_at(cluster, checkpoint)


@pytest.mark.usefixtures("notes")
def test_one_of_another_query(cluster: Cluster, checkpoint: Checkpoint) -> None:
    run_memory.keep(replace(RUN, batch=Batch("another", 1, "digest")), "key")
    looked_at(cluster, checkpoint)


@pytest.mark.usefixtures("notes")
def test_a_note_that_does_not_name_its_driver_is_warned_of(
    cluster: Cluster, checkpoint: Checkpoint, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_memory.keep(RUN, "key")
    (note,) = notes.glob("*/*.run")
    for text in ("{", json.dumps({"form": 0, "batch": ["q", 1, "digest"]})):
        note.write_text(text)
        caplog.clear()
        looked_at(cluster, checkpoint)
        assert f"{note} does not name a driver" in caplog.text


@pytest.mark.usefixtures("notes")
def test_a_query_elsewhere_that_plans_a_batch(cluster: Cluster, checkpoint: Checkpoint) -> None:
    with pytest.raises(NotEditable, match="have just changed"):
        looked_at(cluster, checkpoint, lambda: checkpoint.change("offsets", 1, 'v1\n{}\n{"orders":{"0":2}}'))


@pytest.mark.usefixtures("notes")
def test_one_whose_sink_is_at_work(cluster: Cluster, checkpoint: Checkpoint) -> None:
    sink = Sink(f"sink-{time.time_ns()}")
    NotedSink(sink.id, None, 0).write(checkpoint)
    looked_at(cluster, checkpoint)
    with pytest.raises(NotEditable, match="have just changed"):
        looked_at(cluster, checkpoint, lambda: init_producer_id(cluster, sink.coordinator, 60_000))


def test_a_line_names_the_leader_epochs_by_which_a_log_that_was_cut_is_seen() -> None:
    """Kept where no offset rises; today's where one does, of a topic that is new, and of another cluster. A
    line of Spark's own connector names none."""
    place = [(0, "in", partition) for partition in range(3)]
    line = to_json(
        {("in", 0): 5, ("in", 1): 5, ("in", 2): 5},
        {"in": "id"},
        "c",
        {("in", 0): 1, ("in", 1): 2, ("in", 2): 3},
    )
    now = {("in", 0): 7, ("in", 1): 8, ("in", 2): 9, ("new", 0): 4}
    of_all = now | {("of another source", 0): 6}
    ends = {place[0]: 5, place[1]: 4, place[2]: 6, (0, "new", 0): 2}

    def epochs(given: Mapping[str, Any], cluster: str | None = None) -> Mapping[TopicPartition, int]:
        planned = Planned.parse(1, lines(dict(given)))
        return epochs_from_json(json.loads(_end_of(planned, 0, ends, ({"new": "id2"}, of_all), cluster)))

    assert epochs(line) == {("in", 0): 1, ("in", 1): 2, ("in", 2): 9, ("new", 0): 4}
    assert epochs(line, "another") == now
    assert epochs({"in": {"0": 5, "1": 5, "2": 5}}) == {}
