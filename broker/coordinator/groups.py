"""The group coordinator: classic consumer groups and committed offsets, kept in `__consumer_offsets`.

The rules are pure and elsewhere (`rules.classic_group`, `rules.offsets`). Here they meet the log, the
clock and the event loop: `group_journal` writes and reads the log, `group_members` runs groups,
`offsets_shell` commits and fetches offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from eoslog.broker.coordinator.group_journal import TOPIC, GroupJournal, replay
from eoslog.broker.coordinator.group_members import GroupMembers, settings_of
from eoslog.broker.coordinator.group_records import GroupRecord
from eoslog.broker.coordinator.offsets_shell import GroupOffsets, NewOffset, Results, TransactionalCommit
from eoslog.broker.rules.classic_events import (
    Heartbeat,
    HeartbeatAnswer,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Sync,
    SyncAnswer,
)
from eoslog.broker.rules.classic_state import Group
from eoslog.broker.rules.offsets import Committed, Committer, Fetched, Place

if TYPE_CHECKING:
    from eoslog.broker.config import BrokerConfig
    from eoslog.broker.coordinator.transactions import TransactionCoordinator
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.ports import Clock
    from eoslog.broker.topics import Topics


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
        self._offsets = GroupOffsets(self._journal, self._members, clock, config)
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
        """Rebuild all state from the log; on a running event loop, start the members' sessions too.

        A partition that cannot be read is reported, and its groups are refused.
        """
        for partition in self._journal.existing():
            self._journal.replay(partition, self._read)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # Not on the loop yet: `start` does the rest.
        self.start()

    def start(self) -> None:
        """Start the sessions of members that were read back. Needs the running event loop."""
        self._members.start()

    def close(self) -> None:
        """Stop all timers."""
        self._members.close()

    def _read(self, partition: Partition) -> None:
        replay(
            partition,
            on_offset=partial(self._offsets.replay, partition),
            on_group=self._replay_group,
            on_marker=partial(self._offsets.replay_marker, partition),
        )

    def _replay_group(self, record: GroupRecord) -> None:
        self._members.replay(record.group_id, record.group)

    # Where

    def group_partition(self, group_id: str) -> Partition:
        """Return the `__consumer_offsets` partition that keeps a group; the topic is made on first use."""
        return self._journal.partition(group_id)

    # Members

    def join(self, group_id: str, event: Join) -> asyncio.Future[JoinAnswer]:
        """Apply a join now; the future gets its answer when the join phase ends."""
        return self._members.submit(group_id, event)

    def sync(self, group_id: str, event: Sync) -> asyncio.Future[SyncAnswer]:
        """Apply a sync now; the future gets its answer when the leader has assigned."""
        return self._members.submit(group_id, event)

    def heartbeat(self, group_id: str, event: Heartbeat) -> asyncio.Future[HeartbeatAnswer]:
        """Apply a heartbeat."""
        return self._members.submit(group_id, event)

    def leave(self, group_id: str, event: Leave) -> asyncio.Future[LeaveAnswer]:
        """Take members out."""
        return self._members.submit(group_id, event)

    # Offsets

    def commit_offsets(self, who: Committer, offsets: Sequence[NewOffset]) -> Awaitable[Results]:
        """Commit offsets now; the awaitable gives each place's result once it is durable.

        Raises KafkaError if all are refused.
        """
        return self._offsets.commit(who, offsets)

    def txn_commit_offsets(
        self, txn: TransactionalCommit, who: Committer, offsets: Sequence[NewOffset]
    ) -> Awaitable[Results]:
        """Commit offsets as part of a transaction; they show when it commits.

        Raises KafkaError, at once or from the awaitable, if all are refused.
        """
        return self._offsets.commit_in_transaction(txn, who, offsets)

    def fetch_offsets(
        self, group_id: str, places: Sequence[tuple[Place, bytes | None]] | None, require_stable: bool
    ) -> Awaitable[list[tuple[Place, Fetched]]]:
        """Read committed offsets of (place, topic id if known), or all of the group's if None."""
        return self._offsets.fetch(group_id, places, require_stable)

    def committed_offsets(self) -> Iterator[tuple[str, Place, Committed]]:
        """Yield every committed offset as (group, place, offset), for metrics."""
        return self._offsets.all_committed()

    # What others tell

    def on_marker(self, partition: Partition, producer_id: int, epoch: int, commit: bool) -> None:
        """A transaction marker was appended to `partition`: settle what the transaction had pending."""
        if partition.topic == TOPIC:
            self._offsets.replay_marker(partition, producer_id, commit)

    def on_topic_deleted(self, topic: str) -> None:
        """A topic was deleted: so are the offsets committed for it. Raises KafkaError if that fails."""
        self._offsets.forget_topic(topic)

    # Descriptions

    def describe(self, group_id: str) -> Group | None:
        """Return a group, or None if there is none of this id. One with offsets only is Empty.

        Raises KafkaError if the partition that keeps it is not available.
        """
        if self._journal.existing():
            self._journal.partition(group_id)
        group = self._members.get(group_id)
        if group is None and group_id in self._offsets.groups():
            return Group(group_id)
        return group

    def list_groups(self) -> list[Group]:
        """Return all groups, by id. Raises KafkaError if a partition that may keep some is not available."""
        self._journal.readable()
        groups = {group_id: Group(group_id) for group_id in self._offsets.groups()}
        groups.update({group.group_id: group for group in self._members.all()})
        return [groups[group_id] for group_id in sorted(groups)]
