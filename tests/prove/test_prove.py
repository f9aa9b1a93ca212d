"""`eoslog prove` on a sink without Spark: what is proven, and each thing that is not right or not known."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition as Place

from eoslog.cli import main
from eoslog.client.admin import transactions
from eoslog.client.records.produce import Producer
from eoslog.connector.commit.commands import End
from eoslog.connector.commit.finish import lost_word
from eoslog.connector.commit.leave_sink import leave
from eoslog.connector.commit.move_decision import give_up, move_decision
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.places import placed_by, told_by
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.saved_state import Saved, TaskContents, Written
from eoslog.connector.commit.task_reports import Batch, Left
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.connector.run.runner import Runner
from eoslog.connector.source.past_batches import Stored, decisions_in_log
from eoslog.protocol.encode import encode_batches
from eoslog.protocol.names_by_sink import ANCHOR
from eoslog.prove import command
from eoslog.prove.logs import partition_logs, pieces_of
from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import ON_KAFKA, Kafka
from tests.prove.provekit import PARTITIONS, READ, Stream, check, entries, prove, run, stream


@pytest.fixture
def made(kafka: Kafka) -> Iterator[Stream]:
    with stream(kafka) as one:
        yield one


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "proof.jsonl"


def test_a_sink_is_proven_and_the_document_says_all(made: Stream, file: Path) -> None:
    """What the stock client sees of each batch is what the document says."""
    made.batches(4)
    status, said = prove(made, file)
    assert (status, said["verdict"], said["batches"], said["rows"]) == (
        0,
        "proven",
        4,
        4 * 2 * 2 * PARTITIONS,
    ), said
    for number, batch in enumerate(entries(file, "batch")):
        assert (batch["query"], batch["batch"], batch["decision"]) == ("q", number, number + 1)
        assert batch["source"] == {"0": {made.source: {"0": [READ * number, READ * (number + 1)]}}}
        assert [one["task"] for one in batch["transactions"]] == [0, 1, 2] and len(batch["places"]) >= 6
        for log in batch["log"]:
            seen = [row for row in made.kafka.rows(log["topic"], PARTITIONS) if row[0] == log["partition"]]
            mine = [row for row in seen if b"batch %d " % number in row[3]]
            assert (log["rows"], log["others"], log["before"]) == (len(mine), 0, seen.index(mine[0]))
            assert (log["first"], log["last"]) == (mine[0][1], mine[-1][1])
            assert len(log["markers"]) == 2 and log["markers"][0] > log["last"]
    assert check(made.kafka, file)[0] == 0, "the topics themselves are such a copy"


def test_since_a_batch_or_a_time(made: Stream, file: Path) -> None:
    made.batches(2)
    time.sleep(0.01)
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{int(time.time() * 1000) % 1000:03d}+00:00"
    time.sleep(0.01)
    made.batch(2)
    made.batch(3)
    for since in ("2", at):
        status, said = prove(made, file, "--since", since)
        assert (status, said["batches"]) == (0, 2), said
        assert [one["batch"] for one in entries(file, "batch")] == [2, 3]
        assert entries(file, "batch")[0]["log"][0]["before"] == 4
    assert "has no decision of this batch" in prove(made, file, "--since", "9")[1]
    assert not file.exists()
    status, said = prove(made, file, "--since", "2099-01-01")
    assert status == 2 and "no decision of sink" in said


def test_what_cannot_be_judged_writes_no_document(made: Stream, file: Path) -> None:
    status, said = prove(made, file)
    assert status == 2 and "has no decision of sink" in said and not file.exists()
    made.batches(1)
    file.write_text("mine")
    status, said = run(made.kafka.bootstrap, made.sink.id, "--out", str(file))
    assert status == 2 and "is there: no document is written over another file" in said
    assert file.read_text() == "mine"
    assert run(made.kafka.bootstrap, made.sink.id)[0] == 2
    assert run(made.kafka.bootstrap, made.sink.id, "--check", str(file))[0] == 2
    assert "give the number of a batch" in prove(made, file, "--since", "yesterday")[1]


def test_rows_removed_are_not_known(made: Stream, file: Path) -> None:
    """By retention or by hand, the log does not tell. Batches behind them are proven."""
    made.batches(3)
    topic = made.topics[0]
    made.kafka.admin.delete_records([Place(topic, 0, 1)])[Place(topic, 0)].result(60)
    status, said = prove(made, file)
    assert (status, said["verdict"], said["wrong"]) == (2, "unknown", []), said
    assert "batch 0 (decision 1): task 0" in said["unknown"][0] and len(said["unknown"]) == 1
    assert f"3 of 4 rows are in the log; {topic}-0 begins at 1: retention" in said["unknown"][0]
    assert prove(made, file, "--since", "1")[0] == 0


def test_a_whole_batch_removed(made: Stream, file: Path) -> None:
    made.batches(3)
    for partition in range(PARTITIONS):
        behind = Place(made.topics[0], partition, 4)
        made.kafka.admin.delete_records([behind])[behind].result(60)
    status, said = prove(made, file)
    assert status == 2 and len(said["unknown"]) == PARTITIONS and said["wrong"] == []
    assert prove(made, file, "--since", "1")[0] == 0


def test_rows_of_others(made: Stream, file: Path) -> None:
    """Behind the first batch they are foreign, unless they are allowed. Before it they are history."""
    made.kafka.put(made.topics[0], [b"before"])
    made.batch(0)
    made.kafka.put(made.topics[0], [b"one", b"two"])
    producer = made.kafka.transactional("another")
    producer.begin_transaction()
    producer.produce(made.topics[1], b"of another", partition=2)
    producer.commit_transaction(60)
    made.batch(1)
    status, said = prove(made, file)
    assert (status, said["verdict"]) == (1, "wrong")
    assert sorted(said["wrong"]) == sorted(said["foreign"]) and len(said["wrong"]) == 2
    assert f"{made.topics[0]}-0: 2 rows without a transaction" in said["wrong"]
    assert any(text.endswith("of another") for text in said["wrong"])
    status, said = prove(made, file, "--allow-foreign")
    assert (status, said["verdict"], said["wrong"]) == (0, "proven", [])
    assert check(made.kafka, file)[0] == 0


def test_rows_of_others_within_a_batch(made: Stream, file: Path) -> None:
    """They are counted, and a copy must have them there."""

    made.after_task = lambda: made.kafka.put(made.topics[0], [b"within"])
    made.batch(0)
    made.batch(1)
    assert prove(made, file)[0] == 1
    assert prove(made, file, "--allow-foreign")[0] == 0
    counted = {
        (batch["batch"], log["partition"]): log["others"]
        for batch in entries(file, "batch")
        for log in batch["log"]
        if log["topic"] == made.topics[0]
    }
    assert counted == {(n, p): 2 if p == 0 else 0 for n in range(2) for p in range(PARTITIONS)}
    assert check(made.kafka, file)[0] == 0


def test_a_writer_that_the_cluster_has_forgotten(
    made: Stream, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows may be the sink's: they are not proven, even if others may write."""
    made.batch(0)
    producer = made.kafka.transactional("another")
    producer.begin_transaction()
    producer.produce(made.topics[0], b"of another", partition=0)
    producer.commit_transaction(60)
    monkeypatch.setattr(command, "names_of", lambda *_: {})
    assert prove(made, file)[0] == 1
    status, said = prove(made, file, "--allow-foreign")
    assert status == 2 and "whose, the cluster does not know" in said["unknown"][0]


