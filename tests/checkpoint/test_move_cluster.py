"""`eoslog checkpoint move-cluster`, without Spark: where the query goes on, what is refused, the way back."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from eoslog.checkpoint import carry_out, move_command
from eoslog.checkpoint.backups import check_not_moved
from eoslog.checkpoint.edit_numbers import NotEditable
from eoslog.cli import main
from eoslog.client.admin.groups import commit_plain, fetch_committed
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.commit import leave_sink
from eoslog.connector.commit.commands import Rules
from eoslog.connector.commit.faults import CheckpointOlder, StartsElsewhere, TakenOver
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.offsets import to_json
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.sink import start_of_run
from eoslog.connector.sink.committer import begin_batch, commit_batch
from eoslog.connector.sink.start_of_run import cluster_id
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.connector.source.reader import StreamReader
from eoslog.errors import DataLoss, WrongCluster
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.checkpointkit import (
    Reading,
    copy_topic,
    decide,
    group_of,
    last,
    last_of,
    lines,
    plan,
    run,
    sink_of,
    write_in_foreach,
)
from tests.checkpoint.copy_query import EXACT, CopyQuery, Killed
from tests.connector.brokers import Kafka

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class PlayedLog(move_command.Log):
    """A log of records in parts, as a Fetch answers them. A record: time, key, value and headers."""

    def played(self, parts: Sequence[Sequence[tuple[Any, ...]]]) -> PlayedLog:
        """With these records."""
        object.__setattr__(self, "_parts", parts)
        return self

    def _read(self, start: int, end: int) -> Iterator[pa.Table]:
        types = (pa.int64(), pa.binary(), pa.binary(), _HEADERS)
        for part in self._parts:  # type: ignore[attr-defined]  # a frozen class
            columns = [pa.array(one, kind) for one, kind in zip(zip(*part, strict=True), types, strict=True)]
            names = ["timestamp", "key", "value", "headers"]
            yield pa.table([pa.array(range(len(part)), pa.int64()), *columns], ["offset", *names])


class Unwatched:
    """Nobody watches."""

    def begin(self, what: str, total: int) -> None:
        """Nothing."""

    def advance(self, count: int) -> None:
        """Nothing."""


@pytest.mark.parametrize("seed", range(40))
def test_what_a_mirror_lacks_is_counted_by_contents(seed: int) -> None:
    """Times, keys, values and headers that repeat, nulls, any parts, and records of others between them."""
    random = Random(seed)
    headers = [[], [("a", b"")], [("a", None)], [("", b"a")], [("a", b"b"), ("c", b"d")], [("a", b"b c")]]

    def records(count: int) -> list[tuple[Any, ...]]:
        word = (None, b"", b"a", b"b")
        return [
            (random.randrange(2), random.choice(word), random.choice(word), random.choice(headers))
            for _ in range(count)
        ]

    def log(rows: list[tuple[Any, ...]]) -> PlayedLog:
        width = random.randrange(1, 40)
        parts = [rows[at : at + width] for at in range(0, len(rows), width)]
        return PlayedLog(None, "t", 0, 0, 0, True).played(parts)  # type: ignore[arg-type]  # no cluster

    there, kept = records(100), random.random()
    copied = [one for one in there if random.random() < kept] + records(random.choice((0, 5, 200)))
    random.shuffle(copied)
    lacks = Counter(map(repr, there)) - Counter(map(repr, copied))
    assert move_command._missing(log(there), log(copied), 0, 0, Unwatched()) == lacks.total()


class ListedLog(move_command.Log):
    """A log of records that are listed: `cluster` has them."""

    def _read(self, start: int, end: int) -> Iterator[pa.Table]:
        values: Any = self.cluster
        part = values[max(start, self.first) : min(end, self.end)]
        times, none = pa.array([0] * len(part), pa.int64()), pa.nulls(len(part), pa.binary())
        columns, headers = [times, pa.array(part, pa.binary()), none], pa.array([[]] * len(part), _HEADERS)
        names = ["offset", "timestamp", "key", "value", "headers"]
        yield pa.table([pa.array(range(len(part)), pa.int64()), *columns, headers], names)


@pytest.mark.parametrize("seed", range(200))
def test_a_stated_place_costs_what_it_may_cost(seed: int) -> None:
    """Whatever retention, compaction and a slow mirror have taken from either log, and wherever the user says
    that the place is: no more is doubled or lost than is counted."""
    random = Random(seed)
    rows = [(number, b"%d" % number) for number in range(40)]
    read, lag = random.randrange(41), random.choice((40, 40, 25))
    at_home = {n for n, _ in rows if random.random() < random.choice((0.4, 1))}
    at_home -= set(range(random.choice((0, 0, 20))))
    came = {n for n, _ in rows if n < lag and random.random() < random.choice((0.4, 1))}
    others = [(-1, b"other") for _ in range(random.choice((0, 0, 3)))]
    copy = [one for one in rows if one[0] in came]
    for one in others:
        copy.insert(random.randrange(len(copy) + 1), one)
    home = [one for one in rows if one[0] in at_home]
    at, given = sum(n < read for n, _ in home), random.randrange(len(copy) + 1)
    records: Any = [[value for _, value in one] for one in (home, copy)]
    old, new = (ListedLog(one, "t", 0, 0, len(one), True) for one in records)
    found = move_command.Sides.of(old, new, at, given, Unwatched())

    def values(one: Sequence[tuple[int, bytes]]) -> Counter[bytes]:
        return Counter(value for _, value in one)

    seen = values(rows[:read]) + values(copy[given:])
    there = values([one for one in rows if one[0] < read or one[0] in at_home | came]) + values(others)
    come = values([one for one in home if one[0] not in came])
    doubled = seen + come - values(rows) - values(others)
    assert (there - seen).total() <= found.before + found.below + found.unread
    assert doubled.total() <= found.behind + found.above + found.read + found.unread


def mirror(broker: EmbeddedBroker, other: EmbeddedBroker, topic: str, before: int, count: int = 30) -> None:
    """Copy so many rows behind others."""
    copy_topic(Kafka(broker.bootstrap), Kafka(other.bootstrap), topic, 1, before, count)


def moved(broker: EmbeddedBroker, other: EmbeddedBroker, checkpoint: Path, *more: str) -> Result:
    there = ["--to-bootstrap-server", other.bootstrap]
    return run(broker, "move-cluster", checkpoint, *there, *more)


@pytest.fixture
def there(other: EmbeddedBroker) -> Cluster:
    return Cluster(ClientConfig((("127.0.0.1", other.port),)))


@pytest.mark.parametrize("before", [0, 7])
def test_the_query_goes_on_at_the_same_record(
    broker: EmbeddedBroker, other: EmbeddedBroker, decided: Path, there: Cluster, topic: str, before: int
) -> None:
    """With decision and group on the new cluster; and back again."""
    mirror(broker, other, topic, before)
    files = {path: path.read_text() for path in decided.rglob("*") if path.is_file()}
    said = moved(broker, other, decided, "--json")
    assert said.exit_code == 0, said.output
    told = json.loads(said.stdout)["rows"]
    assert (told["twice"], told["never"]) == (0, 0)
    assert [(one["before"], one["after"]) for one in told["partitions"]] == [(20, 20 + before)]
    assert run(other, "check", decided).exit_code == 0
    assert last(there, topic).batch.batch_id == 1
    assert fetch_committed(there, group_of(topic), None)[topic, 0][0] == 20 + before
    assert (
        "WrongCluster" in run(broker, "show", decided).output or run(broker, "show", decided).exit_code == 1
    )
    assert run(other, "undo", decided).exit_code == 0
    assert run(broker, "check", decided).exit_code == 0
    assert all(path.read_text() == text for path, text in files.items())
    assert moved(broker, other, decided).exit_code == 0, "and there again"
    assert run(other, "check", decided).exit_code == 0


def test_rows_that_the_copy_does_not_have_are_lost(
    broker: EmbeddedBroker, other: EmbeddedBroker, decided: Path, topic: str
) -> None:
    mirror(broker, other, topic, 3, count=26)
    said = moved(broker, other, decided)
    assert said.exit_code == 1 and "give --accept-loss 4" in said.output
    assert moved(broker, other, decided, "--accept-loss", "4").exit_code == 0


def test_a_copy_that_has_not_got_so_far(
    broker: EmbeddedBroker, other: EmbeddedBroker, decided: Path, topic: str
) -> None:
    mirror(broker, other, topic, 3, count=19)
    said = moved(broker, other, decided, "--accept-loss", "99")
    assert said.exit_code == 1 and "the copy has not got so far" in said.output


@pytest.mark.parametrize(
    ("offsets", "status", "says"),
    [
        ('{"TOPIC":{"0":27}}', 0, "done"),
        ('{"TOPIC":{"0":26}}', 1, "1 records that the query has read lie behind it"),
        ('{"TOPIC":{"0":28}}', 1, "1 records that the query has not read lie below it"),
        ('{"TOPIC":{"0":99}}', 1, "the records at 99 are not those at 20"),
        ('{"other":{"0":27}}', 1, "does not read other-0"),
        ('{"TOPIC":{"0":-1}}', 2, "give numbers"),
        ("latest", 2, "give numbers"),
    ],
)
def test_given_offsets_are_proven_or_have_a_price(
    broker: EmbeddedBroker,
    other: EmbeddedBroker,
    decided: Path,
    topic: str,
    offsets: str,
    status: int,
    says: str,
) -> None:
    mirror(broker, other, topic, 7)
    said = moved(broker, other, decided, "--offsets", offsets.replace("TOPIC", topic))
    assert (said.exit_code, says in said.output) == (status, True), said.output


def test_records_that_are_all_alike_prove_nothing(
    broker: EmbeddedBroker, other: EmbeddedBroker, plain: Path
) -> None:
    """The place is not guessed."""
    topic = Kafka(broker.bootstrap).topic()
    Kafka(broker.bootstrap).put(topic, [b"same"] * 300, timestamp=5)
    plan(plain, 2, lines({topic: {"0": 150}}))
    Kafka(other.bootstrap).topic(name=topic)
    Kafka(other.bootstrap).put(topic, [b"first"] + [b"same"] * 300, timestamp=5)
    said = moved(broker, other, plain)
    assert said.exit_code == 1 and "are all like those at 150" in said.output


def wrote(broker: EmbeddedBroker, sink: str, topic: str) -> None:
    """A sink writes three rows."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "transactional.id": sink}
    options = sink_options(given, stream=False)
    begun = begin_batch(options)
    assert begun is not None and begun.batch is not None
    rows = pa.record_batch({"value": pa.array([b"row"] * 3)})
    commit_batch(options, [write_rows(options, begun, Attempt(*begun.batch[:2], 0), iter([rows])).report])


