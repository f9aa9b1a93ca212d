"""Deleted records, log directories, leader epochs and compaction, as clients see them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import randbytes

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire, create, read_all
from tests.kit.program import until

EAGER = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "2048",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.segment.bytes": "2048",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker that looks after its logs all the time."""
    with EmbeddedBroker(config=EAGER) as started:
        yield started


def fill(broker: EmbeddedBroker, topic: str, count: int = 20, keys: int = 4, size: int = 300) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number * size, b"k%d" % (number % keys))
        producer.flush(10)


def versions(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


def delete(wire: Wire, version: int, topic: str, offset: int, index: int = 0) -> tuple[int, int]:
    wanted = [{"name": topic, "partitions": [{"partition_index": index, "offset": offset}]}]
    answer = wire.call(ApiKey.DELETE_RECORDS, version, topics=wanted, timeout_ms=1000)
    (part,) = answer["topics"][0]["partitions"]
    assert part["partition_index"] == index
    return part["low_watermark"], part["error_code"]


def listed(wire: Wire, topic: str, timestamp: int) -> int:
    wanted = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    answer = wire.call(ApiKey.LIST_OFFSETS, 9, topics=wanted)
    offset: int = answer["topics"][0]["partitions"][0]["offset"]
    return offset


def test_records_are_deleted_up_to_an_offset(broker: EmbeddedBroker, wire: Wire, topic: str) -> None:
    create(broker.bootstrap, topic)
    fill(broker, topic, 10)
    for version in versions(ApiKey.DELETE_RECORDS):
        assert delete(wire, version, topic, 3 + version) == (3 + version, 0)
    assert delete(wire, 2, topic, 1) == (5, 0)
    assert delete(wire, 2, topic, 11) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert delete(wire, 2, topic, -2) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert delete(wire, 2, "no-such", 1) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete(wire, 2, topic, 1, index=7) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete(wire, 2, "__consumer_offsets", 1) == (-1, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert [message.offset() for message in read_all(broker.bootstrap, topic)] == [5, 6, 7, 8, 9]
    assert (listed(wire, topic, -2), listed(wire, topic, -4), listed(wire, topic, 0)) == (5, 5, 5)
    broker.kill()
    broker.restart()
    assert [message.offset() for message in read_all(broker.bootstrap, topic)] == [5, 6, 7, 8, 9]


def test_records_of_a_compacted_topic_are_not_deleted(broker: EmbeddedBroker, wire: Wire, topic: str) -> None:
    create(broker.bootstrap, topic, **{"cleanup.policy": "compact"})
    assert delete(wire, 2, topic, 0) == (-1, ErrorCode.POLICY_VIOLATION)


def test_confluent_s_admin_client_deletes_records(broker: EmbeddedBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    fill(broker, topic, 4)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    place = TopicPartition(topic, 0, -1)
    assert admin.delete_records([place])[place].result(10).low_watermark == 4
    assert read_all(broker.bootstrap, topic) == []


def test_retention_by_size(broker: EmbeddedBroker, wire: Wire, topic: str) -> None:
    create(broker.bootstrap, topic, **{"segment.bytes": "1024", "retention.bytes": "3000"})
    fill(broker, topic)
    until(lambda: listed(wire, topic, -2) > 5)
    kept = [message.offset() for message in read_all(broker.bootstrap, topic)]
    first = kept[0]
    assert first is not None and kept == list(range(first, 20))
    assert first == listed(wire, topic, -2)


def test_retention_by_time(broker: EmbeddedBroker, wire: Wire, topic: str) -> None:
    create(broker.bootstrap, topic, **{"retention.ms": "300"})
    fill(broker, topic, 3)
    until(lambda: listed(wire, topic, -2) == 3)
    assert read_all(broker.bootstrap, topic) == []


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_compacted_topic_keeps_the_last_value_of_each_key(
    broker: EmbeddedBroker, topic: str, codec: str
) -> None:
    config = {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.01"}
    create(broker.bootstrap, topic, **config)
    producer = Producer({
        "bootstrap.servers": broker.bootstrap, "compression.type": codec, "transactional.id": topic,
    })  # fmt: skip
    producer.init_transactions(10)
    for number in range(12):
        producer.begin_transaction()
        for key in range(8):
            producer.produce(topic, randbytes(150), b"k%d" % key)
        if number % 3 == 2:
            producer.abort_transaction(10)
        else:
            producer.commit_transaction(10)

    def left() -> list[tuple[int | None, bytes | None, bytes | None]]:
        return [(m.offset(), m.key(), m.value()) for m in read_all(broker.bootstrap, topic)]

    before = {key: (offset, value) for offset, key, value in left()}
    until(lambda: len(left()) < 40)
    found = left()
    assert {key: (offset, value) for offset, key, value in found} == before
    broker.kill()
    broker.restart()
    assert {key: (offset, value) for offset, key, value in left()} == before


def test_the_coordinators_know_the_same_after_their_topics_were_compacted(
    broker: EmbeddedBroker, topic: str
) -> None:
    create(broker.bootstrap, topic)
    group = {"bootstrap.servers": broker.bootstrap, "group.id": topic}
    consumer = Consumer(group)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(10)
    for turn in range(30):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % turn)
        position = [TopicPartition(topic, 0, turn)]
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 10)
        if turn % 3 == 2:
            producer.abort_transaction(10)
        else:
            producer.commit_transaction(10)
    consumer.close()

    def cleaned() -> bool:
        path = broker.data / "cleaner-offset-checkpoint"
        lines = path.read_text().splitlines() if path.exists() else []
        return sum(line.startswith(("__consumer_offsets 0", "__transaction_state 0")) for line in lines) == 2

    until(cleaned)
    broker.kill()
    broker.restart()
    asking = Consumer(group)
    (place,) = asking.committed([TopicPartition(topic, 0)], 10)
    asking.close()
    assert place.offset == 28, "the last one was aborted"
    again = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    again.init_transactions(10)
    again.begin_transaction()
    again.produce(topic, b"next")
    again.commit_transaction(10)
    values = [message.value() for message in read_all(broker.bootstrap, topic)]
    assert values == [b"%d" % turn for turn in range(30) if turn % 3 != 2] + [b"next"]


def test_log_directories(broker: EmbeddedBroker, wire: Wire, topic: str) -> None:
    create(broker.bootstrap, topic, 2)
    fill(broker, topic, 3)
    for version in versions(ApiKey.DESCRIBE_LOG_DIRS):
        for wanted in (
            None,
            [{"topic": topic, "partitions": [0, 1, 5]}, {"topic": "no-such", "partitions": [0]}],
        ):
            answer = wire.call(ApiKey.DESCRIBE_LOG_DIRS, version, topics=wanted)
            (result,) = answer["results"]
            assert result["error_code"] == 0
            (mine,) = [entry for entry in result["topics"] if entry["name"] == topic]
            assert wanted is None or len(result["topics"]) == 1
            sizes = {part["partition_index"]: part["partition_size"] for part in mine["partitions"]}
            files = {
                n: Path(result["log_dir"], f"{topic}-{n}", "0" * 20 + ".log").stat().st_size for n in sizes
            }
            assert sizes == files
            assert not any(part["is_future_key"] or part["offset_lag"] for part in mine["partitions"])
            if version >= 4:
                assert result["total_bytes"] >= result["usable_bytes"] > 0
            assert not result["is_cordoned"]


def test_leader_epochs(broker: EmbeddedBroker, wire: Wire, topic: str) -> None:
    create(broker.bootstrap, topic)
    fill(broker, topic, 3)
    (found,) = wire.call(ApiKey.METADATA, 12, topics=[{"name": topic}])["topics"]
    now = found["partitions"][0]["leader_epoch"]
    for version in versions(ApiKey.OFFSET_FOR_LEADER_EPOCH):
        for index, current, epoch, expected in (
            (0, now, now, (0, now, 3)),
            (0, -1, now, (0, now, 3)),
            (0, now, now + 1, (0, -1, -1)),
            (0, now, now - 1, (0, now - 1, 0)),
            (0, now, -1, (0, -1, -1)),
            (0, now + 1, now, (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)),
            (0, now - 1, now, (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)),
            (3, now, now, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)),
        ):
            part = {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
            answer = wire.call(
                ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=[{"topic": topic, "partitions": [part]}]
            )
            (found,) = answer["topics"][0]["partitions"]
            assert (found["error_code"], found["leader_epoch"], found["end_offset"]) == expected
