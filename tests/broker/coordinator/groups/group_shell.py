"""A group coordinator on real logs, which can be crashed and started again. The flush can be held back."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from eoslog.broker.config import BrokerConfig
from eoslog.broker.coordinator.groups.committed_offsets import Committer, Fetched
from eoslog.broker.coordinator.groups.group_coordinator import GroupCoordinator
from eoslog.broker.coordinator.groups.group_offsets import NewOffset, TransactionalCommit
from eoslog.broker.log.partition.partition import Partition
from eoslog.broker.log.segment.group_flush import GroupFlush
from eoslog.broker.ports.ports import OsFileSystem, SystemClock
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.topic_partitions import TopicPartition

T = TypeVar("T")

CONFIG = {
    "offsets.topic.num.partitions": "2",
    "group.min.session.timeout.ms": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class FakeTransactions:
    """A transaction coordinator of which a test says what it answers."""

    def __init__(self) -> None:
        self.members: set[tuple[int, str, int]] = set()
        self.error: ErrorCode | None = None
        self.asked: list[bool] = []
        self.gate: asyncio.Event | None = None

    def verify_partition(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        topic: str,
        index: int,
        implicit_add: bool = False,
    ) -> Awaitable[None] | None:
        self.asked.append(implicit_add)
        if self.error is not None:
            raise KafkaError(self.error, "says the test")
        if (producer_id, topic, index) in self.members:
            return None
        if not implicit_add:
            raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "not added")
        return self._add(producer_id, topic, index)

    async def _add(self, producer_id: int, topic: str, index: int) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.error is None:
            self.members.add((producer_id, topic, index))


class Shell:
    """One life of a coordinator over a data directory. Make it on the event loop."""

    living: ClassVar[list[Shell]] = []
    """All that were made and are not ended yet."""

    def __init__(self, data: Path, config: dict[str, str] | None = None, *, flush: bool = True) -> None:
        options = {"log.dirs": str(data), **CONFIG, **(config or {})}
        self.data = data
        self.config = BrokerConfig.from_options(options)
        self.clock = SystemClock()
        self.flush = GroupFlush(self.config.storage.flush)
        if flush:
            self.flush.start()
        data.mkdir(exist_ok=True)
        self.topics = Topics.open(OsFileSystem(), str(data), self.config, self.clock, self.flush)
        self.transactions = FakeTransactions()
        self.groups = GroupCoordinator(self.topics, self.clock, self.config)
        self.groups.transactions = self.transactions  # type: ignore[assignment]
        self.groups.load()
        Shell.living.append(self)

    def topic(self, name: str = "t", partitions: int = 2) -> bytes:
        found = self.topics.get(name) or self.topics.create(name, partitions, {})
        return found.topic_id

    def partition(self, group: str = "g") -> Partition:
        return self.groups.group_partition(group)

    async def commit(
        self, group: str, metadata: str = "", /, **offsets: int
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit to partitions p0, p1 of topic t."""
        return await self.groups.commit_offsets(Committer(group), self.new(metadata, **offsets))

    def new(self, metadata: str = "", /, **offsets: int) -> list[NewOffset]:
        topic_id = self.topic()
        return [NewOffset(("t", int(p[1:])), topic_id, o, -1, metadata) for p, o in offsets.items()]

    async def txn_commit(
        self, group: str, producer: int = 7, epoch: int = 0, version: int = 5, **offsets: int
    ) -> dict[TopicPartition, ErrorCode]:
        txn = TransactionalCommit("tx", producer, epoch, version)
        return await self.groups.txn_commit_offsets(txn, Committer(group), self.new(**offsets))

    async def fetch(
        self, group: str, *places: TopicPartition, stable: bool = False
    ) -> dict[TopicPartition, Fetched]:
        wanted = [(place, self.topic(place[0])) for place in places] if places else None
        return dict(await self.groups.fetch_offsets(group, wanted, stable))

    async def offset(self, group: str, partition: int = 0) -> int:
        return (await self.fetch(group, ("t", partition)))["t", partition].offset

    def marker(self, group: str, commit: bool, producer: int = 7, epoch: int = 0) -> None:
        """Write a marker as the transaction coordinator does."""
        partition = self.partition(group)
        partition.append_marker(producer, epoch, commit, 0, self.clock.now_ms())
        self.groups.on_marker(partition, producer, epoch, commit)

    def crashed(self, config: dict[str, str] | None = None) -> Shell:
        """Leave this life behind as a kill would, and begin the next on what is on disk."""
        copy = self.data.with_name(self.data.name + "+")
        shutil.copytree(self.data, copy)
        self.groups.close()
        return Shell(copy, config)


async def end_all() -> None:
    """Let the threads of all flushes end before their event loop does."""
    while Shell.living:
        shell = Shell.living.pop()
        shell.groups.close()
        await shell.flush.stop()


def run(test: Coroutine[Any, Any, T]) -> T:
    """Run an async test; what it leaves running is ended."""

    async def whole() -> T:
        try:
            return await asyncio.wait_for(test, 30)
        finally:
            await end_all()

    return asyncio.run(whole())


def on_loop(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    """Make an async test one that pytest can run."""

    def on_its_loop(tmp_path: Path) -> None:
        run(test(tmp_path / "data"))

    on_its_loop.__name__ = test.__name__
    return on_its_loop
