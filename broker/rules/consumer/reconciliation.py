"""The next step of one member of a consumer group (KIP-848) towards its target assignment.

A partition moves from one member to another in two steps. The old owner is asked to give it back and stays in
its epoch until it confirms that. Only then does the new owner get it. The next step of a member:

| its partitions | its next state | its epoch |
|---|---|---|
| it must give some back and has not confirmed that | UNREVOKED_PARTITIONS | unchanged |
| some of its target still belong to another member | UNRELEASED_PARTITIONS | the target's |
| neither | STABLE | the target's |
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from eoslog.broker.rules.consumer.consumer_group_state import (
    ConsumerGroupMember,
    CurrentAssignment,
    MemberState,
    Part,
)


@dataclass(frozen=True, slots=True)
class MemberTarget:
    """The target of a member, and what it reports.

    `topic_ids`: the topics that it subscribes to now. `others`: the partitions that other members may be
    reading. `says_owns`: what it reports to read (None: no report).
    """

    epoch: int
    target: frozenset[Part]
    topic_ids: Set[bytes]
    others: Mapping[Part, str]
    says_owns: frozenset[Part] | None
    subscription_changed: bool = False


def reconcile(member: ConsumerGroupMember, aim: MemberTarget) -> CurrentAssignment:
    """The member's current assignment after this step; the same object if nothing changes."""
    now = member.current
    if now.state is MemberState.STABLE and now.epoch == aim.epoch:
        return _drop_unsubscribed(now, aim) if aim.subscription_changed else now
    if now.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(now.revoking, aim):
        return _drop_unsubscribed(now, aim) if aim.subscription_changed else now
    return _advance(member, aim)


def _still_owns(revoking: Mapping[Part, int], aim: MemberTarget) -> bool:
    """Whether the member may still read some of `revoking`: only its report can rule that out."""
    return aim.says_owns is None or not aim.says_owns.isdisjoint(revoking)


def _advance(member: ConsumerGroupMember, aim: MemberTarget) -> CurrentAssignment:
    now = member.current
    target = frozenset(part for part in aim.target if part[0] in aim.topic_ids)
    kept = {part: epoch for part, epoch in now.assigned.items() if part in target}
    revoking = {part: epoch for part, epoch in now.assigned.items() if part not in target}
    if revoking and _still_owns(revoking, aim):
        return CurrentAssignment(now.epoch, now.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    missing = target - kept.keys()
    waits_for = {part for part in missing if aim.others.get(part, member.member_id) != member.member_id}
    state = MemberState.UNRELEASED_PARTITIONS if waits_for else MemberState.STABLE
    assigned = kept | dict.fromkeys(sorted(missing - waits_for), aim.epoch)
    reached = CurrentAssignment(aim.epoch, now.epoch, state, assigned)
    # A member that only waits stays as it is, without a record for each heartbeat.
    return now if reached == replace(now, previous_epoch=now.epoch) else reached


def _drop_unsubscribed(now: CurrentAssignment, aim: MemberTarget) -> CurrentAssignment:
    """Revoke at once what the member no longer subscribes to, whatever its target is."""
    dropped = {part: epoch for part, epoch in now.assigned.items() if part[0] not in aim.topic_ids}
    if not dropped:
        return now
    kept = {part: epoch for part, epoch in now.assigned.items() if part not in dropped}
    revoking = {**now.revoking, **dropped}
    if _still_owns(revoking, aim):
        return CurrentAssignment(now.epoch, now.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return replace(now, previous_epoch=now.epoch, assigned=kept)
