"""Clients and members of groups that outlive the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.plain_records import encode_records
from eoslog.protocol.topic_partitions import TopicPartition
from tests.crash.crash_machine import START_MS, Channel, Machine

# -- clients -------------------------------------------------------------------------------------
# Clients that outlive the broker: what they have sent and heard is plain data, so that a crash can be
# followed by any of several continuations.
#
# Each client has a state, which pictures keep, and a `go_on` that begins where the state ends: unanswered
# batches are sent again with the same sequences, in their order, as every idempotent client does.

PLACES: list[TopicPartition] = [("a", 0), ("a", 1), ("b", 0)]
IN_FLIGHT = 5

_BUSY = {
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNSTABLE_OFFSET_COMMIT,
}  # fmt: skip
_UNABLE = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR}
_FENCED = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}


class Violation(AssertionError):
    """The broker broke a promise."""


class Broken(Exception):
    """The broker says that it cannot serve: the work ends, loudly. With a good disk that is a fault, too."""


@dataclass
class Batch:
    """Values that go to one partition together; `sequence` once sent, `offset` once acknowledged."""

    place: TopicPartition
    values: list[str]
    sequence: int = -1
    offset: int = -1
    acked: bool = False


@dataclass
class Transaction:
    """`asked` to commit or abort, `answered` with success, `given_up` if the client began anew."""

    number: int
    batches: list[Batch]
    offset: int | None = None  # committed for the client's group at PLACES[0]
    joined: bool = False  # TV1: the partitions are known to be in it
    offset_acked: bool = False
    asked: bool | None = None
    answered: bool = False
    given_up: bool = False


def encoded(batch: Batch, pid: int, epoch: int, transactional: bool) -> bytes:
    """The batch as it goes over the wire."""
    return encode_records(
        [(None, value.encode()) for value in batch.values], START_MS, producer_id=pid, producer_epoch=epoch,
        base_sequence=batch.sequence, transactional=transactional,
    )  # fmt: skip


async def produce(
    channel: Channel, batch: Batch, data: bytes, transactional_id: str | None, version: int
) -> int:
    """Send one batch; notes the acknowledgement when it is let go. Answers the error code."""

    def heard(message: Any) -> None:
        part = message["responses"][0]["partition_responses"][0]
        if part["error_code"] == ErrorCode.NONE:
            if batch.acked and batch.offset != part["base_offset"]:
                raise Violation(f"{batch}: acknowledged again at offset {part['base_offset']}")
            batch.acked, batch.offset = True, part["base_offset"]

    topic, index = batch.place
    message = await channel.ask(
        ApiKey.PRODUCE, version, heard, transactional_id=transactional_id, acks=-1, timeout_ms=1000,
        topic_data=[{"name": topic, "partition_data": [{"index": index, "records": data}]}],
    )  # fmt: skip
    code: int = message["responses"][0]["partition_responses"][0]["error_code"]
    return code


async def patiently(request: Callable[[], Any], code_of: Callable[[Any], int]) -> Any:
    """Ask until the broker is not busy, but not for ever."""
    for _ in range(100):
        message = await request()
        code = code_of(message)
        if code not in _BUSY:
            return message
        await asyncio.sleep(0.05)
    raise Broken(f"busy for ever: {ErrorCode(code).name}")


def top(message: Any) -> int:
    """The error of the whole answer."""
    code: int = message["error_code"]
    return code


def expect(code: int, what: str, *allowed: ErrorCode) -> None:
    """Raises Violation unless the code is NONE or allowed, Broken where the broker cannot serve."""
    if code in _UNABLE:
        raise Broken(what)
    if code != ErrorCode.NONE and code not in allowed:
        raise Violation(f"{what}: {ErrorCode(code).name}")


@dataclass
class Producer:
    """Common to both kinds: who it is, and where each partition's sequence stands."""

    name: str
    pid: int = -1
    epoch: int = -1
    next_sequence: dict[TopicPartition, int] = field(default_factory=dict)
    beginning: bool = False  # InitProducerId is on its way: what it was before may be fenced

    def adopt(self, pid: int, epoch: int) -> None:
        """Go on as this; a new one begins with sequence 0."""
        if (pid, epoch) != (self.pid, self.epoch):
            self.next_sequence.clear()
        self.pid, self.epoch = pid, epoch

    async def init(self, channel: Channel, transactional_id: str | None) -> None:
        """InitProducerId."""

        def heard(message: Any) -> None:
            if top(message) == ErrorCode.NONE:
                self.adopt(message["producer_id"], message["producer_epoch"])
                self.beginning = False

        self.beginning = True
        message = await patiently(
            lambda: channel.ask(
                ApiKey.INIT_PRODUCER_ID, 4, heard, transactional_id=transactional_id,
                transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1,
            ), top,
        )  # fmt: skip
        expect(top(message), f"InitProducerId of {self.name}")

    def sequence(self, batch: Batch) -> None:
        """Give a batch its sequence, once."""
        if batch.sequence < 0:
            batch.sequence = self.next_sequence.get(batch.place, 0)
            self.next_sequence[batch.place] = batch.sequence + len(batch.values)


