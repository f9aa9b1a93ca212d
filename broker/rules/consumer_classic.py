"""Members of a consumer group that still speak the classic protocol: their requests in terms of KIP-848.

A generation is the member's epoch. JoinGroup is a heartbeat that says everything, SyncGroup fetches what the
member is assigned, and Heartbeat says REBALANCE_IN_PROGRESS when it is time to join again: there is a new
target, or there are partitions to give back, or what the member waits for has become free. The broker
assigns; no member is the leader.
"""

from __future__ import annotations

from dataclasses import replace

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
from eoslog.broker.rules.consumer_convert import downgrade, may_downgrade
from eoslog.broker.rules.consumer_events import Now, Outcome, Settings, Timer
from eoslog.broker.rules.consumer_group import (
    check_room,
    fence,
    static_holder,
    take_over,
    update_profile,
)
from eoslog.broker.rules.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    read_subscription,
    write_assignment,
)
from eoslog.broker.rules.consumer_reconcile import waits
from eoslog.broker.rules.consumer_state import (
    Classic,
    Cluster,
    Group,
    GroupState,
    Member,
    MemberState,
    Profile,
    unknown_member,
)
from eoslog.broker.rules.consumer_work import Work, end_of
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import ProtocolError


def join(
    group: Group, event: Join, cluster: Cluster, now: Now, settings: Settings
) -> tuple[Outcome, JoinAnswer]:
    """Let a classic member in, or take its next step. Raises KafkaError with nothing changed."""
    if not (settings.upgrade or settings.downgrade):
        raise _inconsistent(group, "group.consumer.migration.policy forbids members of the classic protocol")
    member_id = event.member_id or event.new_member_id
    check_room(group, member_id, event.instance_id, settings.max_size)
    _check_protocols(group, event)
    if not event.member_id and event.instance_id is None and event.requires_known_id:
        return Outcome(group), JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    subscription = _subscription(group, event, cluster)
    work = Work(group, cluster, now, settings)
    holder = group.static_member(event.instance_id)
    before = _admit(work, event, member_id)
    changed = update_profile(work, before, _profile(before.profile, event, subscription))
    down = holder is not None and holder.profile.classic is None
    down = down and may_downgrade(work.group, (), settings)
    if not down:
        work.update_target()
    if work.group.target_epoch >= work.group.epoch:
        work.reconcile(member_id, subscription.owned, changed=changed)
    epoch = work.group.members[member_id].current.epoch
    answer = JoinAnswer(
        member_id=member_id,
        generation=epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol=event.protocols[0][0],
    )
    if down:
        return _downgraded(work, answer)
    work.stop(member_id, Timer.JOIN)
    work.start(Timer.SESSION, member_id, event.session_timeout_ms)
    work.start(Timer.SYNC, member_id, event.rebalance_timeout_ms)
    return work.outcome(), answer


def _downgraded(work: Work, answer: JoinAnswer) -> tuple[Outcome, JoinAnswer]:
    """The last member of the consumer protocol has come back with the classic one."""
    classic = downgrade(work.group, (), work.cluster)
    rebalance = work.group.state is not GroupState.STABLE
    work.say(*end_of(work.group))
    told = replace(answer, generation=classic.generation)
    return replace(work.outcome(), classic=classic, rebalance=rebalance), told


