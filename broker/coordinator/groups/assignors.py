"""The server-side assignors of consumer groups (KIP-848): `range` and `uniform`.

`range` gives each member a run of partitions with the same indexes in every topic, so that topics with equal
partitioning can be joined. Static members come first, by instance id, then the others by member id.
`uniform` gives all members the same number of partitions, up to one, and moves as few as possible. Members
are taken in the order of their ids. For different subscriptions it uses `balance`:

A partition without an owner goes to the least loaded subscriber. Topics with few subscribers come first,
since they have the least choice. Then, for one topic after another, partitions move from the most to the
least loaded subscribers while that makes their loads more equal, until nothing moves any more. The balance is
not always perfect, but it is sticky, deterministic and good.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from struct import Struct

from eoslog.broker.coordinator.groups.consumer_group_state import Part


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


ROUNDS = 16
"""The most rounds over all topics; each round leaves less to do."""

_SIGNED = Struct(">qq")


def balance(
    members: Mapping[str, tuple[frozenset[bytes], frozenset[Part]]], sizes: Mapping[bytes, int]
) -> dict[str, frozenset[Part]]:
    """Assign partitions to members, given by member id as (subscribed topics, partitions so far)."""
    work = _Balance(members, sizes)
    work.assign_unowned()
    work.even_out()
    return work.targets()


class _Balance:
    """An assignment in progress. Members are numbered in the order of their ids."""

    def __init__(
        self, members: Mapping[str, tuple[frozenset[bytes], frozenset[Part]]], sizes: Mapping[bytes, int]
    ) -> None:
        self.ids = sorted(members)
        self.subscribers: dict[bytes, list[int]] = defaultdict(list)
        self.load = [0] * len(self.ids)
        for number, member_id in enumerate(self.ids):
            for topic in members[member_id][0]:
                self.subscribers[topic].append(number)
        self.owner: dict[bytes, list[int]] = {topic: [-1] * sizes[topic] for topic in self.subscribers}
        for number, member_id in enumerate(self.ids):
            topics, had = members[member_id]
            for topic, index in had:
                if topic in topics and index < sizes[topic]:
                    self.owner[topic][index] = number
                    self.load[number] += 1
        self.topics = sorted(self.subscribers, key=self._urgency)

    def _urgency(self, topic: bytes) -> tuple[float, int, tuple[int, int]]:
        readers = len(self.subscribers[topic])
        high, low = _SIGNED.unpack(topic)  # Kafka compares ids as two signed numbers
        return -len(self.owner[topic]) / readers, readers, (high, low)

    def assign_unowned(self) -> None:
        """Give partitions without an owner to the least loaded subscribers."""
        for topic in self.topics:
            owners, line = self.owner[topic], _Line(self.load, self.subscribers[topic])
            for index, owner in enumerate(owners):
                if owner == -1:
                    self._give(topic, index, line.least())

    def even_out(self) -> None:
        """Even out all topics until none of them changes any more."""
        shared = [topic for topic in self.topics if len(self.subscribers[topic]) > 1]
        unchanged = 0
        for _ in range(ROUNDS):
            for topic in shared:
                unchanged = 0 if self._even_out(topic) else unchanged + 1
                if unchanged >= len(shared):
                    return

    def _even_out(self, topic: bytes) -> bool:
        """Move this topic's partitions from the most to the least loaded; returns whether any moved."""
        readers, owners = self.subscribers[topic], self.owner[topic]
        loads = [self.load[number] for number in readers]
        if max(loads) - min(loads) <= 1:
            return False
        held: dict[int, list[int]] = defaultdict(list)
        for index, owner in enumerate(owners):
            held[owner].append(index)
        line, moved = _Line(self.load, readers), False
        while (giver := line.most(held)) is not None:
            index = held[giver].pop()
            taker = line.least()
            if line.even():
                break
            self._give(topic, index, taker)
            moved = True
        return moved

    def _give(self, topic: bytes, index: int, taker: int) -> None:
        giver = self.owner[topic][index]
        if giver != -1:
            self.load[giver] -= 1
        self.owner[topic][index] = taker
        self.load[taker] += 1

    def targets(self) -> dict[str, frozenset[Part]]:
        """The assignment, by member id."""
        found: list[set[Part]] = [set() for _ in self.ids]
        for topic, owners in self.owner.items():
            for index, owner in enumerate(owners):
                found[owner].add((topic, index))
        return {member_id: frozenset(parts) for member_id, parts in zip(self.ids, found, strict=True)}


class _Line:
    """A topic's subscribers from the least to the most loaded, with a group of equal load at each end.

    Each member of the lower group gets one partition; then the group is one level higher, and members that
    are already on that level join it. The upper group gives partitions away and goes down in the same way.
    """

    def __init__(self, load: list[int], members: list[int]) -> None:
        self.load = load
        self.members = sorted(members, key=lambda number: (load[number], number))
        self.low_end, self.low_next = 0, 0
        self.low_level = load[self.members[0]] - 1
        self.high_start = self.high_end = len(members)
        self.high_next = len(members) - 1
        self.high_level = load[self.members[-1]] + 1

    def least(self) -> int:
        """The next member to get a partition."""
        if self.low_next >= self.low_end:
            self.low_level += 1
            while self.low_end < len(self.members) and self._load(self.low_end) == self.low_level:
                self.low_end += 1
            self.low_next = 0
        self.low_next += 1
        return self.members[self.low_next - 1]

    def most(self, held: Mapping[int, list[int]]) -> int | None:
        """The next member to give a partition away; None if nobody has one of this topic."""
        while not self.even():
            number = self._most()
            if number is None or held.get(number):
                return number
            self._exclude()
        return None

    def even(self) -> bool:
        """Whether the two groups differ by at most one, so that a move gains nothing."""
        return self.high_level - self.low_level <= 1

    def _load(self, place: int) -> int:
        return self.load[self.members[place]]

    def _most(self) -> int | None:
        if self.high_next < self.high_start:
            if self.high_end <= self.high_start and self.high_start > 0:
                self.high_level = self._load(self.high_start - 1)
            else:
                self.high_level -= 1
            while self.high_start > 0 and self._load(self.high_start - 1) == self.high_level:
                self.high_start -= 1
            self.high_next = self.high_end - 1
        if self.high_next < 0:
            return None
        self.high_next -= 1
        return self.members[self.high_next + 1]

    def _exclude(self) -> None:
        """Remove the last member that `most` returned from the upper group: it has nothing to give."""
        place, last = self.high_next + 1, self.high_end - 1
        self.members[place], self.members[last] = self.members[last], self.members[place]
        self.high_end -= 1
