"""Consumer groups (KIP-848) in a running broker, and the topics as they see them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eoslog.broker.config.options import ASSIGNORS
from eoslog.broker.coordinator.groups import consumer_group, group_records
from eoslog.broker.coordinator.groups.classic_group_state import (
    ANSWER_TO,
    Answer,
    Leave,
    LeaveAnswer,
    Request,
)
from eoslog.broker.coordinator.groups.classic_group_state import ClassicGroupState as ClassicState
from eoslog.broker.coordinator.groups.classic_groups import RETRY_S, GroupMembers
from eoslog.broker.coordinator.groups.consumer_group import assignor_of, end_of
from eoslog.broker.coordinator.groups.consumer_group_state import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerGroupResult,
    ConsumerGroupSettings,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    Deadlines,
    Fact,
    MemberState,
    MetadataImage,
    Now,
    Timer,
    TopicImage,
    apply,
    ends_group,
    makes_group,
    matching,
)
from eoslog.broker.coordinator.groups.group_deadlines import GroupDeadlines
from eoslog.broker.coordinator.groups.group_journal import GroupJournal, WhenDurable
from eoslog.broker.coordinator.groups.group_records import KeyValue, encode_group_tombstone
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.broker.config import BrokerConfig
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.ports import Clock
    from eoslog.broker.topics.topics import Topic, Topics

# -- cluster view ----------------------------------------------------------------------------------
# The topics of the broker as the rules of consumer groups see them (`MetadataImage`).


@dataclass(frozen=True, slots=True)
class VisibleTopics:
    """Which topics a client may describe, by the current ACLs."""

    sees: Callable[[str], bool]
    version: int
    """A number that grows with each change of the ACLs."""


class ClusterView:
    """The broker's topics. The matches of regular expressions are cached until the topics change."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._matches: dict[str, frozenset[str]] = {}
        self._matched_at = -1

    @property
    def version(self) -> int:
        """See `MetadataImage.version`."""
        return self._topics.version

    def topic(self, name: str) -> TopicImage | None:
        """See `MetadataImage.topic`."""
        return _info(self._topics.get(name))

    def matching(self, regex: str) -> frozenset[str]:
        """See `MetadataImage.matching`."""
        if self._matched_at != self.version:
            self._matches.clear()
            self._matched_at = self.version
        if regex not in self._matches:
            self._matches[regex] = matching(regex, self._topics.names())
        return self._matches[regex]

    def seen_by(self, visible_topics: VisibleTopics | None) -> MetadataImage:
        """The topics, with the matches of regular expressions limited to what a client may describe."""
        return self if visible_topics is None else _Seen(self, visible_topics)


class _Seen:
    """The topics as one client sees them. Only regular expressions are limited: names are checked before."""

    def __init__(self, cluster: ClusterView, visible_topics: VisibleTopics) -> None:
        self._cluster, self._visible_topics = cluster, visible_topics
        self.topic = cluster.topic

    @property
    def version(self) -> int:
        """A number that grows with each change of the topics or the ACLs."""
        return self._cluster.version + self._visible_topics.version

    def matching(self, regex: str) -> frozenset[str]:
        """See `MetadataImage.matching`; without the topics that the client may not describe, as in Kafka."""
        return frozenset(filter(self._visible_topics.sees, self._cluster.matching(regex)))


def _info(topic: Topic | None) -> TopicImage | None:
    return None if topic is None else TopicImage(topic.name, topic.topic_id, len(topic.partitions))


# -- consumer groups -------------------------------------------------------------------------------
# The I/O around consumer groups (KIP-848): requests in, records out, answers when durable, deadlines.
#
# For each event: the rules make facts, the facts are appended as one batch, the group is replaced, deadlines
# are set, and the answer goes out once the log is durable. An append that fails changes nothing and fails the
# request. If a consumer group replaces an empty classic group, one batch ends that group and begins its own.


logger = logging.getLogger(__name__)


def _within(own: str | None, default: int, low: int, high: int) -> int:
    """A group's own value, clamped to the current bounds, which may have changed since it was set."""
    return default if own is None else max(low, min(int(own), high))


