"""A consumer group's rules (KIP-848): heartbeats of members, leaving members, and expired deadlines.

A heartbeat does up to three things. It updates the member's subscription, which may begin a new group epoch.
It makes the target assignment for that epoch. It moves the member one step towards its target. Refusals are
raised as KafkaError and change nothing.
"""

from __future__ import annotations

from dataclasses import replace

from eoslog.broker.rules.classic.classic_group_events import Heartbeat, Join, Leave, LeaveAnswer, Sync
from eoslog.broker.rules.consumer.consumer_group_events import (
    ConsumerGroupResult,
    ConsumerGroupSettings,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    Now,
    Timer,
)
from eoslog.broker.rules.consumer.consumer_group_state import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerGroupMember,
    CurrentAssignment,
    MemberProfile,
    MemberState,
    MetadataImage,
    Resolved,
    unknown_member,
)
from eoslog.broker.rules.consumer.consumer_group_step import ConsumerGroupStep
from eoslog.broker.rules.consumer.group_facts import CurrentFact, MemberFact, RegexFact
from eoslog.broker.rules.consumer.subscription_regex import check_regex
from eoslog.protocol.errors import ErrorCode, KafkaError


def heartbeat(
    group: ConsumerGroup,
    beat: ConsumerHeartbeat,
    cluster: MetadataImage,
    now: Now,
    settings: ConsumerGroupSettings,
) -> tuple[ConsumerGroupResult, ConsumerHeartbeatAnswer]:
    """Apply a heartbeat, including one that joins. `group` is a new `ConsumerGroup` if there was none.

    Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID,
    GROUP_MAX_SIZE_REACHED, INVALID_REGULAR_EXPRESSION.
    """
    work = ConsumerGroupStep(group, cluster, now, settings)
    _check_room(group, beat.member_id, beat.instance_id, settings.max_size)
    before = _admit(work, beat)
    changed = _update_profile(work, before, _profile(before.profile, beat))
    work.update_target()
    after = work.reconcile(beat.member_id, beat.owned, changed=changed)
    work.start(Timer.SESSION, beat.member_id, settings.session_timeout_ms)
    news = beat.epoch == JOIN_EPOCH or beat.complete or after.current.assigned != before.current.assigned
    answer = ConsumerHeartbeatAnswer(
        member_id=beat.member_id,
        epoch=after.current.epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        assignment=frozenset(after.current.assigned) if news else None,
    )
    return work.outcome(), answer


def _check_room(group: ConsumerGroup, member_id: str, instance_id: str | None, limit: int) -> None:
    """Raise KafkaError GROUP_MAX_SIZE_REACHED if the group is full."""
    known = member_id in group.members or group.static_member(instance_id) is not None
    if len(group.members) >= limit and not known:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id!r} takes no more than {limit} members",
        )


def _admit(work: ConsumerGroupStep, beat: ConsumerHeartbeat) -> ConsumerGroupMember:
    """The member before this heartbeat; a new one if it joins."""
    group = work.group
    holder = group.static_member(beat.instance_id)
    if beat.epoch == JOIN_EPOCH:
        left = holder is not None and holder.current.epoch == STATIC_LEAVE_EPOCH
        if holder is not None and (left or holder.member_id != beat.member_id):
            return _take_over(work, holder, beat.member_id)
        return group.members.get(beat.member_id) or ConsumerGroupMember(beat.member_id)
    member = _known(group, beat.member_id, beat.instance_id)
    _check_epoch(group, member, beat)
    return member


def _take_over(work: ConsumerGroupStep, holder: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
    """Give a static member's place to its new process. Raises KafkaError UNRELEASED_INSTANCE_ID."""
    if holder.current.epoch != STATIC_LEAVE_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"group {work.group.group_id!r}: {holder.profile.instance_id!r} is in use by {holder.member_id}",
        )
    current = replace(holder.current, epoch=0, previous_epoch=0)
    fresh = ConsumerGroupMember(member_id, holder.profile, current)
    work.replace(holder, fresh)
    return fresh


def _known(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
    """A member of the group. If it names a static id it must hold that id.

    Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    if instance_id is None:
        return group.member(member_id)
    holder = group.static_member(instance_id)
    if holder is None:
        raise unknown_member(group.group_id, member_id)
    if holder.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"group {group.group_id!r}: {instance_id!r} is held by {holder.member_id}, not by {member_id}",
        )
    return holder


def _check_epoch(group: ConsumerGroup, member: ConsumerGroupMember, beat: ConsumerHeartbeat) -> None:
    """The epoch must be the member's; or the one before, if the answer with the new epoch was lost."""
    current = member.current
    lost_answer = (
        beat.epoch == current.previous_epoch
        and beat.owned is not None
        and beat.owned <= current.assigned.keys()
        and beat.epoch < current.epoch
    )
    if beat.epoch != current.epoch and not lost_answer:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"group {group.group_id!r}, member {member.member_id}: its epoch is {current.epoch}, not "
            f"{beat.epoch}; it must give up its partitions and join again",
        )


