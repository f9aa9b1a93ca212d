"""Committed offsets of consumer groups: what is committed, what is pending in open transactions.

`OffsetStore` holds the offsets of one `__consumer_offsets` partition. It changes only by replaying that
partition's log in order: offset records (plain, transactional, tombstones) and transaction markers. So the
state after a restart is the same as before it.

A transactional offset is pending under its producer id until a marker comes. Commit makes it the committed
offset, unless a newer record (a higher offset in the log) has already set one. Abort drops it.

A member of a consumer group commits with its epoch. A member with an older epoch, which does not know the
newer one yet, may still commit for partitions that it got at that epoch or before and has not lost since.

Sources: KIP-98 and KIP-447 (pending offsets, UNSTABLE_OFFSET_COMMIT); KIP-848 and KIP-1251 (who may commit);
OffsetCommitKey, OffsetCommitValue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

from eoslog.broker.coordinator.groups.classic_group import validate_member
from eoslog.broker.coordinator.groups.classic_group_state import ClassicGroup, ClassicGroupState
from eoslog.broker.coordinator.groups.consumer_group_state import (
    ConsumerGroup,
    ConsumerGroupMember,
    Part,
    unknown_member,
)
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.messages.groups import CONSUMER_PROTOCOL_SUBSCRIPTION
from eoslog.protocol.schema import ProtocolError
from eoslog.protocol.topic_partitions import TopicPartition

NO_TOPIC_ID = bytes(16)
"""Topic id of records written before topics had ids."""

"""(topic, partition)"""


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed (or pending) offset. `record_offset` is where its record is in the log."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    record_offset: int
    topic_id: bytes = NO_TOPIC_ID
    expire_timestamp: int = -1
    """When it expires (ms since the epoch) if the client gave a retention time, else -1."""


class OffsetStore:
    """Offsets of all groups of one `__consumer_offsets` partition; changes by replay only."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, Committed]] = {}
        self._pending: dict[int, dict[tuple[str, TopicPartition], Committed]] = {}
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}

    # Replay

    def replay_commit(
        self, group: str, place: TopicPartition, value: Committed, producer_id: int | None
    ) -> None:
        """Apply an offset record. With a `producer_id` the offset is pending; None: a plain commit."""
        if producer_id is None:
            self._committed.setdefault(group, {})[place] = value
            return
        self._pending.setdefault(producer_id, {})[group, place] = value
        self._open.setdefault(group, {}).setdefault(place, set()).add(producer_id)

    def replay_tombstone(self, group: str, place: TopicPartition) -> None:
        """Apply a tombstone: delete the offset, and what is pending for the same partition."""
        committed = self._committed.get(group, {})
        committed.pop(place, None)
        if not committed:
            self._committed.pop(group, None)
        for producer_id in self._open.get(group, {}).get(place, set()).copy():
            self._drop_pending(producer_id, group, place)

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """Apply a transaction marker: commit or drop everything that is pending under `producer_id`."""
        for (group, place), value in list(self._pending.get(producer_id, {}).items()):
            self._drop_pending(producer_id, group, place)
            if not commit:
                continue
            offsets = self._committed.setdefault(group, {})
            standing = offsets.get(place)
            if standing is None or value.record_offset > standing.record_offset:
                offsets[place] = value

    def _drop_pending(self, producer_id: int, group: str, place: TopicPartition) -> None:
        pending = self._pending[producer_id]
        del pending[group, place]
        if not pending:
            del self._pending[producer_id]
        places = self._open[group]
        places[place].discard(producer_id)
        if not places[place]:
            del places[place]
        if not places:
            del self._open[group]

    # Questions

    def get(self, group: str, place: TopicPartition) -> Committed | None:
        """Return the committed offset, never a pending one."""
        return self._committed.get(group, {}).get(place)

    def unstable(self, group: str, place: TopicPartition) -> bool:
        """Tell whether an open transaction holds an offset for `place`."""
        return place in self._open.get(group, {})

    def places(self, group: str) -> list[TopicPartition]:
        """Return every place with a committed or a pending offset of `group`, sorted."""
        return sorted({*self._committed.get(group, {}), *self._open.get(group, {})})

    def groups(self) -> set[str]:
        """Return the ids of the groups that have committed or pending offsets."""
        return {*self._committed, *self._open}

    def all_committed(self) -> Iterator[tuple[str, TopicPartition, Committed]]:
        """Yield every committed offset as (group, place, offset); the store must not change meanwhile."""
        for group, offsets in self._committed.items():
            for place, committed in offsets.items():
                yield group, place, committed

    def committed_of(self, group: str) -> Mapping[TopicPartition, Committed]:
        """Return the committed offsets of a group."""
        return self._committed.get(group, {})

    def holds(self, group: str) -> bool:
        """Tell whether `group` has any committed or pending offset."""
        return group in self._committed or group in self._open

    def of_topic(self, topic: str) -> set[tuple[str, TopicPartition]]:
        """Return (group, place) of every committed or pending offset of this topic."""
        both = (self._committed, self._open)
        return {(group, p) for kind in both for group, held in kind.items() for p in held if p[0] == topic}


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer of OffsetFetch for one partition; offset -1 where nothing is committed."""

    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


NOTHING = Fetched()
"""The answer for a partition for which nothing is committed."""


def fetch(
    store: OffsetStore, group: str, place: TopicPartition, topic_id: bytes | None, require_stable: bool
) -> Fetched:
    """The answer for one partition. `topic_id` is the topic's current id, None if it does not exist.

    An offset that was committed to an older topic of the same name does not count.
    """
    if require_stable and store.unstable(group, place):
        return Fetched(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    value = store.get(group, place)
    if value is None:
        return NOTHING
    if topic_id is not None and value.topic_id not in (topic_id, NO_TOPIC_ID):
        return NOTHING
    return Fetched(value.offset, value.leader_epoch, value.metadata)


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits: a group and, where it has members, the member and its generation."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


def validate_commit(group: ClassicGroup | None, who: Committer, *, transactional: bool) -> ErrorCode:
    """Whether `who` may commit to `group`, as an error code. `group` is None if it never had members.

    Generation -1 without a member id is right for groups without members ("simple" groups). In a transaction
    it is right for every group, because clients before KIP-447 send nothing else.
    """
    if transactional and not who.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        group = ClassicGroup(who.group_id)
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if who.generation < 0 and group.state is ClassicGroupState.EMPTY:
        return ErrorCode.NONE
    if who.generation < 0 and not who.member_id and who.instance_id is None:
        return ErrorCode.NONE if transactional else ErrorCode.UNKNOWN_MEMBER_ID
    error = validate_member(group, who.member_id, who.instance_id)
    if error is ErrorCode.NONE and who.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if error is ErrorCode.NONE and not transactional and group.state is ClassicGroupState.COMPLETING:
        # It has received the join answer of this generation, so it knows what to do next.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return error


def metadata_fits(metadata: str | None, limit: int) -> bool:
    """Tell whether offset metadata is within `limit`, counted in UTF-16 units as Kafka does."""
    if metadata is None or 2 * len(metadata) <= limit:
        return True
    return len(metadata.encode("utf-16-le", "surrogatepass")) // 2 <= limit


FIRST_WITH_EPOCH = 9
"""The first version of OffsetCommit and OffsetFetch with member epochs."""


def check_commit(
    group: ConsumerGroup, who: Committer, parts: Iterable[Part], *, transactional: bool, version: int
) -> None:
    """Raise KafkaError unless `who` may commit for these partitions.

    Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH and UNSUPPORTED_VERSION.
    """
    if who.generation < 0 and not group.members:
        return
    if transactional and who.generation == -1 and not who.member_id and who.instance_id is None:
        return
    member = group.member(who.member_id)
    if not transactional and version < FIRST_WITH_EPOCH:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"members of the consumer protocol need version {FIRST_WITH_EPOCH} of OffsetCommit",
        )
    if who.generation == member.current.epoch:
        return
    stale = _stale(group, member, who.generation)
    if who.generation > member.current.epoch:
        raise stale
    for part in parts:
        since = member.current.assigned.get(part, member.current.revoking.get(part))
        if since is None or who.generation < since:
            raise stale


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Raise KafkaError UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH unless this member may fetch."""
    if member_id is None and epoch < 0:
        return
    member = group.members.get(member_id or "")
    if member is None:
        raise unknown_member(group.group_id, member_id or "")
    if epoch != member.current.epoch:
        raise _stale(group, member, epoch)


