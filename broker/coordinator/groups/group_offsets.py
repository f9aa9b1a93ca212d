"""The I/O around committed offsets: plain and transactional commits, fetches, markers, deleted topics.

A commit is appended and applied in the synchronous part of the call, so commits of one connection keep
their order. The returned awaitable waits until it is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eoslog.broker.coordinator.groups.classic_group_state import ClassicGroupState
from eoslog.broker.coordinator.groups.classic_groups import GroupMembers
from eoslog.broker.coordinator.groups.committed_offsets import (
    NO_TOPIC_ID,
    NOTHING,
    Basis,
    Committed,
    Committer,
    Fetched,
    OffsetStore,
    basis_of_classic,
    basis_of_consumer,
    check_commit,
    check_fetch,
    expired,
    fetch,
    metadata_fits,
    topics_read,
    validate_commit,
)
from eoslog.broker.coordinator.groups.consumer_groups import ConsumerGroups
from eoslog.broker.coordinator.groups.group_journal import GroupJournal, WhenDurable, as_coordinator_error
from eoslog.broker.coordinator.groups.group_records import (
    KeyValue,
    OffsetRecord,
    encode_group_tombstone,
    encode_offset,
    encode_offset_tombstone,
)
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from eoslog.broker.config import BrokerConfig
    from eoslog.broker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.ports import Clock
    from eoslog.broker.topics.topics import Topics

FIRST_IMPLICIT = 5
"""TxnOffsetCommit's first version that itself adds the group's partition to the transaction."""
LATEST_COMMIT = 10
"""OffsetCommit's newest version."""
TOMBSTONES = 1000
"""The most tombstones in one batch, far below the largest batch that a log accepts."""
NOBODY: tuple[str | None, int] = (None, -1)
"""The (member id, epoch) of a client that fetches offsets without being a member."""


@dataclass(frozen=True, slots=True)
class NewOffset:
    """An offset to commit."""

    place: TopicPartition
    topic_id: bytes
    offset: int
    leader_epoch: int
    metadata: str | None
    retention_ms: int = -1
    """How long to keep it; clients may ask for that up to OffsetCommit 4. -1: as the broker's options say."""


