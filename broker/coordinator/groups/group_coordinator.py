"""The group coordinator: groups of both protocols and committed offsets, kept in `__consumer_offsets`.

The rules are pure (`classic_group`, `consumer_group`, `committed_offsets`). The other modules of this folder
connect them to the log, the clock and the event loop: `group_journal` writes and reads the log,
`classic_groups` runs classic groups, `consumer_groups` those of KIP-848, `group_offsets` commits and fetches
offsets, `GroupCleanup` deletes expired groups and offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from eoslog.broker.coordinator.groups.classic_group_state import (
    ClassicGroup,
    Heartbeat,
    HeartbeatAnswer,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Request,
    Sync,
    SyncAnswer,
)
from eoslog.broker.coordinator.groups.classic_groups import GroupMembers, settings_of
from eoslog.broker.coordinator.groups.committed_offsets import Committed, Committer, Fetched
from eoslog.broker.coordinator.groups.consumer_group_state import (
    ConsumerGroup,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from eoslog.broker.coordinator.groups.consumer_groups import (
    ClusterView,
    ConsumerGroups,
    VisibleTopics,
    answered,
)
from eoslog.broker.coordinator.groups.group_journal import TOPIC, GroupJournal, replay
from eoslog.broker.coordinator.groups.group_offsets import (
    LATEST_COMMIT,
    NOBODY,
    GroupCleanup,
    GroupOffsets,
    NewOffset,
    Results,
    TransactionalCommit,
)
from eoslog.broker.coordinator.groups.group_records import GroupRecord
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from eoslog.broker.config import BrokerConfig
    from eoslog.broker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.ports import Clock
    from eoslog.broker.topics.topics import Topics


class GroupCoordinator:
    """Everything about groups and their offsets. Use it from the event loop's thread only."""

    def __init__(
        self,
        topics: Topics,
        clock: Clock,
        config: BrokerConfig,
        transactions: TransactionCoordinator | None = None,
    ) -> None:
        self._journal = GroupJournal(topics, clock)
        self._members = GroupMembers(self._journal, clock, settings_of(config))
        self.consumers = ConsumerGroups(self._journal, self._members, ClusterView(topics), clock, config)
        self._offsets = GroupOffsets(self._journal, self._members, self.consumers, clock, config)
        self._cleanup = GroupCleanup(
            self._journal, self._members, self.consumers, self._offsets, topics, clock, config
        )
        self.transactions = transactions

    @property
    def transactions(self) -> TransactionCoordinator | None:
        """The transaction coordinator, which knows whether offsets may join a transaction."""
        return self._offsets.transactions

    @transactions.setter
    def transactions(self, transactions: TransactionCoordinator | None) -> None:
        self._offsets.transactions = transactions

    # Life

    def load(self) -> None:
        """Rebuild all state from the log; on a running event loop, also start the members' sessions.

        A partition that cannot be read is reported, and its groups are refused.
        """
        for partition in self._journal.existing():
            self._journal.replay(partition, self._read)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # Not on the loop yet: `start` does the rest.
        self.start()

    def read_again(self, partition: Partition) -> None:
        """Reload the groups of a partition that was offline, if it keeps any.

        Waiting requests get NOT_COORDINATOR, as if the groups had moved to another broker, and try again.
        """
        if partition.topic != TOPIC:
            return
        self._members.unload(partition)
        self.consumers.unload(partition)
        self._offsets.unload(partition)
        self._journal.replay(partition, self._read)
        self._members.start(partition)
        self.consumers.start(partition)

    def start(self) -> None:
        """Start the sessions of members that were read back. Needs the running event loop."""
        self._members.start()
        self.consumers.start()

    def close(self) -> None:
        """Stop all timers and refuse parked joins and syncs. A second call does nothing."""
        self._members.close()
        self.consumers.close()

    def _read(self, partition: Partition) -> None:
        replay(
            partition,
            on_offset=partial(self._offsets.replay, partition),
            on_group=self._replay_group,
            on_consumer_group=self.consumers.replay,
            on_marker=partial(self._offsets.replay_marker, partition),
        )

    def _replay_group(self, record: GroupRecord) -> None:
        self._members.replay(record.group_id, record.group)

    # Partitions

    def group_partition(self, group_id: str) -> Partition:
        """Return the `__consumer_offsets` partition of a group; the topic is created on first use."""
        return self._journal.partition(group_id)

    # Members

    def join(self, group_id: str, event: Join) -> asyncio.Future[JoinAnswer]:
        """Apply a join now. The future gets its answer when the join phase ends."""
        if not event.member_id and not self.consumers.has_members(group_id):
            try:
                self.consumers.make_room(group_id)
            except KafkaError as error:
                return answered(JoinAnswer(error.code))
        return self._submit(group_id, event)

    def sync(self, group_id: str, event: Sync) -> asyncio.Future[SyncAnswer]:
        """Apply a sync now. The future gets its answer when the leader has sent the assignment."""
        return self._submit(group_id, event)

    def heartbeat(self, group_id: str, event: Heartbeat) -> asyncio.Future[HeartbeatAnswer]:
        """Apply a heartbeat."""
        return self._submit(group_id, event)

    def leave(self, group_id: str, event: Leave) -> asyncio.Future[LeaveAnswer]:
        """Remove members."""
        return self._submit(group_id, event)

    def _submit(self, group_id: str, event: Request) -> asyncio.Future[Any]:
        if self.consumers.has_members(group_id):
            return self.consumers.classic(group_id, event)
        return self._members.submit(group_id, event)

    def consumer_heartbeat(
        self, group_id: str, beat: ConsumerHeartbeat, visible_topics: VisibleTopics | None = None
    ) -> Awaitable[ConsumerHeartbeatAnswer]:
        """Apply a heartbeat of KIP-848. The awaitable returns its answer once that is durable.

        `visible_topics`: which topics the client may see, where there are ACLs. Raises KafkaError; nothing
        changes then.
        """
        return self.consumers.heartbeat(group_id, beat, visible_topics)

    # Offsets

    def commit_offsets(
        self, who: Committer, offsets: Sequence[NewOffset], version: int = LATEST_COMMIT
    ) -> Awaitable[Results]:
        """Commit offsets now, by the rules of a version of OffsetCommit.

        The awaitable returns each place's result once it is durable. Raises KafkaError if all are refused.
        """
        return self._offsets.commit(who, offsets, version)

    def txn_commit_offsets(
        self, txn: TransactionalCommit, who: Committer, offsets: Sequence[NewOffset]
    ) -> Awaitable[Results]:
        """Commit offsets as part of a transaction; they become visible when it commits.

        Raises KafkaError, at once or from the awaitable, if all are refused.
        """
        return self._offsets.commit_in_transaction(txn, who, offsets)

    def fetch_offsets(
        self,
        group_id: str,
        places: Sequence[tuple[TopicPartition, bytes | None]] | None,
        require_stable: bool,
        reader: tuple[str | None, int] = NOBODY,
    ) -> Awaitable[list[tuple[TopicPartition, Fetched]]]:
        """Read committed offsets of (place, topic id if known), or all of the group's if None.

        `reader`: the member id and epoch of the client. Raises KafkaError if it may not read.
        """
        return self._offsets.fetch(group_id, places, require_stable, reader)

    def committed_offsets(self) -> Iterator[tuple[str, TopicPartition, Committed]]:
        """Yield every committed offset as (group, place, offset), for metrics."""
        return self._offsets.all_committed()

    # Events from other parts

    def on_marker(self, partition: Partition, producer_id: int, epoch: int, commit: bool) -> None:
        """A transaction marker was appended to `partition`: settle the transaction's pending offsets."""
        if partition.topic == TOPIC:
            self._offsets.replay_marker(partition, producer_id, commit)

    def on_topic_deleted(self, topic: str) -> None:
        """A topic was deleted: delete the offsets committed for it. Raises KafkaError if that fails."""
        self._offsets.forget_topic(topic)

    # Deletion

    def delete(self, group_id: str) -> Awaitable[None]:
        """Delete an empty group and its offsets. The awaitable returns when that is durable.

        Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, or an error of the log.
        """
        return self._cleanup.delete(group_id)

    def delete_offsets(
        self, group_id: str, places: Sequence[TopicPartition]
    ) -> Awaitable[dict[TopicPartition, ErrorCode]]:
        """Delete offsets of topics that the group does not read. The awaitable returns each place's result.

        Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        return self._cleanup.delete_offsets(group_id, places)

    async def expire(self) -> None:
        """Delete expired offsets, and groups that have none left, as offsets.retention.* defines."""
        await self._cleanup.expire()

    # Descriptions

    def describe(self, group_id: str) -> ClassicGroup | None:
        """Return a classic group, or None if there is none of this id. One with offsets only is Empty.

        Raises KafkaError if the partition that keeps it is not available.
        """
        if self._journal.existing():
            self._journal.partition(group_id)
        group = self._members.get(group_id)
        if group is None and self.consumers.get(group_id) is None and group_id in self._offsets.groups():
            return ClassicGroup(group_id)
        return group

    def describe_consumer(self, group_id: str) -> ConsumerGroup | None:
        """Return a consumer group, or None if there is none of this id. Raises KafkaError as `describe`."""
        if self._journal.existing():
            self._journal.partition(group_id)
        return self.consumers.get(group_id)

    def list_groups(self) -> list[ClassicGroup | ConsumerGroup]:
        """Return all groups, by id. Raises KafkaError if a partition that may keep some is not available."""
        self._journal.readable()
        groups: dict[str, ClassicGroup | ConsumerGroup] = {g: ClassicGroup(g) for g in self._offsets.groups()}
        groups.update({group.group_id: group for group in self._members.all()})
        groups.update({group.group_id: group for group in self.consumers.all()})
        return [groups[group_id] for group_id in sorted(groups)]
