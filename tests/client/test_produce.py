"""The producer: sequences kept over retries, order within a partition, loud failures."""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.client.records.produce import BatchVerdict, Outgoing, Producer, Unanswered, pack
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.client.wire.connection import BrokerConnection
from eoslog.errors import (
    BrokerUnreachable,
    ConnectionLost,
    ProduceFailed,
    TopicRecreated,
    UnsupportedByBroker,
)
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import read_header
from eoslog.protocol.encode import EncodedBatch, encode_batches
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.sequence import MAX_SEQUENCE
from tests.client.fake_broker import FakeBroker, FakeLog, Handler, Silence
from tests.kit.program import until

# -- what it remembers, without a broker ---------------------------------------------------------
# What a producer remembers of its batches, without a broker: sequences, order, and what answers mean.

WHERE = ("t", 0)
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def outgoing(window: Unanswered, partition: int = 0) -> Outgoing:
    where = ("t", partition)
    return Outgoing(where, [], 100, 1, window.enter(where), 0.0)


def begun(window: Unanswered) -> None:
    """The partition knows the producer: more than one batch may be on its way."""
    window.judge(outgoing(window), ErrorCode.NONE)


def test_sequences_go_from_the_highest_back_to_0() -> None:
    """After some two thousand million records of one partition; a higher number has no place in a batch."""
    window = Unanswered()
    assert window.sequence(WHERE, MAX_SEQUENCE - 1) == 0
    assert window.sequence(WHERE, 5) == MAX_SEQUENCE - 1
    assert window.sequence(WHERE, 1) == 3
    assert window.sequence(("t", 1), 7) == 0, "each partition counts for itself"


def test_an_answer_to_a_later_batch_leaves_the_earlier_one_to_be_awaited() -> None:
    """Its connection may be another one, or its answer was lost."""
    window = Unanswered()
    begun(window)
    first, second = outgoing(window), outgoing(window)
    assert window.judge(second, ErrorCode.NONE) is BatchVerdict.DONE
    assert len(window) == 1 and window.oldest(first)
    assert window.judge(first, OUT_OF_ORDER) is BatchVerdict.FAILED
    assert window.judge(first, ErrorCode.NONE) is BatchVerdict.DONE and not len(window)


def test_out_of_order_behind_one_that_was_not_taken_is_sent_again() -> None:
    """Its leader refused the first, and with it all that was under way behind it."""
    window = Unanswered()
    begun(window)
    first, second = outgoing(window), outgoing(window)
    assert window.judge(first, ErrorCode.NOT_LEADER_OR_FOLLOWER) is BatchVerdict.AGAIN
    assert window.judge(second, OUT_OF_ORDER) is BatchVerdict.AGAIN
    assert window.judge(first, OUT_OF_ORDER) is BatchVerdict.FAILED, "nothing is before it: the log has a gap"


def test_written_long_ago_is_written() -> None:
    window = Unanswered()
    assert window.judge(outgoing(window), ErrorCode.DUPLICATE_SEQUENCE_NUMBER) is BatchVerdict.DONE


def test_only_the_first_batch_of_a_partition_leaves_alone() -> None:
    window = Unanswered()
    first, second, elsewhere = outgoing(window), outgoing(window), outgoing(window, 1)
    assert window.may_leave(first) and not window.may_leave(second) and window.may_leave(elsewhere)
    window.judge(first, ErrorCode.NONE)
    assert window.may_leave(second) and window.may_leave(outgoing(window))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 120)), max_size=30))
def test_requests_hold_one_batch_a_partition_and_no_more_than_fits(made: list[tuple[int, int]]) -> None:
    batches = [Outgoing(("t", p), [], size, 1, number, 0.0) for number, (p, size) in enumerate(made)]
    requests = pack(batches, 100)
    assert [batch for request in requests for batch in request] == batches
    for request in requests:
        assert len({batch.where for batch in request}) == len(request)
        assert sum(batch.size for batch in request) <= 100 or len(request) == 1


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_what_will_never_be_taken_fails(code: int) -> None:
    window = Unanswered()
    assert window.judge(outgoing(window), code) is BatchVerdict.FAILED


