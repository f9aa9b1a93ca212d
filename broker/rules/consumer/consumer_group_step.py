"""One step of a consumer group in progress: it makes facts, which apply at once for the rest of the step.

The original group does not change. It is copied at the first fact, so the many heartbeats without a change
cost nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from eoslog.broker.rules.consumer.consumer_group_events import (
    ConsumerGroupResult,
    ConsumerGroupSettings,
    Deadlines,
    Now,
    Timer,
)
from eoslog.broker.rules.consumer.consumer_group_state import (
    ConsumerGroup,
    ConsumerGroupMember,
    MemberProfile,
    MemberState,
    MetadataImage,
    Part,
    TopicImage,
)
from eoslog.broker.rules.consumer.group_facts import (
    CurrentFact,
    EpochFact,
    Fact,
    MemberFact,
    OldMetadataFact,
    RegexFact,
    TargetEpochFact,
    TargetFact,
    apply,
)
from eoslog.broker.rules.consumer.range_and_uniform_assignors import ASSIGNORS, Subscriber
from eoslog.broker.rules.consumer.reconciliation import MemberTarget, reconcile


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
