"""The server-side assignors of consumer groups (KIP-848): `range`, and `uniform` for equal subscriptions.

`range` gives each member a run of partitions with the same indexes in every topic, so that topics with equal
partitioning can be joined. Static members come first, by instance id, then the others by member id.
`uniform` gives all members the same number of partitions, up to one, and moves as few as possible. Members
are taken in the order of their ids. For different subscriptions it uses `balance`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice

from eoslog.broker.rules.consumer.consumer_group_state import Part
from eoslog.broker.rules.consumer.uneven_assignor import balance


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as the assignors see it; `has`: its target so far, including deleted partitions."""

    topics: frozenset[bytes]
    instance_id: str | None = None
    has: frozenset[Part] = frozenset()


Subscribers = Mapping[str, Subscriber]
"""By member id."""
Sizes = Mapping[bytes, int]
"""The number of partitions by topic id; at least for every topic that is subscribed to."""
Targets = dict[str, frozenset[Part]]


def alike(members: Subscribers) -> bool:
    """Whether all members subscribe to the same topics."""
    return len({member.topics for member in members.values()}) <= 1


def assign_range(members: Subscribers, sizes: Sizes) -> Targets:
    """Give each subscriber of a topic one run of its partitions."""

    def rank(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return (True, member_id) if instance_id is None else (False, instance_id)

    subscribers: dict[bytes, list[str]] = defaultdict(list)
    for member_id in sorted(members, key=rank):
        for topic in members[member_id].topics:
            subscribers[topic].append(member_id)
    targets: dict[str, set[Part]] = {member_id: set() for member_id in members}
    for topic, readers in subscribers.items():
        each, extra = divmod(sizes[topic], len(readers))
        start = 0
        for place, member_id in enumerate(readers):
            end = start + each + (place < extra)
            targets[member_id].update((topic, index) for index in range(start, end))
            start = end
    return {member_id: frozenset(parts) for member_id, parts in targets.items()}


def assign_uniform(members: Subscribers, sizes: Sizes) -> Targets:
    """Give each member the same number of partitions and move as few as possible."""
    if not alike(members):
        return balance({member_id: (m.topics, m.has) for member_id, m in members.items()}, sizes)
    topics = sorted(next(iter(members.values())).topics) if members else []
    everything = [(topic, index) for topic in topics for index in range(sizes[topic])]
    each, extras = divmod(len(everything), max(len(members), 1))
    valid = frozenset(everything)
    kept = {member_id: sorted(members[member_id].has & valid) for member_id in sorted(members)}
    owned = {part for parts in kept.values() for part in parts}
    free = [part for part in everything if part not in owned]
    targets: dict[str, set[Part]] = {}
    short: list[tuple[str, int]] = []
    for place, (member_id, parts) in enumerate(kept.items()):
        takes_extra = extras > 0
        quota = each + takes_extra
        targets[member_id] = set(parts[:quota])
        free += parts[quota:]
        missing = quota - len(parts)
        if missing > 0 and takes_extra and len(kept) - place > extras:
            # Enough members remain for the extra partitions; the last members have no choice.
            missing, takes_extra = missing - 1, False
        extras -= takes_extra
        if missing > 0:
            short.append((member_id, missing))
    rest = iter(free)
    for member_id, missing in short:
        targets[member_id].update(islice(rest, missing))
    return {member_id: frozenset(parts) for member_id, parts in targets.items()}


Assignor = Callable[[Subscribers, Sizes], Targets]

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors, by the name in requests."""
