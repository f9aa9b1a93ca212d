"""confluent-kafka's consumers in a group: two members share, one leaves, offsets outlive a restart."""

import time
from collections.abc import Callable

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import QUICK, create


class Member:
    """One consumer of a group and what it has been given."""

    def __init__(self, broker: EmbeddedBroker, group: str, topic: str) -> None:
        self.partitions: set[int] = set()
        self.seen: list[Message] = []
        self.consumer = Consumer({
            "bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000, "heartbeat.interval.ms": 200, "enable.auto.commit": False, **QUICK,
        })  # fmt: skip
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions = {place.partition for place in partitions}

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions = set()

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.seen.append(message)


def poll_until(members: list[Member], done: Callable[[], bool], timeout: float = 20) -> None:
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, [member.partitions for member in members]
        for member in members:
            member.poll()


def fill(broker: EmbeddedBroker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, **QUICK})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % 4)
    assert producer.flush(10) == 0


def test_two_members_share_and_take_over(broker: EmbeddedBroker, topic: str) -> None:
    create(broker.bootstrap, topic, 4)
    fill(broker, topic, 200)
    first = Member(broker, topic, topic)
    poll_until([first], lambda: first.partitions == {0, 1, 2, 3} and len(first.seen) == 200)
    first.consumer.commit(asynchronous=False)

    second = Member(broker, topic, topic)
    both = [first, second]
    poll_until(
        both, lambda: len(first.partitions) == 2 and first.partitions | second.partitions == {0, 1, 2, 3}
    )
    fill(broker, topic, 200)
    poll_until(both, lambda: len(first.seen) + len(second.seen) == 400)
    for member in both:
        member.consumer.commit(asynchronous=False)

    first.consumer.close()
    poll_until([second], lambda: second.partitions == {0, 1, 2, 3})
    fill(broker, topic, 40)
    poll_until([second], lambda: len(first.seen) + len(second.seen) == 440)
    second.consumer.close()


def test_offsets_and_members_outlive_a_crash() -> None:
    with EmbeddedBroker() as broker:
        create(broker.bootstrap, "t", 4)
        fill(broker, "t", 100)
        member = Member(broker, "g", "t")
        poll_until([member], lambda: len(member.seen) == 100)
        member.consumer.commit(asynchronous=False)
        broker.kill()
        broker.start()
        fill(broker, "t", 40)
        poll_until([member], lambda: len(member.seen) == 140)
        assert member.partitions == {0, 1, 2, 3}
        member.consumer.commit(asynchronous=False)
        member.consumer.close()
        broker.restart()
        late = Member(broker, "g", "t")
        fill(broker, "t", 4)
        poll_until([late], lambda: len(late.seen) == 4)
        late.consumer.close()
