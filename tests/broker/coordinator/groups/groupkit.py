"""Group coordinators for tests: on a disk in memory, on real logs; and short ways to say events and
requests.
"""

from __future__ import annotations

import asyncio
import copy
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from eoslog.broker.config import BrokerConfig
from eoslog.broker.coordinator.groups import classic_group as classic_group
from eoslog.broker.coordinator.groups.classic_group_state import (
    Answer,
    ClassicGroup,
    ClassicGroupSettings,
    ClassicGroupState,
    Event,
    Heartbeat,
    HeartbeatAnswer,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Sync,
    SyncAnswer,
    Tick,
)
from eoslog.broker.coordinator.groups.committed_offsets import Committer, Fetched
from eoslog.broker.coordinator.groups.consumer_group_state import ConsumerHeartbeat, ConsumerHeartbeatAnswer
from eoslog.broker.coordinator.groups.group_coordinator import GroupCoordinator
from eoslog.broker.coordinator.groups.group_offsets import NewOffset, TransactionalCommit
from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.log.partition import Partition
from eoslog.broker.ports import OsFileSystem, SystemClock
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.internal_topics import coordinator_records
from eoslog.protocol.messages.groups import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    CONSUMER_PROTOCOL_SUBSCRIPTION,
)
from eoslog.protocol.topic_partitions import TopicPartition
from tests.broker.log.logkit import FakeClock, FakeFileSystem, Outcome, PowerLoss

if TYPE_CHECKING:
    from eoslog.protocol.typed import ConsumerProtocolAssignmentDraft, ConsumerProtocolSubscriptionDraft


# -- events of classic groups --------------------------------------------------------------------
# Short ways to say the events of classic groups, for the tests of their rules.

RANGE = (("range", b"r"),)
BOTH = (("range", b"r"), ("roundrobin", b"o"))


def join(member: str = "", *, new: str = "new", instance: str | None = None, **changes: object) -> Join:
    event = Join(
        member_id=member,
        instance_id=instance,
        client_id="client",
        client_host="/127.0.0.1",
        protocol_type="consumer",
        protocols=RANGE,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        new_member_id=new,
        requires_known_id=False,
    )
    return replace(event, **changes)  # type: ignore[arg-type]


def sync(
    member: str,
    generation: int = 1,
    instance: str | None = None,
    assignments: dict[str, bytes] | None = None,
) -> Sync:
    return Sync(member, instance, generation, "consumer", "range", assignments or {})


def beat(member: str, generation: int = 1, instance: str | None = None) -> Heartbeat:
    return Heartbeat(member, instance, generation)


def leave(*members: str) -> Leave:
    return Leave(tuple((member, None) for member in members))


@dataclass
class ClassicBench:
    """One group under test, its time, and what it has answered; steps must not change their input."""

    settings: ClassicGroupSettings = field(
        default_factory=lambda: ClassicGroupSettings(group_initial_rebalance_delay_ms=3_000)
    )
    group: ClassicGroup = field(default_factory=lambda: ClassicGroup("g"))
    now: int = 0
    tickets: int = 0
    answers: dict[int, Answer] = field(default_factory=dict)
    asked_at: dict[int, int] = field(default_factory=dict)
    persisted: ClassicGroup | None = None

    def do(self, event: Event) -> int:
        """Apply an event; returns its ticket. Answers land in `answers`."""
        ticket = classic_group.NO_TICKET
        if not isinstance(event, Tick):
            self.tickets += 1
            ticket = self.tickets
            self.asked_at[ticket] = self.now
        before = copy.deepcopy(self.group)
        outcome = classic_group.step(self.group, event, ticket, self.now, self.settings)
        assert self.group == before, "a step changed the group it was given"
        self.group = outcome.group
        for answered, answer in outcome.answers:
            assert answered in self.asked_at, f"ticket {answered} was answered but is not waiting"
            del self.asked_at[answered]
            self.answers[answered] = answer
        if outcome.persist:
            self.persisted = copy.deepcopy(outcome.group)
        return ticket

    def advance(self, ms: int) -> None:
        """Let time pass, with a tick at every deadline on the way."""
        target = self.now + ms
        while (deadline := self.group.next_deadline()) is not None and deadline <= target:
            self.now = max(self.now, deadline)
            self.do(Tick())
            after = self.group.next_deadline()
            assert after is None or after > self.now, "a deadline stays after its tick: a busy loop"
        self.now = target

    def joined(self, event: Join) -> JoinAnswer:
        answer = self.answers[self.do(event)]
        assert isinstance(answer, JoinAnswer)
        return answer

    def join_answer(self, ticket: int) -> JoinAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, event: Sync) -> SyncAnswer:
        answer = self.answers[self.do(event)]
        assert isinstance(answer, SyncAnswer)
        return answer

    def sync_answer(self, ticket: int) -> SyncAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncAnswer)
        return answer

    def heard(self, event: Heartbeat) -> int:
        answer = self.answers[self.do(event)]
        assert isinstance(answer, HeartbeatAnswer)
        return answer.error

    def left(self, event: Leave) -> LeaveAnswer:
        answer = self.answers[self.do(event)]
        assert isinstance(answer, LeaveAnswer)
        return answer

    def state(self) -> ClassicGroupState:
        """The group's state now."""
        return self.group.state

    def forget_what_is_persisted(self) -> None:
        """What is persisted from now on can be told from what was before."""
        self.persisted = None

    def stable(self, *members: str) -> ClassicBench:
        """Bring the group to Stable, generation 1, with these dynamic members, the first leading."""
        for member in members:
            self.do(join(new=member))
        self.advance(self.settings.group_initial_rebalance_delay_ms * (1 + len(members)))
        for member in members[1:]:
            self.do(sync(member))
        self.do(sync(members[0], assignments={m: m.encode() for m in members}))
        assert self.group.state is ClassicGroupState.STABLE
        assert not self.asked_at
        return self


