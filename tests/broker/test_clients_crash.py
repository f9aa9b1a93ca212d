"""kill -9 under confluent-kafka's producers: what was acked is there once, transactions whole or not."""

import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from broker_clients import QUICK, create, numbers, read_all
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from eoslog.testing import EmbeddedBroker


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config={"offsets.topic.num.partitions": "2"}) as started:
        yield started


def crash_while(broker: EmbeddedBroker, work: Callable[[], None], pauses: list[float]) -> None:
    """Run `work` and kill the broker after each pause, with a moment until it is back."""
    failure: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    for pause in pauses:
        time.sleep(pause)
        broker.kill()
        broker.start()
    thread.join(60)
    assert not thread.is_alive(), "the work did not end"
    if failure:
        raise failure[0]


def test_idempotent_producer(broker: EmbeddedBroker) -> None:
    create(broker.bootstrap, "t", 3)
    acked: set[int] = set()
    refused: list[KafkaError] = []

    def note(number: int) -> Callable[[KafkaError | None, object], None]:
        return lambda error, message: refused.append(error) if error else acked.add(number)

    def work() -> None:
        producer = Producer({
            "bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 1,
            "batch.num.messages": 50, **QUICK,
        })  # fmt: skip
        end = time.monotonic() + 4
        number = 0
        while time.monotonic() < end:
            producer.produce(
                "t", str(number).encode() + b" " * 200, partition=number % 3, on_delivery=note(number)
            )
            producer.poll(0.0005)
            number += 1
        assert producer.flush(30) == 0

    crash_while(broker, work, [0.4, 0.7, 0.5, 0.3])
    assert not refused
    assert len(acked) > 500
    found = numbers(read_all(broker.bootstrap, "t"))
    assert found == {p: sorted(n for n in acked if n % 3 == p) for p in range(3)}


def end_transaction(producer: Producer, commit: bool) -> bool:
    """Commit or abort, trying again as the errors say; answers whether it was committed."""
    while True:
        try:
            producer.commit_transaction(5) if commit else producer.abort_transaction(5)
            return commit
        except KafkaException as caught:
            error = caught.args[0]
            if error.txn_requires_abort():
                commit = False
            elif not error.retriable():
                raise


def test_transactional_producer(broker: EmbeddedBroker) -> None:
    create(broker.bootstrap, "t", 2)
    outcome: dict[int, bool] = {}
    chance = random.Random(7)

    def work() -> None:
        producer = Producer({
            "bootstrap.servers": broker.bootstrap, "transactional.id": "x", "linger.ms": 1,
            "transaction.timeout.ms": 10000, **QUICK,
        })  # fmt: skip
        producer.init_transactions(20)
        end = time.monotonic() + 4
        while time.monotonic() < end:
            transaction = len(outcome)
            producer.begin_transaction()
            for part in range(20):
                producer.produce("t", str(transaction * 100 + part).encode(), partition=part % 2)
            producer.send_offsets_to_transaction(
                [TopicPartition("t", 0, transaction)],
                group.consumer_group_metadata(),
                20,
            )
            outcome[transaction] = end_transaction(producer, chance.random() < 0.8)

    group = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", **QUICK})
    crash_while(broker, work, [0.6, 0.5, 0.7, 0.4])
    committed = [transaction for transaction, whether in outcome.items() if whether]
    assert len(committed) > 5
    wanted = {p: [t * 100 + part for t in committed for part in range(p, 20, 2)] for p in range(2)}
    assert numbers(read_all(broker.bootstrap, "t")) == wanted
    assert [place.offset for place in group.committed([TopicPartition("t", 0)], 10)] == [committed[-1]]
    group.close()
