"""The client against a real broker, by both transaction protocols; and across kills of that broker."""

import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from eoslog.client.admin import transaction_states, transactions
from eoslog.client.admin.groups import commit_plain, fetch_committed
from eoslog.client.admin.topics import EARLIEST, LATEST, list_offsets
from eoslog.client.records.fetch import fetch
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.errors import ProduceFailed
from eoslog.protocol.encode import encode_batches
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.brokers import Kafka, skip_unless_served, start_broker


class At(Cluster):
    """A client that believes in one level of transaction.version, whatever the broker offers."""

    level = 2

    def transaction_version(self) -> int:
        return self.level


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def cluster(kafka: Kafka, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    skip_unless_served(kafka.bootstrap, request.param)
    made = At(config(kafka.bootstrap))
    made.level = request.param
    with made:
        yield made


def config(bootstrap: str, **more: Any) -> ClientConfig:
    return ClientConfig(parse_addresses(bootstrap), retry_backoff_ms=20, retry_backoff_max_ms=100, **more)


def send(producer: Producer, topic: str, partition: int, values: list[bytes]) -> None:
    """The batches' time is now: Apache Kafka forgets, at a restart, producers whose records are old."""
    now_ms = int(time.time() * 1000)
    batches = encode_batches(None, pa.array(values), None, now_ms, codec=0, max_batch_bytes=2_000)
    for batch in batches:
        producer.send(topic, partition, batch)


def test_a_transaction_from_begin_to_end(cluster: Cluster, kafka: Kafka) -> None:
    topic, name, group = kafka.topic(2), f"tx-{uuid.uuid4().hex}", uuid.uuid4().hex
    wanted = []
    identity = transactions.init_producer_id(cluster, name, 60_000)
    for number, commit in enumerate((True, False, True)):
        values = [b"%d-%d" % (number, i) for i in range(200)]
        with Producer(cluster, identity=identity, transactional_id=name) as producer:
            for partition in (0, 1):
                send(producer, topic, partition, values)
            producer.flush()
            assert producer.records == 400 and producer.partitions == {(topic, 0), (topic, 1)}
        transactions.commit_offsets(cluster, name, identity, group, {(topic, 1): (number, f"batch {number}")})
        found = transaction_states.describe(cluster, [name, "nobody"])
        state = found[name]
        assert found["nobody"] is None and state is not None
        assert (state.state, state.identity, state.timeout_ms) == ("Ongoing", identity, 60_000)
        assert {(topic, 0), (topic, 1)} <= set(state.partitions)
        assert [
            x.transactional_id for x in transaction_states.list_transactions(cluster, name, ["Ongoing"])
        ] == [name]
        stable = list_offsets(cluster, {(topic, 0): LATEST}, committed=True)[topic, 0]
        assert stable < list_offsets(cluster, {(topic, 0): LATEST}, committed=False)[topic, 0]
        transactions.end_txn(cluster, name, identity, commit)
        wanted += values if commit else []
        identity = transactions.init_producer_id(cluster, name, 60_000)
    assert fetch_committed(cluster, group, [(topic, 0), (topic, 1)]) == {(topic, 1): (2, "batch 2")}
    assert not transaction_states.list_transactions(cluster, name, ["Ongoing"])
    rows = kafka.rows(topic, 2)
    for partition in (0, 1):
        assert [row[3] for row in rows if row[0] == partition] == wanted
        end = list_offsets(cluster, {(topic, partition): LATEST}, committed=True)[topic, partition]
        read = fetch(cluster, topic, partition, 0, end, committed=True, max_bytes=3_000)
        assert [value for records in read for value in records.value.to_pylist()] == wanted


def test_more_offsets_than_a_broker_takes_at_once(cluster: Cluster, kafka: Kafka) -> None:
    """A broker appends the offsets of a request as one batch (message.max.bytes, 1 MB): of many partitions,
    or with long texts."""
    topic, name, group = kafka.topic(400), f"tx-{uuid.uuid4().hex}", uuid.uuid4().hex
    identity = transactions.init_producer_id(cluster, name, 60_000)
    offsets = {(topic, partition): (partition, "x" * 4_000) for partition in range(400)}
    transactions.commit_offsets(cluster, name, identity, group, offsets)
    transactions.end_txn(cluster, name, identity, commit=True)
    assert fetch_committed(cluster, group, list(offsets)) == offsets
    later = {place: (offset + 1, text) for place, (offset, text) in offsets.items()}
    commit_plain(cluster, group, later)
    assert fetch_committed(cluster, group, list(offsets)) == later


def test_an_older_owner_is_fenced(cluster: Cluster, kafka: Kafka) -> None:
    topic, name = kafka.topic(), f"tx-{uuid.uuid4().hex}"
    old = transactions.init_producer_id(cluster, name, 60_000)
    with Producer(cluster, identity=old, transactional_id=name) as producer:
        send(producer, topic, 0, [b"old"])
        producer.flush()
        new = transactions.init_producer_id(cluster, name, 60_000)
        assert (new.producer_id, new.epoch > old.epoch) == (old.producer_id, True)
        with pytest.raises((ProduceFailed, KafkaError)) as refused:
            send(producer, topic, 0, [b"zombie"])
            producer.flush()
    fenced = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
    assert getattr(refused.value, "code", None) in fenced
    with pytest.raises(KafkaError) as caught:
        transactions.end_txn(cluster, name, old, True)
    assert caught.value.code in fenced
    assert kafka.rows(topic) == []


def test_rows_that_come_after_the_abort_are_refused(cluster: Cluster, kafka: Kafka) -> None:
    """A killed task's requests may still be on their way. A leader that took one of them would open a
    transaction that its coordinator does not know, and the next commit of this name would show its rows."""
    topic, name = kafka.topic(), f"tx-{uuid.uuid4().hex}"
    identity = transactions.init_producer_id(cluster, name, 60_000)
    with Producer(cluster, identity=identity, transactional_id=name) as producer:
        send(producer, topic, 0, [b"in time"])
        producer.flush()
        transactions.end_txn(cluster, name, identity, commit=False)
        assert transaction_states.await_markers(cluster, [name]) == (), (
            "what comes before its marker is aborted"
        )
        with pytest.raises((ProduceFailed, KafkaError)) as refused:
            send(producer, topic, 0, [b"late"])  # the next in sequence, and its partition was added in time
            producer.flush()
    late = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
    assert getattr(refused.value, "code", None) in late
    identity = transactions.init_producer_id(cluster, name, 60_000)
    with Producer(cluster, identity=identity, transactional_id=name) as producer:
        send(producer, topic, 0, [b"next"])
        producer.flush()
    transactions.end_txn(cluster, name, identity, commit=True)
    assert [row[3] for row in kafka.rows(topic)] == [b"next"]


def test_an_abort_raises_the_epoch_of_what_is_open_and_of_nothing_else(
    cluster: Cluster, kafka: Kafka
) -> None:
    topic, name = kafka.topic(), f"tx-{uuid.uuid4().hex}"
    first = transactions.init_producer_id(cluster, name, 60_000)

    def opened(identity: ProducerIdentity) -> None:
        with Producer(cluster, identity=identity, transactional_id=name) as producer:
            send(producer, topic, 0, [b"never"])
            producer.flush()

    def state() -> tuple[str, ProducerIdentity] | None:
        transaction_states.await_markers(cluster, [name])
        found = transaction_states.describe(cluster, [name])[name]
        return None if found is None else (found.state, found.identity)

    opened(first)
    raised = first._replace(epoch=first.epoch + 1)
    assert transactions.end_txn(cluster, name, first, commit=False) == raised
    assert state() == ("CompleteAbort", raised), "as a time-out leaves it: that is a proof"
    second = transactions.init_producer_id(cluster, name, 60_000)
    opened(second)
    with pytest.raises(KafkaError) as refused:
        transactions.end_txn(cluster, name, first, commit=False)
    assert refused.value.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
    assert state() == ("Ongoing", second), "another owner's transaction was touched"
    transactions.end_txn(cluster, name, second, commit=False)


def test_only_who_still_has_it_raises_its_epoch(cluster: Cluster) -> None:
    name = f"raised-{uuid.uuid4()}"
    first = transactions.init_producer_id(cluster, name, 60_000)
    second = transactions.init_producer_id(cluster, name, 60_000, first)
    assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 1)
    assert transactions.init_producer_id(cluster, name, 60_000, first) == second, "the same request again"
    transactions.init_producer_id(cluster, name, 60_000)
    with pytest.raises(KafkaError) as refusal:
        transactions.init_producer_id(cluster, name, 60_000, second)
    assert refusal.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