# -- on a disk in memory -------------------------------------------------------------------------
# A group coordinator on a disk in memory, with a clock that tests move, and short ways to say requests.

__all__ = ["FakeFileSystem", "Life", "Outcome", "PowerLoss", "assignment", "disk_with_topics", "subscription"]

START_MS = 1_700_000_000_000


def subscription(*topics: str) -> bytes:
    body: ConsumerProtocolSubscriptionDraft = {
        "topics": list(topics),
        "user_data": None,
        "owned_partitions": [],
    }
    return coordinator_records.encode(CONSUMER_PROTOCOL_SUBSCRIPTION, 1, body)


def assignment(topic: str, *indexes: int) -> bytes:
    body: ConsumerProtocolAssignmentDraft = {
        "assigned_partitions": [{"topic": topic, "partitions": list(indexes)}],
        "user_data": None,
    }
    return coordinator_records.encode(CONSUMER_PROTOCOL_ASSIGNMENT, 1, body)


CONFIG = {
    "log.dirs": "/data",
    "offsets.topic.num.partitions": "1",
    "group.min.session.timeout.ms": "1",
    "offsets.retention.minutes": "1",
}
MINUTE_MS = 60_000


class Life:
    """A coordinator on a disk that may lose its power."""

    def __init__(
        self, fs: FakeFileSystem, now: int = START_MS, config: Mapping[str, str] | None = None
    ) -> None:
        self.config = BrokerConfig.from_options({**CONFIG, **(config or {})})
        self.clock, self.flush = FakeClock(now), GroupFlush("fsync")
        self.topics = Topics.open(fs, "/data", self.config, self.clock, self.flush)
        self.groups = GroupCoordinator(self.topics, self.clock, self.config)
        self.groups.load()

    def sync(self) -> None:
        """Make all that was written durable."""
        self.topics.internal("__consumer_offsets")[0].durability.flush_now()

    async def durable(self, pending: Awaitable[Any]) -> Any:
        """Make all durable, then take the answer."""
        self.sync()
        return await pending

    def topic_id(self) -> bytes:
        topic = self.topics.get("t")
        assert topic is not None
        return topic.topic_id

    async def beat(
        self, member: str, epoch: int, owned: set[int] | None = None, **more: Any
    ) -> ConsumerHeartbeatAnswer:
        parts = None if owned is None else frozenset((self.topic_id(), index) for index in owned)
        event = ConsumerHeartbeat(member, epoch, owned=parts, **more)
        answer: ConsumerHeartbeatAnswer = await self.durable(self.groups.consumer_heartbeat("g", event))
        return answer

    async def join(self, member: str, **more: Any) -> ConsumerHeartbeatAnswer:
        wanted = {"rebalance_timeout_ms": 60_000, "topics": frozenset({"t"}), **more}
        return await self.beat(member, 0, set(), **wanted)

    async def commit(self, who: Committer, offset: int) -> None:
        new = NewOffset(("t", 0), self.topic_id(), offset, -1, "")
        results = await self.durable(self.groups.commit_offsets(who, [new]))
        assert results == {("t", 0): E.NONE}

    async def classic(self) -> str:
        """A classic group with one member that reads all; its id."""
        joining = Join(
            "", None, "c", "h", "consumer", (("range", subscription("t")),), 60_000, 60_000, "old", False
        )
        joined: JoinAnswer = await self.durable(self.groups.join("g", joining))
        assert joined.error is E.NONE
        given = {"old": assignment("t", 0, 1, 2, 3)}
        syncing = Sync("old", None, joined.generation, "consumer", "range", given)
        synced: SyncAnswer = await self.durable(self.groups.sync("g", syncing))
        assert synced.error is E.NONE
        return "old"

    def seen(self) -> object:
        """All that there is to know about the group."""
        consumer, classic = self.groups.describe_consumer("g"), self.groups.describe("g")
        members: object = None
        if classic is not None and (classic.members or classic.generation):
            assignments = {m.member_id: m.assignment for m in classic.members.values()}
            # Whether members have been asked to join again is not kept: they hear of it by themselves.
            members = (
                classic.generation,
                classic.protocol,
                assignments,
                classic.state is ClassicGroupState.EMPTY,
            )
        offsets = [(group, place, c.offset) for group, place, c in self.groups.committed_offsets()]
        return consumer, members, offsets


def disk_with_topics() -> FakeFileSystem:
    """A disk with a topic of four partitions and the coordinator's own."""
    fs = FakeFileSystem()
    fs.make_dir("/data")
    fs.sync_dir("/")
    life = Life(fs)
    life.topics.create("t", 4, {})
    life.topics.internal("__consumer_offsets")
    life.topics.close()
    fs.locked.clear()
    return fs


# -- on real logs --------------------------------------------------------------------------------
# A group coordinator on real logs, which can be crashed and started again. The flush can be held back.

T = TypeVar("T")

SHELL_CONFIG = {
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
        options = {"log.dirs": str(data), **SHELL_CONFIG, **(config or {})}
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
