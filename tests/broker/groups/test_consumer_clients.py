"""confluent-kafka with group.protocol=consumer (KIP-848): members come, go, share, and outlive a crash."""

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


def test_members_share_and_take_over(broker: EmbeddedBroker, topic: str) -> None:
    create(broker.bootstrap, topic, 4)
    fill(broker, topic, 100)
    first = Member(broker, topic, topic)
    poll_until([first], lambda: first.partitions == {0, 1, 2, 3} and len(first.seen) == 100)
    first.commit()
    second, third = Member(broker, topic, topic), Member(broker, topic, topic)
    members = [first, second, third]

    def shared() -> bool:
        sizes = sorted(len(member.partitions) for member in members)
        return sizes == [1, 1, 2] and set.union(*(m.partitions for m in members)) == {0, 1, 2, 3}

    poll_until(members, shared)
    fill(broker, topic, 100)
    poll_until(members, lambda: sum(len(member.seen) for member in members) == 200)
    for member in members:
        member.commit()
    first.consumer.close()
    rest = [second, third]
    poll_until(rest, lambda: sorted(len(member.partitions) for member in rest) == [2, 2])
    fill(broker, topic, 40)
    poll_until(rest, lambda: sum(len(member.seen) for member in members) == 240)
    assert set(seen(members).values()) == {1}
    for member in rest:
        member.consumer.close()


def test_a_member_that_polls_no_more_is_replaced(broker: EmbeddedBroker, topic: str) -> None:
    create(broker.bootstrap, topic, 4)
    first, second = Member(broker, topic, topic), Member(broker, topic, topic)
    poll_until([first, second], lambda: len(first.partitions) == len(second.partitions) == 2)
    third = Member(broker, topic, topic, **{"max.poll.interval.ms": 1000})
    poll_until([first, second, third], lambda: len(third.partitions) == 1)
    poll_until([first, second], lambda: len(first.partitions) == len(second.partitions) == 2)
    for member in (first, second, third):
        member.consumer.close()


def test_a_static_member_keeps_its_place(broker: EmbeddedBroker, topic: str) -> None:
    create(broker.bootstrap, topic, 4)
    fill(broker, topic, 40)
    first = Member(broker, topic, topic, **{"group.instance.id": "one"})
    second = Member(broker, topic, topic, **{"group.instance.id": "two"})
    both = [first, second]
    poll_until(both, lambda: len(first.partitions) == len(second.partitions) == 2)
    held, others = first.partitions, second.partitions
    first.consumer.close()
    again = Member(broker, topic, topic, **{"group.instance.id": "one"})
    poll_until([again, second], lambda: again.partitions == held)
    assert second.partitions == others, "nothing moved"
    again.consumer.close()
    second.consumer.close()


def test_topics_by_regular_expression_and_topics_that_come(broker: EmbeddedBroker, topic: str) -> None:
    create(broker.bootstrap, f"{topic}-1", 1)
    fill(broker, f"{topic}-1", 5, partitions=1)
    member = Member(broker, topic, f"^{topic}-[0-9]")
    poll_until([member], lambda: len(member.seen) == 5)
    create(broker.bootstrap, f"{topic}-2", 2)
    fill(broker, f"{topic}-2", 6, partitions=2)
    poll_until([member], lambda: len(member.seen) == 11)
    member.consumer.close()


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(
    broker: EmbeddedBroker, topic: str
) -> None:
    create(broker.bootstrap, topic, 4)
    members: list[Member] = []
    for protocol in ("classic", "consumer", "classic"):
        fill(broker, topic, 40)
        members.append(Member(broker, topic, topic, **{"group.protocol": protocol}))
        poll_until(members[-1:], lambda: len(members[-1].seen) == 40)
        members[-1].commit()
        members[-1].consumer.close()
    assert set(seen(members).values()) == {1}


def test_a_group_outlives_crashes() -> None:
    with EmbeddedBroker(config=CONFIG) as broker:
        create(broker.bootstrap, "t", 4)
        members = [Member(broker, "g", "t") for _ in range(2)]
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
        late = Member(broker, "g", "t")
        fill(broker, "t", 4)
        poll_until([late], lambda: len(late.seen) == 4)
        late.consumer.close()


def test_offsets_in_transactions_of_a_member(broker: EmbeddedBroker, topic: str) -> None:
    """Read, write and commit in one transaction, as a member of the consumer protocol; an abort undoes it."""
    out = f"{topic}-out"
    create(broker.bootstrap, topic, 4)
    create(broker.bootstrap, out, 1)
    fill(broker, topic, 40)
    member = Member(broker, topic, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, **QUIET})
    producer.init_transactions(10)
    poll_until([member], lambda: len(member.seen) == 40)
    for commits in (False, True):
        producer.begin_transaction()
        for message in member.seen:
            producer.produce(out, message.value())
        positions = member.consumer.position(member.consumer.assignment())
        producer.send_offsets_to_transaction(positions, member.consumer.consumer_group_metadata(), 10)
        if commits:
            producer.commit_transaction(10)
        else:
            producer.abort_transaction(10)
        committed = member.consumer.committed(member.consumer.assignment(), 10)
        assert sorted(found.offset for found in committed) == ([10] * 4 if commits else [-1001] * 4)
    member.consumer.close()
    reader = Member(broker, f"{topic}-r", out, **{"isolation.level": "read_committed"})
    poll_until([reader], lambda: len(reader.seen) == 40)
    assert Counter(m.value() for m in reader.seen) == Counter(m.value() for m in member.seen)
    reader.consumer.close()