# -- the producer --------------------------------------------------------------------------------

FAULTS = ["", "lost request", "lost answer", "not leader"]


def batch(count: int = 3) -> EncodedBatch:
    (made,) = encode_batches(
        None, pa.array([b"x" * 50] * count), None, 1_700_000_000_000, codec=0, max_batch_bytes=1 << 20
    )
    return made


def cluster(broker: FakeBroker, **more: Any) -> Cluster:
    limits = {"request_timeout_ms": 60_000, "delivery_timeout_ms": 60_000, "retry_backoff_ms": 1,
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
        with Producer(c, identity=ProducerIdentity(7, 0), max_in_flight=in_flight) as producer:
            for partition, count in sends:
                producer.send("t", partition, batch(count))
                sent.setdefault(partition, []).append(count)
            producer.flush()
        assert producer.records == sum(count for _, count in sends)
    in_order(log, sent)


def test_small_batches_of_several_partitions_share_a_request() -> None:
    log = FakeLog()
    with FakeBroker({ApiKey.PRODUCE: log.produce}) as broker, cluster(broker) as c:
        with Producer(c, identity=ProducerIdentity(7, 0)) as producer:
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
        Producer(c, identity=ProducerIdentity(7, 0)) as producer,
    ):
        producer.send("t", 0, batch())
        producer.flush()
        broker.handlers[ApiKey.PRODUCE] = silent
        for _ in range(5):
            producer.send("t", 0, batch())
        until(lambda: len(broker.seen(ApiKey.PRODUCE)) == 6)
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
        Producer(c, identity=ProducerIdentity(7, 0)) as producer,
    ):
        for _ in range(4):
            producer.send("t", 0, batch())
        producer.flush()
    in_order(log, {0: [3] * 4})


