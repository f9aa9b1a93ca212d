"""The producer: sequences kept over retries, order within a partition, loud failures."""

from typing import Any

import pyarrow as pa
import pytest
from fake_broker import FakeBroker, FakeLog, Silence, wait_until
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.connector.client.cluster import Cluster
from eoslog.connector.client.config import ClientConfig
from eoslog.connector.client.produce import Producer
from eoslog.connector.client.transactions import Identity
from eoslog.connector.errors import BrokerUnreachable, ConnectionLost, ProduceFailed
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import read_header
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.records import EncodedBatch, encode_batches

FAULTS = ["", "lost request", "lost answer", "not leader"]


def batch(count: int = 3) -> EncodedBatch:
    (made,) = encode_batches(
        None, pa.array([b"x" * 50] * count), None, 1_700_000_000_000, codec=0, max_batch_bytes=1 << 20
    )
    return made


def cluster(broker: FakeBroker, **more: Any) -> Cluster:
    limits = {"request_timeout_ms": 2_000, "delivery_timeout_ms": 5_000, "retry_backoff_ms": 1,
              "retry_backoff_max_ms": 5} | more  # fmt: skip
    return Cluster(ClientConfig((("127.0.0.1", broker.port),), **limits))


def in_order(log: FakeLog, sent: dict[int, list[int]]) -> None:
    """Every batch once, in the order handed over."""
    for partition, counts in sent.items():
        expected, base = [], 0
        for count in counts:
            expected.append((base, count))
            base += count
        assert log.batches.get(partition, []) == expected, f"partition {partition}"


@given(
    faults=st.lists(st.sampled_from(FAULTS), max_size=8),
    sends=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4)), min_size=1, max_size=25),
    in_flight=st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_every_batch_once_and_in_order_whatever_is_lost(
    faults: list[str], sends: list[tuple[int, int]], in_flight: int
) -> None:
    log, sent = FakeLog(faults), dict[int, list[int]]()
    with FakeBroker({ApiKey.PRODUCE: log.produce}) as broker, cluster(broker, max_request_bytes=400) as c:
        with Producer(c, identity=Identity(7, 0), max_in_flight=in_flight) as producer:
            for partition, count in sends:
                producer.send("t", partition, batch(count))
                sent.setdefault(partition, []).append(count)
            producer.flush()
        assert producer.records == sum(count for _, count in sends)
        assert producer.ends == {("t", p): sum(counts) for p, counts in sent.items()}
    in_order(log, sent)


def test_small_batches_of_several_partitions_share_a_request() -> None:
    log = FakeLog()
    with FakeBroker({ApiKey.PRODUCE: log.produce}) as broker, cluster(broker) as c:
        with Producer(c, identity=Identity(7, 0)) as producer:
            for partition in (0, 1, 0):
                producer.send("t", partition, batch())
            producer.flush()
        bodies = [body for _, body in broker.seen(ApiKey.PRODUCE)]
    assert [len(body["topic_data"][0]["partition_data"]) for body in bodies] == [2, 1]


def test_five_requests_leave_before_the_first_answer_once_a_partition_has_begun() -> None:
    def silent(version: int, body: Any) -> Any:
        raise Silence

    log = FakeLog()
    with (
        FakeBroker({ApiKey.PRODUCE: log.produce}) as broker,
        cluster(broker, max_request_bytes=400) as c,
        Producer(c, identity=Identity(7, 0)) as producer,
    ):
        producer.send("t", 0, batch())
        producer.flush()
        broker.handlers[ApiKey.PRODUCE] = silent
        for _ in range(5):
            producer.send("t", 0, batch())
        wait_until(lambda: len(broker.seen(ApiKey.PRODUCE)) == 6)
        broker.handlers[ApiKey.PRODUCE] = log.produce
        broker.drop_all()
        producer.flush()
    in_order(log, {0: [3] * 6})


def test_the_first_batch_of_a_partition_leaves_alone() -> None:
    """Refused, it could never follow a second one that was taken."""
    log = FakeLog(["not leader"])
    with (
        FakeBroker({ApiKey.PRODUCE: log.produce}) as broker,
        cluster(broker, max_request_bytes=400) as c,
        Producer(c, identity=Identity(7, 0)) as producer,
    ):
        for _ in range(4):
            producer.send("t", 0, batch())
        producer.flush()
    in_order(log, {0: [3] * 4})


def test_too_large_names_the_partition_and_what_to_do() -> None:
    log = FakeLog(codes={1: 10})
    with FakeBroker({ApiKey.PRODUCE: log.produce}) as broker, cluster(broker) as c:
        producer = Producer(c, identity=Identity(7, 0))
        producer.send("t", 1, batch())
        with pytest.raises(ProduceFailed, match=r"t-1 .*MESSAGE_TOO_LARGE.*max\.message\.bytes") as caught:
            producer.flush()
        assert (caught.value.topic, caught.value.partition, caught.value.code) == ("t", 1, 10)
        with pytest.raises(ProduceFailed, match="failed before"):
            producer.send("t", 0, batch())
        producer.close()


