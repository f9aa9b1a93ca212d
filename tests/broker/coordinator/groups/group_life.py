"""A group coordinator on a disk in memory, with a clock that tests move, and short ways to say requests."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

from eoslog.broker.config import BrokerConfig
from eoslog.broker.coordinator.groups.classic_group_state import (
    ClassicGroupState,
    Join,
    JoinAnswer,
    Sync,
    SyncAnswer,
)
from eoslog.broker.coordinator.groups.committed_offsets import Committer
from eoslog.broker.coordinator.groups.consumer_group_state import ConsumerHeartbeat, ConsumerHeartbeatAnswer
from eoslog.broker.coordinator.groups.group_coordinator import GroupCoordinator
from eoslog.broker.coordinator.groups.group_offsets import NewOffset
from eoslog.broker.log.segment.group_flush import GroupFlush
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.internal_topics import coordinator_records
from eoslog.protocol.messages.consumer_protocol import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    CONSUMER_PROTOCOL_SUBSCRIPTION,
)
from tests.broker.log.fakefs import FakeClock, FakeFileSystem, Outcome, PowerLoss

if TYPE_CHECKING:
    from eoslog.protocol.typed import ConsumerProtocolAssignmentDraft, ConsumerProtocolSubscriptionDraft

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
