"""What partitions say of open transactions, on a real broker."""

import time

import pyarrow as pa
import pytest
from brokers import ON_KAFKA
from stock_kafka import Kafka

from eoslog.connector import markers
from eoslog.connector.client import transactions
from eoslog.connector.client.cluster import Cluster
from eoslog.connector.client.config import ClientConfig, parse_addresses
from eoslog.connector.client.produce import Producer
from eoslog.connector.commit.names import Identity, Participant
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.records import encode_batches


def test_open_transactions_are_found_where_they_are(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "PATIENCE_MS", 300)
    topic = kafka.topic(3)
    with Cluster(ClientConfig(parse_addresses(kafka.bootstrap))) as cluster:
        identity = transactions.init_producer_id(cluster, f"held-{topic}", 60_000)
        with Producer(cluster, identity=identity, transactional_id=f"held-{topic}") as producer:
            for batch in encode_batches(None, pa.array([b"x"]), None, 1, codec=0, max_batch_bytes=1000):
                producer.send(topic, 1, batch)
            producer.flush()
        mine = Participant(f"held-{topic}", Identity(identity.producer_id, identity.epoch))
        other = Participant("other", Identity(identity.producer_id, identity.epoch + 1))
        places = [(topic, 0), (topic, 1), (f"{topic}-gone", 0)]
        (held,) = markers.find_held(cluster, places, [mine, other])
        assert held[:2] == ((topic, 1), mine)
        assert markers.find_held(cluster, places, [other]) == ()
        if not ON_KAFKA:  # which believes whoever has the right to write markers
            with pytest.raises(KafkaError) as refusal:
                markers.write_commit_markers(cluster, [held])
            assert refusal.value.code == ErrorCode.INVALID_TXN_STATE, "its coordinator has yet to decide it"
        transactions.end_txn(cluster, f"held-{topic}", identity, commit=True)
        assert markers.find_held(cluster, places, [mine]) == ()


def test_a_leader_that_was_away_gets_the_same_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a node is dead nobody writes markers on what it led: that time does not count."""
    monkeypatch.setattr(markers, "PATIENCE_MS", 200)
    mine = Participant("mine", Identity(7, 0))
    looks = iter([[markers.Held(("t", 0), mine, 0)], []])

    def look(*_: object) -> list[markers.Held]:
        time.sleep(0.3)
        return next(looks)

    monkeypatch.setattr(markers, "_held_at", look)
    cluster = Cluster(ClientConfig((("nowhere", 1),)))
    assert markers.find_held(cluster, [("t", 0)], [mine]) == ()