def test_rows_of_the_sink_that_no_decision_knows(made: Stream, file: Path) -> None:
    made.batches(2)
    made.stray(1, 0)
    status, said = prove(made, file)
    assert status == 1 and len(said["wrong"]) == 4
    assert all("1 row from offset 8 on of the sink, and no decision" in text for text in said["wrong"])


def test_an_aborted_attempt_changes_nothing(made: Stream, file: Path) -> None:
    made.batch(0)
    made.stray(0, 1, commits=False)
    made.batch(1)
    assert prove(made, file)[0] == 0


def test_a_decided_transaction_that_was_aborted(made: Stream, file: Path) -> None:
    """As the broker does to one that its driver leaves open for too long."""
    made.batch(0)
    _die_in_commit(made, 1)
    winner = _last(made).winners[1].participant
    transactions.init_producer_id(made.cluster, winner.name, 60_000)  # aborts it
    status, said = prove(made, file, "--timeout", "1")
    assert status == 1
    aborted = [text for text in said["wrong"] if "were aborted" in text]
    assert len(aborted) == 1 and "task 1" in aborted[0] and f"{made.topics[0]}-1" in aborted[0]
    assert any("has no marker that ends it" in text for text in said["wrong"]), "the others are open yet"


def test_a_transaction_without_a_marker(made: Stream, file: Path) -> None:
    made.batch(0)
    _die_in_commit(made, 1)
    status, said = prove(made, file, "--timeout", "1")
    assert status == 1 and len(said["wrong"]) == 2
    assert all("has no marker that ends it" in text for text in said["wrong"])
    made.batch(1)  # the next start finishes it
    assert prove(made, file)[0] == 0