def test_too_large_names_the_partition_and_what_to_do() -> None:
    log = FakeLog(codes={1: 10})
    with FakeBroker({ApiKey.PRODUCE: log.produce}) as broker, cluster(broker) as c:
        producer = Producer(c, identity=ProducerIdentity(7, 0))
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
        producer = Producer(c, identity=ProducerIdentity(7, 0))
        for _ in range(2):
            producer.send("t", 0, batch())
        producer.flush()
        log.batches[0].pop()
        producer.send("t", 0, batch())
        with pytest.raises(ProduceFailed, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            producer.flush()


def test_a_last_row_that_was_not_told_is_not_guessed() -> None:
    """Who reads up to it would have a part of the batch."""
    log = FakeLog()
    with FakeBroker({ApiKey.PRODUCE: log.produce}) as broker, cluster(broker) as c:
        producer = Producer(c, identity=ProducerIdentity(7, 0))
        for partition in (0, 1):
            producer.send("t", partition, batch())
        producer.flush()
        assert producer.last_rows.keys() == {("t", 0), ("t", 1)}
        log.codes[0] = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        log.batches[0].append((3, 3))
        for _ in range(2):
            producer.send("t", 0, batch())
            producer.flush()
            assert producer.last_rows.keys() == {("t", 1)} and producer.records in (9, 12)


def test_delivery_timeout_is_named() -> None:
    log = FakeLog(["not leader"] * 10_000)
    limits = {"delivery_timeout_ms": 300}
    with FakeBroker({ApiKey.PRODUCE: log.produce}) as broker, cluster(broker, **limits) as c:
        producer = Producer(c, identity=ProducerIdentity(7, 0))
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
        producer = Producer(c, identity=ProducerIdentity(7, 0))
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
        with Producer(c, identity=ProducerIdentity(7, 1), transactional_id="x") as producer:
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

    handlers: dict[ApiKey, Handler] = {ApiKey.PRODUCE: produce, ApiKey.ADD_PARTITIONS_TO_TXN: add}
    with (
        FakeBroker(handlers, transaction_version=1) as broker,
        cluster(broker) as c,
        Producer(c, identity=ProducerIdentity(7, 1), transactional_id="x") as producer,
    ):
        for partition in (0, 0, 1, 0, 1):
            producer.send("t", partition, batch())
        producer.flush()
    assert sorted(enlisted) == [("t", 0), ("t", 1)]
    in_order(log, {0: [3] * 3, 1: [3] * 2})


def test_an_identity_forbids_what_would_void_it() -> None:
    c = Cluster(ClientConfig((("127.0.0.1", 1),)))
    every: tuple[dict[str, Any], ...] = ({"acks": 1}, {"max_in_flight": 6})
    for wrong in every:
        with pytest.raises(ValueError, match="idempotent"):
            Producer(c, identity=ProducerIdentity(1, 0), **wrong)
    with pytest.raises(ValueError, match="InitProducerId"):
        Producer(c, identity=None, transactional_id="x", acks=-1)


def test_an_unreachable_broker_is_named_at_once() -> None:
    c = Cluster(ClientConfig((("127.0.0.1", 1),), request_timeout_ms=300))
    producer = Producer(c, identity=ProducerIdentity(1, 0))
    producer.send("t", 0, batch())
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1.*kafka\.bootstrap\.servers"):
        producer.flush()


def test_no_more_are_in_flight_than_the_option_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than five a broker may have forgotten the first when it is sent again."""
    before, send = list[int](), BrokerConnection.send

    def watched(self: BrokerConnection, api: ApiKey, *args: Any, **more: Any) -> Any:
        if api == ApiKey.PRODUCE:
            before.append(self.waiting)
        return send(self, api, *args, **more)

    monkeypatch.setattr(BrokerConnection, "send", watched)
    log = FakeLog()
    with (
        FakeBroker({ApiKey.PRODUCE: log.produce}) as broker,
        cluster(broker, max_request_bytes=400) as c,
        Producer(c, identity=ProducerIdentity(7, 0), max_in_flight=2) as producer,
    ):
        producer.send("t", 0, batch())
        producer.flush()
        for _ in range(6):
            producer.send("t", 0, batch())
        producer.flush()
    assert max(before) == 1, "one was unanswered when the next one left"


def test_a_refusal_that_comes_while_others_go_again_is_raised() -> None:
    """One partition's leader has moved; the other one refuses for good: its rows must not be dropped."""
    log = FakeLog(codes={0: 6, 1: 10})
    with FakeBroker({ApiKey.PRODUCE: log.produce}) as broker, cluster(broker, max_request_bytes=400) as c:
        producer = Producer(c, identity=ProducerIdentity(7, 0))
        with pytest.raises(ProduceFailed, match="t-1"):
            for partition in (0, 1):
                producer.send("t", partition, batch())
            producer.flush()
        producer.close()


def test_an_answer_that_leaves_a_partition_out_is_no_acknowledgement() -> None:
    with (
        FakeBroker({ApiKey.PRODUCE: lambda version, body: {"responses": []}}) as broker,
        cluster(broker) as c,
    ):
        producer = Producer(c, identity=ProducerIdentity(7, 0))
        producer.send("t", 0, batch())
        with pytest.raises(ProduceFailed, match="the answer leaves this partition out"):
            producer.flush()
        assert producer.records == 0
        producer.close()


def test_a_moved_leader_is_looked_for_again() -> None:
    log = FakeLog(["not leader"])
    with FakeBroker({ApiKey.PRODUCE: log.produce}) as broker, cluster(broker) as c:
        with Producer(c, identity=ProducerIdentity(7, 0)) as producer:
            producer.send("t", 0, batch())
            producer.flush()
        assert len([body for _, body in broker.seen(ApiKey.METADATA) if body["topics"]]) == 2


def test_what_goes_again_keeps_to_the_largest_request() -> None:
    """Brokers cut the connection of who sends more than socket.request.max.bytes, for ever."""
    log = FakeLog(["lost request"])
    with FakeBroker({ApiKey.PRODUCE: log.produce}, partitions=5) as broker:
        with (
            cluster(broker, max_request_bytes=400) as c,
            Producer(c, identity=ProducerIdentity(7, 0)) as producer,
        ):
            for partition in range(5):
                producer.send("t", partition, batch())
            producer.flush()
        bodies = [body for _, body in broker.seen(ApiKey.PRODUCE)]
    in_order(log, {partition: [3] for partition in range(5)})
    for body in bodies:
        sizes = [len(p["records"]) for topic in body["topic_data"] for p in topic["partition_data"]]
        assert sum(sizes) <= 400


def test_connections_with_answers_to_come_are_not_used_again() -> None:
    """Whoever took one would read the answer to another request."""

    def silent(version: int, body: Any) -> Any:
        raise Silence

    with FakeBroker({ApiKey.PRODUCE: silent}) as broker, cluster(broker, max_request_bytes=400) as c:
        producer = Producer(c, identity=ProducerIdentity(7, 0))
        producer.send("t", 0, batch())
        ((connection, waiting),) = producer._lanes.values()
        assert len(waiting) == 1
        producer.close()
        assert connection.closed


def test_an_old_broker_beside_new_ones_is_not_written_to_in_a_transaction() -> None:
    """By transaction.version 2 Produce 12 enlists the partition; an older request would not: rows outside of
    every transaction."""
    log = FakeLog()
    with (
        FakeBroker({ApiKey.PRODUCE: log.produce}, versions={ApiKey.PRODUCE: (3, 11)}) as broker,
        cluster(broker) as c,
    ):
        producer = Producer(c, identity=ProducerIdentity(7, 1), transactional_id="x")
        producer.send("t", 0, batch())
        with pytest.raises(UnsupportedByBroker):
            producer.flush()
        producer.close()
    assert log.batches == {}


def test_topics_are_told_by_their_ids() -> None:
    """A topic that was deleted and created again gets nothing of what was begun for the old one."""
    log, number = FakeLog(), bytes(range(16))

    def metadata(version: int, body: Any) -> Any:
        found = broker._metadata(version, body)
        return found | {"topics": [topic | {"topic_id": number} for topic in found["topics"]]}

    def produce(version: int, body: Any) -> Any:
        assert version == 13
        answer = log.produce(version, {"topic_data": [t | {"name": "t"} for t in body["topic_data"]]})
        return {"responses": [{**topic, "topic_id": number} for topic in answer["responses"]]}

    with FakeBroker({ApiKey.PRODUCE: produce}) as broker, cluster(broker) as c:
        broker.handlers[ApiKey.METADATA] = metadata
        with Producer(c, identity=ProducerIdentity(7, 0)) as producer:
            producer.send("t", 0, batch())
            producer.flush()
        ((_, body),) = broker.seen(ApiKey.PRODUCE)
        assert [topic["topic_id"] for topic in body["topic_data"]] == [number]
        assert producer.topic_ids == {"t": urlsafe_b64encode(number).rstrip(b"=").decode()}
    in_order(log, {0: [3]})


class Topics:
    """What the cluster says of a topic, one id after another."""

    def __init__(self, patch: pytest.MonkeyPatch, c: Cluster, *ids: str | None) -> None:
        self.created: list[bool] = []
        left = iter(ids)

        def topic(name: str, *, create: bool = False) -> Any:
            self.created.append(create)
            return SimpleNamespace(topic_id=next(left))

        patch.setattr(c, "topic", topic)


@pytest.fixture
def pinning() -> Callable[..., Producer]:
    def make(patch: pytest.MonkeyPatch, *ids: str | None) -> tuple[Producer, Topics]:
        c = Cluster(ClientConfig((("127.0.0.1", 1),)))
        return Producer(c, identity=ProducerIdentity(7, 0)), Topics(patch, c, *ids)

    return make  # type: ignore[return-value]


def test_a_topic_is_created_at_first_only(pinning: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    producer, topics = pinning(monkeypatch, "one", "one", None)
    for _ in range(3):
        producer._pin("t")
    assert topics.created == [True, False, False] and producer.topic_ids == {"t": "one"}


def test_half_of_a_batch_in_an_older_topic_of_the_name_is_an_error(
    pinning: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, _ = pinning(monkeypatch, "one", "two", "three")
    producer._pin("t")
    producer._pin("t")
    assert producer.topic_ids == {"t": "two"}, "nothing was written yet: the new one gets all"
    producer.partitions.add(("t", 1))
    with pytest.raises(TopicRecreated, match="its id was two and is three"):
        producer._pin("t")