@dataclass
class Idempotent(Producer):
    """A producer without transactions, up to five batches in flight."""

    batches: list[Batch] = field(default_factory=list)

    async def go_on(self, machine: Machine, random: Random, work: int) -> None:
        """Send again what is unanswered, then `work` rounds of new batches."""
        channel = machine.connect(self.name)
        if self.pid < 0:
            await self.init(channel, None)
        await self._send(channel, [batch for batch in self.batches if not batch.acked])
        for _ in range(work):
            new = [
                self._new(random, len(self.batches) + number)
                for number in range(random.randint(1, IN_FLIGHT))
            ]
            self.batches += new
            await self._send(channel, new)

    def _new(self, random: Random, number: int) -> Batch:
        values = [f"{self.name}.{number}.{k}" for k in range(random.randint(1, 3))]
        return Batch(random.choice(PLACES), values)

    async def _send(self, channel: Channel, batches: list[Batch]) -> None:
        for batch in batches:
            self.sequence(batch)
        sending = [
            produce(channel, batch, encoded(batch, self.pid, self.epoch, False), None, 9) for batch in batches
        ]
        for batch, code in zip(batches, await asyncio.gather(*sending), strict=True):
            expect(code, f"{self.name} sends {batch}")


@dataclass
class Transactional(Producer):
    """A transactional producer; `tv2` by KIP-890's ways. Commits offsets for a group of its own name."""

    tv2: bool = False
    transactions: list[Transaction] = field(default_factory=list)

    async def go_on(self, machine: Machine, random: Random, work: int) -> None:
        """End what is open, as the same producer or as its successor; then `work` new transactions."""
        channel = machine.connect(self.name)
        open_one = self.transactions and not (
            self.transactions[-1].answered or self.transactions[-1].given_up
        )
        if self.beginning or self.pid < 0 or (open_one and random.random() < 0.4) or random.random() < 0.1:
            await self._begin_anew(channel)
        elif open_one:
            await self._finish(channel, self.transactions[-1], random.random() < 0.7)
        for _ in range(work):
            if random.random() < 0.15:
                await self._begin_anew(channel)
            self.transactions.append(self._planned(random))
            await self._finish(channel, self.transactions[-1], random.random() < 0.7)

    def _planned(self, random: Random) -> Transaction:
        number = len(self.transactions)
        places = random.sample(PLACES, random.randint(1, len(PLACES)))
        places += random.sample(places, random.randint(0, 1))
        batches = [
            Batch(place, [f"{self.name}.{number}.{i}.{k}" for k in range(random.randint(1, 2))])
            for i, place in enumerate(places)
        ]
        return Transaction(number, batches, number + 1 if random.random() < 0.6 else None)

    async def _begin_anew(self, channel: Channel) -> None:
        """A successor fences this producer; what the old one still tries must be refused."""
        old = (self.pid, self.epoch)
        if self.transactions and not self.transactions[-1].answered:
            self.transactions[-1].given_up = True
        await self.init(channel, self.name)
        if old[0] >= 0:
            await self.try_as(channel, *old)

    async def try_as(self, channel: Channel, pid: int, epoch: int) -> None:
        """A zombie writes and commits."""
        batch = Batch(PLACES[0], [f"{self.name}.zombie"], sequence=0)
        version = 12 if self.tv2 else 9
        code = await produce(channel, batch, encoded(batch, pid, epoch, True), self.name, version)
        if code == ErrorCode.NONE:
            raise Violation(f"{self.name} was fenced at {pid}.{epoch}, but may write")
        message = await patiently(lambda: self._end(channel, pid, epoch, True, None), top)
        if top(message) not in _FENCED:
            raise Violation(f"{self.name} at {pid}.{epoch} may commit: {ErrorCode(top(message)).name}")

    async def _finish(self, channel: Channel, transaction: Transaction, commit: bool) -> None:
        if transaction.asked is None:
            await self._fill(channel, transaction)
            transaction.asked = commit

        def heard(message: Any) -> None:
            if top(message) == ErrorCode.NONE:
                transaction.answered = True
                if self.tv2:
                    self.adopt(message["producer_id"], message["producer_epoch"])

        pid, epoch, asked = self.pid, self.epoch, transaction.asked
        message = await patiently(lambda: self._end(channel, pid, epoch, asked, heard), top)
        expect(top(message), f"{self.name} ends {transaction}")

    async def _fill(self, channel: Channel, transaction: Transaction) -> None:
        if not self.tv2 and not transaction.joined:
            await self._join(channel, transaction)
        version = 12 if self.tv2 else 9
        missing = [batch for batch in transaction.batches if not batch.acked]
        for batch in missing:
            self.sequence(batch)

        async def send(batch: Batch) -> None:
            for _ in range(100):
                data = encoded(batch, self.pid, self.epoch, True)
                code = await produce(channel, batch, data, self.name, version)
                if code not in _BUSY:
                    expect(code, f"{self.name} sends {batch}")
                    return
                await asyncio.sleep(0.05)
            raise Broken(f"{self.name} cannot send {batch}: busy for ever")

        for place in dict.fromkeys(batch.place for batch in missing):  # in order within a partition
            for batch in missing:
                if batch.place == place:
                    await send(batch)
        if transaction.offset is not None and not transaction.offset_acked:
            await self._commit_offset(channel, transaction)

    async def _join(self, channel: Channel, transaction: Transaction) -> None:
        topics: dict[str, list[int]] = {}
        for topic, index in dict.fromkeys(batch.place for batch in transaction.batches):
            topics.setdefault(topic, []).append(index)

        def code(message: Any) -> int:
            codes: list[int] = [
                part["partition_error_code"]
                for topic in message["results_by_topic_v3_and_below"]
                for part in topic["results_by_partition"]
            ]
            return max(codes)

        message = await patiently(
            lambda: channel.ask(
                ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.pid, v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[{"name": name, "partitions": parts} for name, parts in topics.items()],
            ), code,
        )  # fmt: skip
        expect(code(message), f"{self.name} adds partitions")
        transaction.joined = True

    async def _commit_offset(self, channel: Channel, transaction: Transaction) -> None:
        if not self.tv2:
            message = await patiently(
                lambda: channel.ask(
                    ApiKey.ADD_OFFSETS_TO_TXN, 3, transactional_id=self.name, producer_id=self.pid,
                    producer_epoch=self.epoch, group_id=self.name,
                ), top,
            )  # fmt: skip
            expect(top(message), f"{self.name} adds offsets")
        topic, index = PLACES[0]

        def code(message: Any) -> int:
            value: int = message["topics"][0]["partitions"][0]["error_code"]
            return value

        part = {"partition_index": index, "committed_offset": transaction.offset, "committed_metadata": ""}
        message = await patiently(
            lambda: channel.ask(
                ApiKey.TXN_OFFSET_COMMIT, 5 if self.tv2 else 3, transactional_id=self.name,
                group_id=self.name, producer_id=self.pid, producer_epoch=self.epoch,
                topics=[{"name": topic, "partitions": [part]}],
            ), code,
        )  # fmt: skip
        expect(code(message), f"{self.name} commits offset {transaction.offset}")
        transaction.offset_acked = True

    def _end(
        self, channel: Channel, pid: int, epoch: int, commit: bool, heard: Callable[[Any], None] | None
    ) -> asyncio.Future[Any]:
        return channel.ask(
            ApiKey.END_TXN, 5 if self.tv2 else 3, heard, transactional_id=self.name, producer_id=pid,
            producer_epoch=epoch, committed=commit,
        )  # fmt: skip


# -- members of groups ---------------------------------------------------------------------------
# A member of a consumer group, and somebody who makes and deletes topics: see `crash_clients`.

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
