"""`eoslog checkpoint move-cluster`, without Spark: where the query goes on, what is refused, the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result
from confluent_kafka import TopicPartition

from eoslog.checkpoint import carry_out
from eoslog.checkpoint.backups import check_not_moved
from eoslog.checkpoint.edit_numbers import NotEditable
from eoslog.client.admin.groups import commit_plain, fetch_committed
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.offsets import to_json
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.sink.committer import begin_batch, commit_batch
from eoslog.connector.sink.start_of_run import cluster_id
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.errors import DataLoss
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.checkpointkit import (
    Reading,
    copy_topic,
    decide,
    group_of,
    last,
    lines,
    plan,
    run,
    sink_of,
)
from tests.connector.brokers import Kafka


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
        ('{"TOPIC":{"0":26}}', 1, "the records at 26 are not those at 20"),
        ('{"TOPIC":{"0":99}}', 1, "the records at 99 are not those at 20"),
        ('{"other":{"0":27}}', 1, "does not read other-0"),
        ('{"TOPIC":{"0":-1}}', 2, "give numbers"),
        ("latest", 2, "give numbers"),
    ],
)
def test_given_offsets_are_proven(
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


def test_the_place_of_a_topic_that_is_left_out_is_given(
    broker: EmbeddedBroker, other: EmbeddedBroker, tmp_path: Path
) -> None:
    """It is proven as another one is."""
    case = LeftOut(broker, other, tmp_path / "ck", apart=False)
    for topic in (case.one, case.two):
        case.mirror(topic)
    wrong, right = (json.dumps({case.two: {"0": at}}) for at in (16, 17))
    said = moved(broker, other, tmp_path / "ck", "--offsets", wrong)
    assert said.exit_code == 1 and "the records at 16 are not those at 10" in said.output, said.output
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