def _stale(group: ConsumerGroup, member: ConsumerGroupMember, epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"group {group.group_id!r}, {member.member_id}: not at epoch {epoch} but {member.current.epoch}",
    )


# -- offset expiry ---------------------------------------------------------------------------------
# When committed offsets expire (KIP-211), and when they may be deleted.
#
# | group | an offset expires offsets.retention.minutes after |
# |---|---|
# | classic, Empty | the group became empty |
# | classic, Stable, of consumers | its commit, if no member reads its topic |
# | classic, rebalancing, or not of consumers | it does not expire |
# | no members ever (offsets only) | its commit |
# | consumer group with members | its commit, if no member reads its topic |
# | consumer group without members | its commit, or the group became empty, whichever came later |
#
# An offset whose client gave a retention time (OffsetCommit 2-4) expires at that time in all of these
# cases. An offset never expires while an open transaction has an offset for the same partition. For a
# consumer group without members Kafka counts from the commit alone, so a group that read a quiet topic
# loses its offsets as soon as it stops.


@dataclass(frozen=True, slots=True)
class Basis:
    """When offsets of a group begin to age: at the commit, or at `since` if that is later.

    With `instead`, always at `since`. Offsets of topics in `read` do not expire.
    """

    since: int = -1
    instead: bool = False
    read: Set[str] = frozenset()

    def starts(self, committed: Committed) -> int:
        """When an offset begins to age, in ms since the epoch."""
        return self.since if self.instead else max(self.since, committed.commit_timestamp)


