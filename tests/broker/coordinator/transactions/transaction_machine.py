"""A machine with a transaction coordinator: real logs on a disk in memory that loses its power.

`Machine` is one life of the coordinators over a disk. A crash does not stop it: from then on the disk that
is looked at later stays as it was, and answers count for nothing, as nobody hears them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from eoslog.broker.config import BrokerConfig, FlushMode
from eoslog.broker.coordinator.groups.committed_offsets import Committer
from eoslog.broker.coordinator.groups.group_coordinator import GroupCoordinator
from eoslog.broker.coordinator.groups.group_offsets import NewOffset, TransactionalCommit
from eoslog.broker.coordinator.transactions.transaction_changes import Changes
from eoslog.broker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.log.partition import Partition
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.plain_records import encode_records
from eoslog.protocol.topic_partitions import TopicPartition
from tests.broker.log.logkit import Directory, FakeClock, FakeFileSystem, Outcome

T = TypeVar("T")

DATA = "/data"
GROUP_TOPIC = "__consumer_offsets"
CONFIG = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "1"}


class PowerCut(FakeFileSystem):
    """Keeps what the disk was right before its `crash_at`-th change or sync, counted from 1; 0: never."""

    def __init__(self, root: Directory, crash_at: int = 0) -> None:
        super().__init__()
        self.root = deepcopy(root)
        self.crash_at = crash_at
        self.steps = 0
        self.left: Directory | None = None

    @property
    def dead(self) -> bool:
        return self.left is not None

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.crash_at:
            self.left = deepcopy(self.root)


def after_crash(root: Directory, outcome: Outcome, seed: int) -> Directory:
    """What a disk holds when the power is back."""
    fs = PowerCut(root)
    fs.crash(outcome, Random(seed))
    return fs.root


class SlowFlush(GroupFlush):
    """Flushes one partition at a time, in random order, with other work in between; no threads."""

    def __init__(self, mode: FlushMode, random: Random) -> None:
        super().__init__(mode)
        self._random = random
        self.held = False

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    def _kick(self) -> None:
        self._kicked = False
        if self._loop is None or not self._dirty or self.held:
            return
        if self._random.random() < 0.6:
            self.flush_now(self._random.choice(list(self._dirty)))
        self._kicked = True
        self._loop.call_soon(self._kick)

    def hold(self) -> None:
        """Sync nothing from now on."""
        self.held = True

    def go_on(self) -> None:
        self.held = False
        self._kick()


class Machine:
    """One life. Make it on the event loop."""

    def __init__(
        self,
        fs: PowerCut,
        *,
        seed: int = 0,
        flush: FlushMode = "fsync",
        clock: FakeClock | None = None,
        changes: type[Changes] = Changes,
    ) -> None:
        self.fs = fs
        self.clock = clock or FakeClock()
        config = BrokerConfig.from_options(CONFIG)
        self.flush = SlowFlush(flush, Random(seed))
        self.topics = Topics.open(fs, DATA, config, self.clock, self.flush)
        self.groups = GroupCoordinator(self.topics, self.clock, config)
        self.marked: list[tuple[str, int, int, bool]] = []
        self.transactions = TransactionCoordinator(self.topics, self.clock, config, self._on_marker)
        if changes is not Changes:
            known = self.transactions
            known._changes = changes(known._entries, known._journal, known._markers, self.clock)
        self.groups.transactions = self.transactions
        self.flush.start()
        self.transactions.load()
        self.groups.load()

    def _on_marker(self, partition: Partition, producer_id: int, epoch: int, commit: bool) -> None:
        self.marked.append((str(partition), producer_id, epoch, commit))
        self.groups.on_marker(partition, producer_id, epoch, commit)

    def partition(self, place: TopicPartition) -> Partition:
        found = self.topics.partition(*place)
        assert found is not None
        return found

    def close(self) -> None:
        self.groups.close()


def fresh_disk(*topics: str, partitions: int = 1) -> Directory:
    """A disk with a data directory and topics."""

    async def make() -> Directory:
        fs = PowerCut(Directory())
        machine = Machine(fs)
        for topic in topics:
            machine.topics.create(topic, partitions, {})
        machine.topics.internal(GROUP_TOPIC)
        machine.topics.internal("__transaction_state")
        machine.groups.close()
        machine.topics.close()
        return fs.root

    return after_crash(asyncio.run(make()), Outcome.ALL, 0)


@dataclass
class Transaction:
    """What a client did and heard: `asked` to commit or abort, `answered` if it heard a success."""

    number: int
    places: list[TopicPartition] = field(default_factory=list)
    offsets: bool = False
    asked: bool | None = None
    answered: bool = False


async def patiently(request: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Try again as long as the id is busy, but not for ever."""
    for _ in range(500):
        try:
            return await request()
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                raise
            await asyncio.sleep(0)
    raise AssertionError("the id stays busy for ever")