def test_the_end_of_a_transaction_may_be_asked_for_again(cluster: Cluster, kafka: Kafka) -> None:
    topic, name = kafka.topic(), f"tx-{uuid.uuid4().hex}"
    identity = transactions.init_producer_id(cluster, name, 60_000)
    with Producer(cluster, identity=identity, transactional_id=name) as producer:
        send(producer, topic, 0, [b"once"])
        producer.flush()
    after = transactions.end_txn(cluster, name, identity, True)
    assert transactions.end_txn(cluster, name, identity, True) == after
    with pytest.raises(KafkaError) as caught:
        transactions.end_txn(cluster, name, identity, False)
    assert caught.value.code == ErrorCode.INVALID_TXN_STATE
    assert [row[3] for row in kafka.rows(topic)] == [b"once"]


def test_plain_offsets_and_bounds(kafka: Kafka) -> None:
    topic, group = kafka.topic(2), uuid.uuid4().hex
    kafka.put(topic, [b"x"] * 7, 1)
    with Cluster(config(kafka.bootstrap)) as cluster:
        commit_plain(cluster, group, {(topic, 0): (3, "note"), (topic, 1): (4, "")})
        assert fetch_committed(cluster, group, None) == {(topic, 0): (3, "note"), (topic, 1): (4, "")}
        wanted = {(topic, 0): LATEST, (topic, 1): LATEST}
        assert list_offsets(cluster, wanted, committed=True) == {(topic, 0): 0, (topic, 1): 7}
        assert list_offsets(cluster, dict.fromkeys(wanted, EARLIEST), committed=True)[topic, 1] == 0


