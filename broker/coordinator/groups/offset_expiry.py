"""When committed offsets expire (KIP-211), and when they may be deleted.

| group | an offset expires offsets.retention.minutes after |
|---|---|
| classic, Empty | the group became empty |
| classic, Stable, of consumers | its commit, if no member reads its topic |
| classic, rebalancing, or not of consumers | it does not expire |
| no members ever (offsets only) | its commit |
| consumer group with members | its commit, if no member reads its topic |
| consumer group without members | its commit, or the group became empty, whichever came later |

An offset whose client gave a retention time (OffsetCommit 2-4) expires at that time in all of these cases. An
offset never expires while an open transaction has an offset for the same partition. For a consumer group
without members Kafka counts from the commit alone, so a group that read a quiet topic loses its offsets as
soon as it stops.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from eoslog.broker.coordinator.groups.classic_group_state import ClassicGroup as ClassicGroup
from eoslog.broker.coordinator.groups.classic_group_state import ClassicGroupState
from eoslog.broker.coordinator.groups.committed_offsets import Committed
from eoslog.broker.coordinator.groups.consumer_group_state import ConsumerGroup
from eoslog.protocol.messages.groups import CONSUMER_PROTOCOL_SUBSCRIPTION
from eoslog.protocol.schema import ProtocolError
from eoslog.protocol.topic_partitions import TopicPartition


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
