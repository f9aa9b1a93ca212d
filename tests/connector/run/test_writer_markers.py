"""What partitions say of open transactions, on a real broker."""

import time

import pyarrow as pa
import pytest

from eoslog.connector.client.admin import group_offsets as group_offsets
from eoslog.connector.client.admin import transactions
from eoslog.connector.client.records.produce import Producer
from eoslog.connector.client.wire.cluster import Cluster
from eoslog.connector.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.faults import MarkersMissing
from eoslog.connector.commit.sink_transaction import TV2, fetch_stored
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.connector.run import markers
from eoslog.connector.run.runner import Runner
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.records import encode_batches
from tests.connector.brokers import ON_KAFKA
from tests.connector.stock_kafka import Kafka


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
