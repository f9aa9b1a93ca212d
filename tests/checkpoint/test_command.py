"""`eoslog checkpoint` on a checkpoint in Spark's layout, without Spark: what it tells, compares, and
refuses.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import TopicPartition

from eoslog.checkpoint import editing
from eoslog.cli import main
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.connector.commit.faults import CheckpointOlder, SinkChanged
from eoslog.connector.commit.move_decision import move_decision
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.connector.sink import committer
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.checkpointkit import (
    SETTINGS,
    Reading,
    decide,
    last,
    lines,
    plan,
    run,
    sink_of,
    write_in_foreach,
)
from tests.connector.brokers import Kafka

PAGE = Path(__file__).parents[2] / "docs" / "checkpoints.md"


@pytest.fixture
def checkpoint(plain: Path) -> Path:
    return plain


def shown(broker: EmbeddedBroker, checkpoint: Path) -> Any:
    return json.loads(run(broker, "show", checkpoint, "--json").stdout)


def test_what_is_shown(broker: EmbeddedBroker, checkpoint: Path) -> None:
    found = shown(broker, checkpoint)
    assert (found["planned"], found["done"], found["decided"]) == (1, 1, None)
    (row,) = found["partitions"]
    assert (row["from"], row["to"], row["end"], row["lag"]) == (10, 20, 30, 10)
    assert "next start: go on" in run(broker, "show", checkpoint).output
    assert run(broker, "check", checkpoint).exit_code == 0


def example(topic: str) -> str:
    """What the page's example prints, for this topic."""
    (text,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(text).partition("\n")[2].replace("orders-0", f"{topic}-0")


def test_an_edit_needs_its_price_accepted(broker: EmbeddedBroker, checkpoint: Path, topic: str) -> None:
    """As the page's example shows it."""
    before = (checkpoint / "offsets" / "1").read_text()
    said = run(broker, "rewind", checkpoint, "--by", "15", "--accept-duplicates", "14")
    assert said.exit_code == 1 and example(topic) in said.output
    assert (checkpoint / "offsets" / "1").read_text() == before
    assert run(broker, "rewind", checkpoint, "--by", "15", "--accept-duplicates", "15").exit_code == 0
    assert shown(broker, checkpoint)["partitions"][0]["lag"] == 25
    assert run(broker, "undo", checkpoint, "--fence").exit_code == 0
    assert (checkpoint / "offsets" / "1").read_text() == before
    assert "no edit to take back" in run(broker, "undo", checkpoint, "--fence").output


@pytest.mark.parametrize(
    ("command", "more", "status", "says"),
    [
        ("rewind", [], 2, "give one of --to, --by and --to-batch"),
        ("skip-to", ["--to", "latest", "--by", "3"], 2, "give one of --to and --by"),
        ("rewind", ["--to", '{"TOPIC":{"0":25}}'], 1, "use eoslog checkpoint skip-to"),
        ("skip-to", ["--to", '{"TOPIC":{"0":15}}'], 1, "use eoslog checkpoint rewind"),
        ("skip-to", ["--to", '{"TOPIC":{"0":31}}'], 1, "not in the log, which has 0 to 30"),
        ("skip-to", ["--to", '{"other":{"0":31}}'], 1, "does not read other-0"),
        ("rewind", ["--to", "earlier"], 1, "--to cannot be"),
        ("rewind", ["--to-batch", "7"], 1, "batches 0 to 1"),
        ("rewind", ["--to-batch", "1"], 1, "stands there already"),
    ],
)
def test_what_is_refused(
    broker: EmbeddedBroker,
    checkpoint: Path,
    topic: str,
    command: str,
    more: list[str],
    status: int,
    says: str,
) -> None:
    said = run(broker, command, checkpoint, *(text.replace("TOPIC", topic) for text in more))
    assert (said.exit_code, says in said.output) == (status, True), said.output


def test_a_query_whose_place_is_taken(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str
) -> None:
    """Another query has made the sink's last decision: the next start would stop, so no edit is safe."""
    assert run(broker, "check", decided).exit_code == 0
    to, plan = Batch("successor", 0), 'v1\n{}\n{"t":{"0":1}}'
    rules = move_decision(Sink(sink_of(topic)), last(cluster, topic), to, None, 1, ends=plan)
    Runner(cluster, OWN_TIMEOUT_MS).run(rules)
    said = run(broker, "check", decided)
    assert said.exit_code == 1 and "TakenOver: sink " in said.output, said.output
    said = run(broker, "rewind", decided, "--by", "5", "--accept-duplicates", "5")
    assert said.exit_code == 1 and "the next start would stop" in said.output, said.output


def test_a_query_that_decides_while_it_is_looked_at_runs(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new rows are no lost decision."""

    def stops(*_: Any, **__: Any) -> list[str]:
        plan(decided, 2, lines({topic: {"0": 24}}))
        decide(cluster, decided, topic, 2, last(cluster, topic))
        return ["CheckpointOlder: brokers have lost the decisions"]

    monkeypatch.setattr(editing, "stops", stops)
    said = run(broker, "rewind", decided, "--by", "5", "--accept-duplicates", "5")
    assert said.exit_code == 1 and "it has written a batch just now" in said.output, said.output


def test_a_batch_that_nobody_knows_of_is_not_edited_away(broker: EmbeddedBroker, checkpoint: Path) -> None:
    (checkpoint / "commits" / "1").unlink()
    assert "run again" in run(broker, "show", checkpoint).output
    assert "Start the query once" in run(broker, "rewind", checkpoint, "--by", "1").output


@pytest.mark.parametrize("token", [None, "job-2"])
def test_what_foreach_batch_has_written_is_told_as_each_start_takes_it(
    broker: EmbeddedBroker, checkpoint: Path, topic: str, token: str | None
) -> None:
    query, out = f"query-{topic}", Kafka(broker.bootstrap).topic()
    (checkpoint / "metadata").write_text(json.dumps({"id": query}))
    plan(checkpoint, 2, lines({topic: {"0": 30}}))
    (checkpoint / "commits" / "2").unlink()
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": out}
    stream = sink_options({**given, "checkpointLocation": str(checkpoint)}, stream=True)
    write_in_foreach(broker, out, Batch(query, 2), token)
    assert "next start: run again in foreachBatch" in run(broker, "show", checkpoint).output
    assert run(broker, "check", checkpoint).exit_code == 0, "with foreachBatch it goes on"
    write_in_foreach(broker, out, Batch(query, 2), token)
    with pytest.raises(SinkChanged, match=r"has written 3 rows .* in batch 2, and the query has no foreach"):
        committer.begin_stream(stream)
    said = run(broker, "rewind", checkpoint, "--by", "1").output
    assert "Start the query once" in said and "foreachBatch has written" in said, said
    (checkpoint / "offsets" / "2").unlink()
    assert "next start: run again in foreachBatch" in run(broker, "show", checkpoint).output
    (checkpoint / "offsets" / "1").unlink()
    (checkpoint / "commits" / "1").unlink()
    for command in ("show", "check"):
        said = run(broker, command, checkpoint).output
        assert "CheckpointOlder: foreachBatch has written batch 2 of this query" in said, said
    if token is None:
        with pytest.raises(CheckpointOlder, match=r"a df\.write of foreachBatch has written batch 2"):
            write_in_foreach(broker, out, Batch(query, 1), token)
    for batch in (1, 2):
        plan(checkpoint, batch, lines({topic: {"0": 10 * batch + 10}}))
    assert "next start: go on" in run(broker, "show", checkpoint).output
    assert run(broker, "check", checkpoint).exit_code == 0
    assert len(Kafka(broker.bootstrap).rows(out)) == 3


def test_damaged_and_missing_files(broker: EmbeddedBroker, checkpoint: Path) -> None:
    (checkpoint / "offsets" / "1").write_text('v1\n{}\n{"t":{"0"')
    said = run(broker, "check", checkpoint)
    assert said.exit_code == 1 and "offsets/1: it is damaged" in said.output
    assert run(broker, "show", checkpoint / "nothing").exit_code == 1


# -- diff ----------------------------------------------------------------------------------------
# `eoslog checkpoint diff`, on checkpoints in Spark's layout, without Spark.


def diffed(broker: EmbeddedBroker, a: Path, b: Path | str, *more: str) -> Any:
    result = run(broker, "diff", a, str(b), "--json", *more)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def copy(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path_factory.mktemp("copies") / "copy"))


def test_rows_between_two_checkpoints(
    broker: EmbeddedBroker, checkpoint: Path, copy: Path, topic: str
) -> None:
    """Aborted rows and control records between them are no rows."""
    kafka = Kafka(broker.bootstrap)
    producer = kafka.transactional(f"fills-{topic}")
    producer.begin_transaction()
    producer.produce(topic, "aborted", partition=0)
    producer.flush(60)
    producer.abort_transaction(60)
    kafka.put(topic, [b"later"])
    plan(checkpoint, 2, SETTINGS + json.dumps({topic: {"0": 33}}))
    found = diffed(broker, checkpoint, copy)
    (one,) = found["partitions"]
    assert (one["a_from"], one["a_to"], one["a_stands"]) == (20, 33, 33)
    assert (one["b_from"], one["b_to"], one["b_stands"]) == (10, 20, 20)
    assert (one["rows"], one["ahead"]) == (11, "a")
    assert found["rows_ahead"] == {"a": 11, "b": 0}
    assert diffed(broker, copy, checkpoint)["rows_ahead"] == {"a": 0, "b": 11}
    assert diffed(broker, checkpoint, copy, "--read-uncommitted")["rows_ahead"]["a"] == 12
    assert [one["same"] for one in found["batches"]] == [True, True, False]
    assert found["batches"][2] == {"batch": 2, "a": "done", "b": None, "same": False}
    said = run(broker, "diff", checkpoint, str(copy)).output
    assert "batch 2: a has it done, b does not have it" in said
    assert "a has read 11 rows that b has not, b 0 that a has not" in said
    assert "a and b: the offsets do not say of which cluster they are" in said, (
        "as those of Spark's own source"
    )


def test_a_batch_that_is_planned_alone_is_not_read(
    broker: EmbeddedBroker, checkpoint: Path, copy: Path
) -> None:
    (checkpoint / "commits" / "1").unlink()
    found = diffed(broker, checkpoint, copy)
    assert (found["a"]["stands_after"], found["b"]["stands_after"]) == (0, 1)
    assert found["rows_ahead"] == {"a": 0, "b": 10}


def test_what_an_edit_has_changed(broker: EmbeddedBroker, checkpoint: Path, topic: str) -> None:
    """Also when other edits and batches have come after it."""
    assert run(broker, "rewind", checkpoint, "--by", "15", "--accept-duplicates", "15").exit_code == 0
    assert diffed(broker, checkpoint, "edit-0001")["rows_ahead"] == {"a": 0, "b": 15}
    assert run(broker, "skip-to", checkpoint, "--by", "3", "--accept-loss", "3").exit_code == 0
    assert diffed(broker, checkpoint, "edit-0001")["rows_ahead"] == {"a": 0, "b": 12}
    assert diffed(broker, checkpoint, "edit-0002")["rows_ahead"] == {"a": 3, "b": 0}
    plan(checkpoint, 2, SETTINGS + json.dumps({topic: {"0": 30}}))
    found = diffed(broker, checkpoint, "edit-0001")
    assert found["rows_ahead"] == {"a": 10, "b": 0}
    assert (found["a"]["planned"], found["b"]["planned"], found["b"]["done"]) == (2, 1, 1)


def test_an_edit_before_one_that_removed_batches(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str
) -> None:
    """Those are there again, in the view of it."""
    for batch, end in ((2, 25), (3, 30)):
        plan(decided, batch, lines({topic: {"0": end}}))
    decide(cluster, decided, topic, 3, last(cluster, topic))
    assert run(broker, "rewind", decided, "--by", "1", "--accept-duplicates", "1").exit_code == 0
    (decided / "state" / "0" / "0").mkdir(parents=True)
    (decided / "state" / "0" / "0" / "2.delta").write_text("")
    said = run(broker, "rewind", decided, "--to-batch", "1", "--accept-duplicates", "9")
    assert said.exit_code == 0, said.output
    found = diffed(broker, decided, "edit-0001")
    assert found["rows_ahead"] == {"a": 0, "b": 10} and found["b"]["stands_after"] == 3
    assert [(one["a"], one["b"]) for one in found["batches"]][2:] == [(None, "done"), (None, "done")]


def test_sources_are_compared_by_name(
    broker: EmbeddedBroker, checkpoint: Path, copy: Path, topic: str
) -> None:
    """Their lines may stand in any order."""
    sources = [f"{name}:" + json.dumps({topic: {"0": at}}) for name, at in (("x", 5), ("y", 9))]
    settings = SETTINGS.replace("v1", "v2")
    for folder, order in ((checkpoint, sources), (copy, sources[::-1])):
        plan(folder, 2, settings + "\n".join(order))
    found = diffed(broker, checkpoint, copy)
    assert found["rows_ahead"] == {"a": 0, "b": 0} and found["batches"][2]["same"]
    assert [(one["source"], one["a_stands"]) for one in found["partitions"]] == [("x", 5), ("y", 9)]


def test_what_cannot_be_counted_is_said(
    broker: EmbeddedBroker, checkpoint: Path, copy: Path, topic: str
) -> None:
    plan(checkpoint, 2, SETTINGS + json.dumps({topic: {"0": 20}, "gone": {"0": 7}}))
    found = diffed(broker, checkpoint, copy)
    assert found["uncounted"] == ["gone-0"] and found["rows_ahead"] == {"a": 0, "b": 0}
    assert "not counted: gone-0" in run(broker, "diff", checkpoint, str(copy)).output


@pytest.mark.parametrize(
    ("other", "status", "says"),
    [("edit-0007", 1, "there is no backup edit-0007; it has none"), ("nothing", 1, "nothing")],
)
def test_what_is_no_other_checkpoint(
    broker: EmbeddedBroker, checkpoint: Path, other: str, status: int, says: str
) -> None:
    said = run(broker, "diff", checkpoint, other)
    assert (said.exit_code, says in said.output) == (status, True), said.output


def test_earlier_sources_are_found_by_name(broker: EmbeddedBroker, checkpoint: Path, topic: str) -> None:
    """A rewind to the end of a batch whose lines stand in another order."""
    settings = SETTINGS.replace("v1", "v2")
    ends = [[("x", 5), ("y", 9)], [("y", 19), ("x", 15)]]
    for batch, sources in enumerate(ends, 1):
        texts = [f"{name}:" + json.dumps({topic: {"0": at}}) for name, at in sources]
        plan(checkpoint, batch, settings + "\n".join(texts))
    said = run(broker, "rewind", checkpoint, "--to-batch", "1", "--accept-duplicates", "20")
    assert said.exit_code == 0, said.output
    text = (checkpoint / "offsets" / "2").read_text()
    assert f'x:{{"{topic}":{{"0":5}}}}' in text and f'y:{{"{topic}":{{"0":9}}}}' in text


# -- a topic that was read before ------------------------------------------------------------------
# `add-topic` begins where the query has left the topic, or an earlier query of its sink has.


class Grown:
    """A query of two topics, each with five rows, that reads the first one alone then; the second one has got
    three more. `anew`: it has lost its checkpoint between, and never read the second one in the new one."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, *, anew: bool = False) -> None:
        self.broker, self.kafka, self.folder = broker, Kafka(broker.bootstrap), folder
        self.cluster = Cluster(ClientConfig((("127.0.0.1", broker.port),)))
        self.one, self.two = self.kafka.topic(), self.kafka.topic()
        for topic in (self.one, self.two):
            self.put(topic, 0, 5)
        self.query = Reading(folder, self.one)
        self.query.batch(self.kafka, self.cluster, f"{self.one},{self.two}")
        if anew:
            before, self.query = self.query, Reading(folder.with_name("new"), self.one)
            starts = json.dumps({self.one: {"0": 5}})
            self.query.rows = before.rows
            self.query.batch(self.kafka, self.cluster, self.one, startingOffsets=starts)
        self.put(self.one, 5, 8)
        self.query.batch(self.kafka, self.cluster, self.one, failOnDataLoss="false")
        self.put(self.two, 5, 8)

    def put(self, topic: str, first: int, end: int) -> None:
        self.kafka.put(topic, [f"{topic} {number}".encode() for number in range(first, end)])

    def added(self, *more: str) -> Result:
        return run(self.broker, "add-topic", self.query.folder, self.two, *more)

    def judged(self) -> tuple[set[bytes], set[bytes]]:
        """Start the query with both topics. Returns which rows are missing then, and which are doubled."""
        self.put(self.one, 8, 10)
        self.query.batch(self.kafka, self.cluster, f"{self.one},{self.two}")
        counts = Counter(self.query.rows)
        rows = {one[3] for topic in (self.one, self.two) for one in self.kafka.rows(topic, 1)}
        return rows - counts.keys(), {row for row, count in counts.items() if count > 1}

    def some(self, first: int, end: int) -> set[bytes]:
        return {f"{self.two} {number}".encode() for number in range(first, end)}


@pytest.mark.parametrize("anew", [False, True])
def test_a_topic_that_was_read_before_goes_on_where_it_was_left(
    broker: EmbeddedBroker, tmp_path: Path, anew: bool
) -> None:
    case = Grown(broker, tmp_path / "ck", anew=anew)
    said = case.added()
    assert said.exit_code == 0 and "in all: 0 rows of the source twice, 0 never" in said.output
    assert case.judged() == (set(), set())


@pytest.mark.parametrize("anew", [False, True])
def test_what_another_start_of_it_costs_is_counted_from_there(
    broker: EmbeddedBroker, tmp_path: Path, anew: bool
) -> None:
    case = Grown(broker, tmp_path / "ck", anew=anew)
    said = case.added("--start", "latest")
    assert said.exit_code == 1 and "give --accept-loss 3" in said.output, said.output
    again = json.dumps({case.two: {"0": 2}})
    said = case.added("--start", again)
    assert said.exit_code == 1 and "give --accept-duplicates 3" in said.output, said.output
    assert case.added("--start", again, "--accept-duplicates", "3").exit_code == 0
    assert case.judged() == (set(), case.some(2, 5))


def test_one_whose_rows_are_removed_is_begun_later_by_who_says_so(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    case = Grown(broker, tmp_path / "ck")
    delete_records(case.kafka, case.two, 7)
    said = case.added()
    assert said.exit_code == 1 and "offset 5" in said.output and "begins at 7" in said.output, said.output
    assert case.added("--start", json.dumps({case.two: {"0": 7}})).exit_code == 0
    assert case.judged() == (set(), set())


def test_one_that_was_made_anew_is_not_the_one_that_was_left(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The way out reads all of it."""
    case = Grown(broker, tmp_path / "ck")
    case.kafka.make_anew(case.two)
    case.put(case.two, 20, 30)
    said = case.added()
    assert said.exit_code == 1 and "was deleted and created again" in said.output, said.output
    case.query.batch(case.kafka, case.cluster, f"{case.one},{case.two}", failOnDataLoss="false")
    assert case.some(20, 30) <= {*case.query.rows}
    assert case.judged() == (set(), set())


@pytest.mark.parametrize(
    ("first", "then", "last", "again"),
    [
        pytest.param("both", "both", "one", (3, 5), id="left out since"),
        pytest.param("both", "one", "both", (3, 5), id="left out for a while"),
        pytest.param("one", "one", "both", (0, 5), id="read for the first time since"),
        pytest.param("one", "both", "one", (0, 5), id="read for a while"),
        pytest.param("both", "both", "one", None, id="left out since, and deleted"),
    ],
)
def test_a_query_with_state_that_goes_back_reads_other_topics_then(
    broker: EmbeddedBroker,
    tmp_path: Path,
    first: str,
    then: str,
    last: str,
    again: tuple[int, int] | None,
) -> None:
    """What it reads again of them is counted, too, as far as it is there."""
    kafka, cluster = Kafka(broker.bootstrap), Cluster(ClientConfig((("127.0.0.1", broker.port),)))
    one, two = kafka.topic(), kafka.topic()
    query, reads = Reading(tmp_path / "ck", one), {"one": one, "both": f"{one},{two}"}
    for topics, (begin, end) in ((first, (0, 3)), (then, (3, 5)), (last, (5, 5))):
        for topic in (one, two):
            kafka.put(topic, [f"{topic} {number}".encode() for number in range(begin, end)])
        kafka.put(one, [f"{one} {begin} and more".encode()])
        query.batch(kafka, cluster, reads[topics], failOnDataLoss="false")
    state = tmp_path / "ck" / "state" / "0" / "0"
    state.mkdir(parents=True)
    (state / "1.delta").write_text("")
    if again is None:
        kafka.admin.delete_topics([two])[two].result(60)
    more = ["--to-batch", "0", "--dry-run", "--json"]
    told = json.loads(run(broker, "rewind", tmp_path / "ck", *more).stdout)["rows"]
    twice = str(told["twice"])
    said = run(broker, "rewind", tmp_path / "ck", "--to-batch", "0", "--accept-duplicates", twice)
    assert said.exit_code == 0, said.output
    query.batch(kafka, cluster, reads["both" if again else "one"], failOnDataLoss="false")
    doubled = {row for row, count in Counter(query.rows).items() if count > 1}
    assert {row for row in doubled if row.startswith(two.encode())} == {
        f"{two} {number}".encode() for number in range(*(again or (0, 0)))
    }
    assert told["twice"] == len(doubled)


def delete_records(kafka: Kafka, topic: str, before: int) -> None:
    """Remove a topic's first rows."""
    place = TopicPartition(topic, 0, before)
    kafka.admin.delete_records([place])[place].result(30)


# -- wrong arguments -----------------------------------------------------------------------------
# What `eoslog checkpoint` says of wrong arguments and of places that are no checkpoint: a sentence, an exit
# status, and nothing is changed.

COMMANDS: dict[str, list[str]] = {
    "show": [],
    "check": [],
    "rewind": ["--by", "1"],
    "skip-to": ["--by", "1"],
    "add-topic": ["more"],
    "fork": ["new"],
    "undo": [],
    "diff": ["edit-0001"],
}


def asked(broker: EmbeddedBroker, *arguments: object) -> Result:
    """The command's answer, which is never a traceback."""
    given = [*map(str, arguments), "--bootstrap-server", broker.bootstrap]
    said = CliRunner().invoke(main, ["checkpoint", *given])
    assert said.exception is None or isinstance(said.exception, SystemExit), said.exception
    return said


def content(checkpoint: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}


@pytest.fixture
def place(decided: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a checkpoint, to be hurt."""
    return Path(shutil.copytree(decided, tmp_path_factory.mktemp("hurt") / "checkpoint"))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("metadata", None, r"no query has a checkpoint here \(no metadata\)"),
        ("metadata", "{", "metadata is '{': .*; if the file is damaged, restore it from a copy"),
        ("eoslog/sink", "{", "eoslog/sink is '{': .*; if the file is damaged, restore it from a copy"),
        ("offsets/1", 'v1\n{"batchWatermarkMs":0}\n{"x":', r"offsets/1: it is damaged: .*restore it"),
        ("offsets/1", "v9\n{}\n", "offsets/1: its version is 'v9', and eoslog knows v1, v2"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_checkpoint_that_is_hurt(
    broker: EmbeddedBroker, place: Path, command: str, name: str, text: str | None, says: str
) -> None:
    (place / name).unlink()
    if text is not None:
        (place / name).write_text(text)
    before = content(place)
    said = asked(broker, command, place, *COMMANDS[command])
    assert said.exit_code == 1
    assert re.search(says, said.output), said.output
    assert content(place) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_place_that_is_none(broker: EmbeddedBroker, tmp_path: Path, command: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name, says in (
        ("empty", "no query has a checkpoint"),
        ("nothing", "no query"),
        ("file", "Not a directory"),
    ):
        said = asked(broker, command, tmp_path / name, *COMMANDS[command])
        assert said.exit_code == 1 and says in said.output, said.output
    assert not (tmp_path / "nothing").exists() and not list((tmp_path / "empty").iterdir())


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ("rewind CK", 2, "give one of --to, --by and --to-batch"),
        ("rewind CK --by 0", 2, "0 is not in the range"),
        ("rewind CK --by x", 2, "'x' is not a valid integer"),
        ("rewind CK --to latest", 1, "the query stands there already"),
        ("rewind CK --to yesterday", 1, "option --to cannot be 'yesterday'"),
        ("rewind CK --to {", 1, "--to: '{' cannot be read"),
        ('rewind CK --to {"x":{"0":1}}', 1, "the query does not read x-0"),
        ('rewind CK --to {"TOPIC":{"0":-5}}', 1, "-5 is no offset for partition 0"),
        ('rewind CK --to {"TOPIC":{"0":25}}', 1, "use eoslog checkpoint skip-to"),
        ("rewind CK --to-batch 7", 1, "--to-batch 7: the checkpoint has the ends of batches 0 to 1"),
        ("rewind CK --to-batch -1", 2, "-1 is not in the range"),
        ("rewind CK --by 1 --to-batch 0", 2, "give one of --to, --by and --to-batch"),
        ("rewind CK --by 3 --accept-duplicates -1", 2, "-1 is not in the range"),
        ("rewind CK --by 3 --accept-duplicates 2", 1, "give --accept-duplicates 3"),
        ("rewind CK --by 3 --watch x", 2, "'x' is not a valid float"),
        ("skip-to CK", 2, "give one of --to and --by"),
        (
            'skip-to CK --to {"TOPIC":{"0":31}}',
            1,
            "offset 31 of TOPIC-0 is not in the log, which has 0 to 30",
        ),
        ("skip-to CK --by 5 --accept-loss 4", 1, "give --accept-loss 5"),
        ("add-topic CK", 2, "Missing argument 'TOPIC'"),
        ("add-topic CK nothing", 1, "topic 'nothing' does not exist"),
        ("add-topic CK TOPIC", 1, "the query reads TOPIC already"),
        ("add-topic CK nothing --start x", 1, "option --to cannot be 'x'"),
        ("fork CK", 2, "Missing argument 'NEW'"),
        ("fork CK /new", 1, "give the new one a group of its own (--group)"),
        ("fork CK /new --group g --transactional-id=", 1, "--transactional-id: the name is empty"),
        ("fork CK /new --group=", 1, "--group: the name is empty"),
        ("fork CK CK --group g", 1, "lie in one another"),
        ("fork CK CK/new --group g", 1, "lie in one another"),
        ("fork CK /proc/x --group g --accept-duplicates 10 --watch 0", 1, "/proc/x cannot be written"),
        ("move-cluster CK", 2, "Missing option '--to-bootstrap-server'"),
        ("move-cluster CK --to-bootstrap-server x", 2, "'x' is not host:port"),
        ("move-cluster CK --to-bootstrap-server BROKER", 1, "where the query is: no move"),
        ("move-cluster CK --to-bootstrap-server BROKER --offsets {", 1, "--offsets: '{' cannot be read"),
        ("undo CK", 1, "there is no edit to take back"),
        ("diff CK", 2, "Missing argument 'B'"),
        ("diff CK edit-0009", 1, "there is no backup edit-0009; it has none"),
        ("nonsense CK", 2, "No such command 'nonsense'"),
        ("show", 2, "Missing argument 'CHECKPOINT'"),
        ("show CK more", 2, "unexpected extra argument"),
        ("show CK --timeout -1", 2, "is not in the range"),
        ("show CK --command-config /nope", 1, "file of properties /nope cannot be read"),
    ],
)
def test_arguments(
    broker: EmbeddedBroker, decided: Path, topic: str, arguments: str, status: int, says: str
) -> None:
    names = {r"\bCK\b": str(decided), r"(?<!')\bTOPIC\b(?!')": topic, r"\bBROKER\b": broker.bootstrap}
    for short, long in names.items():
        arguments, says = re.sub(short, long, arguments), re.sub(short, long, says)
    before = content(decided)
    said = asked(broker, *arguments.split(" "))
    assert (said.exit_code, says in said.output) == (status, True), said.output
    assert content(decided) == before


def test_offsets_of_sources_that_read_no_topics(broker: EmbeddedBroker, decided: Path) -> None:
    """Spark's rate and file sources: shown, and not edited."""
    for batch, text in ((2, "5"), (3, '{"logOffset":3}')):
        plan(decided, batch, f'v1\n{{"batchWatermarkMs":0}}\n{text}\n')
        assert asked(broker, "show", decided).exit_code == 0
        assert asked(broker, "rewind", decided, "--by", 1, "--accept-duplicates", 9).exit_code == 1


def test_a_topic_that_is_gone(broker: EmbeddedBroker, plain: Path) -> None:
    plan(plain, 2, lines({"no-such-topic": {"0": 3}}))
    assert asked(broker, "show", plain).exit_code == 0
    said = asked(broker, "rewind", plain, "--by", 1)
    assert said.exit_code == 1 and "topic 'no-such-topic' does not exist" in said.output
