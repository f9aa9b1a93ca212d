"""`eoslog shadow take-over` on a broker, without Spark: what it writes, what it refuses, and its crashes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaException

from eoslog.cli import main
from eoslog.client.admin.groups import fetch_committed
from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.files import LocalFiles
from eoslog.connector.checkpoint.noted_places import NotedPlaces
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.checkpoint.shadow_check import decided_in
from eoslog.connector.commit import commands as c
from eoslog.connector.commit import decide
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.decide import SourceOffsets, Terms, commit, count
from eoslog.connector.commit.decision import KEPT_QUERIES
from eoslog.connector.commit.leave_sink import fence
from eoslog.connector.commit.move_decision import move_decision
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.places import Place
from eoslog.connector.commit.prepare import stamp_of
from eoslog.connector.commit.saved_state import Saved, TaskContents, Written
from eoslog.connector.commit.task_reports import Batch, Empty, Left
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.connector.offsets.group_notes import Note, read_note
from eoslog.connector.offsets.offsets import Offsets, ShadowCut, to_json
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.run.places_in_log import topic_ids
from eoslog.connector.run.runner import Runner
from eoslog.connector.sink.committer import begin_stream
from eoslog.errors import OptionError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.shadow import command, take_over
from tests.connector.brokers import Kafka

ROWS = 4
CLOSED: dict[str, Any] = {"key": b"k", "timestamp": 5, "headers": [("a", b"1"), ("a", None)]}
"""Of rows that the shadow alone has written."""


class Saves(NamedTuple):
    """Stands for the running query's saves."""

    topic: str

    def write(self, own: Participant, last: Saved | None, contents: TaskContents) -> Written:
        """Say that all is there."""
        return Written(Saved(self.topic, 0, 0, 1, "old", True))


