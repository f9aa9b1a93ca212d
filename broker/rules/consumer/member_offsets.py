"""Which members may commit and fetch offsets of a consumer group (KIP-848, KIP-1251).

A member commits with its epoch. A member with an older epoch, which does not know the newer one yet, may
still commit for partitions that it got at that epoch or before and has not lost since.
"""

from __future__ import annotations

from collections.abc import Iterable

from eoslog.broker.rules.committed_offsets import Committer
from eoslog.broker.rules.consumer.consumer_group_state import (
    ConsumerGroup,
    ConsumerGroupMember,
    Part,
    unknown_member,
)
from eoslog.protocol.errors import ErrorCode, KafkaError

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
