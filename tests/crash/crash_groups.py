"""A member of a consumer group, and somebody who makes and deletes topics: see `crash_clients`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode
from tests.crash.crash_clients import PLACES, Batch, Violation, encoded, expect, patiently, produce, top
from tests.crash.crash_machine import Channel, Machine

_REJOIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)


def _part_code(message: Any) -> int:
    code: int = message["topics"][0]["partitions"][0]["error_code"]
    return code


@dataclass
class Commit:
    """One committed offset of PLACES[0]."""

    offset: int
    acked: bool = False


@dataclass
class Member:
    """The only member of its group (classic protocol); commits ever higher offsets."""

    name: str
    member_id: str = ""
    generation: int = -1
    commits: list[Commit] = field(default_factory=list)

    async def go_on(self, machine: Machine, random: Random, work: int) -> None:
        """Commit the unanswered again, then `work` more; leaves and comes back now and then."""
        channel = machine.connect(self.name)
        if self.generation < 0:
            await self._join(channel)
        if self.commits and not self.commits[-1].acked:
            await self._commit(channel, self.commits[-1])
        for _ in range(work):
            if random.random() < 0.2:
                await self._rejoin(channel)
            self.commits.append(Commit(len(self.commits) + 1))
            await self._commit(channel, self.commits[-1])

    async def _join(self, channel: Channel) -> None:
        """Until the group has taken it in: a coordinator whose disk failed in between knows no more of it."""
        for _ in range(3):
            generation, code = await self._join_once(channel)
            if code not in _REJOIN:
                break
        expect(code, f"{self.name} syncs")
        if generation <= self.generation:
            raise Violation(f"{self.name}: generation {self.generation} was followed by {generation}")
        self.generation = generation

    async def _join_once(self, channel: Channel) -> tuple[int, int]:
        """The generation, and what its sync was answered."""

        def ask() -> asyncio.Future[Any]:
            return channel.ask(
                ApiKey.JOIN_GROUP, 5, group_id=self.name, session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000, member_id=self.member_id, protocol_type="consumer",
                protocols=[{"name": "range", "metadata": b"m"}],
            )  # fmt: skip

        message = await patiently(ask, top)
        if top(message) == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
            message = await patiently(ask, top)
        if top(message) == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = message["member_id"]
            message = await patiently(ask, top)
        expect(top(message), f"{self.name} joins")
        generation = message["generation_id"]
        message = await patiently(
            lambda: channel.ask(
                ApiKey.SYNC_GROUP, 3, group_id=self.name, generation_id=generation, member_id=self.member_id,
                assignments=[{"member_id": self.member_id, "assignment": b"all"}],
            ), top,
        )  # fmt: skip
        return generation, top(message)

    async def _rejoin(self, channel: Channel) -> None:
        """A new generation; the old one may commit no more."""
        old = self.generation
        await self._join(channel)
        code = _part_code(await self._ask_commit(channel, 10_000, old, None))
        if code not in _REJOIN:
            raise Violation(f"{self.name}: generation {old} may commit after {self.generation} has begun")

    def _ask_commit(
        self, channel: Channel, offset: int, generation: int, heard: Callable[[Any], None] | None
    ) -> asyncio.Future[Any]:
        topic, index = PLACES[0]
        part = {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
        return channel.ask(
            ApiKey.OFFSET_COMMIT, 7, heard, group_id=self.name, generation_id_or_member_epoch=generation,
            member_id=self.member_id, topics=[{"name": topic, "partitions": [part]}],
        )  # fmt: skip

    async def _commit(self, channel: Channel, commit: Commit) -> None:
        def heard(message: Any) -> None:
            commit.acked = commit.acked or _part_code(message) == ErrorCode.NONE

        for _ in range(3):
            message = await patiently(
                lambda: self._ask_commit(channel, commit.offset, self.generation, heard), _part_code
            )
            if _part_code(message) not in _REJOIN:
                break
            await self._join(channel)
        expect(_part_code(message), f"{self.name} commits {commit.offset}")


@dataclass
class TopicLife:
    """A topic from its creation to its deletion; its `record` may be `trimmed` (DeleteRecords)."""

    name: str
    record: Batch
    topic_id: bytes = b""
    created: bool = False
    trim_asked: bool = False
    trimmed: bool = False
    delete_asked: bool = False
    deleted: bool = False


@dataclass
class Admin:
    """Makes topics, writes a record to each, deletes some and makes them again under the same name."""

    name: str
    lives: list[TopicLife] = field(default_factory=list)

    async def go_on(self, machine: Machine, random: Random, work: int) -> None:
        """Ask again for what was not answered, then go on."""
        channel = machine.connect(self.name)
        if self.lives:
            last = self.lives[-1]
            if not last.created:
                await self._create(channel, last)
            elif last.delete_asked and not last.deleted:
                await self._delete(channel, last)
        for _ in range(work):
            number = len(self.lives)
            again = number and self.lives[-1].deleted and random.random() < 0.5
            name = self.lives[-1].name if again else f"x{number}"
            self.lives.append(TopicLife(name, Batch((name, 0), [f"{self.name}.{number}.0.0"])))
            await self._create(channel, self.lives[-1])
            record = self.lives[-1].record
            expect(
                await produce(channel, record, encoded(record, -1, -1, False), None, 9), f"writes to {name}"
            )
            if random.random() < 0.4:
                await self._trim(channel, self.lives[-1])
            if random.random() < 0.6:
                await self._delete(channel, self.lives[-1])

    async def _create(self, channel: Channel, life: TopicLife) -> None:
        def heard(message: Any) -> None:
            (topic,) = message["topics"]
            if topic["error_code"] == ErrorCode.NONE:
                life.created, life.topic_id = True, topic["topic_id"]

        message = await channel.ask(
            ApiKey.CREATE_TOPICS, 7, heard, timeout_ms=1000,
            topics=[{"name": life.name, "num_partitions": 1, "replication_factor": 1}],
        )  # fmt: skip
        code = message["topics"][0]["error_code"]
        expect(code, f"creates {life.name}", ErrorCode.TOPIC_ALREADY_EXISTS)
        life.created = True

    async def _trim(self, channel: Channel, life: TopicLife) -> None:
        def code(message: Any) -> int:
            value: int = message["topics"][0]["partitions"][0]["error_code"]
            return value

        def heard(message: Any) -> None:
            life.trimmed = code(message) == ErrorCode.NONE

        life.trim_asked = True
        message = await channel.ask(
            ApiKey.DELETE_RECORDS, 2, heard, timeout_ms=1000,
            topics=[{"name": life.name, "partitions": [{"partition_index": 0, "offset": 1}]}],
        )  # fmt: skip
        expect(code(message), f"trims {life.name}")

    async def _delete(self, channel: Channel, life: TopicLife) -> None:
        def heard(message: Any) -> None:
            if message["responses"][0]["error_code"] == ErrorCode.NONE:
                life.deleted = True

        life.delete_asked = True
        message = await channel.ask(ApiKey.DELETE_TOPICS, 5, heard, topic_names=[life.name], timeout_ms=1000)
        code = message["responses"][0]["error_code"]
        expect(code, f"deletes {life.name}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        life.deleted = True