class Both:
    """A query and its shadow that have done the same batches. Each reads one row of the source and writes
    `ROWS` rows to each of two partitions; the query's transactions are not those of its rows."""

    def __init__(
        self,
        kafka: Kafka,
        place: Path,
        batches: int = 3,
        partitions: int = 2,
        names: tuple[str | None, str | None, str | None] = (None, None, None),
    ) -> None:
        self.kafka, self.place = kafka, place
        self.source, self.topic = kafka.topic(1, names[0]), kafka.topic(2, names[1])
        self.into = kafka.topic(partitions, names[2])
        self.group, self.old, self.done = f"g-{self.topic}", Sink(f"s-{self.topic}"), 0
        self.state: str | None = None
        self.number, self.former = 0, False
        """The shadow's batches, and whether an earlier version plans them."""
        self.cluster = Cluster(ClientConfig(parse_addresses(kafka.bootstrap)))
        self.runner = Runner(self.cluster, 60_000)
        self.new = f"new-query-of-{self.topic}"
        self.lay_out()
        for _ in range(batches):
            self.batch()

    def lay_out(self) -> None:
        """The shadow's checkpoint before its first batch."""
        for folder in ("offsets", "commits", "eoslog"):
            (self.place / folder).mkdir(parents=True)
        (self.place / "metadata").write_text(json.dumps({"id": self.new}))
        NotedSink(f"new-{self.topic}", None, 0).write(Checkpoint.at(str(self.place)))

    def decide(self, topic: str | None = None) -> None:
        """The running query's next batch, which writes to this topic, or to its own."""
        self.kafka.put(self.source, [b"row"])
        batch = Batch("old-query", self.done, f"{self.done:032x}")
        begun, _ = self.runner.run(begin(self.old, batch))
        note = Note(self.old.id, batch.query_id, batch.batch_id).text()
        source = SourceOffsets(self.group, {(self.source, 0): (self.done + 1, note)})
        saving = None if self.state is None else Saves(self.state)
        report = Empty(stamp_of(begun), 0)
        wrote = ((topic or self.topic, 0),)
        counted = patch.object(decide, "count", lambda *given: count(*given)._replace(written=wrote))
        with counted:
            self.runner.run(commit(self.old, [report], batch.batch_id, source, terms=Terms(saving=saving)))
        self.done += 1

    def batch(self, early: Sequence[bytes] = (), topic: str | None = None) -> None:
        """A batch of both. `early`: rows that the shadow alone writes, before all others. `topic`: of the
        running query, if it is another one."""
        number, own = self.done, self.ends(self.into)
        self.kafka.put(self.into, list(early), 1, **CLOSED)
        for one in (topic or self.topic, self.into):
            for p in {0, 1} & {tp[1] for tp in self.ends(one)}:
                self.kafka.put(one, [b"%d" % n for n in range(ROWS)], p, key=b"%d" % number)
        self.decide(topic)
        self.cover(own)

    def cover(self, own: Offsets) -> None:
        """A batch of the shadow's that is done, and ends at the running query's last decision. `own`: where
        its rows ended before."""
        last, number = self.runner.run(observed_decision(self.old)), self.number
        assert last is not None
        made = None if self.former else decided_in(last)
        cut = ShadowCut(self.old.id, self.group, last.sequence, self.ends(self.topic), own, decided=made)
        first: Offsets | None = None if number else {(self.source, 0): 0}
        end = to_json({(self.source, 0): self.done}, began=first, shadow=cut)
        (self.place / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
        (self.place / "commits" / str(number)).write_text("v1\n{}")
        self.number += 1

    def decide_own(self) -> None:
        """The shadow's own sink has decided its last batch."""
        last = Checkpoint.at(str(self.place)).planned(self.done - 1)
        batch = Batch(self.new, last.batch_id, last.digest)
        self.runner.run(move_decision(Sink(f"new-{self.topic}"), None, batch, None, None))

    def forget(self) -> None:
        """The cluster forgets the groups of both, as after a week without use. There may be none of the
        shadow's own sink."""
        groups = [self.old.group, self.group, Sink(f"new-{self.topic}").group]
        for deleted in self.kafka.admin.delete_consumer_groups(groups).values():
            with suppress(KafkaException):
                deleted.result(60)

    def go_on(self, batches: int) -> None:
        """Batches of the running query alone."""
        for _ in range(batches):
            self.kafka.put(self.topic, [b"%d" % n for n in range(ROWS)], 0, key=b"%d" % self.done)
            self.decide()

    def ends(self, topic: str) -> Offsets:
        places = {(topic, p): LATEST for p in self.cluster.describe(topic).leaders}
        return list_offsets(self.cluster, places, committed=True)

    def take_over(self, *more: str) -> Result:
        command = ["shadow", "take-over", str(self.place), "--watch", "0", *more]
        return CliRunner().invoke(main, [*command, "--bootstrap-server", self.kafka.bootstrap])

    def identity(self, of: Sink | str) -> ProducerIdentity:
        """Of the sink's owner, or of who has this transactional id."""
        name = of if isinstance(of, str) else of.coordinator
        found = self.runner.run(c.demand(c.Describe((name,)), ""))[name]
        assert found is not None
        return found.identity

    def decided(self) -> Batch | None:
        last = self.runner.run(observed_decision(self.old))
        return None if last is None else last.batch

    def standing(self) -> tuple[Any, ...]:
        """All that a take-over changes."""
        group = fetch_committed(self.cluster, self.group, None)
        note = NotedSink.read(Checkpoint.at(str(self.place)))
        return self.kafka.rows(self.topic, 2), self.decided(), group, note

    def close_windows(self) -> None:
        """Rows that the shadow has written and the running query would write next."""
        self.batch(early=[b"closed"])
        self.kafka.put(self.into, [b"too"], 1, **CLOSED)
        self.kafka.put(self.into, [b"other"], 0, timestamp=6)


@pytest.fixture
def both(kafka: Kafka, tmp_path: Path) -> Both:
    return Both(kafka, tmp_path / "new")


def check_taken(both: Both, before: tuple[Any, ...], *, left: bool) -> None:
    """The shadow has taken over in its last batch."""
    rows, decided, group, note = both.standing()
    last = both.done - 1
    assert decided is not None and (decided.query_id, decided.batch_id) == (both.new, last)
    assert decided.digest == Checkpoint.at(str(both.place)).planned(last).digest
    ((at, text),) = group.values()
    assert (at, read_note(text)) == (both.done, Note(both.old.id, both.new, last))
    assert note is not None and (note.sink, note.since, note.group) == (both.old.id, last, both.group)
    more = [row[:1] + row[2:] for row in rows if row not in before[0]]
    closed = (0, CLOSED["timestamp"], CLOSED["headers"])
    expected = [
        (0, None, b"other", 0, 6, None), (1, b"k", b"closed", *closed), (1, b"k", b"too", *closed)
    ]  # fmt: skip
    assert more == (expected if left else [])


@pytest.mark.parametrize("left", [False, True])
def test_a_shadow_takes_over(both: Both, left: bool) -> None:
    if left:
        both.close_windows()
    before = both.standing()
    tried = both.take_over("--dry-run")
    assert tried.exit_code == 0 and both.standing() == before, tried.output
    done = both.take_over()
    assert done.exit_code == 0 and f"done: {3 if left else 0} rows" in done.output, done.output
    assert f"transactional.id={both.old.id}, kafka.group.id={both.group}" in done.output
    check_taken(both, before, left=left)
    taken = both.standing()
    for look in ("show", "check"):
        seen = CliRunner().invoke(
            main, ["checkpoint", look, str(both.place), "--bootstrap-server", both.kafka.bootstrap]
        )
        assert seen.exit_code == 0, seen.output
    living = both.runner.run(begin(both.old, Batch(both.new, both.done)))[1].identity
    again = both.take_over("--json")
    assert again.exit_code == 0 and json.loads(again.output)["rows"] == 0 and both.standing() == taken
    assert both.identity(both.old) == living, "the new version is not stopped"


def test_who_has_taken_over_misses_no_rows_of_the_shadow(both: Both) -> None:
    """Its checkpoint notes where its rows were: in a topic that is thrown away now."""
    checkpoint, writer = Checkpoint.at(str(both.place)), ProducerIdentity(7, 0)
    topic_id = topic_ids(both.cluster, (both.into,))[both.into]
    rows = Place(both.into, topic_id, 0, 1, writer, 5)
    NotedPlaces(((both.done - 1, (rows,)),)).write(checkpoint)
    assert both.take_over().exit_code == 0
    both.kafka.admin.delete_topics([both.into])[both.into].result(60)
    forgotten(both)
    starts(both, transactional_id=both.old.id, kafka_group_id=both.group, topic=both.topic)


def test_a_power_cut_after_a_take_over_does_not_write_the_shadow_s_batch_again(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's note that it is done is on the disk before anything changes: the running query's sink knows
    nothing of the batch."""
    did: list[str] = []
    monkeypatch.setattr(LocalFiles, "sync", lambda _, names: did.extend(names))

    def moved(*given: Any, **named: Any) -> Any:
        did.append("moved")
        return move_decision(*given, **named)

    monkeypatch.setattr(take_over, "move_decision", moved)
    assert both.take_over().exit_code == 0
    assert did[:2] == [f"commits/{both.done - 1}", "moved"]


@pytest.mark.parametrize("left", [False, True])
def test_what_takes_over_can_be_restored_at_once(both: Both, left: bool) -> None:
    """Its checkpoint is the only copy of the state, before the new version's first batch."""
    both.state = both.kafka.topic(cleanup_policy="compact")
    both.batch()
    if left:
        both.close_windows()
    before = both.standing()
    assert both.take_over().exit_code == 0
    check_taken(both, before, left=left)
    paths = (path for path in both.place.rglob("*") if path.is_file())
    files = {str(path.relative_to(both.place)): path.read_text() for path in paths}
    shutil.rmtree(both.place)
    at = [str(both.place), "--bootstrap-server", both.kafka.bootstrap]
    named = ["--transactional-id", both.old.id, "--topic", both.topic]
    done = CliRunner().invoke(main, ["checkpoint", "restore", *at, *named])
    assert done.exit_code == 0 and f"goes on after batch {both.done - 1}" in done.output, done.output
    note = "eoslog/sink"
    assert (both.place / note).read_text() == files[note] and both.old.id in files[note]
    for log in ("offsets", "commits"):
        name = f"{log}/{both.done - 1}"
        assert (both.place / name).read_text() == files[name]
    checked = CliRunner().invoke(main, ["checkpoint", "check", *at])
    assert checked.exit_code == 0, checked.output


def test_rows_of_another_topic_are_not_taken_for_windows_to_come(both: Both) -> None:
    """The running query was started with another topic while its shadow ran: those of its last step would be
    written once more. The error's way out ends."""
    before, other = both.kafka.rows(both.topic, 2), both.kafka.topic(2)
    both.batch(topic=other)
    for number in range(2):
        done = both.take_over()
        assert done.exit_code == 1, done.output
        assert f"has written to {other} (last in decision 4), and {both.topic} alone is" in done.output
        report = ["shadow", "report", str(both.place), "--bootstrap-server", both.kafka.bootstrap]
        assert f"has written to {other}, too, last in decision 4" in CliRunner().invoke(main, report).output
        if not number:
            assert both.kafka.rows(both.topic, 2) == before
            both.batch()
    for _ in range(take_over.LEAST_STEPS):
        both.batch()
    standing = both.standing()
    done = both.take_over("--from-batch", "5")
    assert done.exit_code == 0, done.output
    check_taken(both, standing, left=False)


def forgotten(both: Both) -> int:
    """A start without shadow.of has planned a batch, up to where the log ends."""
    both.kafka.put(both.source, [b"row"] * 3)
    end = to_json({(both.source, 0): both.done + 3})
    (both.place / "offsets" / str(both.done)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
    return both.done


def starts(both: Both, **names: str) -> None:
    """The sink's start for the batch that is planned."""
    given = {"kafka.bootstrap.servers": both.kafka.bootstrap, "checkpointLocation": str(both.place)}
    given |= {name.replace("_", "."): value for name, value in names.items()}
    begin_stream(sink_options(given, stream=True))


def way_out(both: Both, error: Exception, command: str) -> Result:
    """Type the command that an error names."""
    found = re.search(rf"eoslog ({command} .+?)(\. | --to-batch \d+|$)", str(error))
    assert found is not None, str(error)
    typed = [*found[0].strip(". ").split()[1:], "--watch", "0", "--bootstrap-server", both.kafka.bootstrap]
    return CliRunner().invoke(main, typed)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("as_old", [False, True])
def test_a_forgotten_take_over(both: Both, as_old: bool, left: bool) -> None:
    """Under its own name or the running query's: it stops, and the way out ends."""
    if left:
        both.close_windows()
    before, number = both.standing(), forgotten(both)
    live = {"transactional_id": both.old.id, "kafka_group_id": both.group, "topic": both.topic}
    given = live if as_old else {"transactional_id": f"new-{both.topic}", "topic": both.topic}
    living = both.runner.run(begin(both.old, Batch("old-query", both.done)))[1].identity
    with pytest.raises(OptionError, match="has not taken that query's place") as stopped:
        starts(both, **given)
    assert both.standing() == before and both.identity(both.old) == living
    done = way_out(both, stopped.value, "shadow take-over")
    assert done.exit_code == 0, done.output
    check_taken(both, before, left=left)
    assert not (both.place / "offsets" / str(number)).exists()
    forgotten(both)
    starts(both, **live)


def test_a_shadow_that_was_started_as_a_query_is_a_shadow_again(both: Both) -> None:
    both.decide_own()
    number = forgotten(both)
    with pytest.raises(OptionError) as stopped:
        starts(both, transactional_id=f"new-{both.topic}", topic=both.topic)
    done = way_out(both, stopped.value, "checkpoint rewind")
    assert done.exit_code == 0, done.output
    assert not (both.place / "offsets" / str(number)).exists()
    both.batch()
    done_note = both.place / "commits" / str(number)
    noted = done_note.read_text()
    done_note.unlink()
    starts(both, transactional_id=f"new-{both.topic}", topic=both.into)
    done_note.write_text(noted)
    before = both.standing()
    done = both.take_over("--fence")
    assert done.exit_code == 0, done.output
    check_taken(both, before, left=False)


def test_a_shadow_is_not_edited_to_another_end(both: Both) -> None:
    both.decide_own()
    files = {path: path.read_text() for path in both.place.rglob("*") if path.is_file()}
    at = [str(both.place), "--bootstrap-server", both.kafka.bootstrap, "--watch", "0"]
    done = CliRunner().invoke(main, ["checkpoint", "rewind", *at, "--by", "1", "--accept-duplicates", "1"])
    assert done.exit_code == 1 and "this is the checkpoint of a shadow" in done.output, done.output
    assert {path: path.read_text() for path in both.place.rglob("*") if path.is_file()} == files
    assert both.take_over().exit_code == 0
    done = CliRunner().invoke(main, ["checkpoint", "rewind", *at, "--by", "1", "--accept-duplicates", "1"])
    assert done.exit_code == 0, done.output


def begins_anew(both: Both, place: Path) -> None:
    """The shadow begins with a new checkpoint and a new topic, as messages say, and takes over: every row is
    there once."""
    written = both.kafka.rows(both.topic, 2)
    both.place, both.into, both.number, both.former = place, both.kafka.topic(2), 0, False
    both.new = f"anew-of-{both.topic}"
    both.lay_out()
    for p in (0, 1):
        for row in written:
            both.kafka.put(both.into, [row[3]] if row[0] == p else [], p, key=row[2])
    both.cover(dict.fromkeys(both.ends(both.into), 0))
    done = both.take_over()
    assert done.exit_code == 0, done.output
    rows, decided, group, _ = both.standing()
    assert rows == written and decided is not None and decided[:2] == (both.new, 0)
    assert [at for at, _ in group.values()] == [both.done]


@pytest.mark.parametrize("former", [False, True])
@pytest.mark.parametrize("more", [1, 3])
def test_decisions_that_are_counted_anew(both: Both, tmp_path: Path, more: int, former: bool) -> None:
    """Both have rested, and the running query goes on: its new decision no. 3 is not the one at which the
    shadow stands. What it has written since would be written once more. The way out ends."""
    if former:
        shutil.rmtree(both.place)
        both.number, both.former = 0, True
        both.lay_out()
        both.cover(dict.fromkeys(both.ends(both.into), 0))
    both.forget()
    both.go_on(more)
    before = both.standing()
    done = both.take_over()
    assert both.standing() == before, "it stands where the running query does"
    assert done.exit_code == 1, done.output
    assert "forgotten the decision at which its shadow stands" in done.output, done.output
    report = ["shadow", "report", str(both.place), "--bootstrap-server", both.kafka.bootstrap]
    said = CliRunner().invoke(main, report)
    assert former or (said.exit_code == 2 and "Begin its shadow anew" in said.output), said.output
    begins_anew(both, tmp_path / "anew")


@pytest.mark.parametrize("more", [(), ("--live",)])
def test_decisions_that_are_forgotten(both: Both, tmp_path: Path, more: tuple[str, ...]) -> None:
    """All of them: nobody knows where the shadow stands. The way out ends."""
    both.forget()
    before = both.standing()
    done = both.take_over(*more)
    assert done.exit_code == 1 and both.standing() == before, done.output
    assert "start the running query once, and begin the shadow anew" in done.output, done.output
    both.go_on(1)
    begins_anew(both, tmp_path / "anew")


def test_a_write_in_between_is_no_batch(both: Both) -> None:
    """A df.write into the running query's sink: of so many the first is not remembered, and the query is."""
    for number in range(KEPT_QUERIES + 2):
        begun, _ = both.runner.run(begin(both.old, Batch(f"write-{number}", 0)))
        both.runner.run(commit(both.old, [Empty(stamp_of(begun), 0)], 0))
        if not number:
            both.cover(both.ends(both.into))
    done = both.take_over()
    assert done.exit_code == 1 and f"{KEPT_QUERIES + 1} batches after" in done.output, done.output


def test_a_cut_of_an_earlier_version(both: Both) -> None:
    """It does not say which batch was decided: the group's offsets tell whether it is that one."""
    both.former = True
    both.batch()
    before = both.standing()
    assert Checkpoint.at(str(both.place)).planned(both.done - 1).shadows()[0].decided is None
    assert both.take_over().exit_code == 0
    check_taken(both, before, left=False)


class Dies(Exception):
    """The command's process is dead."""


@pytest.mark.parametrize("after", [c.Acquire, c.SaveState, c.StageOffsets, c.End])
def test_a_crash_changes_nothing_or_all(
    both: Both, after: type[c.Command[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    both.close_windows()
    before = both.standing()

    def die(command: c.Command[Any]) -> None:
        if isinstance(command, after):
            raise Dies

    with monkeypatch.context() as patch:
        patch.setattr(take_over, "Runner", partial(Runner, after=die))
        assert isinstance(both.take_over().exception, Dies)
    if after is not c.End:
        assert both.kafka.rows(both.topic, 2) == before[0]
    done = both.take_over()
    assert done.exit_code == 0, done.output
    check_taken(both, before, left=True)


def test_the_running_query_decides_meanwhile(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    both.close_windows()
    before = both.standing()

    def decides(command: c.Command[Any]) -> None:
        if isinstance(command, c.Acquire) and both.done == 4:
            both.decide()

    monkeypatch.setattr(take_over, "Runner", partial(Runner, before=decides))
    done = both.take_over()
    assert done.exit_code == 1 and "has decided batch 4" in done.output, done.output
    assert both.standing()[0] == before[0] and both.standing()[3] == before[3]


@pytest.mark.parametrize("at", ["before", "after"])
def test_two_commands_at_once(both: Both, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """One takes over while the other is about to acquire the sink, or has just acquired it."""
    both.close_windows()
    before, others = both.standing(), list[Result]()

    def second(command: c.Command[Any]) -> None:
        if isinstance(command, c.Acquire) and not others:
            monkeypatch.setattr(take_over, "Runner", Runner)
            others.append(both.take_over())

    first = partial(Runner, before=second) if at == "before" else partial(Runner, after=second)
    monkeypatch.setattr(take_over, "Runner", first)
    done = both.take_over()
    assert others[0].exit_code == 0, others[0].output
    assert done.exit_code == 1 and "Traceback" not in done.output, done.output
    check_taken(both, before, left=True)


def test_a_shadow_that_has_taken_over_and_was_started_as_a_shadow_again(both: Both) -> None:
    """That start is refused, and Spark has planned a batch in its checkpoint."""
    both.close_windows()
    assert both.take_over().exit_code == 0
    planned = (both.place / "offsets" / str(both.done - 1)).read_text()
    (both.place / "offsets" / str(both.done)).write_text(planned)
    said = both.take_over()
    assert said.exit_code == 1 and "the shadow has taken over, and its checkpoint is noted" in said.output, (
        said.output
    )
    assert "without shadow.of" in said.output


def behind(both: Both) -> None:
    both.decide()


def missing(both: Both) -> None:
    both.kafka.put(both.topic, [b"more"])
    both.batch()


def extra_before(both: Both) -> None:
    both.kafka.put(both.into, [b"more"])
    both.batch()


def not_done(both: Both) -> None:
    (both.place / "commits" / str(both.done - 1)).unlink()


def held_back(both: Both) -> None:
    producer = both.kafka.transactional(f"held-{both.into}")
    producer.begin_transaction()
    producer.produce(both.into, b"open", partition=0)
    assert producer.flush(30) == 0


def few_steps(both: Both) -> None:
    for log in ("offsets", "commits"):
        (both.place / log / "0").unlink()


def no_batch(both: Both) -> None:
    for log in ("offsets", "commits"):
        for path in (both.place / log).iterdir():
            path.unlink()


def another(both: Both) -> None:
    end = to_json({(both.source, 0): both.done})
    (both.place / "offsets" / str(both.done - 1)).write_text(f"v1\n{{}}\n{json.dumps(end)}")


@pytest.mark.parametrize(
    ("history", "says"),
    [
        (behind, "decided batch 3 of query old-query, 1 batches after"),
        (missing, "1 rows were written by the running query alone, first in batch 3"),
        (extra_before, "1 rows were written by the shadow alone, first in batch 2, before the last step"),
        (not_done, "the shadow has not done batch 2 yet"),
        (held_back, "a transaction is open in"),
        (few_steps, "1 steps were compared, and at least 10 have to be, or all"),
        (no_batch, "the shadow has no batch yet"),
        (another, "planned without the option shadow.of"),
    ],
)
def test_what_is_refused(both: Both, history: Any, says: str) -> None:
    history(both)
    before = both.standing()
    done = both.take_over()
    assert done.exit_code == 1 and says in done.output and "Traceback" not in done.output, done.output
    assert both.standing() == before


@pytest.mark.parametrize("alike", ["in the step", "late"])
def test_keys_that_do_not_tell_which_row_is_left(both: Both, alike: str) -> None:
    """Of two rows of a key one is there: the wrong one would be written twice, the other never."""
    both.kafka.put(both.topic, [b"first"], key=b"j")
    both.batch()
    if alike == "late":
        both.batch()
    both.kafka.put(both.into, [b"second", b"first"], key=b"j")
    before = both.standing()
    done = both.take_over("--key")
    assert done.exit_code == 1 and "1 rows that the shadow alone has written" in done.output, done.output
    assert "cannot be told by the key" in done.output
    assert both.standing() == before


def test_too_many_rows_are_left(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(take_over, "MOST_LEFT", 2)
    monkeypatch.setattr(command, "MOST_LEFT", 2)
    both.close_windows()
    before = both.standing()
    done = both.take_over()
    assert done.exit_code == 1 and "3 rows were written by the shadow alone in its last step" in done.output
    assert both.standing() == before


def test_rows_left_need_the_same_partitions(kafka: Kafka, tmp_path: Path) -> None:
    both = Both(kafka, tmp_path / "new", partitions=3)
    before = both.standing()
    kafka.put(both.into, [b"closed"], 2)
    done = both.take_over()
    assert done.exit_code == 1 and "has 3 partitions" in done.output, done.output
    assert both.standing() == before
    same = Both(kafka, tmp_path / "same", partitions=3)
    assert same.take_over().exit_code == 0, "nothing is left to write"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--decision-topic", "elsewhere"), "give that with --decision-topic"),
        (("--key", "--all-headers"), "give either --key or --all-headers"),
        (("--from-batch", "2"), "1 steps were compared"),
    ],
)
def test_wrong_options(both: Both, more: tuple[str, ...], says: str) -> None:
    done = both.take_over(*more)
    assert done.exit_code in (1, 2) and says in done.output, done.output


def test_the_shadow_is_stopped_first(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eoslog.checkpoint.standing.drivers_of", lambda query: [4711])
    done = both.take_over()
    assert done.exit_code == 1 and "a driver of this query lives on this machine (pid 4711)" in done.output
    shadow = Sink(f"new-{both.topic}")
    living = both.runner.run(begin(shadow, Batch(both.new, 3)))[1].identity
    assert both.take_over("--fence").exit_code == 0
    assert both.identity(shadow) != living


@pytest.mark.parametrize("to", ["its own", "another", ""])
def test_a_sink_that_was_left_is_not_taken_over(both: Both, to: str) -> None:
    """Its query writes the next rows elsewhere. If it goes on here again, its shadow may take its place."""
    mark = Left("word", both.old.id if to == "its own" else to, "old-query", both.done, 0)
    both.runner.run(fence(both.old, mark))
    both.cover(both.ends(both.into))
    before = both.standing()
    for more in ([], ["--dry-run"]):
        done = both.take_over(*more)
        said = {"its own": "on another cluster", "another": "with transactional.id=another"}
        assert done.exit_code == 1 and f"has gone on {said.get(to, 'with processing')}" in done.output, (
            done.output
        )
        assert "Nothing was changed" in done.output and both.standing() == before
    both.batch()
    assert both.take_over().exit_code == 0, "that query has gone on here"
