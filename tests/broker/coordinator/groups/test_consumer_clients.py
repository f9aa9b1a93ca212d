"""confluent-kafka's consumers in groups, beyond the scenarios: members that stop polling, topics by regular
expression, and groups of both protocols that outlive crashes of the broker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Message, Producer

from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import create

CONFIG = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.min.session.timeout.ms": "1000",
}
QUIET = {"log_level": 0, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 100}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=CONFIG) as started:
        yield started


class Member:
    """A consumer and what it has seen; it commits what it has seen with each poll that brings something."""

    def __init__(self, broker: EmbeddedBroker, group: str, *topics: str, **config: object) -> None:
        self.seen: list[Message] = []
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
            **config,
        }
        self.consumer = Consumer(settings)
        self.consumer.subscribe(list(topics))

    @property
    def partitions(self) -> set[int]:
        return {found.partition for found in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.seen.append(message)

    def commit(self) -> None:
        if self.consumer.assignment():
            self.consumer.commit(asynchronous=False)


def poll_until(members: list[Member], done: Callable[[], bool], timeout: float = 20) -> None:
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, [(m.partitions, len(m.seen)) for m in members]
        for member in members:
            member.poll()


def fill(broker: EmbeddedBroker, topic: str, count: int, partitions: int = 4) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % partitions)
    assert producer.flush(20) == 0


def seen(members: list[Member]) -> Counter[tuple[str | None, int | None, int | None]]:
    return Counter((m.topic(), m.partition(), m.offset()) for member in members for m in member.seen)


def test_a_member_that_polls_no_more_is_replaced(broker: EmbeddedBroker, topic: str) -> None:
    create(broker.bootstrap, topic, 4)
    first, second = Member(broker, topic, topic), Member(broker, topic, topic)
    poll_until([first, second], lambda: len(first.partitions) == len(second.partitions) == 2)
    third = Member(broker, topic, topic, **{"max.poll.interval.ms": 1000})
    poll_until([first, second, third], lambda: len(third.partitions) == 1)
    poll_until([first, second], lambda: len(first.partitions) == len(second.partitions) == 2)
    for member in (first, second, third):
        member.consumer.close()


def test_topics_by_regular_expression_and_topics_that_come(broker: EmbeddedBroker, topic: str) -> None:
    create(broker.bootstrap, f"{topic}-1", 1)
    fill(broker, f"{topic}-1", 5, partitions=1)
    member = Member(broker, topic, f"^{topic}-[0-9]")
    poll_until([member], lambda: len(member.seen) == 5)
    create(broker.bootstrap, f"{topic}-2", 2)
    fill(broker, f"{topic}-2", 6, partitions=2)
    poll_until([member], lambda: len(member.seen) == 11)
    member.consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_outlives_crashes(protocol: str) -> None:
    group = {"group.protocol": protocol}
    with EmbeddedBroker(config=CONFIG) as broker:
        create(broker.bootstrap, "t", 4)
        members = [Member(broker, "g", "t", **group) for _ in range(2)]
        # Who is alone at first reads what the other, who comes later, reads from the beginning again.
        poll_until(members, lambda: sorted(len(member.partitions) for member in members) == [2, 2])
        total = 0
        for _ in range(3):
            fill(broker, "t", 40)
            total += 40
            poll_until(members, lambda: len(seen(members)) == total)  # noqa: B023
            for member in members:
                member.commit()
            broker.kill()
            broker.start()
        fill(broker, "t", 40)
        poll_until(members, lambda: len(seen(members)) == total + 40)
        assert sorted(len(member.partitions) for member in members) == [2, 2]
        assert set(seen(members).values()) == {1}, "nobody was thrown out, nothing was read twice"
        for member in members:
            member.commit()
            member.consumer.close()
        late = Member(broker, "g", "t", **group)
        fill(broker, "t", 4)
        poll_until([late], lambda: len(late.seen) == 4)
        late.consumer.close()
