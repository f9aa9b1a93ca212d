"""Stock clients at work while their broker dies, again and again: `make soak-kill9`. Prints what it tried.

A round is one broker and data directory. An idempotent producer, a transactional one that commits a
group's offsets with its records, and a member of a group that reads and commits, all of confluent-kafka,
go on while the broker is killed with SIGKILL or loses its power with all or some of what it had not synced.
Then everything is read and compared with what the clients were told.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from random import Random

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import QUICK, create, numbers, read_all

DEATHS = ("kill -9", "power loss", "power loss, some of it kept")
PARTS = 10  # records of a transaction


def end_transaction(producer: Producer, commit: bool) -> bool:
    """Commit or abort, trying again as the errors say; answers whether it was committed.

    Flushes before an abort. Without that librdkafka 2.16 drops a batch that was on its way when the broker
    died, and gives its sequence numbers, at the same epoch, to the next transaction. The broker knows them
    from the aborted one and answers, as Kafka does, that it has the batch already: the next transaction
    then commits without its records. That is not what is judged here.
    """
    while True:
        try:
            if not commit and producer.flush(5):
                continue
            producer.commit_transaction(5) if commit else producer.abort_transaction(5)
            return commit
        except KafkaException as caught:
            error = caught.args[0]
            if error.txn_requires_abort():
                commit = False
            elif not error.retriable():
                raise


class Round:
    """What the clients of a round were told."""

    def __init__(self, broker: EmbeddedBroker, seed: int) -> None:
        self.broker, self.random = broker, Random(seed)
        self.over = threading.Event()
        self.acked: set[int] = set()
        self.refused: list[KafkaError] = []
        self.outcomes: dict[int, bool] = {}
        self.committed: dict[int, int] = {}  # partition -> offset whose commit succeeded
        self.failures: list[BaseException] = []

    def _config(self, **more: object) -> dict[str, object]:
        return {"bootstrap.servers": self.broker.bootstrap, "linger.ms": 1, **QUICK, **more}

    def produce(self) -> None:
        """The idempotent producer."""

        def note(number: int) -> Callable[[KafkaError | None, Message], None]:
            return lambda error, message: self.refused.append(error) if error else self.acked.add(number)

        producer = Producer(
            self._config(
                **{
                    "enable.idempotence": True,
                    "batch.num.messages": 50,
                    "queue.buffering.max.messages": 3000,
                }
            )
        )
        number = 0
        while not self.over.is_set():
            try:
                producer.produce(
                    "plain", str(number).encode(), partition=number % 3, on_delivery=note(number)
                )
                number += 1
            except BufferError:  # the broker is down
                producer.poll(0.05)
            producer.poll(0)
            if number % 50 == 0:
                time.sleep(0.002)
        assert producer.flush(60) == 0, "not all was acknowledged in the end"

    def transact(self) -> None:
        """The transactional producer; transaction n writes PARTS records and offset n of its group."""
        group = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "together", **QUICK})
        producer = Producer(self._config(**{"transactional.id": "x"}))
        producer.init_transactions(30)
        while not self.over.is_set():
            number = len(self.outcomes)
            producer.begin_transaction()
            for part in range(PARTS):
                producer.produce("whole", str(number * 100 + part).encode(), partition=part % 2)
            self._send_offsets(producer, [TopicPartition("whole", 0, number)], group)
            self.outcomes[number] = end_transaction(producer, self.random.random() < 0.8)
        group.close()

    def _send_offsets(self, producer: Producer, places: list[TopicPartition], group: Consumer) -> None:
        while True:
            try:
                producer.send_offsets_to_transaction(places, group.consumer_group_metadata(), 10)
                return
            except KafkaException as caught:
                if caught.args[0].txn_requires_abort():
                    return  # the end of the transaction will say so
                if not caught.args[0].retriable():
                    raise

    def consume(self) -> None:
        """A member of a group: reads what the idempotent producer writes and commits how far it is."""
        consumer = Consumer({
            "bootstrap.servers": self.broker.bootstrap, "group.id": "readers", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "session.timeout.ms": 6000, **QUICK,
        })  # fmt: skip
        consumer.subscribe(["plain"])
        while not self.over.is_set():
            messages = consumer.consume(100, 0.2)
            if not any(message.error() is None for message in messages):
                continue
            try:
                for place in consumer.commit(asynchronous=False) or ():
                    if place.error is None:
                        self.committed[place.partition] = place.offset
            except KafkaException:
                continue  # not told that it succeeded: tried again with the next
        consumer.close()

    def run(self, deaths: int) -> dict[str, int]:
        """Let the broker die so often; answers how."""
        threads = [
            threading.Thread(target=self._guarded(w)) for w in (self.produce, self.transact, self.consume)
        ]
        for thread in threads:
            thread.start()
        try:
            tried = {how: self._die_often(how, deaths) for how in DEATHS}
        finally:
            self.over.set()
            for thread in threads:
                thread.join(120)
        if self.failures:
            raise self.failures[0]
        assert not any(thread.is_alive() for thread in threads), (
            f"the work did not end: {self.broker.output()}"
        )
        return tried

    def _guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                self.failures.append(error)

        return guarded

    def _die_often(self, how: str, deaths: int) -> int:
        for _ in range(deaths):
            before = len(self.outcomes), len(self.acked)
            deadline = time.monotonic() + 60
            while len(self.outcomes) < before[0] + 2 or len(self.acked) < before[1] + 100:
                if self.failures:
                    raise self.failures[0]
                assert time.monotonic() < deadline, f"no progress: {before}: {self.broker.output()}"
                time.sleep(0.002)
            time.sleep(self.random.random() * 0.1)
            if how == "kill -9":
                self.broker.kill()
            else:
                keep = "some" if "some" in how else "nothing"
                self.broker.lose_unsynced(keep=keep, seed=self.random.randrange(1 << 30))  # type: ignore[arg-type]
            self.broker.start()
        return deaths

    def audit(self) -> None:
        """Compare all that is there with what was told. Raises AssertionError."""
        bootstrap = self.broker.bootstrap
        assert not self.refused, self.refused[:3]
        wanted = {p: sorted(n for n in self.acked if n % 3 == p) for p in range(3)}
        found = numbers(read_all(bootstrap, "plain", timeout=60))
        assert found == wanted, "the idempotent producer's records are lost, doubled or out of order"
        whole = [number for number, outcome in self.outcomes.items() if outcome]
        expected = {p: [n * 100 + part for n in whole for part in range(p, PARTS, 2)] for p in range(2)}
        assert numbers(read_all(bootstrap, "whole", timeout=60)) == expected, (
            "a transaction is lost, doubled or split"
        )
        self._audit_offsets(whole)

    def _audit_offsets(self, whole: list[int]) -> None:
        def offsets(group: str, *places: TopicPartition) -> dict[int, int]:
            consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": group, **QUICK})
            found = {place.partition: place.offset for place in consumer.committed(list(places), 20)}
            consumer.close()
            return found

        assert offsets("together", TopicPartition("whole", 0)) == {0: whole[-1]}, (
            "offsets without their records"
        )
        told = offsets("readers", *(TopicPartition("plain", p) for p in self.committed))
        assert all(told[p] >= offset for p, offset in self.committed.items()), "a committed offset is lost"


def main() -> None:
    """Rounds until so many are done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--deaths", type=int, default=10, help="of each kind in a round")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    total = dict.fromkeys(DEATHS, 0)
    records = transactions = 0
    for number in range(options.rounds):
        seed = options.seed + number
        with EmbeddedBroker(faults=True, config={"offsets.topic.num.partitions": "2"}) as broker:
            create(broker.bootstrap, "plain", 3)
            create(broker.bootstrap, "whole", 2)
            round_ = Round(broker, seed)
            for how, count in round_.run(options.deaths).items():
                total[how] += count
            round_.audit()
        records, transactions = records + len(round_.acked), transactions + len(round_.outcomes)
        deaths = ", ".join(f"{count} times {how}" for how, count in total.items())
        work = f"{records} records, {transactions} transactions"
        print(
            f"round {number + 1}, seed {seed}: {deaths}; {work}: nothing lost, doubled or split", flush=True
        )


if __name__ == "__main__":
    main()