def _die_in_commit(made: Stream, number: int) -> None:
    """Decide, and commit the first task's transaction alone."""
    ended: list[Any] = []

    def dies(given: Any) -> None:
        ended.extend([given] if isinstance(given, End) and given.commit else [])
        if len(ended) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.batch(number, after=dies)


def _last(made: Stream) -> Any:
    return Runner(made.cluster, 60_000).run(observed_decision(made.sink))


def test_others_hold_readers_back(made: Stream, file: Path) -> None:
    made.batch(0)
    other = made.kafka.transactional("holds")
    other.begin_transaction()
    other.produce(made.topics[0], b"open", partition=0)
    other.flush(60)
    made.batch(1)
    status, said = prove(made, file, "--timeout", "1")
    assert status == 2 and "holds readers back at offset 4" in said and not file.exists()
    other.abort_transaction(60)
    assert prove(made, file)[0] == 0


def test_a_second_decision_of_a_batch(made: Stream, file: Path) -> None:
    """An edit of the checkpoint sends the query back: the batch is there twice, and so is what it read."""
    made.batches(3)
    back = Batch("q", 1, "q1")
    rules = move_decision(made.sink, _last(made), back, None, 2, ends=made.ends(1))
    Runner(made.cluster, 60_000).run(rules)
    made.batch(2)
    status, said = prove(made, file)
    assert status == 1
    doubled = [
        text for text in said["wrong"] if "is doubled: its rows are visible of decisions 3 and 5" in text
    ]
    assert len(doubled) == PARTITIONS
    assert any("batch 1 (decision 4): it follows batch 2" in text for text in said["wrong"])


@pytest.mark.parametrize("lost", [[1], [2], [1, 2]])
def test_rows_that_were_lost_and_are_written_again(made: Stream, file: Path, lost: list[int]) -> None:
    """on.lost.transaction=replay: each row is there once, by the first decision or by the second."""
    made.batch(0)
    _die_in_commit(made, 1)
    for task in lost:
        transactions.init_producer_id(made.cluster, _last(made).winners[task].participant.name, 60_000)
    assert prove(made, file, "--timeout", "1")[0] == 1
    made.batch(1, on_lost=OnLost.REPLAY)
    made.batch(2)
    status, said = prove(made, file)
    assert (status, said["verdict"], said["rows"]) == (0, "proven", 3 * 2 * 2 * PARTITIONS), said
    assert [(one["batch"], one["decision"]) for one in entries(file, "batch")] == [
        (0, 1),
        (1, 2),
        (1, 3),
        (2, 4),
    ]
    assert check(made.kafka, file)[0] == 0


class Adds(NamedTuple):
    """Writes a row in the transaction of a decision, as a take-over does of a shadow that is ahead."""

    made: Stream
    topic: str

    def write(self, own: Participant, last: Saved | None, contents: TaskContents) -> Written:
        with Producer(self.made.cluster, identity=own.identity, transactional_id=own.name) as producer:
            for batch in encode_batches(None, pa.array([b"added"]), None, 5, codec=0, max_batch_bytes=10_000):
                producer.send(self.topic, 1, batch)
            producer.flush()
            rows = told_by(own.identity, producer.first_rows, producer.last_sequence)
            return Written(None, rows, placed_by(own.identity, producer.last_rows, producer.topic_ids))


