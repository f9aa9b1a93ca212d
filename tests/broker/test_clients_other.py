"""Other clients: kafka-python and aiokafka end to end, and confluent-kafka's admin client."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic as PythonTopic

from eoslog.testing import EmbeddedBroker
from tests.offset_specs import EARLIEST, LATEST, MAX_TIMESTAMP


def test_kafka_python(broker: EmbeddedBroker, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([PythonTopic(topic, 2, 1)])
    assert topic in admin.list_topics()
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id=topic, compression_type="gzip"
    )
    producer.init_transactions()
    for commit in (True, False, True):
        producer.begin_transaction()
        for number in range(50):
            producer.send(topic, str(number).encode(), partition=number % 2)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, group_id=topic, auto_offset_reset="earliest",
        isolation_level="read_committed", consumer_timeout_ms=3000, enable_auto_commit=False,
    )  # fmt: skip
    found = []
    for message in consumer:
        found.append(int(message.value))
        if len(found) == 100:
            break
    assert sorted(found) == sorted([*range(50), *range(50)])
    consumer.commit()
    consumer.close()
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()


def test_aiokafka(broker: EmbeddedBroker, topic: str) -> None:
    async def test() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic) as producer:
            for commit in (True, False, True):
                await producer.begin_transaction()
                for number in range(50):
                    await producer.send_and_wait(topic, str(number).encode())
                if commit:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, group_id=topic, auto_offset_reset="earliest",
            isolation_level="read_committed", enable_auto_commit=False,
        ) as consumer:  # fmt: skip
            found = [int((await consumer.getone()).value) for _ in range(100)]
            assert found == [*range(50), *range(50)]
            await consumer.commit()

    asyncio.run(asyncio.wait_for(test(), 40))


def test_confluent_admin(broker: EmbeddedBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def outcome(futures: dict[str, Any]) -> int:
        try:
            next(iter(futures.values())).result(10)
        except KafkaException as caught:
            code: int = caught.args[0].code()
            return code
        return 0

    def create(name: str, partitions: int = 1, replicas: int = 1, **how: Any) -> int:
        return outcome(admin.create_topics([NewTopic(name, partitions, replicas)], **how))

    assert create(topic, 3, validate_only=True) == 0
    assert topic not in admin.list_topics(timeout=10).topics
    assert create(topic, 3) == 0
    assert create(topic, 3) == KafkaError.TOPIC_ALREADY_EXISTS
    assert create(topic, 3, validate_only=True) == KafkaError.TOPIC_ALREADY_EXISTS
    assert create(topic + "-2", 0) == KafkaError.INVALID_PARTITIONS
    assert create("no/name") == KafkaError.TOPIC_EXCEPTION
    assert create(topic + "-3", 1, 3) == KafkaError.INVALID_REPLICATION_FACTOR

    cluster = admin.describe_cluster().result(10)
    assert [node.port for node in cluster.nodes] == [broker.port]
    described = admin.list_topics(timeout=10).topics[topic]
    assert sorted(described.partitions) == [0, 1, 2]
    ends = admin.list_offsets({Place(topic, 1): LATEST}, isolation_level=IsolationLevel.READ_COMMITTED)
    assert [end.result(10).offset for end in ends.values()] == [0]

    assert outcome(admin.delete_topics([topic])) == 0
    assert outcome(admin.delete_topics([topic])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic not in admin.list_topics(timeout=10).topics


def test_a_larger_replication_factor_can_be_allowed() -> None:
    with EmbeddedBroker(config={"accept.any.replication.factor": "true"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 2, 3)])["t"].result(10)
        assert len(admin.list_topics(timeout=10).topics["t"].partitions) == 2


def test_auto_creation_can_be_switched_off() -> None:
    with EmbeddedBroker(config={"auto.create.topics.enable": "false", "num.partitions": "3"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "allow.auto.create.topics": True})
        error = admin.list_topics("t", timeout=10).topics["t"].error
        assert error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        admin.create_topics([NewTopic("t", -1, -1)])["t"].result(10)
        assert len(admin.list_topics("t", timeout=10).topics["t"].partitions) == 3


@pytest.mark.parametrize("isolation", [0, 1])
def test_times_and_ends(broker: EmbeddedBroker, topic: str, isolation: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for second in range(10):
        producer.produce(topic, b"x", timestamp=1_600_000_000_000 + second * 1000)
    assert producer.flush(10) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def offset(spec: OffsetSpec) -> int:
        level = IsolationLevel(isolation)
        answers = admin.list_offsets({Place(topic, 0): spec}, isolation_level=level)
        found: int = answers[Place(topic, 0)].result(10).offset
        return found

    assert offset(EARLIEST) == 0
    assert offset(LATEST) == 10
    assert offset(MAX_TIMESTAMP) == 9
    assert offset(OffsetSpec.for_timestamp(1_600_000_003_500)) == 4
    assert offset(OffsetSpec.for_timestamp(1_700_000_000_000)) == -1