class Client:
    """A transactional producer with a consumer group of its own name; `tv2` by KIP-890's ways."""

    def __init__(self, machine: Machine, name: str, tv2: bool, timeout_ms: int = 60_000) -> None:
        self.machine, self.name, self.tv2, self.timeout_ms = machine, name, tv2, timeout_ms
        self.producer = (-1, -1)
        self.sequences: dict[TopicPartition, int] = {}
        self.history: list[Transaction] = []
        self.heard: list[tuple[int, int]] = []
        """All that it was before the crash, in order."""

    @property
    def coordinator(self) -> TransactionCoordinator:
        return self.machine.transactions

    async def init(self) -> None:
        self._go_on_as(await patiently(lambda: self.coordinator.init_producer_id(self.name, self.timeout_ms)))

    def _go_on_as(self, producer: tuple[int, int]) -> None:
        if producer != self.producer:
            self.sequences.clear()
        self.producer = producer
        if not self.machine.fs.dead:
            self.heard.append(producer)

    async def write(self, number: int, places: list[TopicPartition], offsets: bool = False) -> Transaction:
        """Open a transaction and write its number to all places, and as the group's offset of the first."""
        transaction = Transaction(number, places, offsets)
        self.history.append(transaction)
        if not self.tv2:
            await self.add(places)
        await asyncio.gather(*(self.produce(place, number) for place in places))
        if offsets:
            await self.commit_offset(number, places[0])
        return transaction

    async def add(self, places: list[TopicPartition]) -> None:
        await patiently(lambda: self.coordinator.add_partitions(self.name, *self.producer, places))

    async def produce(self, place: TopicPartition, number: int) -> None:
        """As the Produce handler: ask until there is nothing to wait for, then append at once."""
        while True:
            verdict = self.coordinator.verify_partition(self.name, *self.producer, *place, self.tv2)
            if verdict is None:
                break
            await verdict
        sequence = self.sequences.get(place, 0)
        self.sequences[place] = sequence + 1
        producer_id, epoch = self.producer
        now = self.machine.clock.now_ms()
        batch = encode_records(
            [(b"", b"%d" % number)], now, producer_id=producer_id, producer_epoch=epoch,
            base_sequence=sequence, transactional=True,
        )  # fmt: skip
        partition = self.machine.partition(place)
        await partition.wait_durable(partition.append(batch, now_ms=now).last_offset)

    async def commit_offset(self, number: int, place: TopicPartition) -> None:
        groups = self.machine.groups
        if not self.tv2:
            partition = groups.group_partition(self.name)
            await self.add([(partition.topic, partition.index)])
        topic = self.machine.topics.get(place[0])
        assert topic is not None
        offset = NewOffset(place, topic.topic_id, number, -1, "")
        commit = TransactionalCommit(self.name, *self.producer, 5 if self.tv2 else 3)
        results = await groups.txn_commit_offsets(commit, Committer(self.name), [offset])
        assert results == {place: ErrorCode.NONE}

    async def end(self, commit: bool) -> None:
        transaction = self.history[-1]
        transaction.asked = commit
        producer = self.producer
        self._go_on_as(
            await patiently(lambda: self.coordinator.end_txn(self.name, *producer, commit, bump=self.tv2))
        )
        transaction.answered = not self.machine.fs.dead