def topics_read(group: ClassicGroup) -> frozenset[str] | None:
    """The topics that members of a classic group of consumers read; None if that is unknown."""
    if group.protocol_type != PROTOCOL_TYPE:
        return None
    if not group.members:
        return frozenset()
    if group.protocol is None:
        return None
    try:
        read = [subscribed_topics(m.metadata(group.protocol)) for m in group.members.values()]
    except ProtocolError:
        return None  # Not the consumers' protocol, whatever its name.
    return frozenset().union(*read)


def basis_of_classic(group: ClassicGroup | None) -> Basis | None:
    """How a classic group's offsets age; None if they do not age now. No group: there are only offsets."""
    if group is None or group.protocol_type is None:
        return Basis()
    if group.state is ClassicGroupState.EMPTY:
        return Basis(group.state_since, instead=group.state_since >= 0)
    read = topics_read(group)
    if group.state is ClassicGroupState.STABLE and read is not None:
        return Basis(read=read)
    return None


def basis_of_consumer(group: ConsumerGroup, empty_since: int) -> Basis:
    """How a consumer group's offsets age."""
    return Basis(read=group.subscribed()) if group.members else Basis(empty_since)


def expired(
    offsets: Mapping[TopicPartition, Committed],
    basis: Basis,
    pending: Set[TopicPartition],
    now: int,
    retention_ms: int,
) -> list[TopicPartition]:
    """The partitions whose offset has expired; `pending` are those with offsets in open transactions."""
    return [
        place
        for place, committed in offsets.items()
        if place[0] not in basis.read and place not in pending and _old(committed, basis, now, retention_ms)
    ]


def _old(committed: Committed, basis: Basis, now: int, retention_ms: int) -> bool:
    if committed.expire_timestamp != -1:
        return now >= committed.expire_timestamp
    return now - basis.starts(committed) >= retention_ms


PROTOCOL_TYPE = "consumer"

_LATEST = 3


def subscribed_topics(data: bytes) -> frozenset[str]:
    """The topics of a ConsumerProtocolSubscription. Raises ProtocolError.

    Newer versions begin with the same fields.
    """
    if len(data) < 2:
        raise ProtocolError(f"a subscription of {len(data)} bytes has no version")
    version = min(int.from_bytes(data[:2], "big", signed=True), _LATEST)
    if version < 0:
        raise ProtocolError(f"a subscription has version {version}")
    body, _ = CONSUMER_PROTOCOL_SUBSCRIPTION.read(version, data, 2)
    return frozenset(body["topics"])
