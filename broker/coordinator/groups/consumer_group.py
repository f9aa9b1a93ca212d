"""A consumer group's rules (KIP-848): heartbeats of members, leaving members, and expired deadlines.

A heartbeat does up to three things. It updates the member's subscription, which may begin a new group epoch.
It makes the target assignment for that epoch. It moves the member one step towards its target. Refusals are
raised as KafkaError and change nothing.

A step makes facts, which apply at once for the rest of the step. The original group does not change. It is
copied at the first fact, so the many heartbeats without a change cost nothing.

A partition moves from one member to another in two steps. The old owner is asked to give it back and stays in
its epoch until it confirms that. Only then does the new owner get it. The next step of a member:

| its partitions | its next state | its epoch |
|---|---|---|
| it must give some back and has not confirmed that | UNREVOKED_PARTITIONS | unchanged |
| some of its target still belong to another member | UNRELEASED_PARTITIONS | the target's |
| neither | STABLE | the target's |
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from eoslog.broker.coordinator.groups.assignors import ASSIGNORS, Subscriber
from eoslog.broker.coordinator.groups.classic_group_state import Heartbeat, Join, Leave, LeaveAnswer, Sync
from eoslog.broker.coordinator.groups.consumer_group_state import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerGroupResult,
    ConsumerGroupSettings,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    CurrentAssignment,
    CurrentFact,
    Deadlines,
    EpochFact,
    Fact,
    MemberFact,
    MemberProfile,
    MemberState,
    MetadataImage,
    Now,
    OldMetadataFact,
    Part,
    RegexFact,
    Resolved,
    TargetEpochFact,
    TargetFact,
    Timer,
    TopicImage,
    apply,
    check_regex,
    unknown_member,
)
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


class ConsumerGroupStep:
    """A step of `group`; use its methods, then `outcome`."""

    def __init__(
        self, group: ConsumerGroup, cluster: MetadataImage, now: Now, settings: ConsumerGroupSettings
    ) -> None:
        self.group, self.cluster, self.now, self.settings = group, cluster, now, settings
        self.facts: list[Fact] = []
        self.deadlines: Deadlines = {}

    def outcome(self) -> ConsumerGroupResult:
        """The result of the step."""
        return ConsumerGroupResult(self.group, tuple(self.facts), self.deadlines)

    def say(self, *facts: Fact) -> None:
        """Make facts and apply them."""
        if not self.facts and facts:
            self.group = self.group.copy()
        for fact in facts:
            apply(self.group, fact)
            self.facts.append(fact)

    def start(self, timer: Timer, member_id: str, timeout_ms: int) -> None:
        """Set a deadline of a member, counted from now."""
        self.deadlines[timer, member_id] = self.now.monotonic + timeout_ms

    def stop(self, member_id: str, *timers: Timer) -> None:
        """Stop these deadlines of a member."""
        for timer in timers:
            self.deadlines[timer, member_id] = None

    # The group's epoch

    def metadata_hash(self) -> int:
        """A hash of the topics subscribed to, by name, id and number of partitions; 0 if there are none.

        Kafka uses a different function. Each broker only compares its own hashes.
        """
        found = [self.cluster.topic(name) for name in sorted(self.group.subscribed())]
        return topics_hash(topic for topic in found if topic is not None)

    def bump_epoch(self) -> None:
        """Begin the next epoch: the members or the topics to read have changed."""
        self.say(EpochFact(self.group.epoch + 1, self.metadata_hash()))

    def bump_epoch_if_topics_changed(self) -> None:
        """Begin the next epoch if subscribed topics were created, deleted or extended."""
        if self.metadata_hash() != self.group.metadata_hash:
            self.bump_epoch()
        if self.group.old_metadata:
            self.say(OldMetadataFact(present=False))

    # The target

    @property
    def assignor(self) -> str:
        """The assignor that the group uses now."""
        return assignor_of(self.group, self.settings.assignors)

    def update_target(self) -> None:
        """Make the target assignment for the group's epoch, unless it exists."""
        group = self.group
        if group.target_epoch >= group.epoch:
            return
        topics = {name: self.cluster.topic(name) for name in group.subscribed()}
        sizes = {topic.topic_id: topic.partitions for topic in topics.values() if topic is not None}
        profiles = {member.member_id: member.profile for member in group.members.values()}
        # Most members of a group have the same subscription: it is resolved once.
        wanted = {(p.topics, p.regex): p for p in profiles.values()}
        ids = {subscription: self.topic_ids(profile) for subscription, profile in wanted.items()}
        members = {
            member_id: Subscriber(ids[p.topics, p.regex], p.instance_id, group.target(member_id))
            for member_id, p in profiles.items()
        }
        targets = ASSIGNORS[self.assignor](members, sizes)
        for member_id, parts in targets.items():
            if group.targets.get(member_id) != parts:
                self.say(TargetFact(member_id, parts))
        self.say(TargetEpochFact(group.epoch, self.now.wall))

    def topic_ids(self, profile: MemberProfile) -> frozenset[bytes]:
        """The ids of the topics that a member subscribes to and that exist."""
        found = (self.cluster.topic(name) for name in self.group.topics_of(profile))
        return frozenset(topic.topic_id for topic in found if topic is not None)

    # Members

    def reconcile(
        self, member_id: str, says_owns: frozenset[Part] | None, *, changed: bool
    ) -> ConsumerGroupMember:
        """Let a member take its next step towards the target."""
        group = self.group
        member = group.members[member_id]
        if member.reconciled_to(group.target_epoch) and not changed:
            return member
        aim = MemberTarget(
            epoch=group.target_epoch,
            target=group.target(member_id),
            topic_ids=self.topic_ids(member.profile),
            others=group.owners,
            says_owns=says_owns,
            subscription_changed=changed,
        )
        current = reconcile(member, aim)
        if current != member.current:
            self.say(CurrentFact(member_id, current))
            self._time_revocation(member_id, current.state, member.profile.rebalance_timeout_ms)
        return self.group.members[member_id]

    def _time_revocation(self, member_id: str, state: MemberState, timeout_ms: int) -> None:
        if state is MemberState.UNREVOKED_PARTITIONS:
            self.start(Timer.REBALANCE, member_id, timeout_ms)
        else:
            self.stop(member_id, Timer.REBALANCE)

    def replace(self, old: ConsumerGroupMember, new: ConsumerGroupMember) -> None:
        """Give the place of a static member, its target and its partitions to its new process."""
        target = self.group.target(old.member_id)
        self.forget(old.member_id)
        self.say(
            MemberFact(new.member_id, new.profile),
            TargetFact(new.member_id, target),
            CurrentFact(new.member_id, new.current),
        )

    def remove(self, member_ids: Iterable[str]) -> None:
        """Remove members, and begin the next epoch if there were any."""
        gone = list(member_ids)
        for member_id in gone:
            self.forget(member_id)
        if not gone:
            return
        for regex in [regex for regex in self.group.regexes if not self.group.readers(regex)]:
            self.say(RegexFact(regex, None))
        self.bump_epoch()
        if not self.group.members:
            self.say(TargetEpochFact(self.group.epoch, 0))

    def forget(self, member_id: str) -> None:
        """Make the facts that delete a member."""
        self.say(CurrentFact(member_id, None), TargetFact(member_id, None), MemberFact(member_id, None))
        self.stop(member_id, *Timer)


def assignor_of(group: ConsumerGroup, known: Sequence[str]) -> str:
    """The assignor that most members ask for, then the first by name; the first of `known` if none asks."""
    wanted = (member.profile.assignor for member in group.members.values())
    votes = Counter(name for name in wanted if name is not None and name in known)
    return min(votes, key=lambda name: (-votes[name], name), default=known[0])


def topics_hash(topics: Iterable[TopicImage]) -> int:
    """A signed 64-bit hash of topics in this order; 0 if there are none."""
    digest, empty = hashlib.blake2b(digest_size=8), True
    for topic in topics:
        empty = False
        digest.update(f"{topic.name}:{topic.partitions}:".encode() + topic.topic_id)
    return 0 if empty else int.from_bytes(digest.digest(), "big", signed=True)


def end_of(group: ConsumerGroup) -> list[Fact]:
    """The facts that delete a whole group with its members."""
    members = list(group.members)
    return [
        *(CurrentFact(member_id, None) for member_id in members),
        *(TargetFact(member_id, None) for member_id in members),
        TargetEpochFact(None),
        *(MemberFact(member_id, None) for member_id in members),
        *(RegexFact(regex, None) for regex in group.regexes),
        OldMetadataFact(present=False),
        EpochFact(None),
    ]


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
