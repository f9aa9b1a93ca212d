"""What partitions say of open transactions, on a real broker."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from eoslog.client.admin import groups as group_offsets
from eoslog.client.admin import transaction_states, transactions
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster, shared_cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.faults import BatchRefused, MarkersMissing, ParticipantsLost
from eoslog.connector.commit.finish import DUE
from eoslog.connector.commit.places import OpenThere, PartitionState
from eoslog.connector.commit.sink_transaction import TV2, fetch_stored
from eoslog.connector.commit.task_reports import Batch, Prepared, Report
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.run import markers
from eoslog.connector.run.runner import Runner
from eoslog.connector.sink import committer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.protocol.encode import encode_batches
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.brokers import ON_KAFKA, Kafka, start_broker
from tests.kit.program import until


def test_open_transactions_are_found_where_they_are(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "PATIENCE_MS", 300)
    topic = kafka.topic(3)
    with Cluster(ClientConfig(parse_addresses(kafka.bootstrap))) as cluster:
        identity = transactions.init_producer_id(cluster, f"held-{topic}", 60_000)
        with Producer(cluster, identity=identity, transactional_id=f"held-{topic}") as producer:
            now_ms = int(time.time() * 1000)  # who wrote long ago is forgotten
            for batch in encode_batches(None, pa.array([b"x"]), None, now_ms, codec=0, max_batch_bytes=1000):
                producer.send(topic, 1, batch)
            producer.flush()
        mine = Participant(f"held-{topic}", identity)
        other = Participant("other", ProducerIdentity(identity.producer_id, identity.epoch + 1))
        places = [(topic, 0), (topic, 1), (f"{topic}-gone", 0)]
        (held,) = markers.find_held(cluster, places, [mine, other])
        assert held[:2] == ((topic, 1), mine)
        assert markers.find_held(cluster, places, [other]) == ()
        if not ON_KAFKA:  # which believes whoever has the right to write markers
            with pytest.raises(KafkaError) as refusal:
                markers.write_markers(cluster, [held], commit=True)
            assert refusal.value.code == ErrorCode.INVALID_TXN_STATE, "its coordinator has yet to decide it"
        transactions.end_txn(cluster, f"held-{topic}", identity, commit=True)
        assert markers.find_held(cluster, places, [mine]) == ()


def test_a_leader_that_was_away_gets_the_same_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a node is dead nobody writes markers on what it led: that time does not count."""
    monkeypatch.setattr(markers, "PATIENCE_MS", 200)
    mine = Participant("mine", ProducerIdentity(7, 0))
    looks = iter([[c.HeldBack(("t", 0), mine, 0)], []])

    def look(*_: object) -> list[c.HeldBack]:
        time.sleep(0.3)
        return next(looks)

    monkeypatch.setattr(markers, "_held_at", look)
    cluster = Cluster(ClientConfig((("nowhere", 1),)))
    assert markers.find_held(cluster, [("t", 0)], [mine]) == ()


class Forgetful(Runner):
    """On a cluster whose coordinator says of an open transaction that it is committed."""

    said: c.Description

    def _describe(self, command: c.Describe) -> dict[str, c.Description | None]:
        return dict.fromkeys(command.names, self.said)


