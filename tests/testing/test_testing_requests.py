"""Faults of requests, answers and connections, through the wire, in a process and in a thread."""

import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import iter_headers
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import BrokerFailed, EmbeddedBroker, FaultTimeout
from tests.broker.broker_clients import Wire


def produce(value: bytes = b"x", partition: int = 0) -> dict[str, object]:
    records = encode_records([(None, value)], int(time.time() * 1000))
    topic = {"name": "t", "partition_data": [{"index": partition, "records": records}]}
    return {"acks": -1, "timeout_ms": 1000, "topic_data": [topic]}


def end(wire: Wire, partition: int = 0) -> int:
    asked = {"partition_index": partition, "timestamp": -1}
    topics = [{"name": "t", "partitions": [asked]}]
    answer = wire.call(ApiKey.LIST_OFFSETS, 5, replica_id=-1, topics=topics)
    offset: int = answer["topics"][0]["partitions"][0]["offset"]
    return offset


def after(broker: EmbeddedBroker, partition: int = 0) -> int:
    with Wire(broker.host, broker.port) as wire:
        return end(wire, partition)


def test_a_dropped_request_is_not_carried_out(faulty: EmbeddedBroker, wire: Wire) -> None:
    before = end(wire)
    fault = faulty.faults.drop_request("Produce", nth=2)
    assert wire.call(ApiKey.PRODUCE, 9, **produce())["responses"]
    with pytest.raises(ConnectionError):
        wire.call(ApiKey.PRODUCE, 9, **produce())
    assert fault.happened == 1
    assert after(faulty) == before + 1


def test_a_dropped_answer_was_carried_out(faulty: EmbeddedBroker, wire: Wire) -> None:
    before = end(wire)
    fault = faulty.faults.drop_answer("Produce")
    with pytest.raises(ConnectionError):
        wire.call(ApiKey.PRODUCE, 9, **produce())
    fault.wait(timeout=60)
    assert after(faulty) == before + 1


@pytest.mark.parametrize(("how", "written"), [("drop_request", 0), ("drop_answer", 2)])
def test_silence(faulty: EmbeddedBroker, how: str, written: int) -> None:
    before = after(faulty)
    getattr(faulty.faults, how)("Produce", cut=False)
    with Wire(faulty.host, faulty.port, timeout=0.3) as wire:
        for _ in range(2):
            wire.send(ApiKey.PRODUCE, 9, **produce())
        with pytest.raises(TimeoutError):
            wire.receive(ApiKey.PRODUCE, 9)
    assert after(faulty) == before + written


def test_a_delayed_request_holds_up_what_comes_after(faulty: EmbeddedBroker, wire: Wire) -> None:
    before = end(wire)
    faulty.faults.delay_request(0.3, "Produce")
    begun = time.monotonic()
    wire.send(ApiKey.PRODUCE, 9, **produce(b"1"))
    wire.send(ApiKey.PRODUCE, 9, **produce(b"2"))
    assert after(faulty) == before
    offsets = [
        wire.receive(ApiKey.PRODUCE, 9)["responses"][0]["partition_responses"][0]["base_offset"]
        for _ in range(2)
    ]
    assert offsets == [before, before + 1]
    assert time.monotonic() - begun >= 0.3


def test_a_delayed_answer_was_carried_out_at_once(faulty: EmbeddedBroker, wire: Wire) -> None:
    before = end(wire)
    faulty.faults.delay_answer(0.4, "Produce")
    begun = time.monotonic()
    wire.send(ApiKey.PRODUCE, 9, **produce(b"1"))
    wire.send(ApiKey.PRODUCE, 9, **produce(b"2"))
    while after(faulty) < before + 2:
        assert time.monotonic() < begun + 5
    for _ in range(2):
        wire.receive(ApiKey.PRODUCE, 9)
    assert time.monotonic() - begun >= 0.4


@pytest.mark.parametrize("carried_out", [False, True])
def test_an_error_is_answered(faulty: EmbeddedBroker, wire: Wire, carried_out: bool) -> None:
    before = end(wire)
    faulty.faults.answer_error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2, carried_out=carried_out)
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0):
        answer = wire.call(ApiKey.PRODUCE, 9, **produce())
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == code
    assert end(wire) == before + 1 + 2 * carried_out


def test_a_client_of_a_name(faulty: EmbeddedBroker, wire: Wire) -> None:
    faulty.faults.answer_error("FindCoordinator", 15, client_id="somebody", times=0)
    assert wire.call(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)["error_code"] == 0
    faulty.faults.answer_error("FindCoordinator", 15, client_id="wire")
    assert wire.call(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)["error_code"] == 15


def test_any_api_and_disarm(faulty: EmbeddedBroker, wire: Wire) -> None:
    fault = faulty.faults.delay_answer(0.01, nth=2, times=0)
    for _ in range(3):
        end(wire)
    assert fault.happened == 2
    fault.disarm()
    end(wire)
    assert fault.happened == 0, "it is forgotten"


def test_cut_connections(faulty: EmbeddedBroker, wire: Wire) -> None:
    end(wire)
    assert faulty.faults.cut_connections() >= 1
    with pytest.raises(ConnectionError):
        end(wire)
    assert after(faulty) >= 0


def test_an_idempotent_producer_writes_once_whatever_is_lost(faulty: EmbeddedBroker) -> None:
    """The stock client at work: an answer, a request and the connections are lost under it."""
    before = after(faulty, 1)
    faulty.faults.drop_answer("Produce", nth=2, times=2)
    faulty.faults.drop_request("Produce", nth=7)
    producer = Producer({
        "bootstrap.servers": faulty.bootstrap, "enable.idempotence": True, "linger.ms": 0,
        "batch.num.messages": 1, "reconnect.backoff.ms": 10, "retry.backoff.ms": 10,
    })  # fmt: skip
    failed: list[object] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    for number in range(20):
        producer.produce("t", str(number), partition=1, on_delivery=told)
    assert producer.flush(20) == 0
    assert not failed
    with Wire(faulty.host, faulty.port) as wire:
        answer = wire.call(
            ApiKey.FETCH, 12, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20,
            topics=[{"topic": "t", "partitions": [
                {"partition": 1, "fetch_offset": before, "partition_max_bytes": 1 << 20}]}],
        )  # fmt: skip
    records = answer["responses"][0]["partitions"][0]["records"]
    assert sum(header.count for _, header in iter_headers(records)) == 20


def test_what_does_not_exist_is_refused(faulty: EmbeddedBroker) -> None:
    with pytest.raises(ValueError, match=r"no API is named 'Produced': is it Produce\?$"):
        faulty.faults.drop_request("Produced")
    with pytest.raises(ValueError, match=r"no API is named 'xyz': see docs/apis\.md$"):
        faulty.faults.drop_request("xyz")
    with pytest.raises(ValueError, match="nth=0"):
        faulty.faults.drop_request("Produce", nth=0)
    with pytest.raises(FaultTimeout, match="happened 0 times"):
        faulty.faults.drop_request("EndTxn").wait(timeout=0.05)


def test_a_broker_without_faults_says_so(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    with pytest.raises(BrokerFailed, match="faults=True"):
        broker.faults.cut_connections()
    with pytest.raises(BrokerFailed, match="faults=True"):
        broker.lose_unsynced()


def test_a_fault_of_an_error_reaches_a_stock_client(faulty: EmbeddedBroker) -> None:
    faulty.faults.answer_error("InitProducerId", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, times=0)
    producer = Producer({"bootstrap.servers": faulty.bootstrap, "transactional.id": "x"})
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(10)
    assert caught.value.args[0].code() == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