def test_a_gap_before_the_oldest_batch_is_fatal() -> None:
    """The log lost what it had acknowledged: going on would hide the loss."""
    log = FakeLog()
    with FakeBroker({ApiKey.PRODUCE: log.produce}) as broker, cluster(broker) as c:
        producer = Producer(c, identity=Identity(7, 0))
        for _ in range(2):
            producer.send("t", 0, batch())
        producer.flush()
        log.batches[0].pop()
        producer.send("t", 0, batch())
        with pytest.raises(ProduceFailed, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            producer.flush()


def test_delivery_timeout_is_named() -> None:
    log = FakeLog(["not leader"] * 10_000)
    limits = {"delivery_timeout_ms": 300}
    with FakeBroker({ApiKey.PRODUCE: log.produce}) as broker, cluster(broker, **limits) as c:
        producer = Producer(c, identity=Identity(7, 0))
        producer.send("t", 0, batch())
        with pytest.raises(ProduceFailed, match=r"t-0 .*300 ms \(kafka\.delivery\.timeout\.ms\)"):
            producer.flush()


def test_a_silent_broker_ends_by_the_delivery_timeout() -> None:
    def silent(version: int, body: Any) -> Any:
        raise Silence

    with (
        FakeBroker({ApiKey.PRODUCE: silent}) as broker,
        cluster(broker, request_timeout_ms=100, delivery_timeout_ms=400) as c,
    ):
        producer = Producer(c, identity=Identity(7, 0))
        producer.send("t", 0, batch())
        with pytest.raises(ProduceFailed, match=r"kafka\.delivery\.timeout\.ms"):
            producer.flush()


def test_without_retries_an_unknown_outcome_is_raised() -> None:
    log = FakeLog(["lost answer"])
    with FakeBroker({ApiKey.PRODUCE: log.produce}) as broker, cluster(broker) as c:
        producer = Producer(c, identity=None, retries=False)
        producer.send("t", 0, batch())
        with pytest.raises(ConnectionLost):
            producer.flush()
    assert log.batches == {0: [(-1, 3)]}


@pytest.mark.parametrize("code", [6, 7, 13, 20, 56])
def test_without_retries_an_answer_that_leaves_it_open_is_raised(code: int) -> None:
    """A leader that steps down after it has written says that it does not lead; so for a disk that fails."""
    log = FakeLog(codes={0: code})
    with FakeBroker({ApiKey.PRODUCE: log.produce}) as broker, cluster(broker) as c:
        producer = Producer(c, identity=None, retries=False)
        producer.send("t", 0, batch())
        with pytest.raises(KafkaError) as raised:
            producer.flush()
    assert raised.value.code == code and log.batches == {0: []}


def test_tv2_enlists_by_produce_12() -> None:
    log = FakeLog()
    with FakeBroker({ApiKey.PRODUCE: log.produce}) as broker, cluster(broker) as c:
        with Producer(c, identity=Identity(7, 1), transactional_id="x") as producer:
            producer.send("t", 0, batch())
            producer.flush()
        ((version, body),) = broker.seen(ApiKey.PRODUCE)
        assert version == 12 and body["transactional_id"] == "x" and body["acks"] == -1
        header = read_header(body["topic_data"][0]["partition_data"][0]["records"])
        assert header.is_transactional and (header.producer_id, header.producer_epoch) == (7, 1)
        assert not broker.seen(ApiKey.ADD_PARTITIONS_TO_TXN)


def test_tv1_enlists_each_partition_before_its_first_record() -> None:
    log, enlisted = FakeLog(), list[Any]()

    def add(version: int, body: Any) -> Any:
        assert version <= 3
        names = [(t["name"], p) for t in body["v3_and_below_topics"] for p in t["partitions"]]
        enlisted.extend(names)
        results = [{"name": t, "results_by_partition": [{"partition_index": p, "partition_error_code": 0}]}
                   for t, p in names]  # fmt: skip
        return {"results_by_topic_v3_and_below": results}

    def produce(version: int, body: Any) -> Any:
        assert version == 11
        for topic in body["topic_data"]:
            assert all((topic["name"], p["index"]) in enlisted for p in topic["partition_data"])
        return log.produce(version, body)

    handlers = {ApiKey.PRODUCE: produce, ApiKey.ADD_PARTITIONS_TO_TXN: add}
    with (
        FakeBroker(handlers, transaction_version=1) as broker,
        cluster(broker) as c,
        Producer(c, identity=Identity(7, 1), transactional_id="x") as producer,
    ):
        for partition in (0, 0, 1, 0, 1):
            producer.send("t", partition, batch())
        producer.flush()
    assert sorted(enlisted) == [("t", 0), ("t", 1)]
    in_order(log, {0: [3] * 3, 1: [3] * 2})


def test_an_identity_forbids_what_would_void_it() -> None:
    c = Cluster(ClientConfig((("127.0.0.1", 1),)))
    for wrong in ({"acks": 1}, {"max_in_flight": 6}):
        with pytest.raises(ValueError, match="idempotent"):
            Producer(c, identity=Identity(1, 0), **wrong)
    with pytest.raises(ValueError, match="InitProducerId"):
        Producer(c, identity=None, transactional_id="x", acks=-1)


def test_an_unreachable_broker_is_named_at_once() -> None:
    c = Cluster(ClientConfig((("127.0.0.1", 1),), request_timeout_ms=300))
    producer = Producer(c, identity=Identity(1, 0))
    producer.send("t", 0, batch())
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1.*kafka\.bootstrap\.servers"):
        producer.flush()