@dataclass(frozen=True, slots=True)
class TransactionalCommit:
    """The transaction in which offsets are committed, and the version of TxnOffsetCommit."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int


Results = dict[TopicPartition, ErrorCode]


class GroupOffsets:
    """Committed offsets of all groups, by partition of `__consumer_offsets`."""

    def __init__(
        self,
        journal: GroupJournal,
        members: GroupMembers,
        consumers: ConsumerGroups,
        clock: Clock,
        config: BrokerConfig,
    ) -> None:
        self._journal = journal
        self._members = members
        self._consumers = consumers
        self._clock = clock
        self._longest_metadata = config.groups.offset_metadata_max_bytes
        self._stores: dict[int, OffsetStore] = {}
        self.transactions: TransactionCoordinator | None = None

    def store(self, partition: Partition) -> OffsetStore:
        """Return the offsets that a partition keeps."""
        return self._stores.setdefault(partition.index, OffsetStore())

    def groups(self) -> set[str]:
        """Return the ids of all groups with offsets."""
        return {group for store in self._stores.values() for group in store.groups()}

    def all_committed(self) -> Iterator[tuple[str, TopicPartition, Committed]]:
        """Yield every committed offset as (group, place, offset), including those not durable yet."""
        for store in self._stores.values():
            yield from store.all_committed()

    # Commits

    def commit(
        self, who: Committer, offsets: Sequence[NewOffset], version: int = LATEST_COMMIT
    ) -> Awaitable[Results]:
        """Commit offsets outside of a transaction. Raises KafkaError if all are refused."""
        self._validate(who, offsets, transactional=False, version=version)
        self._members.touch(who.group_id, who.member_id)
        return self._append(who, offsets, None)

    def commit_in_transaction(
        self, txn: TransactionalCommit, who: Committer, offsets: Sequence[NewOffset]
    ) -> Awaitable[Results]:
        """Commit offsets that take effect with the transaction. Raises KafkaError if all are refused."""
        if not who.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "TxnOffsetCommit names no group")
        joined = self._join_transaction(txn, who)
        if joined is None:
            return self._append_in_transaction(txn, who, offsets)
        return self._append_when_joined(joined, txn, who, offsets)

    async def _append_when_joined(
        self,
        joined: Awaitable[None] | None,
        txn: TransactionalCommit,
        who: Committer,
        offsets: Sequence[NewOffset],
    ) -> Results:
        # The transaction may end while this waits. Only a check right before the append, without a wait
        # between them, keeps offsets from being appended after the marker that should settle them.
        while joined is not None:
            try:
                await joined
            except KafkaError as error:
                raise _refusal(error) from error
            joined = self._join_transaction(txn, who)
        return await self._append_in_transaction(txn, who, offsets)

    def _append_in_transaction(
        self, txn: TransactionalCommit, who: Committer, offsets: Sequence[NewOffset]
    ) -> Awaitable[Results]:
        self._validate(who, offsets, transactional=True, version=0)
        return self._append(who, offsets, ProducerIdentity(txn.producer_id, txn.producer_epoch))

    def _join_transaction(self, txn: TransactionalCommit, who: Committer) -> Awaitable[None] | None:
        """Add the group's partition to the open transaction. Returns None if it is in it already."""
        if self.transactions is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there is no transaction coordinator")
        partition = self._journal.partition(who.group_id)
        try:
            return self.transactions.verify_partition(
                txn.transactional_id,
                txn.producer_id,
                txn.producer_epoch,
                partition.topic,
                partition.index,
                implicit_add=txn.version >= FIRST_IMPLICIT,
            )
        except KafkaError as error:
            raise _refusal(error) from error

    def _validate(
        self, who: Committer, offsets: Sequence[NewOffset], *, transactional: bool, version: int
    ) -> None:
        consumer_group, classic = self._consumers.get(who.group_id), self._members.get(who.group_id)
        if consumer_group is not None:
            parts = [(new.topic_id, new.place[1]) for new in offsets]
            check_commit(consumer_group, who, parts, transactional=transactional, version=version)
            return
        if classic is None and who.generation >= 0 and not self.holds(who.group_id):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {who.group_id!r}")
        error = validate_commit(classic, who, transactional=transactional)
        if error is not ErrorCode.NONE:
            raise KafkaError(error, f"group {who.group_id!r}, member {who.member_id!r}")

    def holds(self, group_id: str) -> bool:
        """Whether a group has any offset, committed or pending."""
        return self.store(self._journal.partition(group_id)).holds(group_id)

    def _append(
        self, who: Committer, offsets: Sequence[NewOffset], producer: ProducerIdentity | None
    ) -> Awaitable[Results]:
        """Append and apply the offsets that can be accepted. The awaitable returns each place's result."""
        partition = self._journal.partition(who.group_id)
        fitting = [o for o in offsets if metadata_fits(o.metadata, self._longest_metadata)]
        results = {o.place: ErrorCode.OFFSET_METADATA_TOO_LARGE for o in offsets}
        if fitting:
            now = self._clock.now_ms()
            values = [_committed(o, now) for o in fitting]
            records = [encode_offset(who.group_id, o.place, v) for o, v in zip(fitting, values, strict=True)]
            base = self._journal.append(partition, records, producer)
            store, producer_id = self.store(partition), producer.producer_id if producer else None
            for record_offset, (new, value) in enumerate(zip(fitting, values, strict=True), base):
                placed = replace(value, record_offset=record_offset)
                store.replay_commit(who.group_id, new.place, placed, producer_id)
                results[new.place] = ErrorCode.NONE
        return WhenDurable(self._journal, partition, results)

    # Fetches

    def fetch(
        self,
        group_id: str,
        places: Sequence[tuple[TopicPartition, bytes | None]] | None,
        require_stable: bool,
        reader: tuple[str | None, int] = NOBODY,
    ) -> Awaitable[list[tuple[TopicPartition, Fetched]]]:
        """Read committed offsets of (place, topic id if known), or of all places if None.

        The returned offsets are durable. With `require_stable`, places for which an open transaction has an
        offset have the error UNSTABLE_OFFSET_COMMIT. If all places are read, that includes those with
        nothing committed yet (Kafka leaves those out, so that a pending first commit looks like none). A
        member of a consumer group must give its epoch. Raises KafkaError UNKNOWN_MEMBER_ID,
        STALE_MEMBER_EPOCH.
        """
        partition = self._journal.partition(group_id)
        consumer_group = self._consumers.get(group_id)
        if consumer_group is not None:
            check_fetch(consumer_group, *reader)
        store = self.store(partition)
        if places is not None:
            answers = [(place, fetch(store, group_id, place, i, require_stable)) for place, i in places]
            return WhenDurable(self._journal, partition, answers)
        found = [(p, fetch(store, group_id, p, None, require_stable)) for p in store.places(group_id)]
        answers = [(p, a) for p, a in found if a != NOTHING]
        return WhenDurable(self._journal, partition, answers)

    # From the log

    def unload(self, partition: Partition) -> None:
        """Forget the offsets that a partition keeps."""
        self._stores.pop(partition.index, None)

    def replay(self, partition: Partition, record: OffsetRecord, producer_id: int | None) -> None:
        """Apply an offset record."""
        if record.value is None:
            self.store(partition).replay_tombstone(record.group_id, record.place)
        else:
            self.store(partition).replay_commit(record.group_id, record.place, record.value, producer_id)

    def replay_marker(self, partition: Partition, producer_id: int, commit: bool) -> None:
        """Apply a transaction marker of the partition."""
        self.store(partition).replay_marker(producer_id, commit)

    def forget_topic(self, topic: str) -> None:
        """Delete the offsets of a topic that was deleted. Raises KafkaError if that cannot be written."""
        for partition in self._journal.existing():
            store = self.store(partition)
            gone = sorted(store.of_topic(topic))
            for start in range(0, len(gone), TOMBSTONES):
                chunk = gone[start : start + TOMBSTONES]
                self._journal.append(partition, [encode_offset_tombstone(g, p) for g, p in chunk])
                for group, place in chunk:
                    store.replay_tombstone(group, place)