def test_a_lost_marker_of_the_sinks_own_transaction(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka believes whoever has the right to write markers, and the offsets show. The bundled broker does
    not, as its coordinator has yet to decide: it is said what is held where, and why."""
    monkeypatch.setattr(markers, "PATIENCE_MS", 300)
    sink = Sink(kafka.topic())
    places = {(ANCHOR, number): (1, "staged") for number in range(3)}
    config = ClientConfig(parse_addresses(kafka.bootstrap), api_timeout_ms=6_000, delivery_timeout_ms=60_000)
    with Cluster(config) as cluster:
        group_offsets.fetch_committed(cluster, sink.group, [(ANCHOR, 0)])
        identity = transactions.init_producer_id(cluster, sink.coordinator, 60_000)
        transactions.commit_offsets(cluster, sink.coordinator, identity, sink.group, places)
        runner, mine = Forgetful(cluster, 60_000), identity
        pending = runner._do(c.FetchStored(sink.group))
        assert isinstance(pending, c.Refused) and pending.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        (held,) = runner._do(c.FindOwn(sink.coordinator, mine.producer_id))
        assert held.place[0] == ANCHOR and held.participant == (sink.coordinator, mine)
        raised = runner._do(c.TransactionVersion()) >= TV2
        said = mine._replace(epoch=mine.epoch + raised)
        runner.said = c.Description("CompleteCommit", said, 60_000, 0)
        if ON_KAFKA:
            stored = runner.run(fetch_stored(sink, mine))
            assert stored.chunks == {number: (1, "staged") for number in range(3)}
        else:
            with pytest.raises(
                MarkersMissing, match=rf"{ANCHOR}-{held.place[1]} by {mine}.*INVALID_TXN_STATE"
            ):
                runner.run(fetch_stored(sink, mine))
        transactions.end_txn(cluster, sink.coordinator, identity, commit=False)
        assert runner._do(c.FindOwn(sink.coordinator, mine.producer_id)) == ()


def test_every_partition_of_the_anchor_topic_is_read(kafka: Kafka) -> None:
    """A long decision lies on several of them."""
    group = kafka.topic()
    chunks = {number: (7, f"chunk {number}") for number in range(3)}
    with Cluster(ClientConfig(parse_addresses(kafka.bootstrap))) as cluster:
        runner = Runner(cluster, 60_000)
        assert runner._do(c.FetchStored(group)).chunks == {}
        group_offsets.commit_plain(cluster, group, {(ANCHOR, at): chunk for at, chunk in chunks.items()})
        stored = runner._do(c.FetchStored(group))
        assert stored.chunks == chunks and stored.anchors > 3


# -- before a decision ------------------------------------------------------------------------

KINDS = {
    "a batch write": ({}, None),
    "a token": ({"write.token": "once"}, None),
    "foreachBatch": ({}, Batch("q", 0)),
    "dead letters": ({"topic": "TOPIC-good", "deadletter.topic": "TOPIC"}, None),
}


class Writing:
    """A batch write of three tasks, the second one without rows, to one partition."""

    def __init__(self, kafka: Kafka, kind: str) -> None:
        self.kafka, self.topic = kafka, kafka.topic(1)
        more, self.within = KINDS[kind]
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": "TOPIC"} | more
        self.given = {name: value.replace("TOPIC", self.topic) for name, value in given.items()}
        self.more = dict[str, str]()
        self.bad = kind == "dead letters"
        if self.bad:
            kafka.topic(1, name=f"{self.topic}-good")

    @property
    def options(self) -> SinkOptions:
        return sink_options(self.given | self.more, stream=False)

    def prepare(self) -> list[Report]:
        begun = committer.begin_batch(self.options)
        assert begun is not None
        rows = enumerate(([b"a", b"b"], [], [b"c"]))
        ids = (begun.batch.query_id, begun.batch.batch_id)
        tasks = [(Attempt(*ids, number, self.within), self._batch(values)) for number, values in rows]
        reports = [write_rows(self.options, begun, task, iter([batch])).report for task, batch in tasks]
        return [report for report in reports if report is not None]

    def _batch(self, values: list[bytes]) -> pa.RecordBatch:
        to = pa.array([99 if self.bad else 0] * len(values), pa.int32())
        return pa.record_batch({"value": pa.array(values, pa.binary()), "partition": to})

    def commit(self, reports: list[Report]) -> None:
        committer.commit_batch(self.options, reports)

    def visible(self) -> list[bytes]:
        return sorted(row[3] for row in self.kafka.rows(self.topic, 1))


@pytest.fixture(params=KINDS)
def writing(kafka: Kafka, request: pytest.FixtureRequest) -> Writing:
    return Writing(kafka, request.param)


def test_rows_that_are_deleted_before_their_decision_are_written_again(writing: Writing) -> None:
    """Nobody could read them: they were not deleted because somebody had."""
    reports = writing.prepare()
    writing.kafka.admin.delete_records([TopicPartition(writing.topic, 0, -1)])[
        TopicPartition(writing.topic, 0, -1)
    ].result()
    with pytest.raises(BatchRefused, match=f"{writing.topic}-0 begins at 3, and rows were written from 0 on"):
        writing.commit(reports)
    assert writing.visible() == []
    writing.commit(writing.prepare())
    assert writing.visible() == [b"a", b"b", b"c"]


def test_rows_that_an_elected_leader_lacks_are_written_again(writing: Writing) -> None:
    """unclean.leader.election.enable: the log ends before acknowledged rows, and the transaction is open. A
    task that says one row more than the leader has looks the same. The bundled broker has one log."""
    reports = writing.prepare()
    first = reports[0]
    assert isinstance(first, Prepared) and first.last_sequences == (1,)
    if ON_KAFKA:
        with pytest.raises(BatchRefused, match=f"{writing.topic}-0 has lost the last 1 rows of .*unclean"):
            writing.commit([replace(first, last_sequences=(2,)), *reports[1:]])
        assert writing.visible() == []
        reports = writing.prepare()
    writing.commit(reports)
    assert writing.visible() == [b"a", b"b", b"c"]


def test_rows_that_an_operator_aborts_on_their_partition_are_written_again(writing: Writing) -> None:
    """kafka-transactions.sh abort sends this. The bundled broker refuses it."""
    reports = writing.prepare()
    first = reports[0]
    assert isinstance(first, Prepared)
    cluster = shared_cluster(writing.options.client)
    held = c.HeldBack((writing.topic, 0), first.participant, 0)
    if not ON_KAFKA:
        with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
            markers.write_markers(cluster, [held], commit=False)
        writing.commit(reports)
    else:
        markers.write_markers(cluster, [held], commit=False)
        with pytest.raises(BatchRefused, match=f"{writing.topic}-0 has no open transaction of"):
            writing.commit(reports)
        writing.commit(writing.prepare())
    assert writing.visible() == [b"a", b"b", b"c"]


def test_a_decision_that_an_operator_aborts_on_its_partition_is_made_again(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its coordinator would commit a transaction whose offsets are gone. The bundled broker refuses that."""
    monkeypatch.setattr(markers, "PATIENCE_MS", 300)
    writing = Writing(kafka, "a token")
    reports, cluster = writing.prepare(), shared_cluster(writing.options.client)
    sink = Sink(next(report.stamp.sink_id for report in reports))

    def abort(command: c.Command[Any]) -> None:
        if not isinstance(command, c.AskOpen):
            return
        own = transaction_states.describe(cluster, [sink.coordinator])[sink.coordinator]
        assert own is not None
        held = Runner(cluster, 60_000)._do(c.FindOwn(sink.coordinator, own.identity.producer_id))
        assert len(held) == 1
        if not ON_KAFKA:
            with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
                markers.write_markers(cluster, held, commit=False)
        else:
            markers.write_markers(cluster, held, commit=False)

    for _ in range(2 * ON_KAFKA):  # the second time its connections are open
        runner = Runner(cluster, 60_000, before=abort)
        with pytest.raises(BatchRefused, match=f"no offsets of group {sink.group} are about to be committed"):
            committer.commit_batch(writing.options, reports, runner)
        reports = writing.prepare()
    runner = Runner(cluster, 60_000, before=None if ON_KAFKA else abort)
    committer.commit_batch(writing.options, reports, runner)
    assert writing.visible() == [b"a", b"b", b"c"]


def test_a_look_shows_where_transactions_begin(kafka: Kafka) -> None:
    """At the first row that its writer reports."""
    with Cluster(ClientConfig(parse_addresses(kafka.bootstrap))) as cluster:
        topic = kafka.topic(1)
        identity = transactions.init_producer_id(cluster, f"look-{topic}", 60_000)
        with Producer(cluster, identity=identity, transactional_id=f"look-{topic}") as producer:
            for value in (b"x", b"y"):
                now_ms = int(time.time() * 1000)
                rows = pa.array([value])
                for batch in encode_batches(None, rows, None, now_ms, codec=0, max_batch_bytes=1000):
                    producer.send(topic, 0, batch)
                producer.flush()
        assert producer.first_rows == {(topic, 0): 0} and producer.last_rows[topic, 0][0] == 1
        assert (producer.last_sequence((topic, 0)), producer.last_sequence((topic, 1))) == (1, -1)
        leader = cluster.take(cluster.leader_address(topic, 0))
        leader.ends_together = False  # else it is believed
        cluster.give_back(leader)
        ahead = markers.PendingLook.ahead(cluster, [(topic, 0)])
        assert ahead is not None
        found = markers.look_at_partitions(cluster, [(topic, 0)], ahead=ahead)
        assert found == {(topic, 0): PartitionState(0, {identity: OpenThere(0, 1)})}
        transactions.end_txn(cluster, f"look-{topic}", identity, commit=False)
        until(lambda: not markers.look_at_partitions(cluster, [(topic, 0)])[topic, 0].opened, "it has ended")


def test_a_topic_that_is_gone_is_a_refusal(kafka: Kafka) -> None:
    with Cluster(ClientConfig(parse_addresses(kafka.bootstrap))) as cluster:
        gone = Runner(cluster, 60_000)._do(c.FindOpen(((f"{kafka.topic()}-gone", 0),)))
    assert isinstance(gone, c.Refused) and gone.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- markers that are due ---------------------------------------------------------------------


@contextmanager
def marker_refused(kafka: Kafka, topic: str) -> Iterator[None]:
    """Within it the topic takes nothing, a marker either."""
    kafka.configure(topic, "max.message.bytes", "70")
    until(lambda: _refuses(kafka, topic), "the setting is in effect")
    yield
    kafka.configure(topic, "max.message.bytes", None)
    until(lambda: not _refuses(kafka, topic), "the setting is given back")


def _refuses(kafka: Kafka, topic: str) -> bool:
    told: list[Any] = []
    producer = kafka.producer()
    producer.produce(topic, b"probe", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(60) == 0
    return told[0] is not None


def opened(cluster: Cluster, name: str, topic: str) -> ProducerIdentity:
    """A transaction with a row."""
    identity = transactions.init_producer_id(cluster, name, 60_000)
    with Producer(cluster, identity=identity, transactional_id=name) as producer:
        now_ms = int(time.time() * 1000)
        for batch in encode_batches(None, pa.array([b"x"]), None, now_ms, codec=0, max_batch_bytes=1000):
            producer.send(topic, 0, batch)
        producer.flush()
    return identity


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_that_its_topic_refuses_stops_the_query_until_its_coordinator_is_restarted(
    monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    """Apache Kafka never writes it again, of a commit or an abort; the bundled broker refuses no marker."""
    monkeypatch.setattr(transaction_states, "MARKERS_SECONDS", 0.1)
    with start_broker() as broker:
        kafka, config = Kafka(broker.bootstrap), ClientConfig(parse_addresses(broker.bootstrap))
        topic, sink, batch = kafka.topic(1), Sink("s"), Batch("q", 0)
        name = f"{sink.prefix}7.0/0/w.0"
        with Cluster(config) as cluster:
            identity = opened(cluster, name, topic)
            with marker_refused(kafka, topic):
                transactions.end_txn(cluster, name, identity, commit=commit)
                transaction_states.await_markers(cluster, [name])
            if ON_KAFKA:
                state = "PrepareCommit" if commit else "PrepareAbort"
                with pytest.raises(
                    MarkersMissing, match=f"{topic}-0 by {name} .*{state}.*restart the broker"
                ):
                    Runner(cluster, 60_000).run(begin(sink, batch))
        if ON_KAFKA:
            broker.kill()
            broker.restart()
        with Cluster(config) as cluster:
            assert Runner(cluster, 60_000).run(begin(sink, batch))
            until(lambda: not transaction_states.list_transactions(cluster, name, DUE), "it is written")
        assert ([row[3] for row in kafka.rows(topic)].count(b"x") == 1) is commit


@pytest.mark.parametrize("kind", ["a token", "foreachBatch"])
def test_a_write_whose_marker_its_topic_refuses_is_finished_by_the_next_one(
    kafka: Kafka, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its user may write markers, as anybody may here."""
    monkeypatch.setattr(markers, "PATIENCE_MS", 300)
    monkeypatch.setattr(transaction_states, "MARKERS_SECONDS", 0.1)
    writing = Writing(kafka, kind)
    reports = writing.prepare()
    with marker_refused(kafka, writing.topic), suppress(MarkersMissing):  # said at once if a broker was lost
        writing.commit(reports)
    for _ in range(2):
        writing.commit(writing.prepare())
        rows = [row for row in writing.visible() if row != b"probe"]
        assert rows == [b"a", b"b", b"c"]


# -- after a decision -------------------------------------------------------------------------


class Killed(Exception):
    """The job is gone."""


def decided(kafka: Kafka, **more: str) -> tuple[Writing, list[Report]]:
    """A write with a token whose driver dies between its decision and the commits."""
    writing = Writing(kafka, "a token")
    writing.more = {name.replace("__", "."): value for name, value in more.items()}
    reports = writing.prepare()
    ends = 0

    def die(command: c.Command[Any]) -> None:
        nonlocal ends
        ends += isinstance(command, c.End) and command.commit
        if ends == 2:
            raise Killed

    cluster = shared_cluster(writing.options.client)
    with pytest.raises(Killed):
        committer.commit_batch(writing.options, reports, Runner(cluster, 60_000, before=die))
    return writing, reports


def aborted(kafka: Kafka, **more: str) -> Writing:
    """The same; then an operator aborts its transactions on their partition."""
    writing, reports = decided(kafka, **more)
    cluster = shared_cluster(writing.options.client)
    for report in reports:
        if isinstance(report, Prepared):
            held = c.HeldBack((writing.topic, 0), report.participant, 0)
            if ON_KAFKA:
                markers.write_markers(cluster, [held], commit=False)
            else:
                with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
                    markers.write_markers(cluster, [held], commit=False)
    return writing


def test_decided_rows_that_an_operator_aborts_on_their_partition_are_lost_with_a_word(kafka: Kafka) -> None:
    writing = aborted(kafka)
    if not ON_KAFKA:
        writing.commit(writing.prepare())
        assert writing.visible() == [b"a", b"b", b"c"]
        return
    for _ in range(2):
        with pytest.raises(ParticipantsLost, match=rf"\[0, 2\] are lost.* on {writing.topic}-0") as lost:
            writing.prepare()
    (word,) = re.findall(r"start\.accepted=(\S+): ", str(lost.value))
    writing.more = {"start.accepted": word}
    writing.commit(writing.prepare())
    writing.more = {}
    writing.commit(writing.prepare())
    assert writing.visible() == []


def test_they_are_replayed(kafka: Kafka) -> None:
    writing = aborted(kafka, on__lost__transaction="replay")
    for _ in range(2):
        writing.commit(writing.prepare())
        assert writing.visible() == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("at", "lost", "left"), [(1, r"2 rows of its partitions \[0\]", [b"c"]), (3, r"3 rows .*\[0, 2\]", [])]
)
def test_decided_rows_that_are_deleted_before_they_are_committed_are_lost_with_a_word(
    kafka: Kafka, at: int, lost: str, left: list[bytes]
) -> None:
    """Nobody has read them. What is left of their transactions is not shown as if it were all."""
    writing, _ = decided(kafka)
    until_here = TopicPartition(writing.topic, 0, at)
    writing.kafka.admin.delete_records([until_here])[until_here].result()
    for _ in range(2):
        with pytest.raises(
            ParticipantsLost, match=f"{lost} are lost.*{writing.topic}-0 begins at {at}"
        ) as told:
            writing.prepare()
    (word,) = re.findall(r"start\.accepted=(\S+): ", str(told.value))
    writing.more = {"start.accepted": word}
    writing.commit(writing.prepare())
    writing.more = {}
    writing.commit(writing.prepare())
    assert writing.visible() == left