def _inconsistent(group: Group, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {group.group_id!r}: {why}")


def _check_protocols(group: Group, event: Join) -> None:
    """The joiner must share a protocol with all other members that speak the classic one."""
    others = [set(dict(m.profile.classic.protocols)) for m in group.classic_members if m.profile.classic]
    common = any(all(name in names for names in others) for name, _ in event.protocols)
    if event.protocol_type != PROTOCOL_TYPE or not common:
        raise _inconsistent(group, "its other members do not speak the protocols of this one")


def _subscription(group: Group, event: Join, cluster: Cluster) -> Subscription:
    try:
        return read_subscription(event.protocols[0][1], cluster)
    except ProtocolError as error:
        raise _inconsistent(group, f"the subscription cannot be read: {error}") from error


def _admit(work: Work, event: Join, member_id: str) -> Member:
    group = work.group
    if event.instance_id is None:
        return group.members.get(member_id) or Member(member_id)
    if event.member_id:
        return static_holder(group, event.instance_id, member_id)
    holder = group.static_member(event.instance_id)
    return Member(member_id) if holder is None else take_over(work, holder, member_id, by_classic=True)


def _profile(old: Profile, event: Join, subscription: Subscription) -> Profile:
    return Profile(
        instance_id=event.instance_id,
        rack_id=old.rack_id if subscription.rack_id is None else subscription.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        assignor=old.assignor,
        classic=Classic(event.session_timeout_ms, event.protocols),
    )


def _member(group: Group, member_id: str, instance_id: str | None, generation: int) -> tuple[Member, Classic]:
    """A member that speaks the classic protocol and is in this generation. Raises KafkaError."""
    found = group.member(member_id) if instance_id is None else static_holder(group, instance_id, member_id)
    if found.profile.classic is None:
        raise unknown_member(group.group_id, member_id)
    if found.current.epoch != generation:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"group {group.group_id!r}, member {member_id}: its generation is {found.current.epoch}, not "
            f"{generation}",
        )
    return found, found.profile.classic


def sync(
    group: Group, event: Sync, cluster: Cluster, now: Now, settings: Settings
) -> tuple[Outcome, SyncAnswer]:
    """Tell a classic member what it is assigned. Raises KafkaError."""
    member, classic = _member(group, event.member_id, event.instance_id, event.generation)
    protocol, subscription = classic.protocols[0]
    if event.protocol_type not in (None, PROTOCOL_TYPE) or event.protocol not in (None, protocol):
        raise _inconsistent(group, f"{event.protocol_type}/{event.protocol} is not what the join told")
    work = Work(group, cluster, now, settings)
    revokes = member.current.state is MemberState.UNREVOKED_PARTITIONS
    if group.target_epoch > member.current.epoch and not revokes:
        work.start(Timer.JOIN, member.member_id, member.profile.rebalance_timeout_ms)
        return work.outcome(), SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
    work.stop(member.member_id, Timer.SYNC)
    work.start(Timer.SESSION, member.member_id, classic.session_timeout_ms)
    assignment = write_assignment(member.current.assigned, cluster, subscription)
    answer = SyncAnswer(ErrorCode.NONE, event.protocol_type, event.protocol, assignment)
    return work.outcome(), answer


def heartbeat(
    group: Group, event: Heartbeat, cluster: Cluster, now: Now, settings: Settings
) -> tuple[Outcome, HeartbeatAnswer]:
    """Note that a classic member is alive, and tell it if it is to join again. Raises KafkaError."""
    member, classic = _member(group, event.member_id, event.instance_id, event.generation)
    work = Work(group, cluster, now, settings)
    work.start(Timer.SESSION, member.member_id, classic.session_timeout_ms)
    state = member.current.state
    free = state is MemberState.UNRELEASED_PARTITIONS and not waits(
        member, group.target(member.member_id), group.owners
    )
    if member.current.epoch < group.target_epoch or state is MemberState.UNREVOKED_PARTITIONS or free:
        work.start(Timer.JOIN, member.member_id, member.profile.rebalance_timeout_ms)
        return work.outcome(), HeartbeatAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
    return work.outcome(), HeartbeatAnswer()


def leave(
    group: Group, event: Leave, cluster: Cluster, now: Now, settings: Settings
) -> tuple[Outcome, LeaveAnswer]:
    """Take members out, by member id or, an administrator, by instance id alone."""
    results, leaving = [], []
    for member_id, instance_id in event.members:
        try:
            leaving.append(_leaver(group, member_id, instance_id))
            results.append((member_id, instance_id, ErrorCode.NONE))
        except KafkaError as error:
            results.append((member_id, instance_id, error.code))
    outcome = fence(group, leaving, cluster, now, settings)
    return outcome, LeaveAnswer(members=tuple(results))


def _leaver(group: Group, member_id: str, instance_id: str | None) -> str:
    if instance_id is None:
        return group.member(member_id).member_id
    holder = group.static_member(instance_id)
    if holder is not None and not member_id:
        return holder.member_id
    return static_holder(group, instance_id, member_id).member_id