@pytest.mark.parametrize("transactional", [False, True], ids=["idempotent", "transactional"])
def test_every_row_once_across_kills_of_the_broker(transactional: bool) -> None:
    name = "tx" if transactional else None
    with start_broker() as broker:
        kafka = Kafka(broker.bootstrap)
        topic = kafka.topic(2)
        cluster = Cluster(config(broker.bootstrap))
        identity = transactions.init_producer_id(cluster, name, 60_000)
        done = threading.Event()

        def kill_again_and_again() -> None:
            for pause in (0.05, 0.2):
                time.sleep(pause)
                broker.kill()
                broker.restart()
            done.set()

        killer = threading.Thread(target=kill_again_and_again)
        killer.start()
        sent = 0
        with Producer(cluster, identity=identity, transactional_id=name) as producer:
            while not done.is_set() or sent < 2_000:
                values = [b"%d" % i for i in range(sent, sent + 100)]
                send(producer, topic, 0, values)
                send(producer, topic, 1, values)
                sent += 100
                time.sleep(0.005)
            producer.flush()
        killer.join()
        if name is not None:
            broker.kill()
            broker.restart()
            transactions.end_txn(cluster, name, identity, True)
            assert transaction_states.await_markers(cluster, [name]) == (), (
                "Apache Kafka writes them after its answer"
            )
        rows = kafka.rows(topic, 2)
        ends = list_offsets(cluster, {(topic, 0): LATEST}, committed=True)
        read = fetch(cluster, topic, 0, 0, ends[topic, 0], committed=True, max_bytes=10_000)
        first = next(read)
        broker.kill()
        broker.restart()
        values = first.value.to_pylist() + [v for records in read for v in records.value.to_pylist()]
        cluster.close()
    for partition in (0, 1):
        assert [int(row[3]) for row in rows if row[0] == partition] == list(range(sent))
    assert [int(v) for v in values] == list(range(sent))
