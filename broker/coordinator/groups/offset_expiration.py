"""Deletion of groups and offsets: when they expire, and on request.

Tombstones are appended first, then applied. Offsets of a deleted topic are deleted here as well, in case the
broker stopped between the deletion of the topic and that of its offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from eoslog.broker.coordinator.groups.classic_group_state import ClassicGroupState
from eoslog.broker.coordinator.groups.classic_groups import GroupMembers
from eoslog.broker.coordinator.groups.committed_offsets import NO_TOPIC_ID, OffsetStore
from eoslog.broker.coordinator.groups.consumer_groups import ConsumerGroups
from eoslog.broker.coordinator.groups.group_journal import GroupJournal, WhenDurable
from eoslog.broker.coordinator.groups.group_offsets import TOMBSTONES, GroupOffsets
from eoslog.broker.coordinator.groups.group_records import (
    KeyValue,
    encode_group_tombstone,
    encode_offset_tombstone,
)
from eoslog.broker.coordinator.groups.offset_expiry import (
    Basis,
    basis_of_classic,
    basis_of_consumer,
    expired,
    topics_read,
)
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from eoslog.broker.config import BrokerConfig
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.ports.ports import Clock
    from eoslog.broker.topics.topics import Topics

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