@pytest.mark.parametrize("end", [None, 19, 21], ids=["where it ended", "before", "behind"])
def test_rows_that_a_take_over_has_added(made: Stream, file: Path, end: int | None) -> None:
    """Another query's decision, which ends where the one before has ended: its plan says no beginning."""
    made.batches(2)
    taken, adds, ends = Batch("new", 7, "new7"), Adds(made, made.topics[0]), made.ends(1, end)
    rules = move_decision(made.sink, _last(made), taken, None, 7, adds, ends)
    Runner(made.cluster, 60_000).run(rules)
    made.query, made.began = "new", -READ * 6
    made.batch(8)
    status, said = prove(made, file)
    if end is None:
        assert (status, said["verdict"], said["batches"]) == (0, "proven", 4), said
        assert said["rows"] == 3 * 2 * 2 * PARTITIONS + 1
        added = entries(file, "batch")[2]
        assert [(log["topic"], log["partition"], log["rows"]) for log in added["log"]] == [
            (made.topics[0], 1, 1)
        ]
        assert added["source"] == {"0": {made.source: {"0": [2 * READ, 2 * READ]}}}
    else:
        assert status == 2 and "where its query began is not told" in said["unknown"][0], said


def test_a_sink_that_was_left_is_proven_all_the_same(made: Stream, file: Path) -> None:
    """It has a second decision of its last batch, which names no transaction."""
    made.batches(2)
    rules = leave(made.sink, Batch("q", 2, "q2"), 1, Left("word", "next", "q", 2, 0))
    Runner(made.cluster, 60_000).run(rules)
    status, said = prove(made, file)
    assert (status, said["batches"]) == (0, 3), said


def test_rows_that_were_given_up(made: Stream, file: Path) -> None:
    """The decision that says so names neither transactions nor partitions: the one before does."""
    made.batch(0)
    _die_in_commit(made, 1)
    last = _last(made)
    for participant in last.participants:
        transactions.init_producer_id(made.cluster, participant.name, 60_000)
    Runner(made.cluster, 60_000).run(give_up(made.sink, [lost_word(last.batch)]))
    at = decisions_in_log(made.cluster, made.sink, ANCHOR)
    time_ms = next(one.time_ms for one in at if one.sequence == 3)
    since = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
    status, said = prove(made, file, "--since", since)
    assert (status, said["batches"]) == (1, 1), said
    assert len(said["wrong"]) == PARTITIONS - 1 and all("were aborted" in text for text in said["wrong"])


@pytest.mark.parametrize("kept", [[1, 2, 3], [0, 2, 3], [0, 1, 3]], ids=["first", "second", "third"])
def test_a_decision_that_was_compacted_away(
    made: Stream, file: Path, monkeypatch: pytest.MonkeyPatch, kept: list[int]
) -> None:
    """It is not known, and so are its rows: never proven. What begins behind it is."""
    made.batches(4)
    stored = list(decisions_in_log(made.cluster, made.sink, ANCHOR))
    monkeypatch.setattr(command, "decisions_in_log", lambda *_: iter([stored[at] for at in kept]))
    (gone,) = {0, 1, 2, 3} - {*kept}
    status, said = prove(made, file)
    assert (status, said["verdict"], said["wrong"]) == (2, "unknown", []), said
    assert f"decision {gone + 1}: not in the log as a whole" in said["unknown"][0]
    assert len(said["unknown"]) == 1 + 2 * 2 * PARTITIONS
    assert all(f"perhaps of decision {gone + 1}" in text for text in said["unknown"][1:])
    status, said = prove(made, file, "--since", str(gone + 1))
    assert (status, said["batches"]) == (0, 3 - gone), said
    assert prove(made, file, "--since", str(gone))[0] == 2


