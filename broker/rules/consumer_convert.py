"""Groups that go from the classic protocol to KIP-848 and back while their members go on reading.

Up: the first member that comes with a ConsumerGroupHeartbeat turns a classic group into a consumer group; its
members stay, with what they were assigned, and go on speaking the classic protocol (`consumer_classic`).
Down: when the last member that speaks the consumer protocol leaves, those who remain are a classic group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from eoslog.broker.rules.classic_state import Group as ClassicGroup
from eoslog.broker.rules.classic_state import GroupState as ClassicState
from eoslog.broker.rules.classic_state import Member as ClassicMember
from eoslog.broker.rules.consumer_events import Settings
from eoslog.broker.rules.consumer_facts import (
    CurrentFact,
    EpochFact,
    Fact,
    MemberFact,
    TargetEpochFact,
    TargetFact,
)
from eoslog.broker.rules.consumer_protocol import (
    PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    write_assignment,
)
from eoslog.broker.rules.consumer_state import (
    Classic,
    Cluster,
    Current,
    Group,
    Member,
    MemberState,
    Part,
    Profile,
)
from eoslog.broker.rules.consumer_work import topics_hash
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import ProtocolError


def upgrade(group: ClassicGroup, cluster: Cluster, settings: Settings) -> list[Fact]:
    """The facts that make a consumer group of a classic group with members; its generation is the epoch.

    Raises KafkaError GROUP_ID_NOT_FOUND if it cannot be: so Kafka tells members to wait and try again.
    """
    reason = None
    if not settings.upgrade:
        reason = "group.consumer.migration.policy forbids it"
    elif group.protocol_type != PROTOCOL_TYPE:
        reason = f"its protocol is {group.protocol_type!r}, not {PROTOCOL_TYPE!r}"
    elif len(group.members) > settings.max_size:
        reason = f"it has more than {settings.max_size} members"
    if reason is None:
        try:
            return _upgrade(group, cluster)
        except ProtocolError as error:
            reason = f"what its members say cannot be read: {error}"
    raise KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id!r} cannot become a consumer group: {reason}"
    )


def _upgrade(group: ClassicGroup, cluster: Cluster) -> list[Fact]:
    epoch = group.generation
    assigned = {m.member_id: _assignment(m, cluster) for m in group.members.values()}
    profiles = {m.member_id: _profile(group, m, cluster) for m in group.members.values()}
    names = sorted({name for profile in profiles.values() for name in profile.topics})
    topics = [topic for topic in map(cluster.topic, names) if topic is not None]
    return [
        *(MemberFact(member_id, profile) for member_id, profile in profiles.items()),
        EpochFact(epoch, topics_hash(topics)),
        *(TargetFact(member_id, parts) for member_id, parts in assigned.items()),
        TargetEpochFact(epoch, 0),
        *(
            CurrentFact(member_id, Current(epoch, epoch, MemberState.STABLE, dict.fromkeys(parts, epoch)))
            for member_id, parts in assigned.items()
        ),
    ]


def _assignment(member: ClassicMember, cluster: Cluster) -> frozenset[Part]:
    parts, own_data = read_assignment(member.assignment, cluster)
    if own_data:
        raise ProtocolError(f"member {member.member_id} uses an assignor with data of its own")
    return parts


def _profile(group: ClassicGroup, member: ClassicMember, cluster: Cluster) -> Profile:
    metadata = member.metadata(group.protocol or "") or next(iter(member.protocols))[1]
    subscription = read_subscription(metadata, cluster)
    return Profile(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=Classic(member.session_timeout_ms, member.protocols),
    )


def may_downgrade(group: Group, leaving: Collection[str], settings: Settings) -> bool:
    """Tell whether those who remain when `leaving` have gone are to be a classic group."""
    remaining = [m for m in group.members.values() if m.member_id not in leaving]
    all_classic = bool(remaining) and all(m.profile.classic is not None for m in remaining)
    return all_classic and settings.downgrade and len(remaining) <= settings.classic_max_size


def downgrade(group: Group, leaving: Collection[str], cluster: Cluster) -> ClassicGroup:
    """The classic group of those who remain; the epoch is its generation.

    Each has what it may be reading now, not its target as in Kafka: it has not heard of that yet, and would
    go on reading what another is given should the group become a consumer group again at once.
    """
    remaining = {m.member_id: m for m in group.members.values() if m.member_id not in leaving}
    protocol = _common_protocol(remaining.values())
    members = {
        member_id: _classic_member(member, protocol, cluster) for member_id, member in remaining.items()
    }
    return ClassicGroup(
        group_id=group.group_id,
        state=ClassicState.STABLE,
        generation=group.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol=protocol,
        leader=next(iter(members)),
        members=members,
    )


def _common_protocol(members: Collection[Member]) -> str:
    """Each votes for the first of its protocols that all support, as in a classic group."""
    lists = [[name for name, _ in m.profile.classic.protocols] for m in members if m.profile.classic]
    common = set.intersection(*map(set, lists))
    votes = Counter(next(name for name in names if name in common) for names in lists)
    return votes.most_common(1)[0][0]


def _classic_member(member: Member, protocol: str, cluster: Cluster) -> ClassicMember:
    profile, classic = member.profile, member.profile.classic
    assert classic is not None, "only members that speak the classic protocol remain"
    return ClassicMember(
        member_id=member.member_id,
        instance_id=profile.instance_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        session_timeout_ms=classic.session_timeout_ms,
        rebalance_timeout_ms=profile.rebalance_timeout_ms,
        protocols=classic.protocols,
        assignment=write_assignment(member.owns, cluster, dict(classic.protocols)[protocol]),
    )