def test_rows_behind_the_last_decision_there_are_told(
    broker: EmbeddedBroker, other: EmbeddedBroker, decided: Path, cluster: Cluster, there: Cluster, topic: str
) -> None:
    """The new cluster's group was put back: under another transactional.id the query is moved."""
    mirror(broker, other, topic, 7)
    out, sink = Kafka(other.bootstrap).topic(), Sink(sink_of(topic))
    wrote(other, sink.id, out)
    kept = fetch_committed(there, sink.group, None)
    wrote(other, sink.id, out)
    commit_plain(there, sink.group, {place: one[:2] for place, one in kept.items()})
    said = moved(broker, other, decided)
    assert said.exit_code == 1 and f"rows of the sink {sink.id} are visible behind" in said.output
    assert f"{out}-0 has 3 rows" in said.output and run(broker, "check", decided).exit_code == 0
    decide(cluster, decided, topic, 1, named=f"{sink.id}-2")
    assert moved(broker, other, decided).exit_code == 0
    assert run(other, "check", decided).exit_code == 0


class Died(Exception):
    """The command's process is dead."""


def test_a_move_that_is_interrupted_is_taken_back(
    broker: EmbeddedBroker,
    other: EmbeddedBroker,
    decided: Path,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the new cluster; the old query goes on as if nothing had been."""
    mirror(broker, other, topic, 7)
    move = carry_out._move

    def dies(*given: Any) -> None:
        move(*given)
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(carry_out, "_move", dies)
        assert isinstance(moved(broker, other, decided).exception, Died)
    assert "was interrupted" in moved(broker, other, decided).output
    assert run(broker, "undo", decided).exit_code == 1, "it is not the cluster that was to get it"
    assert run(other, "undo", decided).exit_code == 0
    assert run(broker, "check", decided).exit_code == 0


def test_a_query_that_went_on_where_it_was_is_not_set_back(
    broker: EmbeddedBroker,
    other: EmbeddedBroker,
    decided: Path,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mirror(broker, other, topic, 7)

    def dies(*given: Any) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(carry_out, "_move", dies)
        assert isinstance(moved(broker, other, decided).exception, Died)
    plan(decided, 2, lines({topic: {"0": 25}}))
    said = run(other, "undo", decided)
    assert said.exit_code == 1 and "the query has gone on since the edit" in said.output
    assert (decided / "offsets" / "2").exists()


def test_offsets_of_the_old_cluster_mean_nothing_on_the_new_one(
    broker: EmbeddedBroker, other: EmbeddedBroker, decided: Path, topic: str
) -> None:
    """Those of earlier batches, and of the backup."""
    mirror(broker, other, topic, 7)
    assert moved(broker, other, decided).exit_code == 0
    for command, more in (
        ("rewind", ["--to-batch", "0", "--accept-duplicates", "99"]),
        ("diff", ["edit-0001"]),
    ):
        said = run(other, command, decided, *more)
        assert said.exit_code == 1 and "are of another cluster" in said.output, said.output
    (decided / "state" / "0" / "0").mkdir(parents=True)
    (decided / "state" / "0" / "0" / "1.delta").write_text("")
    said = run(other, "rewind", decided, "--to-batch", "0", "--accept-duplicates", "99")
    assert said.exit_code == 1 and "are of another cluster" in said.output, said.output


def test_the_same_cluster_is_no_move(broker: EmbeddedBroker, decided: Path) -> None:
    said = moved(broker, broker, decided)
    assert said.exit_code == 1 and "where the query is: no move" in said.output


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_log_that_is_not_the_one_that_was_read_is_not_moved(
    broker: EmbeddedBroker, other: EmbeddedBroker, tmp_path: Path, made_anew: bool
) -> None:
    """The new cluster has a copy of the log of now, and what was lost would not be seen there."""
    old, new = Kafka(broker.bootstrap), Kafka(other.bootstrap)
    here, there = (Cluster(ClientConfig((("127.0.0.1", one.port),))) for one in (broker, other))
    topic = old.topic()
    old.put(topic, [b"%d" % number for number in range(10)])
    query = Reading(tmp_path / "ck", topic)
    query.batch(old, here, topic)
    if made_anew:
        old.make_anew(topic)
    old.put(topic, [b"%d" % number for number in range(10, 25)])
    if not made_anew:
        place = TopicPartition(topic, 0, 13)
        old.admin.delete_records([place])[place].result(60)
    copy_topic(old, new, topic, 1, 0 if made_anew else 13)
    said = moved(broker, other, tmp_path / "ck", "--accept-loss", "99")
    assert said.exit_code == 1 and "DataLoss: " in said.output, said.output
    query.batch(old, here, topic, failOnDataLoss="false")
    assert moved(broker, other, tmp_path / "ck").exit_code == 0
    new.put(topic, [b"25"])
    query.batch(new, there, topic)
    lost = range(10, 10 if made_anew else 13)
    assert query.rows == [b"%d" % number for number in range(26) if number not in lost]


# -- topics that are left out ----------------------------------------------------------------------
# A topic that the query reads no more has a place, too: it goes on there if it reads the topic again.


class LeftOut:
    """A query that reads no more the second of its two topics, of which it has read ten rows."""

    def __init__(self, broker: EmbeddedBroker, other: EmbeddedBroker, folder: Path, *, apart: bool) -> None:
        """`apart`: offsets of the source are higher than its rows, as they are in transactions."""
        self.old, self.new = Kafka(broker.bootstrap), Kafka(other.bootstrap)
        self.here, self.there = (Cluster(ClientConfig((("127.0.0.1", one.port),))) for one in (broker, other))
        self.apart, self.one, self.two = apart, self.old.topic(), self.old.topic()
        for topic in (self.one, self.two):
            self.put(self.old, topic, 0, 10)
        self.query = Reading(folder, self.one)
        self.query.batch(self.old, self.here, f"{self.one},{self.two}")
        self.put(self.old, self.one, 10, 12)
        self.query.batch(self.old, self.here, self.one, failOnDataLoss="false")

    def put(self, kafka: Kafka, topic: str, first: int, end: int) -> None:
        rows = [f"{topic} {number}".encode() for number in range(first, end)]
        if not self.apart:
            kafka.put(topic, rows)
            return
        producer = kafka.transactional(f"fills-{topic}")
        for row in rows:
            producer.begin_transaction()
            producer.produce(topic, row, partition=0)
            producer.commit_transaction(60)

    def mirror(self, topic: str, count: int | None = None) -> None:
        copy_topic(self.old, self.new, topic, 1, 0 if self.apart else 7, count)

    def goes_on(self, **options: str) -> list[bytes]:
        """On the new cluster with both topics, which have got rows there."""
        self.put(self.new, self.one, 12, 14)
        self.put(self.new, self.two, 10, 25)
        return self.query.batch(self.new, self.there, f"{self.one},{self.two}", **options)

    def wanted(self) -> list[bytes]:
        ends = ((self.one, 14), (self.two, 25))
        return [f"{topic} {number}".encode() for topic, end in ends for number in range(end)]


@pytest.mark.parametrize("apart", [False, True])
def test_a_topic_that_is_left_out_goes_on_at_the_same_record(
    broker: EmbeddedBroker, other: EmbeddedBroker, tmp_path: Path, apart: bool
) -> None:
    """Higher offsets there would double rows, lower ones would lose them."""
    case = LeftOut(broker, other, tmp_path / "ck", apart=apart)
    for topic in (case.one, case.two):
        case.mirror(topic)
    said = moved(broker, other, tmp_path / "ck", "--json")
    assert said.exit_code == 0, said.output
    case.goes_on()
    assert sorted(case.query.rows) == sorted(case.wanted())
    assert {one["topic"] for one in json.loads(said.stdout)["rows"]["partitions"]} == {case.one, case.two}


def test_rows_of_a_topic_that_is_left_out_are_lost_too(
    broker: EmbeddedBroker, other: EmbeddedBroker, tmp_path: Path
) -> None:
    """Those that it would read if it is named again, and the copy lacks."""
    case = LeftOut(broker, other, tmp_path / "ck", apart=False)
    case.put(case.old, case.two, 10, 13)
    case.mirror(case.one)
    case.mirror(case.two, count=11)
    said = moved(broker, other, tmp_path / "ck")
    assert said.exit_code == 1 and "give --accept-loss 2" in said.output, said.output


@pytest.mark.parametrize("copied", [None, 4])
def test_a_topic_that_is_left_out_and_not_found_stops_once_it_is_named(
    broker: EmbeddedBroker, other: EmbeddedBroker, tmp_path: Path, copied: int | None
) -> None:
    """`copied`: so many of its rows. Nothing is in the way of a query that does not name it again."""
    case = LeftOut(broker, other, tmp_path / "ck", apart=False)
    case.mirror(case.one)
    if copied is not None:
        case.mirror(case.two, count=copied)
    said = moved(broker, other, tmp_path / "ck")
    assert said.exit_code == 0 and f"{case.two}-0, which the query reads no more: " in said.output
    if copied is None:
        case.mirror(case.two)
    case.put(case.new, case.one, 12, 14)
    assert len(case.query.batch(case.new, case.there, case.one, failOnDataLoss="false")) == 2
    with pytest.raises(DataLoss, match=f"topic {case.two} was deleted and created again"):
        case.goes_on()
    assert run(other, "undo", tmp_path / "ck").exit_code == 1, "it has gone on"
    said = run(other, "add-topic", tmp_path / "ck", case.two)
    assert said.exit_code == 1 and "give the offsets in it (--start)" in said.output, said.output
    if copied is None:
        place = json.dumps({case.two: {"0": 17}})
        assert run(other, "add-topic", tmp_path / "ck", case.two, "--start", place).exit_code == 0
        case.query.batch(case.new, case.there, f"{case.one},{case.two}")
        assert not {*case.wanted()} - {*case.query.rows}, "and what the mirror has copied behind the place"


def test_the_place_of_a_topic_that_is_left_out_is_given(
    broker: EmbeddedBroker, other: EmbeddedBroker, tmp_path: Path
) -> None:
    """It is proven as another one is."""
    case = LeftOut(broker, other, tmp_path / "ck", apart=False)
    for topic in (case.one, case.two):
        case.mirror(topic)
    wrong, right = (json.dumps({case.two: {"0": at}}) for at in (16, 17))
    said = moved(broker, other, tmp_path / "ck", "--offsets", wrong)
    assert said.exit_code == 1 and "around 16 do not prove that it is 10" in said.output, said.output
    assert moved(broker, other, tmp_path / "ck", "--offsets", right).exit_code == 0
    case.goes_on()
    assert sorted(case.query.rows) == sorted(case.wanted())


def test_a_topic_that_is_left_out_and_was_made_anew_is_not_found(
    broker: EmbeddedBroker, other: EmbeddedBroker, tmp_path: Path
) -> None:
    """Its offsets were those of another log, whatever the records there."""
    case = LeftOut(broker, other, tmp_path / "ck", apart=False)
    case.old.make_anew(case.two)
    case.put(case.old, case.two, 30, 45)
    for topic in (case.one, case.two):
        case.mirror(topic)
    said = moved(broker, other, tmp_path / "ck")
    assert said.exit_code == 0 and "is not the one that it has read" in said.output, said.output
    with pytest.raises(DataLoss, match=f"topic {case.two} was deleted and created again"):
        case.goes_on()


@pytest.mark.parametrize("by_option", [False, True])
def test_a_topic_that_was_deleted_when_it_was_left_is_another_one_there(
    broker: EmbeddedBroker, other: EmbeddedBroker, tmp_path: Path, by_option: bool
) -> None:
    """Its name tells nothing: whether the one there has these rows is not known. `by_option`: by
    cluster.moved.to alone."""
    old, new = Kafka(broker.bootstrap), Kafka(other.bootstrap)
    here, there = (Cluster(ClientConfig((("127.0.0.1", one.port),))) for one in (broker, other))
    one, two = old.topic(), old.topic()
    old.put(one, [b"one"])
    old.put(two, [b"two"] * 5)
    query = Reading(tmp_path / "ck", one)
    query.batch(old, here, f"{one},{two}")
    old.admin.delete_topics([two])[two].result(30)
    old.put(one, [b"more"])
    query.batch(old, here, f"{one},{two}", failOnDataLoss="false")
    copy_topic(old, new, one, 1, 0)
    new.topic(name=two)
    new.put(two, [b"another"] * 9)
    options = {}
    if by_option:
        options = {"cluster.moved.to": cluster_id(there) or ""}
    else:
        assert moved(broker, other, tmp_path / "ck").exit_code == 0
    new.put(one, [b"last"])
    with pytest.raises(DataLoss, match=f"topic {two} was deleted and created again"):
        query.batch(new, there, f"{one},{two}", **options)


# -- batches of another cluster ------------------------------------------------------------------
# No edit goes back to a batch whose ends are of another cluster.


def _planned(folder: Path, *clusters: str | None) -> Checkpoint:
    """A batch for each: the cluster that its ends name, None: none, as other connectors write them."""
    (folder / "offsets").mkdir()
    for batch, cluster in enumerate(clusters):
        end = json.dumps(to_json({("t", 0): 10 * batch}, cluster=cluster))
        (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{end}")
    return Checkpoint.at(str(folder))


def test_a_batch_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """The option cluster.moved.to leaves no backup that would tell."""
    moved = _planned(tmp_path, "old", "old", "new", "new")
    for batch in (0, 1):
        with pytest.raises(NotEditable, match=r"of another cluster \(old\).*--to"):
            check_not_moved(moved, batch)
    check_not_moved(moved, 2)


@pytest.mark.parametrize("clusters", [("one", "one"), (None, "one"), ("one", None), (None, None)])
def test_a_cluster_that_is_not_known_is_the_same(clusters: tuple[str | None, ...], tmp_path: Path) -> None:
    check_not_moved(_planned(tmp_path, *clusters), 0)


def test_a_batch_that_is_not_kept_is_refused_elsewhere(tmp_path: Path) -> None:
    check_not_moved(_planned(tmp_path, "one"), 7)


@pytest.mark.parametrize("command", [["show"], ["check"], ["rewind", "--to-batch", "0"]])
def test_a_query_on_two_clusters_is_not_edited(
    broker: EmbeddedBroker, decided: Path, command: list[str]
) -> None:
    """Its sink is on one, its source on the other: no address is that of the checkpoint."""
    for planned in (decided / "offsets").glob("[0-9]*"):
        *head, ends = planned.read_text().splitlines()
        elsewhere = json.dumps(json.loads(ends) | {"cluster-id:elsewhere": {}})
        planned.write_text("\n".join([*head, elsewhere]))
    said = run(broker, command[0], decided, *command[1:])
    assert said.exit_code == 1 and "is one of the cluster elsewhere" in said.output, said.output


# -- a checkpoint that the new cluster knows already -----------------------------------------------
# Copies of a checkpoint come back: the new cluster knows later batches, or has forgotten them. Rows are
# counted on both clusters; a mirror copies those of the target, too.


def copied_behind(old: Kafka, new: Kafka, topic: str, first: int, until: int | None = None) -> None:
    """A mirror copies a topic's rows from so many on."""
    producer = new.producer(acks="all")
    for _, _, key, value, _, at, _ in old.rows(topic)[first:until]:
        producer.produce(topic, value, key, timestamp=at)
        producer.poll(0)
    assert producer.flush(60) == 0


@pytest.fixture
def old(broker: EmbeddedBroker) -> Kafka:
    return Kafka(broker.bootstrap)


@pytest.fixture
def new(other: EmbeddedBroker) -> Kafka:
    return Kafka(other.bootstrap)


@pytest.fixture
def query(old: Kafka, new: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CopyQuery:
    """A query that has run two batches, and whose topics are mirrored."""
    source, target = old.topic(), old.topic()
    names = {"transactional.id": f"s-{source}", "kafka.group.id": f"g-{source}"}
    query = CopyQuery(tmp_path / "checkpoint", old, source, target, names, monkeypatch)
    for first in (0, 10):
        query.puts(first)
        assert query.start()
    for topic in (source, target):
        new.topic(name=topic)
        copied_behind(old, new, topic, 0)
    return query


def move(query: CopyQuery, old: Kafka, new: Kafka, *more: str) -> Result:
    """`move-cluster` of the query's checkpoint."""
    given = ["--bootstrap-server", old.bootstrap, "--to-bootstrap-server", new.bootstrap, "--watch", "0"]
    arguments = ["checkpoint", "move-cluster", str(query.place), *given, "--fence", *more]
    return CliRunner().invoke(main, arguments)


def backed_up(query: CopyQuery) -> Path:
    """A copy of the checkpoint."""
    return Path(shutil.copytree(query.place, query.place.with_name("copy")))


def put_back(query: CopyQuery, copy: Path) -> None:
    shutil.rmtree(query.place)
    shutil.copytree(copy, query.place)


def ran(query: CopyQuery, *firsts: int) -> None:
    """So many batches of ten rows."""
    for first in firsts:
        query.puts(first)
        assert query.start()


def forget(kafka: Kafka, query: CopyQuery) -> None:
    """The cluster forgets the query's decisions and offsets."""
    for group in (query.sink["transactional.id"], query.sink["kafka.group.id"]):
        kafka.admin.delete_consumer_groups([group])[group].result(30)


def rebuild(query: CopyQuery, kafka: Kafka) -> Result:
    """Write the query's checkpoint, which is lost, again, from the cluster's decision."""
    shutil.rmtree(query.place, ignore_errors=True)
    given = ["--transactional-id", query.sink["transactional.id"], "--topic", query.target]
    address = ["--bootstrap-server", kafka.bootstrap]
    arguments = ["checkpoint", "rebuild", str(query.place), *given, *address, "--watch", "0", "--fence"]
    return CliRunner().invoke(main, arguments)


def rebuilt(query: CopyQuery, kafka: Kafka) -> None:
    """The same, as the way out that the messages name."""
    said = rebuild(query, kafka)
    assert said.exit_code == 0, said.output


def goes_on(query: CopyQuery) -> None:
    """With all rows once; a rebuilt checkpoint runs its last batch again first."""
    while query.start():
        pass
    assert query.astray == EXACT


def as_an_earlier_version(patch: pytest.MonkeyPatch) -> None:
    """Moves by the option, and by earlier versions, leave no mark on the cluster that is left."""
    patch.setattr(move_command, "fence", lambda sink, left=None, ended=None: leave_sink.fence(sink))


def test_a_copy_of_before_is_not_moved_again(
    query: CopyQuery, old: Kafka, new: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new cluster has decided later batches of it."""
    as_an_earlier_version(monkeypatch)
    copy = backed_up(query)
    assert move(query, old, new).exit_code == 0
    there = query.on(new)
    ran(there, 20, 30)
    put_back(query, copy)
    for more in ((), ("--dry-run",)):
        said = move(query, old, new, *more)
        assert said.exit_code == 1, (said.output, there.start(), there.astray)
        assert "has decided batch 3 of query" in said.output and "Nothing was changed" in said.output
    rebuilt(query, new)
    there.puts(40)
    goes_on(there)


@pytest.mark.parametrize("batches", [1, 3])
def test_the_wrong_one_of_two_copies_is_not_moved_back(
    query: CopyQuery, old: Kafka, new: Kafka, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of before has gone on where it was, and the one that was moved has run fewer or more batches."""
    as_an_earlier_version(monkeypatch)
    copy = backed_up(query)
    assert move(query, old, new).exit_code == 0
    ran(query.on(old, copy), 20, 30)
    there, size = query.on(new), 12 // batches
    for number in range(batches):  # the mirror has not copied all yet
        copied_behind(old, new, query.source, 20 + number * size, 20 + (number + 1) * size)
        assert there.start()
    said = move(query, new, old)
    query.puts(50)
    assert said.exit_code == 1, (said.output, query.start(), query.astray)
    assert "has decided batch 3 of query" in said.output
    rebuilt(query, old)
    query.puts(60)
    goes_on(query)


@pytest.mark.parametrize("way", ["its rows", "its decisions"])
def test_a_copy_of_before_is_not_moved_again_when_all_is_forgotten(
    query: CopyQuery, old: Kafka, new: Kafka, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows there are younger than the last one that the checkpoint knows, or the sink has decided there."""
    as_an_earlier_version(monkeypatch)
    copy = backed_up(query)
    assert move(query, old, new).exit_code == 0
    there = query.on(new)
    ran(there, 20, 30)
    forget(new, query)
    put_back(query, copy)
    if way == "its decisions":
        monkeypatch.setattr(move_command, "visible_since", lambda *_given: ())
    else:
        monkeypatch.setattr(move_command, "has_forgotten", lambda _sink: (yield from no()))
    said = move(query, old, new)
    assert said.exit_code == 1, (said.output, there.start(), there.astray)
    assert "an older copy" in said.output and "Nothing was changed" in said.output
    assert query.start() is False, "it goes on where it is, if that is what is wanted"
    query = query.on(old, transactional_id=f"{query.sink['transactional.id']}-2")
    copied_behind(new, old, query.source, 20)
    assert query.start()
    assert (said := move(query, old, new)).exit_code == 0, said.output


def no() -> Rules[bool]:
    """A cluster that has forgotten even that it has forgotten."""
    yield from ()
    return False


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_query_moves_to_and_fro(query: CopyQuery, old: Kafka, new: Kafka, forgotten: bool) -> None:
    """Mirrors copy source and target each time; the cluster that was left may forget the query."""
    here, there = query, query.on(new)
    for number in range(4):
        assert (said := move(query, here.kafka, there.kafka)).exit_code == 0, said.output
        ran(there, 20 + 10 * number)
        for topic in (query.source, query.target):
            copied_behind(there.kafka, here.kafka, topic, 20 + 10 * number)
        if forgotten:
            forget(here.kafka, query)
        here, there = there, here
        assert here.astray == EXACT


def test_a_move_is_given_again(
    query: CopyQuery, old: Kafka, new: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of before the move, of which the new cluster has run nothing. Of a query that was moved by
    another version, or by option, the old cluster knows nothing; else it tells the way."""
    copy, there = backed_up(query), query.on(new)
    with monkeypatch.context() as patch:
        as_an_earlier_version(patch)
        assert move(query, old, new).exit_code == 0
    put_back(query, copy)
    assert (said := move(query, old, new)).exit_code == 0, said.output
    put_back(query, copy)
    said = move(query, old, new)
    assert said.exit_code == 1 and "was left for another cluster by batch 2" in said.output, said.output
    assert f"rebuild --transactional-id {query.sink['transactional.id']}" in said.output
    rebuilt(query, new)
    there.puts(20)
    goes_on(there)


def test_another_querys_sink_on_the_new_cluster(query: CopyQuery, old: Kafka, new: Kafka) -> None:
    """It would be stopped."""
    others = query.on(new, query.place.with_name("another"))
    assert others.start()
    said = move(query, old, new)
    assert said.exit_code == 1 and "is another query's" in said.output, said.output
    assert query.start() is False


def test_rows_that_others_write_to_the_copy_are_not_those_that_it_lacks(
    query: CopyQuery, old: Kafka, new: Kafka
) -> None:
    """More rows than are compared around the place; the mirror lacks the last five, and one of before."""
    query.puts(20, 150)
    copied_behind(old, new, query.source, 20, 140)
    new.put(query.source, [b"new"])
    copied_behind(old, new, query.source, 141, 165)
    new.put(query.source, [b"new %d" % number for number in range(9)])
    said = move(query, old, new)
    assert said.exit_code == 1 and "give --accept-loss 6" in said.output, said.output
    assert move(query, old, new, "--accept-loss", "6").exit_code == 0
    there = query.on(new)
    assert there.start() and there.astray == EXACT


@pytest.mark.parametrize("since", [None, "2026-01-01T00:00:00+00:00"])
@pytest.mark.parametrize("removed", [0, 12])
def test_rows_of_others_below_the_place_are_lost(
    query: CopyQuery, old: Kafka, new: Kafka, removed: int, since: str | None
) -> None:
    """Producers moved one by one, before the query, and the mirror went on behind their rows. What retention
    has taken from the old log alone is none of theirs."""
    topic = query.source
    query.puts(20, 130)
    for begin, until, others, time_ms in ((20, 22, 3, {"timestamp": 1}), (22, 150, 1, {})):
        new.put(topic, [b"new"] * others, **time_ms)
        copied_behind(old, new, topic, begin, until)
    assert query.start()
    if removed:
        old.admin.delete_records([TopicPartition(topic, 0, removed)])[TopicPartition(topic, 0)].result(30)
    more = ["--since", since] if since else []
    said, lost = move(query, old, new, *more), 1 if since else 4
    assert said.exit_code == 1 and f"give --accept-loss {lost}" in said.output, said.output
    assert f"{lost} records that the old cluster has not lie below 154, where" in said.output
    said = move(query, old, new, "--since", "2100-01-01T00:00:00+00:00")
    assert said.exit_code == 0, said.output


@pytest.mark.parametrize("copied", [None, 0, 6])
def test_rows_of_a_partition_that_is_not_read_yet_are_lost_too(
    query: CopyQuery, old: Kafka, new: Kafka, copied: int | None
) -> None:
    """The old cluster's topic has got one since the last batch, the new one's has none, or not all rows."""
    for kafka, count in ((old, 10), (new, copied)):
        if count is not None:
            kafka.admin.create_partitions([NewPartitions(query.source, 2)])[query.source].result(30)
            kafka.put(query.source, [b"row %d" % number for number in range(count)], 1, timestamp=10**12)
    said, lost = move(query, old, new), 10 - (copied or 0)
    assert said.exit_code == 1 and f"give --accept-loss {lost}" in said.output, said.output
    assert move(query, old, new, "--accept-loss", str(lost)).exit_code == 0


def taken_back(query: CopyQuery, kafka: Kafka) -> Result:
    """`undo` of the query's last edit."""
    arguments = ["checkpoint", "undo", str(query.place), "--bootstrap-server", kafka.bootstrap, "--fence"]
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("killed", [False, True])
def test_a_move_is_not_taken_back_from_who_has_taken_the_querys_place_there(
    query: CopyQuery, old: Kafka, new: Kafka, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """Its decision and the group's offsets would go. `killed`: the move has ended behind its decision."""
    with monkeypatch.context() as patch:
        if killed:
            patch.setattr(carry_out, "_check_files", dies)
        said = move(query, old, new)
    assert isinstance(said.exception, Died) if killed else said.exit_code == 0, said.output
    committed = {"startingOffsets": "committed", **query.sink}
    successor = replace(query.on(new, query.place.with_name("successor")), reads=committed)
    ran(successor, 20)
    said = taken_back(query, new)
    assert said.exit_code == 1 and "has taken the place of this one since the edit" in said.output, (
        said.output,
        successor.start(),
    )
    successor.puts(30)
    back = replace(successor, place=query.place.with_name("back"))  # as the message says
    assert back.start() and back.astray == EXACT


@pytest.mark.parametrize("killed", [False, True])
def test_a_move_is_taken_back_where_nothing_is_known_of_it(
    query: CopyQuery, old: Kafka, new: Kafka, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """It has ended before its decision; or the new cluster has forgotten decision and group. Then again."""
    with monkeypatch.context() as patch:
        if killed:
            patch.setattr(carry_out, "_move", dies)
        said = move(query, old, new)
    assert isinstance(said.exception, Died) if killed else said.exit_code == 0, said.output
    if killed:
        again = move(query, old, new).output
        assert f"undo, with --bootstrap-server of the cluster {cluster_of(new)}" in again
    else:
        forget(new, query)
    said = taken_back(query, new)
    assert said.exit_code == 0, said.output
    ran(query, 20)
    assert query.astray == EXACT
    for topic in (query.source, query.target):
        copied_behind(old, new, topic, 20)
    other = query.sink["transactional.id"] + ("" if killed else "-2")  # that cluster has forgotten the name
    query = query.on(old, transactional_id=other)
    if not killed:
        ran(query, 30)
        for topic in (query.source, query.target):
            copied_behind(old, new, topic, 30)
    assert (said := move(query, old, new)).exit_code == 0, said.output
    there = query.on(new)
    ran(there, 40)
    assert there.astray == EXACT


@pytest.mark.parametrize("who", ["the moved checkpoint", "a copy of before", "a lost checkpoint"])
@pytest.mark.parametrize("since", ["nothing", "a batch"])
def test_a_move_that_is_taken_back_leaves_nobody_on_the_new_cluster(
    query: CopyQuery, old: Kafka, new: Kafka, since: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query has run `since` where it is again. Who does not know of that is led to where it is."""
    before = backed_up(query)
    assert move(query, old, new).exit_code == 0
    moved = Path(shutil.copytree(query.place, query.place.with_name("moved")))
    with monkeypatch.context() as patch:
        patch.setattr(start_of_run, "time", SimpleNamespace(time=lambda: time.time() + 60))  # it is later
        said = taken_back(query, new)
    assert said.exit_code == 0 and "Start the query with this checkpoint" in said.output, said.output
    if since == "a batch":
        ran(query, 20)
    if who == "the moved checkpoint":
        put_back(query, moved)
        there = query.on(new)
        there.puts(20)
        with pytest.raises(TakenOver, match="for another cluster by batch 2"):
            there.start()
    elif who == "a copy of before" and since == "nothing":
        put_back(query, before)
        query.puts(20)
        with pytest.raises(TakenOver, match="for another cluster by batch 2"):
            query.start()
    texts = [rebuild(query, kafka).output for kafka in (new, old)]  # as all of them say
    assert "has gone on on another cluster since batch 2" in texts[0]
    if since == "nothing":
        found = [re.search(r", at (2.*?), and .*accepted=(left:\w+)", text) for text in texts]
        (new_time, _), (old_time, word) = [one.groups() for one in found if one is not None]
        assert old_time < new_time, "so the way of this one is to be taken"
        query = taking_its_place(query, old, start_accepted=word)
    query.puts(30)
    goes_on(query)


@pytest.mark.parametrize("killed", [False, True])
def test_a_move_that_is_taken_back_is_given_again(
    query: CopyQuery, old: Kafka, new: Kafka, there: Cluster, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`killed`: when the decision is taken back, and that is not noted."""
    assert move(query, old, new).exit_code == 0
    if killed:
        with monkeypatch.context() as patch:
            patch.setattr(carry_out, "_leave_again", dies)
            assert isinstance(taken_back(query, new).exception, Died)
    assert (said := taken_back(query, new)).exit_code == 0, said.output
    last = last_of(there, query.sink["transactional.id"])
    assert last is not None and last.left is not None
    ran(query, 20)
    for topic in (query.source, query.target):
        copied_behind(old, new, topic, 20)
    assert (said := move(query, old, new)).exit_code == 0, said.output
    on_new = query.on(new)
    ran(on_new, 30, 40)
    assert on_new.astray == EXACT


def dies(*_given: Any) -> None:
    """The command ends here."""
    raise Died


def cluster_of(kafka: Kafka) -> str | None:
    """The cluster's id."""
    with Cluster(ClientConfig((("127.0.0.1", int(kafka.bootstrap.rpartition(":")[2])),))) as cluster:
        return cluster_id(cluster)


def test_a_time_that_is_none(query: CopyQuery, old: Kafka, new: Kafka) -> None:
    said = move(query, old, new, "--since", "yesterday")
    assert said.exit_code == 2 and "give a time as 2026-" in said.output


# -- the option cluster.moved.to -------------------------------------------------------------------


def by_option(query: CopyQuery, kafka: Kafka, *more: str) -> CopyQuery:
    """As the two errors WrongCluster say."""
    with pytest.raises(WrongCluster) as caught:
        query.on(kafka).start()
    now = str(caught.value).rpartition("cluster.moved.to=")[2]
    moved = query.on(kafka, start_accepted=",".join([f"cluster:{now}", *more]))
    return replace(moved, reads={"cluster.moved.to": now})


@pytest.mark.parametrize("way", ["its rows", "its decisions", "its batches"])
def test_a_copy_of_before_that_is_moved_by_option_stops(
    query: CopyQuery, new: Kafka, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, there = backed_up(query), query.on(new)
    moved = by_option(query, new)
    ran(moved, 20)
    ran(there, 30)
    if way == "its batches":  # the copy goes on where it was: so its numbers are higher
        here = query.on(query.kafka, copy)
        ran(here, 40, 50, 60)
    else:
        forget(new, query)
        if way == "its decisions":
            monkeypatch.setattr(start_of_run, "visible_since", lambda *_given: ())
        else:
            monkeypatch.setattr(start_of_run, "has_forgotten", lambda _sink: (yield from no()))
    put_back(query, copy)
    if way == "its batches":
        for number in range(4):  # as Spark does after a hundred batches
            (query.place / "offsets" / str(number)).unlink()
            (query.place / "commits" / str(number)).unlink()
    moved.puts(70)
    for _ in range(2):
        with pytest.raises(CheckpointOlder, match="an older copy") as caught:
            moved.start()
        assert "Nothing was written" in str(caught.value) and there.astray["doubled"] == 0
    (word,) = re.findall(r"start\.accepted=(\S+)", str(caught.value))
    assert moved.on(new, start_accepted=word).start(), "its user knows that"
    assert query.on(new).start() is False


def test_a_query_moves_to_and_fro_by_option(query: CopyQuery, old: Kafka, new: Kafka) -> None:
    """Disks were copied, or the mirror has kept the offsets."""
    here, there = query, query.on(new)
    for number in range(3):
        ran(by_option(query, there.kafka), 20 + 20 * number)
        ran(there, 30 + 20 * number)
        for topic in (query.source, query.target):
            copied_behind(there.kafka, here.kafka, topic, 20 + 20 * number)
        here, there = there, here
        assert here.astray == EXACT


@pytest.mark.parametrize("way", ["where it was", "written", "missing"])
def test_a_batch_that_may_be_complete_on_the_old_cluster(
    query: CopyQuery, old: Kafka, new: Kafka, there: Cluster, way: str
) -> None:
    """The query was killed before Spark has noted it. That the mirror has its rows nobody knows."""
    query = replace(query, sink={"transactional.id": query.sink["transactional.id"]})
    ran(query, 20)
    (query.place / "commits" / "2").unlink()
    copied_behind(old, new, query.source, 20)
    if way != "missing":
        copied_behind(old, new, query.target, 20)
    now = cluster_id(there)
    moved = replace(query.on(new, start_accepted=f"cluster:{now}"), reads={"cluster.moved.to": now or ""})
    for _ in range(2):
        with pytest.raises(WrongCluster, match="may be complete on the one that had") as caught:
            moved.start()
        assert "Nothing was written" in str(caught.value)
    if way == "where it was":
        assert query.start()
    else:
        (word,) = re.findall(rf"start\.accepted=(\S+batch-{way}:[^ ,]+)", str(caught.value))
        moved = moved.on(new, start_accepted=word)
        assert moved.start()
        decided = last_of(there, query.sink["transactional.id"])
        assert decided is not None and bool(decided.places) == (way == "missing"), "places there, not here"
    ran(moved, 30)
    on_new = query.on(new)
    ran(on_new, 40)
    goes_on(on_new)


# -- the checkpoint right after a move -------------------------------------------------------------


@pytest.mark.parametrize("option", [False, True])
def test_a_copy_of_right_after_the_move_stops_when_all_is_forgotten(
    query: CopyQuery, old: Kafka, new: Kafka, option: bool
) -> None:
    """Later rows are younger than those that it knew on the old cluster."""
    there = query.on(new)
    if option:
        moved = by_option(query, new)
        moved.puts(20)
        with pytest.raises(Killed):
            moved.start(killed=True)
    else:
        assert move(query, old, new).exit_code == 0
    copy = backed_up(query)
    if option:
        assert there.start()
    ran(there, 30, 40)
    forget(new, query)
    put_back(query, copy)
    there.puts(50)
    with pytest.raises(CheckpointOlder, match=r"rows of transactions follow|are visible already"):
        there.start()
    assert there.astray["doubled"] == 0


def test_the_checkpoint_of_right_after_the_move_goes_on_after_a_rest(
    query: CopyQuery, old: Kafka, new: Kafka
) -> None:
    """The new cluster has forgotten the query before its first batch there."""
    there = query.on(new)
    assert move(query, old, new).exit_code == 0
    forget(new, query)
    long_ago = time.time() - 8 * 24 * 3600
    for note in (query.place / "commits").iterdir():
        os.utime(note, (long_ago, long_ago))
    ran(there, 20, 30)
    assert there.astray == EXACT


# -- who goes on where the query was ---------------------------------------------------------------


def taking_its_place(query: CopyQuery, kafka: Kafka, **options: str) -> CopyQuery:
    """A new checkpoint that begins where the query's sink stands on a cluster."""
    names = {name: query.sink[name] for name in ("transactional.id", "kafka.group.id")}
    another = query.on(kafka, query.place.with_name("another"), **options)
    return replace(another, reads={"startingOffsets": "committed", **names})


@pytest.mark.parametrize("where", ["there", "there, after a batch", "where it was"])
def test_who_has_taken_the_querys_place_is_not_thrown_out(
    query: CopyQuery, old: Kafka, new: Kafka, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows would be written again."""
    as_an_earlier_version(monkeypatch)
    copy, there = backed_up(query), query.on(new)
    assert move(query, old, new).exit_code == 0
    if where != "there":
        ran(there, 20)
        copied_behind(new, old, query.source, 20)
    another = taking_its_place(query, old if where == "where it was" else new)
    ran(another, 30, 40)
    here, to = (new, old) if where == "where it was" else (old, new)
    if where != "where it was":
        put_back(query, copy)
    said = move(query, here, to)
    assert said.exit_code == 1, (said.output, query.on(to).start(), query.on(to).astray)
    if where != "there, after a batch":
        assert "It has taken this one's place" in said.output, said.output
    assert "Nothing was changed" in said.output
    assert another.start() is False, "it goes on"


def as_sparks_own_source(patch: pytest.MonkeyPatch) -> None:
    """Plans name neither cluster nor topic ids: a batch of the same offsets looks the same everywhere."""
    latest = StreamReader.latestOffset

    def plain(reader: StreamReader, start: Any, limit: Any) -> Any:
        end = latest(reader, start, limit)
        return {topic: of for topic, of in end.items() if isinstance(of, dict) and "0" in of}

    patch.setattr(StreamReader, "latestOffset", plain)


def test_a_plan_that_was_never_carried_out_is_not_known(
    query: CopyQuery, old: Kafka, new: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of before is started where it was, by mistake, and killed."""
    as_an_earlier_version(monkeypatch)
    as_sparks_own_source(monkeypatch)
    copy, there = backed_up(query), query.on(new)
    assert move(query, old, new).exit_code == 0
    ran(there, 20)
    copied_behind(new, old, query.source, 20)
    put_back(query, copy)
    with pytest.raises(Killed):
        query.start(killed=True)
    said = move(query, old, new)
    assert said.exit_code == 1, (said.output, there.start(), there.astray)
    assert "has decided batch 2 of query" in said.output, said.output


@pytest.mark.parametrize("marked", [False, True])
def test_a_query_comes_back_whose_last_batch_the_move_has_finished(
    query: CopyQuery, old: Kafka, new: Kafka, marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed before Spark has noted that batch."""
    if not marked:
        as_an_earlier_version(monkeypatch)
    ran(query, 20)
    (query.place / "commits" / "2").unlink()
    for topic in (query.source, query.target):
        copied_behind(old, new, topic, 20)
    assert move(query, old, new).exit_code == 0
    there = query.on(new)
    ran(there, 30, 40)
    for topic in (query.source, query.target):
        copied_behind(new, old, topic, 30)
    assert (said := move(query, new, old)).exit_code == 0, said.output
    ran(query, 50)
    assert query.astray == EXACT


@pytest.mark.parametrize("who", ["a copy of before", "a new checkpoint", "another name"])
def test_nobody_goes_on_unawares_where_the_query_was(
    query: CopyQuery, old: Kafka, new: Kafka, who: str
) -> None:
    """The mirror has brought back what it has written since."""
    copy = backed_up(query)
    assert move(query, old, new).exit_code == 0
    ran(query.on(new), 20, 30)
    for topic in (query.source, query.target):
        copied_behind(new, old, topic, 20)
    one = query.on(old, copy) if who == "a copy of before" else taking_its_place(query, old)
    if who == "another name":
        one = one.on(old, transactional_id=f"{query.sink['transactional.id']}-2")
    with pytest.raises((TakenOver, StartsElsewhere)) as caught:
        one.start()
    assert query.astray == EXACT and "Nothing was written" in str(caught.value)
    if who != "another name":
        (word,) = re.findall(r"start\.accepted=(left:\w+)", str(caught.value))
        assert one.on(old, start_accepted=word).start(), "its user knows that"
        assert query.astray["doubled"] == 20


def test_a_checkpoint_is_written_again_where_the_query_has_gone(
    query: CopyQuery, old: Kafka, new: Kafka
) -> None:
    """Where it was, its rows would be written again. The other cluster has its last decision."""
    assert move(query, old, new).exit_code == 0
    there = query.on(new)
    ran(there, 20, 30)
    copied_behind(new, old, query.source, 20)
    said = rebuild(query, old)
    assert said.exit_code == 1 and "has gone on on another cluster since batch 2" in said.output, said.output
    rebuilt(query, new)
    ran(there, 40)
    goes_on(there)


def test_a_lost_checkpoint_whose_move_is_lost_on_the_new_cluster(
    query: CopyQuery, old: Kafka, new: Kafka
) -> None:
    """The messages lead from the one to the other, and back: to a new checkpoint where the query was."""
    assert move(query, old, new).exit_code == 0
    forget(new, query)
    said, there = rebuild(query, old), rebuild(query, new)
    assert there.exit_code == 1 and "no query has decided a batch here" in there.output, there.output
    (word,) = re.findall(r"startingOffsets=committed and start\.accepted=(left:\w+)", said.output)
    another = taking_its_place(query, old, start_accepted=word)
    another.puts(20)
    goes_on(another)


@pytest.mark.parametrize("by", ["the command", "the option"])
def test_a_query_comes_back_after_a_long_time(query: CopyQuery, old: Kafka, new: Kafka, by: str) -> None:
    """Its checkpoint does not know its starts of then any more, nor the batch at which it was moved."""
    assert move(query, old, new).exit_code == 0
    there = query.on(new)
    ran(there, *range(20, 140, 10))
    for topic in (query.source, query.target):
        copied_behind(new, old, topic, 20)
    for number in range(8):  # as Spark does after a hundred batches
        for log in ("offsets", "commits"):
            (query.place / log / str(number)).unlink()
    if by == "the command":
        assert (said := move(query, new, old)).exit_code == 0, said.output
        ran(query, 140, 150)
    else:
        ran(by_option(query, old), 140)
        ran(query, 150)
    assert query.astray == EXACT


@pytest.mark.parametrize("names", [1, 2])
@pytest.mark.parametrize("by", ["the command", "the option"])
def test_a_query_that_was_renamed_comes_back_to_where_a_copy_has_gone_on(
    query: CopyQuery, old: Kafka, new: Kafka, by: str, names: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the name of before, which the query does not have any more."""
    as_an_earlier_version(monkeypatch)
    copy, sink = query.on(old, backed_up(query)), query.sink["transactional.id"]
    if by == "the command":
        assert move(query, old, new).exit_code == 0
    else:
        ran(by_option(query, new), 20)
    there = query.on(new)
    for number in range(names):
        there = there.on(new, transactional_id=f"{sink}-{number}", kafka_group_id=f"{sink}-g{number}")
        ran(there, 30 + 10 * number)
    copied_behind(new, old, query.source, 20)
    ran(copy, 60)
    copied_behind(old, new, query.source, len(new.rows(query.source)))
    if by == "the command":
        said = move(query, new, old)
        assert said.exit_code == 1 and "was decided there since" in said.output, said.output
    else:
        back = by_option(there, old)
        back.puts(70)
        with pytest.raises(CheckpointOlder, match="by a start that the checkpoint does not know"):
            back.start()


@pytest.mark.parametrize("by", ["the command", "the option"])
def test_a_query_that_was_renamed_comes_back(query: CopyQuery, old: Kafka, new: Kafka, by: str) -> None:
    """After its plans of then are gone."""
    there = query.on(new)
    if by == "the command":
        assert move(query, old, new).exit_code == 0
        ran(there, 20)
    else:
        ran(by_option(query, new), 20)
    sink = f"{query.sink['transactional.id']}-2"
    there = there.on(new, transactional_id=sink, kafka_group_id=f"{sink}-g")
    ran(there, *range(30, 80, 10))
    for topic in (query.source, query.target):
        copied_behind(new, old, topic, 20)
    for number in range(3):
        for log in ("offsets", "commits"):
            (query.place / log / str(number)).unlink()
    here = there.on(old)
    if by == "the command":
        assert (said := move(query, new, old)).exit_code == 0, said.output
        ran(here, 80)
    else:
        ran(by_option(there, old), 80)
    ran(here, 90)
    assert here.astray == EXACT


ENDS = {
    "it is refused there": (carry_out, "_move"),
    "before the old cluster is told": (move_command, "_leave"),
    "before the checkpoint is changed": (carry_out, "_check_files"),
}


@pytest.mark.parametrize("who", ["the query", "a copy of before", "a lost checkpoint"])
@pytest.mark.parametrize("end", ENDS)
def test_a_move_that_does_not_come_to_its_end(
    query: CopyQuery, old: Kafka, new: Kafka, end: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query goes on where it is. Who does not know of the move may do so, or goes on there."""
    copy, there = backed_up(query), query.on(new)
    with monkeypatch.context() as patch:
        patch.setattr(*ENDS[end], dies)
        assert isinstance(move(query, old, new).exception, Died)
    with pytest.raises(WrongCluster):
        there.start()
    is_told = end == "before the checkpoint is changed"
    if who == "a lost checkpoint" and is_told:
        said = rebuild(query, old)
        assert said.exit_code == 1 and "has gone on on another cluster since batch 2" in said.output
        rebuilt(query, new)
        ran(there, 20)
        goes_on(there)
        return
    if who == "a lost checkpoint":
        rebuilt(query, old)
    one = query.on(old, copy) if who == "a copy of before" else query
    one.puts(20)
    if who == "a copy of before" and is_told:
        with pytest.raises(TakenOver, match="for another cluster by batch 2"):
            one.start()
        one = query
    goes_on(one)


def test_a_query_that_goes_on_while_it_is_moved(
    query: CopyQuery, old: Kafka, new: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was started again, after the move had stopped it: the move is given again."""
    carried_out = carry_out._move

    def starts(*given: Any) -> None:
        carried_out(*given)
        ran(query, 20)

    with monkeypatch.context() as patch:
        patch.setattr(carry_out, "_move", starts)
        said = move(query, old, new)
    assert said.exit_code == 1 and "has written a batch just now" in said.output, said.output
    ran(query, 30)
    for topic in (query.source, query.target):
        copied_behind(old, new, topic, 20)
    assert (said := move(query, old, new)).exit_code == 0, said.output
    there = query.on(new)
    ran(there, 40)
    assert there.astray == EXACT


@pytest.mark.parametrize("who", ["a copy of before", "a new checkpoint"])
def test_a_query_that_has_rested_for_long_leaves_a_mark(
    query: CopyQuery, old: Kafka, new: Kafka, who: str
) -> None:
    """The old cluster has forgotten its decisions, and its offsets."""
    copy = backed_up(query)
    forget(old, query)
    assert (said := move(query, old, new)).exit_code == 0, said.output
    there = query.on(new)
    ran(there, 20, 30)
    assert there.astray == EXACT
    for topic in (query.source, query.target):
        copied_behind(new, old, topic, 20)
    one = query.on(old, copy)
    if who == "a new checkpoint":  # the group has no offsets any more at which it would begin
        one = replace(taking_its_place(query, old), reads={"startingOffsets": "earliest"})
    with pytest.raises(TakenOver, match="was left for another cluster by batch 2") as caught:
        one.start()
    assert query.astray == EXACT and "Nothing was written" in str(caught.value)
    assert (said := move(query, new, old)).exit_code == 0, said.output
    ran(query, 40)
    assert query.astray == EXACT


# -- a place that the logs do not prove ------------------------------------------------------------
# Retention or compaction has taken the records around it, on one of the clusters. The user says where it is.


def trimmed(kafka: Kafka, topic: str, until: int) -> None:
    """Retention has taken what is older."""
    place = TopicPartition(topic, 0, until)
    kafka.admin.delete_records([place])[place].result(60)


def stated(query: CopyQuery, old: Kafka, new: Kafka, at: int, *more: str) -> Result:
    return move(query, old, new, "--offsets", json.dumps({query.source: {"0": at}}), *more)


def accepts(said: Result) -> list[str]:
    """What a refusal says that has to be accepted."""
    assert said.exit_code == 1, said.output
    found = re.search(r"If that is what you want, give (--accept.+)", said.output)
    assert found is not None, said.output
    return found[1].split()


@pytest.fixture
def shifted(old: Kafka, new: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CopyQuery:
    """A query that has read 20 rows. Those of the copy will stand seven offsets higher."""
    source, target = old.topic(), old.topic()
    names = {"transactional.id": f"s-{source}", "kafka.group.id": f"g-{source}"}
    query = CopyQuery(tmp_path / "checkpoint", old, source, target, names, monkeypatch)
    ran(query, 0, 10)
    for topic in (source, target):
        new.topic(name=topic)
    new.put(source, [b"before"] * 7)
    trimmed(new, source, 7)
    copied_behind(old, new, target, 0)
    return query


def goes_on_there(query: CopyQuery, new: Kafka) -> None:
    """On the new cluster, with what comes; each of its rows once."""
    there = query.on(new)
    before = Counter(row[3] for row in new.rows(query.target))
    there.puts(100)
    assert there.start()
    after = Counter(row[3] for row in new.rows(query.target))
    assert after - before == Counter(b"r%d" % number for number in range(100, 110))


def test_a_quiet_topic_whose_rows_the_old_cluster_has_no_more(
    shifted: CopyQuery, old: Kafka, new: Kafka
) -> None:
    """The copy keeps them for longer: nothing tells which of them the query has read."""
    copied_behind(old, new, shifted.source, 0)
    trimmed(old, shifted.source, 20)
    said = move(shifted, old, new)
    assert said.exit_code == 1 and "Give the offset with --offsets" in said.output, said.output
    said = stated(shifted, old, new, 27)
    assert "20 records below it are not on the old cluster: if the query has not read" in said.output
    assert accepts(said) == ["--accept-loss", "20"]
    early = stated(shifted, old, new, 24)
    assert accepts(early) == ["--accept-duplicates", "3", "--accept-loss", "17"]
    said = stated(shifted, old, new, 27, *accepts(said))
    assert said.exit_code == 0, said.output
    goes_on_there(shifted, new)


def test_a_quiet_topic_whose_rows_the_copy_has_no_more(shifted: CopyQuery, old: Kafka, new: Kafka) -> None:
    """It may be that they come yet."""
    copied_behind(old, new, shifted.source, 0)
    trimmed(new, shifted.source, 27)
    assert "Give the offset with --offsets" in move(shifted, old, new).output
    said = stated(shifted, old, new, 27)
    assert "20 records that the query has read are not in the copy: if they come yet" in said.output
    assert accepts(said) == ["--accept-duplicates", "20"]
    assert stated(shifted, old, new, 27, *accepts(said)).exit_code == 0
    goes_on_there(shifted, new)


@pytest.mark.parametrize("of_copy", [False, True])
def test_a_topic_that_one_of_both_has_compacted(
    shifted: CopyQuery, old: Kafka, new: Kafka, of_copy: bool
) -> None:
    """Of every two records one is gone, of those that the query has read and of those to come."""
    shifted.puts(20, 20)
    rows, kept = old.rows(shifted.source), list[tuple[bytes, int]]()
    for _, offset, _, value, _, at, _ in rows:
        kept += [(value, at)] if not of_copy or offset % 2 else []
        kept += [] if of_copy or offset % 2 else [(b"superseded", at)]
    for value, at in kept:
        new.put(shifted.source, [value], timestamp=at)
    there, price = 37, ["--accept-duplicates", "10", "--accept-loss", "10"]
    if of_copy:
        there = 17
    assert "Give the offset with --offsets" in move(shifted, old, new).output
    assert accepts(said := stated(shifted, old, new, there)) == price, said.output
    assert stated(shifted, old, new, there, *price).exit_code == 0
    assert shifted.on(new).start()
    written = Counter(row[3] for row in new.rows(shifted.target))
    read = [row[3] for row in rows[:20]]
    assert written == Counter([*read, *(value for value, _ in kept[there - 7 :])])


def test_a_copy_with_times_of_its_own(shifted: CopyQuery, old: Kafka, new: Kafka) -> None:
    """Which records are the same cannot be told: all of them have to be accepted."""
    shifted.puts(20, 5)
    new.put(shifted.source, [row[3] for row in old.rows(shifted.source)], timestamp=5)
    assert "has other timestamps" in move(shifted, old, new).output
    price = accepts(stated(shifted, old, new, 27))
    assert price == ["--accept-duplicates", "25", "--accept-loss", "25"]
    assert stated(shifted, old, new, 27, *price).exit_code == 0
    assert shifted.on(new).start() and shifted.on(new).astray == EXACT


def test_records_that_are_all_alike_are_counted(
    broker: EmbeddedBroker, other: EmbeddedBroker, plain: Path
) -> None:
    """The records around a wrong place are the same, too."""
    topic = Kafka(broker.bootstrap).topic()
    Kafka(broker.bootstrap).put(topic, [b"same"] * 300, timestamp=5)
    plan(plain, 2, lines({topic: {"0": 150}}))
    Kafka(other.bootstrap).topic(name=topic)
    Kafka(other.bootstrap).put(topic, [b"first"] + [b"same"] * 300, timestamp=5)
    for at, price in ((150, "--accept-duplicates 1"), (152, "--accept-loss 2")):
        said = moved(broker, other, plain, "--offsets", json.dumps({topic: {"0": at}}))
        assert said.exit_code == 1 and price in said.output, said.output
    said = moved(broker, other, plain, "--offsets", json.dumps({topic: {"0": 151}}))
    assert said.exit_code == 1 and "--accept-loss 1" in said.output, "who has written the first one?"


# -- foreachBatch ----------------------------------------------------------------------------------
# A df.write of foreachBatch does not know the checkpoint, so what its query has noted says where it goes on.


@dataclass(frozen=True)
class Loop:
    """A query whose foreachBatch writes to a topic on two clusters. `checkpoint`: with two batches."""

    checkpoint: Path
    out: str
    query: str
    token: str

    def write(self, broker: EmbeddedBroker, batch: int, **more: str) -> None:
        """A df.write, the first one of a run unless `more` names it."""
        token = f"{self.token}-{batch}" if self.token else None
        write_in_foreach(broker, self.out, Batch(self.query, batch), token, **more)


@pytest.fixture(params=["", "job"], ids=["without a token", "with a token"])
def loop(
    request: pytest.FixtureRequest, broker: EmbeddedBroker, other: EmbeddedBroker, plain: Path, topic: str
) -> Loop:
    out = Kafka(broker.bootstrap).topic()
    Kafka(other.bootstrap).topic(name=out)
    loop = Loop(plain, out, f"query-of-{topic}", f"{request.param}-{topic}" if request.param else "")
    (plain / "metadata").write_text(json.dumps({"id": loop.query}))
    mirror(broker, other, topic, 0)
    for batch in (0, 1):
        loop.write(broker, batch)
    return loop


def test_foreach_batch_does_not_go_on_where_its_query_was(
    loop: Loop, broker: EmbeddedBroker, other: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """By a copy of before, which is not moved again either; and the query comes back."""
    copy = Path(shutil.copytree(loop.checkpoint, tmp_path_factory.mktemp("copies") / "copy"))
    assert (said := moved(broker, other, loop.checkpoint)).exit_code == 0, said.output
    with pytest.raises(TakenOver, match="has gone on on another cluster since batch 2") as caught:
        loop.write(broker, 2)
    assert "Nothing was written" in str(caught.value)
    assert len(Kafka(broker.bootstrap).rows(loop.out)) == 6
    said = moved(broker, other, copy)
    assert said.exit_code == 1 and "TakenOver: the query has gone on" in said.output, said.output
    loop.write(other, 2)
    plan(loop.checkpoint, 2, (loop.checkpoint / "offsets" / "1").read_text())
    assert (said := moved(other, broker, loop.checkpoint)).exit_code == 0, said.output
    loop.write(broker, 3)
    with pytest.raises(TakenOver, match="has gone on on another cluster since batch 3"):
        loop.write(other, 3)


def test_foreach_batch_that_still_runs_where_it_was(
    loop: Loop, broker: EmbeddedBroker, other: EmbeddedBroker
) -> None:
    """Its next df.write with a token stops, and the next run's first one."""
    loop.write(broker, 2, by=loop.query)
    plan(loop.checkpoint, 2, (loop.checkpoint / "offsets" / "1").read_text())
    assert (said := moved(broker, other, loop.checkpoint)).exit_code == 0, said.output
    with pytest.raises(TakenOver) if loop.token else nullcontext():
        loop.write(broker, 3, by=loop.query)
    with pytest.raises(TakenOver, match="has gone on on another cluster since batch 3"):
        loop.write(broker, 3 if loop.token else 4)


def test_a_move_of_foreach_batch_that_is_taken_back(
    loop: Loop, broker: EmbeddedBroker, other: EmbeddedBroker
) -> None:
    """The way that the messages name ends."""
    assert (said := moved(broker, other, loop.checkpoint)).exit_code == 0, said.output
    said = run(other, "undo", loop.checkpoint)
    assert said.exit_code == 0 and "its error names what accepts that" in said.output, said.output
    with pytest.raises(TakenOver, match="has gone on on another cluster"):
        loop.write(other, 2)
    with pytest.raises(TakenOver, match="if the move was taken back") as caught:
        loop.write(broker, 2)
    (word,) = re.findall(r"start\.accepted=(left:\w+)", str(caught.value))
    loop.write(broker, 2, **{"start.accepted": word})
    assert run(broker, "check", loop.checkpoint).exit_code == 0
    loop.write(broker, 3)
    plan(loop.checkpoint, 2, (loop.checkpoint / "offsets" / "1").read_text())
    plan(loop.checkpoint, 3, (loop.checkpoint / "offsets" / "1").read_text())
    assert (said := moved(broker, other, loop.checkpoint)).exit_code == 0, said.output
    loop.write(other, 4)