_NEVER = 2**63 - 1
"""The latest time, in ms, that fits into a record. A client may ask for a later one."""


def _committed(new: NewOffset, now: int) -> Committed:
    return Committed(
        offset=new.offset,
        leader_epoch=new.leader_epoch,
        metadata=new.metadata or "",
        commit_timestamp=now,
        expire_timestamp=-1 if new.retention_ms < 0 else min(now + new.retention_ms, _NEVER),
        record_offset=-1,
        topic_id=new.topic_id,
    )


def _refusal(error: KafkaError) -> KafkaError:
    """Return the transaction coordinator's refusal as one of the group's coordinator."""
    if error.code is ErrorCode.INVALID_TXN_STATE:
        return KafkaError(ErrorCode.TRANSACTION_ABORTABLE, error.message)
    return as_coordinator_error(error)


# -- offset expiration -----------------------------------------------------------------------------
# Deletion of groups and offsets: when they expire, and on request.
#
# Tombstones are appended first, then applied. Offsets of a deleted topic are deleted here as well, in case
# the broker stopped between the deletion of the topic and that of its offsets.


logger = logging.getLogger(__name__)

_MINUTE_MS = 60_000


class GroupCleanup:
    """Deletes groups and offsets."""

    def __init__(
        self,
        journal: GroupJournal,
        classic: GroupMembers,
        consumers: ConsumerGroups,
        offsets: GroupOffsets,
        topics: Topics,
        clock: Clock,
        config: BrokerConfig,
    ) -> None:
        self._journal, self._classic, self._consumers = journal, classic, consumers
        self._offsets, self._topics, self._clock, self._config = offsets, topics, clock, config

    # On request

    def delete(self, group_id: str) -> Awaitable[None]:
        """See `GroupCoordinator.delete`."""
        partition = self._journal.partition(group_id)
        self._check_exists(group_id)
        if not self._is_empty(group_id):
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members")
        self._remove(partition, group_id, self._offsets.store(partition).places(group_id), whole=True)
        return WhenDurable(self._journal, partition, None)

    def delete_offsets(
        self, group_id: str, places: Sequence[TopicPartition]
    ) -> Awaitable[dict[TopicPartition, ErrorCode]]:
        """See `GroupCoordinator.delete_offsets`."""
        partition = self._journal.partition(group_id)
        self._check_exists(group_id)
        read = self._topics_read(group_id)
        results = {
            place: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if place[0] in read else ErrorCode.NONE
            for place in places
        }
        held = set(self._offsets.store(partition).places(group_id))
        gone = [place for place, error in results.items() if error is ErrorCode.NONE and place in held]
        self._remove(partition, group_id, gone)
        return WhenDurable(self._journal, partition, results)

    def _check_exists(self, group_id: str) -> None:
        known = self._classic.get(group_id) or self._consumers.get(group_id)
        if known is None and not self._offsets.holds(group_id):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")

    def _is_empty(self, group_id: str) -> bool:
        classic = self._classic.get(group_id)
        no_members = classic is None or classic.state is ClassicGroupState.EMPTY
        return no_members and not self._consumers.has_members(group_id)

    def _topics_read(self, group_id: str) -> frozenset[str]:
        """The topics that members read. Raises NON_EMPTY_GROUP if members' topics are not known."""
        consumer_group, classic = self._consumers.get(group_id), self._classic.get(group_id)
        if consumer_group is not None:
            return frozenset(consumer_group.subscribed())
        if classic is None or not classic.members:
            return frozenset()
        read = topics_read(classic)
        if read is None:
            why = f"group {group_id!r} has members, and what they read is not known"
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, why)
        return read

    # When they expire

    async def expire(self) -> None:
        """See `GroupCoordinator.expire`. A partition that cannot be written is left for the next run."""
        for partition in self._journal.existing():
            try:
                await self._expire(partition)
            except KafkaError as error:
                logger.warning("%s-%d: nothing expires now: %s", partition.topic, partition.index, error)

    async def _expire(self, partition: Partition) -> None:
        store = self._offsets.store(partition)
        groups = {*store.groups(), *self._empty_groups()}
        for group_id in sorted(g for g in groups if self._journal.partition(g) is partition):
            gone = self._expired(store, group_id)
            left = set(store.places(group_id)).difference(gone)
            whole = not left and self._is_empty(group_id)
            if gone or whole:
                self._remove(partition, group_id, gone, whole=whole)
                logger.info("group %s: %d offsets expired%s", group_id, len(gone), ", it is gone" * whole)
            await asyncio.sleep(0)  # Let other requests be served between two groups.

    def _empty_groups(self) -> list[str]:
        classic = [group.group_id for group in self._classic.all() if group.state is ClassicGroupState.EMPTY]
        return classic + [group.group_id for group in self._consumers.all() if not group.members]

    def _expired(self, store: OffsetStore, group_id: str) -> list[TopicPartition]:
        offsets = store.committed_of(group_id)
        pending = {place for place in offsets if store.unstable(group_id, place)}
        gone = {
            place for place, c in offsets.items() if self._topic_gone(c.topic_id) and place not in pending
        }
        basis = self._basis(group_id)
        if basis is not None:
            retention = self._config.groups.offsets_retention_minutes * _MINUTE_MS
            gone.update(expired(offsets, basis, pending, self._clock.now_ms(), retention))
        return sorted(gone)

    def _topic_gone(self, topic_id: bytes) -> bool:
        return topic_id != NO_TOPIC_ID and self._topics.by_id(topic_id) is None

    def _basis(self, group_id: str) -> Basis | None:
        consumer_group = self._consumers.get(group_id)
        if consumer_group is not None:
            return basis_of_consumer(consumer_group, self._consumers.empty_since(group_id))
        return basis_of_classic(self._classic.get(group_id))

    # Removal

    def _remove(
        self, partition: Partition, group_id: str, places: Sequence[TopicPartition], *, whole: bool = False
    ) -> None:
        """Write tombstones for these offsets and, if `whole`, for the group with the last of them."""
        store = self._offsets.store(partition)
        for start in range(0, max(len(places), 1), TOMBSTONES):
            chunk = places[start : start + TOMBSTONES]
            records = [encode_offset_tombstone(group_id, place) for place in chunk]
            ends = whole and start + TOMBSTONES >= len(places)
            if ends:
                records += self._tombstones(group_id)
            if records:
                self._journal.append(partition, records)
            for place in chunk:
                store.replay_tombstone(group_id, place)
            if ends:
                self._consumers.forget(group_id)
                self._classic.forget(group_id)

    def _tombstones(self, group_id: str) -> list[KeyValue]:
        classic = self._classic.get(group_id)
        ending = [] if classic is None else [encode_group_tombstone(group_id)]
        return [*self._consumers.tombstones(group_id), *ending]