def _profile(old: MemberProfile, beat: ConsumerHeartbeat) -> MemberProfile:
    """The member's new profile; what the heartbeat omits stays."""
    rebalance = beat.rebalance_timeout_ms
    return MemberProfile(
        instance_id=old.instance_id if beat.instance_id is None else beat.instance_id,
        rack_id=old.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        topics=old.topics if beat.topics is None else beat.topics,
        regex=old.regex if beat.regex is None else beat.regex,
        rebalance_timeout_ms=old.rebalance_timeout_ms if rebalance == -1 else rebalance,
        assignor=old.assignor if beat.assignor is None else beat.assignor,
    )


def _update_profile(work: ConsumerGroupStep, before: ConsumerGroupMember, profile: MemberProfile) -> bool:
    """Update a member's profile, and begin a new group epoch if the target depends on the change.

    Returns whether its subscription changed. Raises KafkaError INVALID_REGULAR_EXPRESSION.
    """
    old = before.profile
    is_new = before.member_id not in work.group.members
    if not is_new and profile == old and work.group.seen_version == work.cluster.version:
        return False
    assignor = work.assignor
    if profile.regex and profile.regex != old.regex:
        check_regex(profile.regex)
    if is_new or profile != old:
        work.say(MemberFact(before.member_id, profile))
    regex_changed = profile.regex != old.regex
    if regex_changed and old.regex and not work.group.readers(old.regex):
        work.say(RegexFact(old.regex, None))
    regexes_changed = _refresh_regexes(work)
    changed = profile.topics != old.topics or regex_changed
    if changed or regexes_changed or work.assignor != assignor:
        work.bump_epoch()
    else:
        work.bump_epoch_if_topics_changed()
    work.group.seen_version = work.cluster.version
    return changed


def _refresh_regexes(work: ConsumerGroupStep) -> bool:
    """Resolve the group's regular expressions to topics; returns whether a result changed.

    Resolves all of them if topics or access rights have changed, else only new ones: members with different
    rights must not remove each other's topics by joining.
    """
    group, changed = work.group, False
    again = group.seen_version != work.cluster.version
    for regex in sorted({m.profile.regex for m in group.members.values()} - {""}):
        old = group.regexes.get(regex)
        if old is not None and not again:
            continue
        topics = work.cluster.matching(regex)
        if old is None or topics != old.topics:
            work.say(RegexFact(regex, Resolved(topics, work.cluster.version, work.now.wall)))
            changed = True
    return changed


def leave(
    group: ConsumerGroup,
    beat: ConsumerHeartbeat,
    cluster: MetadataImage,
    now: Now,
    settings: ConsumerGroupSettings,
) -> tuple[ConsumerGroupResult, ConsumerHeartbeatAnswer]:
    """Apply a heartbeat that leaves: for good, or (a static member, epoch -2) for a while.

    Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    work = ConsumerGroupStep(group, cluster, now, settings)
    member = _known(group, beat.member_id, beat.instance_id)
    if beat.instance_id is not None and beat.epoch == STATIC_LEAVE_EPOCH:
        assigned = dict.fromkeys(member.current.assigned, 0)
        before = member.current.previous_epoch
        work.say(
            CurrentFact(
                member.member_id, CurrentAssignment(STATIC_LEAVE_EPOCH, before, MemberState.STABLE, assigned)
            )
        )
        # It reads nothing, so it has nothing to give back in time.
        work.stop(member.member_id, Timer.REBALANCE)
        return work.outcome(), ConsumerHeartbeatAnswer(member.member_id, STATIC_LEAVE_EPOCH)
    outcome = fence(group, [member.member_id], cluster, now, settings)
    return outcome, ConsumerHeartbeatAnswer(member.member_id, LEAVE_EPOCH)


def fence(
    group: ConsumerGroup,
    member_ids: list[str],
    cluster: MetadataImage,
    now: Now,
    settings: ConsumerGroupSettings,
) -> ConsumerGroupResult:
    """Remove members that leave or whose deadline has passed."""
    work = ConsumerGroupStep(group, cluster, now, settings)
    work.remove(member_id for member_id in dict.fromkeys(member_ids) if member_id in group.members)
    return work.outcome()


def remove(
    group: ConsumerGroup, event: Leave, cluster: MetadataImage, now: Now, settings: ConsumerGroupSettings
) -> tuple[ConsumerGroupResult, LeaveAnswer]:
    """Apply a LeaveGroup: an administrator removes members, by member id or by instance id alone."""
    results, leaving = [], []
    for member_id, instance_id in event.members:
        try:
            leaving.append(_leaver(group, member_id, instance_id))
            results.append((member_id, instance_id, ErrorCode.NONE))
        except KafkaError as error:
            results.append((member_id, instance_id, error.code))
    return fence(group, leaving, cluster, now, settings), LeaveAnswer(members=tuple(results))


def _leaver(group: ConsumerGroup, member_id: str, instance_id: str | None) -> str:
    holder = group.static_member(instance_id)
    if holder is not None and not member_id:
        return holder.member_id
    return _known(group, member_id, instance_id).member_id


def refusal(group: ConsumerGroup, event: Join | Sync | Heartbeat) -> KafkaError:
    """The error for a request of the classic protocol to a group with members."""
    if isinstance(event, Join):
        return KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.group_id!r} has members of the consumer protocol; members of the classic protocol "
            "may join when they have left",
        )
    try:
        member = _known(group, event.member_id, event.instance_id)
    except KafkaError as error:
        return error
    return unknown_member(group.group_id, member.member_id)