def answered(answer: Answer) -> asyncio.Future[Any]:
    """A future that already has its answer."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future


def _no_configs(group_id: str) -> Mapping[str, str]:
    return {}


class ConsumerGroups:
    """All consumer groups."""

    def __init__(
        self,
        journal: GroupJournal,
        classic: GroupMembers,
        cluster: ClusterView,
        clock: Clock,
        config: BrokerConfig,
    ) -> None:
        self._journal, self._classic, self._cluster = journal, classic, cluster
        self._clock, self._config = clock, config
        self._groups: dict[str, ConsumerGroup] = {}
        self._deadlines = GroupDeadlines(clock, self._expire)
        self._empty_since: dict[str, int] = {}
        self._loaded_at = clock.now_ms()
        self.configs_of: Callable[[str], Mapping[str, str]] = _no_configs
        """The configs of a group by Kafka's names, where it has some of its own (KIP-848)."""

    def get(self, group_id: str) -> ConsumerGroup | None:
        """Return a group as it is now."""
        return self._groups.get(group_id)

    def all(self) -> list[ConsumerGroup]:
        """Return every group."""
        return list(self._groups.values())

    def has_members(self, group_id: str) -> bool:
        """Whether there is a consumer group of this id with members."""
        group = self._groups.get(group_id)
        return group is not None and bool(group.members)

    def empty_since(self, group_id: str) -> int:
        """When a group became empty, in ms since the epoch; the time of loading if that is not known."""
        return self._empty_since.get(group_id, self._loaded_at)

    def settings(self, group_id: str) -> ConsumerGroupSettings:
        """The options that are in effect for a group."""
        config, own = self._config, self.configs_of(group_id)
        session, beat = own.get("consumer.session.timeout.ms"), own.get("consumer.heartbeat.interval.ms")
        return ConsumerGroupSettings(
            session_timeout_ms=_within(
                session,
                config.groups.consumer_group_session_timeout_ms,
                config.groups.consumer_group_min_session_timeout_ms,
                config.groups.consumer_group_max_session_timeout_ms,
            ),
            heartbeat_interval_ms=_within(
                beat,
                config.groups.consumer_group_heartbeat_interval_ms,
                config.groups.consumer_group_min_heartbeat_interval_ms,
                config.groups.consumer_group_max_heartbeat_interval_ms,
            ),
            max_size=config.groups.consumer_group_max_size,
            assignors=self.assignors,
        )

    @property
    def assignors(self) -> tuple[str, ...]:
        """The assignors that members may ask for; the first one is the default."""
        return self._config.groups.consumer_group_assignors or ASSIGNORS

    def assignor(self, group: ConsumerGroup) -> str:
        """The assignor that a group uses: the one that most of its members ask for."""
        return assignor_of(group, self.assignors)

    # Requests

    def heartbeat(
        self, group_id: str, beat: ConsumerHeartbeat, visible_topics: VisibleTopics | None = None
    ) -> Awaitable[ConsumerHeartbeatAnswer]:
        """Apply a heartbeat; the first one joins, the last one leaves. A KafkaError changes nothing.

        `visible_topics`: what the client may see, where there are ACLs. If the group's regular expressions
        are due to be resolved again, that is done with these rights.
        """
        partition = self._journal.partition(group_id)  # Before reading the clock: this may create the topic.
        leaves = beat.epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)
        group, first = self._begin(group_id, joins=beat.epoch == JOIN_EPOCH)
        rule = consumer_group.leave if leaves else consumer_group.heartbeat
        cluster = self._cluster.seen_by(visible_topics)
        outcome, answer = rule(group, beat, cluster, self._now(), self.settings(group_id))
        self._commit(partition, group_id, outcome, first)
        return WhenDurable(self._journal, partition, answer)

    def _begin(self, group_id: str, *, joins: bool) -> tuple[ConsumerGroup, list[KeyValue]]:
        """The group of a heartbeat, and the records to write first: the end of an empty classic group."""
        group = self._groups.get(group_id)
        if group is not None:
            return group, []
        if not joins:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id!r}")
        classic = self._classic.get(group_id)
        if classic is None:
            return ConsumerGroup(group_id), []
        if classic.state is not ClassicState.EMPTY:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"group {group_id!r} has members of the classic protocol; members of the consumer protocol "
                "may join when they have left",
            )
        return ConsumerGroup(group_id), [encode_group_tombstone(group_id)]

    def classic(self, group_id: str, event: Request) -> asyncio.Future[Any]:
        """Answer a classic request to a consumer group with members: it may only remove members."""
        if isinstance(event, Leave):
            return self._remove(group_id, event)
        refusal = consumer_group.refusal(self._groups[group_id], event)
        return answered(ANSWER_TO[type(event)](error=refusal.code))

    def _remove(self, group_id: str, event: Leave) -> asyncio.Future[LeaveAnswer]:
        try:
            partition, settings = self._journal.partition(group_id), self.settings(group_id)
            group = self._groups[group_id]
            outcome, answer = consumer_group.remove(group, event, self._cluster, self._now(), settings)
            self._commit(partition, group_id, outcome)
        except KafkaError as error:
            return answered(LeaveAnswer(error.code))
        return asyncio.ensure_future(self._when_durable(WhenDurable(self._journal, partition, answer)))

    async def _when_durable(self, answer: Awaitable[LeaveAnswer]) -> LeaveAnswer:
        try:
            return await answer
        except KafkaError as error:
            return LeaveAnswer(error.code)

    def make_room(self, group_id: str) -> None:
        """Delete an empty group of this id, so that a classic group can use the id. Raises KafkaError."""
        group = self._groups.get(group_id)
        if group is not None and not group.members:
            self._journal.append(self._journal.partition(group_id), self.tombstones(group_id))
            self.forget(group_id)

    def tombstones(self, group_id: str) -> list[KeyValue]:
        """The records that delete a group; none if there is no such group."""
        group = self._groups.get(group_id)
        return [] if group is None else self._encode(group_id, end_of(group))

    def forget(self, group_id: str) -> None:
        """Remove a group whose tombstones have been written."""
        self._groups.pop(group_id, None)
        self._empty_since.pop(group_id, None)
        self._deadlines.drop(group_id)

    # One step

    def _now(self) -> Now:
        return Now(self._deadlines.now_ms(), self._clock.now_ms())

    def _encode(self, group_id: str, facts: Sequence[Fact]) -> list[KeyValue]:
        return [group_records.encode_fact(group_id, fact) for fact in facts]

    def _commit(
        self,
        partition: Partition,
        group_id: str,
        outcome: ConsumerGroupResult,
        first: Sequence[KeyValue] = (),
    ) -> None:
        """Write what a step decided, after `first` (the end of a classic group), then apply it."""
        records = [*first, *self._encode(group_id, outcome.facts)]
        if records:
            self._journal.append(partition, records)
        if first:
            self._classic.forget(group_id)
        self._groups[group_id] = outcome.group
        if outcome.group.members:
            self._empty_since.pop(group_id, None)
        else:
            self._empty_since.setdefault(group_id, self._clock.now_ms())
        self._deadlines.update(group_id, outcome.deadlines)

    def _expire(self, group_id: str) -> None:
        """Remove the members whose deadlines have passed."""
        group, due = self._groups.get(group_id), self._deadlines.due(group_id)
        if group is None:
            return
        for timer, member_id in due:
            logger.info("group %s: member %s is removed: %s", group_id, member_id, timer.value)
        gone = [member_id for _, member_id in due]
        try:
            settings = self.settings(group_id)
            outcome = consumer_group.fence(group, gone, self._cluster, self._now(), settings)
            self._commit(self._journal.partition(group_id), group_id, outcome)
        except KafkaError as error:
            logger.error("group %s: its state cannot be written, trying again: %s", group_id, error)
            self._deadlines.look_again(group_id, RETRY_S)

    # Reading back

    def replay(self, group_id: str, fact: Fact) -> None:
        """Apply a fact about a group that was read from the log."""
        group = self._groups.get(group_id)
        if group is None:
            if not makes_group(fact):
                return  # A tombstone about a group that is gone.
            group = self._groups[group_id] = ConsumerGroup(group_id)
        if ends_group(fact):
            del self._groups[group_id]
        else:
            apply(group, fact)

    def unload(self, partition: Partition) -> None:
        """Forget the groups that a partition keeps."""
        for group_id in [name for name in self._groups if self._journal.keeps(partition, name)]:
            self.forget(group_id)

    def start(self, partition: Partition | None = None) -> None:
        """Start the sessions of the members read back, of all partitions or one. Call on the event loop."""
        for group_id, group in self._groups.items():
            if partition is not None and not self._journal.keeps(partition, group_id):
                continue
            self._deadlines.update(group_id, self._sessions(group))

    def _sessions(self, group: ConsumerGroup) -> Deadlines:
        settings, deadlines = self.settings(group.group_id), Deadlines()
        for member in group.members.values():
            deadlines.update(self._of_member(member, settings))
        return deadlines

    def _of_member(self, member: ConsumerGroupMember, settings: ConsumerGroupSettings) -> Deadlines:
        now, profile = self._deadlines.now_ms(), member.profile
        deadlines: Deadlines = {(Timer.SESSION, member.member_id): now + settings.session_timeout_ms}
        if member.current.state is MemberState.UNREVOKED_PARTITIONS:
            deadlines[Timer.REBALANCE, member.member_id] = now + profile.rebalance_timeout_ms
        return deadlines

    def close(self) -> None:
        """Stop all timers."""
        self._deadlines.close()