def test_a_decision_of_which_a_part_is_gone(
    made: Stream, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.batches(3)
    stored = list(decisions_in_log(made.cluster, made.sink, ANCHOR))
    torn = stored[1]._replace(chunks={0: (2, stored[1].chunks[0][1].replace(" 1 ", " 2 ", 1))})
    monkeypatch.setattr(command, "decisions_in_log", lambda *_: iter([stored[0], torn, stored[2]]))
    status, said = prove(made, file)
    assert status == 2 and "decision 2: not in the log as a whole" in said["unknown"][0]


def test_two_decisions_with_one_number(made: Stream, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.batches(3)
    stored = list(decisions_in_log(made.cluster, made.sink, ANCHOR))
    number, text = stored[2].chunks[0]
    again = Stored(2, 0, {0: (2, text)})
    assert number == 3
    monkeypatch.setattr(command, "decisions_in_log", lambda *_: iter([*stored, again]))
    status, said = prove(made, file)
    assert status == 1 and any("two decisions have the number 2" in text for text in said["wrong"])


def test_a_topic_made_again(made: Stream, file: Path) -> None:
    made.batches(2)
    made.kafka.make_anew(made.topics[0], PARTITIONS)
    status, said = prove(made, file)
    assert status == 1
    assert any("was deleted and created again" in text for text in said["wrong"])
    made.kafka.admin.delete_topics([made.topics[1]])[made.topics[1]].result(60)
    status, said = prove(made, file, "--timeout", "2")
    assert status == 1 and any(
        f"{made.topics[1]}-0 does not exist any more" in text for text in said["wrong"]
    )


def test_a_compacted_topic_is_not_known(made: Stream, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that it lacks may have been compacted away."""
    made.batches(2)
    made.kafka.configure(made.topics[0], "cleanup.policy", "compact")
    assert prove(made, file)[0] == 0, "all rows are there"

    def short(*given: Any) -> Any:
        logs = partition_logs(*given)
        for where, log in logs.items():
            if where == (made.topics[0], 1):
                first, *rest = log.transactions
                logs[where] = log._replace(transactions=(first._replace(rows=0), *rest))
        return logs

    monkeypatch.setattr(command, "partition_logs", short)
    status, said = prove(made, file)
    assert (
        status == 2
        and f"3 of 4 rows are in the log; topic {made.topics[0]} is compacted" in said["unknown"][0]
    )
    made.kafka.configure(made.topics[0], "cleanup.policy", "delete")
    assert prove(made, file)[0] == 1, "nothing explains it now"


@pytest.mark.skipif(ON_KAFKA, reason="its broker takes the smallest segment of its own")
def test_what_a_broker_has_compacted_is_never_proven(file: Path) -> None:
    """Former decisions, and rows of a topic whose keys come again. Batches behind both are."""
    config = {"log.cleaner.backoff.ms": "50", "log.cleaner.min.cleanable.ratio": "0.01"}
    config |= {"offsets.topic.segment.bytes": "20000", "offsets.topic.num.partitions": "1"}
    with EmbeddedBroker(config=config) as broker, stream(Kafka(broker.bootstrap)) as made:
        made.kafka.configure(made.topics[0], "cleanup.policy", "compact")
        made.kafka.configure(made.topics[0], "segment.bytes", "1024")
        number, seen, made.keyed = 0, set[bool](), True
        while seen != {True, False}:
            made.batch(number, rows=4)
            status, said = prove(made, file)
            assert status in (0, 2), said["wrong"]
            seen |= {"not in the log as a whole" in text for text in said["unknown"]}
            number += 1
            assert number < 200, "nothing is compacted"


@pytest.mark.parametrize("how", ["retention", "compaction", "nobody"])
def test_rows_that_go_while_they_are_read(
    made: Stream, file: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """After their batches' heads were read. If nothing explains it, it is not right."""
    made.batches(2)
    where, read = (made.topics[0], 0), pieces_of

    def going(cluster: Any, place: Any, watch: Any) -> Any:
        if (place.topic, place.partition) != where:
            return read(cluster, place, watch)
        if how == "retention":
            made.kafka.admin.delete_records([Place(*where, 1)])[Place(*where)].result(60)
        return read(cluster, replace(place, start=1), watch)

    def heads(*given: Any) -> Any:
        logs = partition_logs(*given)
        return logs | {where: logs[where]._replace(compacted=how == "compaction")}

    monkeypatch.setattr(command, "pieces_of", going)
    monkeypatch.setattr(command, "partition_logs", heads)
    status, said = prove(made, file)
    lacks = said["wrong" if how == "nobody" else "unknown"]
    assert status == (1 if how == "nobody" else 2) and len(lacks) == 1, said
    assert "readers see 1 of its 2 rows" in lacks[0]


def test_source_ranges(made: Stream, file: Path) -> None:
    """Which overlap, have gaps, or are not known."""
    made.batch(0)
    made.batch(1, ends=made.ends(1, end=READ - 3))
    status, said = prove(made, file)
    assert (
        status == 1 and f"source {made.source}-0 goes back from 10 to 7: ranges overlap" in said["wrong"][0]
    )
    made.batch(2)
    made.batch(4)
    status, said = prove(made, file)
    assert any("batch 3: no decision has it" in text for text in said["wrong"]) and len(said["wrong"]) == 2
    made.batch(5, ends="")
    status, said = prove(made, file, "--since", "5")
    assert status == 2 and said["unknown"] == [
        "batch 5 (decision 5): the decision does not say what was read"
    ]
    made.batch(6, ends="v9\n{}\n{}")
    status, said = prove(made, file, "--since", "6")
    assert status == 2 and "what was read cannot be told" in said["unknown"][0]


@pytest.mark.parametrize("between", [False, True], ids=["at once", "a query of another topic between"])
@pytest.mark.parametrize(("began", "how"), [(20, ""), (15, "overlap"), (25, "leave a gap")])
def test_another_query_begins_where_those_before_have_ended(
    made: Stream, file: Path, began: int, how: str, between: bool
) -> None:
    made.batches(2)
    if between:
        source, made.query, made.source = made.source, "other", made.kafka.topic(1)
        made.batch(0)
        made.source = source
    made.query, made.began = "q2", began
    made.batch(0)
    status, said = prove(made, file)
    assert status == int(bool(how)), said
    assert [text.endswith(f"ranges {how}") for text in said["wrong"]] == [True] * status


def test_another_query_that_does_not_say_where_it_began(made: Stream, file: Path) -> None:
    made.batches(2)
    made.query = "q2"
    made.batch(2)
    status, said = prove(made, file)
    assert status == 2 and "where its query began is not told" in said["unknown"][0]


def test_a_sink_that_runs_meanwhile(made: Stream, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is decided between the first look and the logs is none of the document's."""
    made.batches(2)

    def later(*given: Any) -> Any:
        made.batch(2)
        return partition_logs(*given)

    monkeypatch.setattr(command, "partition_logs", later)
    status, said = prove(made, file)
    assert (status, said["batches"]) == (0, 2), said


def test_a_batch_without_rows_and_tasks_without(made: Stream, file: Path) -> None:
    made.batch(0, tasks=[1])
    made.batch(1, tasks=[])
    made.batch(2, tasks=[0, 2])
    status, said = prove(made, file)
    assert (status, said["rows"]) == (0, 12), said


def test_a_copy_of_what_is_wrong_is_not_called_right(made: Stream, file: Path) -> None:
    made.batch(0)
    made.batch(1, ends=made.ends(1, end=READ - 3))
    assert prove(made, file)[0] == 1
    done = CliRunner().invoke(
        main, ["prove", "--check", str(file), "--bootstrap-server", made.kafka.bootstrap]
    )
    assert done.exit_code == 1 and "right:" not in done.output, done.output
    said = "the copy has what the document has, 24 rows. WRONG: the logs are not what the sink has decided"
    assert done.output.splitlines()[1] == said


def test_texts_for_people(made: Stream, file: Path) -> None:
    made.batches(2)
    address = ["--bootstrap-server", made.kafka.bootstrap]
    done = CliRunner().invoke(main, ["prove", made.sink.id, "--out", str(file), *address])
    last = json.loads(file.read_text().splitlines()[-1])["sha256"]
    assert done.output.splitlines() == [
        f"sink {made.sink.id}: 2 decisions from 1 to 2, 24 rows",
        "proven: each batch is in the log, whole and once",
        f"{file}: sha256 {last}",
    ]
    done = CliRunner().invoke(main, ["prove", "--check", str(file), *address])
    assert done.output.splitlines() == [
        f"{file}: 2 decisions of sink {made.sink.id}, proven",
        "right: the copy has each of its batches, whole and once, 24 rows",
        f"{file}: sha256 {last}",
    ]
