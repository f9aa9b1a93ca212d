"""A consumer group under test with its topics, its time, its log, and clients that behave as KIP-848 asks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from eoslog.broker.coordinator.groups import consumer_group as consumer_group
from eoslog.broker.coordinator.groups import group_records
from eoslog.broker.coordinator.groups.consumer_group_state import (
    ConsumerGroup,
    ConsumerGroupResult,
    ConsumerGroupSettings,
    ConsumerGroupState,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    MemberState,
    Now,
    Part,
    Timer,
    TopicImage,
    apply,
    ends_group,
    matching,
)
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.plain_records import Record


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")[:16]


class Topics:
    """Topics in memory, as the rules see them."""

    def __init__(self, **partitions: int) -> None:
        self.version = 0
        self.hidden: frozenset[str] = frozenset()
        self.found = {name: TopicImage(name, topic_id(name), size) for name, size in partitions.items()}

    def set(self, name: str, partitions: int | None) -> None:
        """Make a topic, let it grow, or (None) delete it."""
        self.version += 1
        self.found.pop(name, None)
        if partitions is not None:
            self.found[name] = TopicImage(name, topic_id(name), partitions)

    def hide(self, *names: str, rules_changed: bool = False) -> None:
        """Who asks from now on may not see these; either by other rules, or because it is somebody else."""
        self.version += rules_changed
        self.hidden = frozenset(names)

    def topic(self, name: str) -> TopicImage | None:
        return self.found.get(name)

    def matching(self, regex: str) -> frozenset[str]:
        return matching(regex, self.found) - self.hidden


@dataclass
class ConsumerBench:
    topics: Topics = field(default_factory=lambda: Topics(a=4, b=2))
    settings: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    group: ConsumerGroup = field(default_factory=lambda: ConsumerGroup("g"))
    now: int = 0
    deadlines: dict[tuple[Timer, str], int] = field(default_factory=dict)
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    def state(self) -> ConsumerGroupState:
        """The group's state now."""
        return self.group.state

    def do(self, rule: Callable[..., Any], event: object) -> Any:
        """Apply an event by its rule; what the rule decides is logged, then holds. Returns the answer."""
        before = copy.deepcopy(self.group)
        clock = Now(self.now, 1_000_000 + self.now)
        try:
            outcome, answer = rule(self.group, event, self.topics, clock, self.settings)
        except KafkaError:
            assert self.group == before, "a refused event changed the group"
            raise
        assert self.group == before, "a step changed the group it was given"
        self.keep(outcome)
        return answer

    def keep(self, outcome: ConsumerGroupResult) -> None:
        self.log += [group_records.encode_fact("g", fact) for fact in outcome.facts]
        self.group = outcome.group
        for key, deadline in outcome.deadlines.items():
            if deadline is None:
                self.deadlines.pop(key, None)
            else:
                self.deadlines[key] = deadline

    def beat(self, event: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
        leaves = event.epoch < 0
        answer: ConsumerHeartbeatAnswer = self.do(
            consumer_group.leave if leaves else consumer_group.heartbeat, event
        )
        return answer

    def refused(self, event: ConsumerHeartbeat) -> ErrorCode:
        try:
            answer = self.beat(event)
        except KafkaError as error:
            return error.code
        raise AssertionError(f"{event} was not refused: {answer}")

    def advance(self, ms: int) -> list[str]:
        """Let time pass; who loses its place is returned."""
        self.now += ms
        due = sorted({key[1] for key, deadline in self.deadlines.items() if deadline <= self.now})
        clock = Now(self.now, 1_000_000 + self.now)
        if due:
            self.keep(consumer_group.fence(self.group, due, self.topics, clock, self.settings))
        return due

    def replayed(self, log: list[tuple[bytes, bytes | None]] | None = None) -> ConsumerGroup:
        """The group as a restart would find it."""
        group = ConsumerGroup("g")
        for offset, (key, value) in enumerate(self.log if log is None else log):
            _, fact = group_records.decode_fact(Record(offset, 0, key, value, []))
            if ends_group(fact):
                group = ConsumerGroup("g")
            else:
                apply(group, fact)
        return group

    def compacted(self, end: int, *, tombstones: bool) -> list[tuple[bytes, bytes | None]]:
        """The log after a compaction of what is before `end`, old tombstones kept or not."""
        last = {key: offset for offset, (key, _) in enumerate(self.log[:end])}
        return [
            (key, value)
            for offset, (key, value) in enumerate(self.log)
            if offset >= end or (last[key] == offset and (tombstones or value is not None))
        ]

    def check_compaction(self) -> None:
        """Whatever of the log is compacted, a restart finds the same group."""
        for quarter in range(1, 5):
            for tombstones in (True, False):
                log = self.compacted(len(self.log) * quarter // 4, tombstones=tombstones)
                assert self.replayed(log) == self.group, "compaction has changed the group"

    def part(self, name: str, index: int) -> Part:
        return topic_id(name), index

    def everything(self, *names: str) -> set[Part]:
        found = [topic for name in names if (topic := self.topics.topic(name)) is not None]
        return {(topic.topic_id, index) for topic in found for index in range(topic.partitions)}

    def check(self) -> None:
        """What holds at any time."""
        owned = [part for member in self.group.members.values() for part in member.owns]
        assert len(owned) == len(set(owned)), "a partition has two owners"
        assert set(owned) == set(self.group.owners)
        assert self.replayed() == self.group, "a restart would find another group"
        targets = [part for target in self.group.targets.values() for part in target]
        assert len(targets) == len(set(targets)), "a partition is the target of two members"
        for member in self.group.members.values():
            revoking = member.current.state is MemberState.UNREVOKED_PARTITIONS
            assert revoking or not member.current.revoking
            assert (Timer.SESSION, member.member_id) in self.deadlines
            assert ((Timer.REBALANCE, member.member_id) in self.deadlines) == revoking


@dataclass
class Client:
    """A member of the consumer protocol: it reads what is new at once, unless it has to give back first."""

    bench: ConsumerBench
    member_id: str
    topics: frozenset[str] | None = frozenset({"a"})
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    reading: set[Part] = field(default_factory=set)
    told: frozenset[Part] = frozenset()
    said: frozenset[Part] | None = None
    news: bool = False
    rebalance_timeout_ms: int = 60_000

    def request(self) -> ConsumerHeartbeat:
        """The next heartbeat. It says what it reads only if that has changed."""
        owned = frozenset(self.reading)
        if self.epoch == 0:
            return self._whole(frozenset())
        if self.news:
            return self._whole(owned)
        said = None if owned == self.said else owned
        return ConsumerHeartbeat(self.member_id, self.epoch, instance_id=self.instance_id, owned=said)

    def _whole(self, owned: frozenset[Part]) -> ConsumerHeartbeat:
        return ConsumerHeartbeat(
            self.member_id,
            self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topics=self.topics,
            regex=self.regex,
            assignor=self.assignor,
            owned=owned,
        )

    def beat(self, *, answer_is_lost: bool = False) -> ErrorCode:
        """Send a heartbeat and take in the answer, unless that is lost: then everything is said again."""
        request = self.request()
        try:
            answer = self.bench.beat(request)
        except KafkaError as error:
            if error.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                self.epoch, self.reading, self.told, self.said = 0, set(), frozenset(), None
            return error.code
        if answer_is_lost:
            self.news = True
            return ErrorCode.NONE
        self.epoch, self.news = answer.epoch, False
        self.said = request.owned if request.owned is not None else self.said
        if answer.assignment is not None:
            self.told = answer.assignment
        if not self.reading - self.told:
            self.reading |= self.told
        return ErrorCode.NONE

    def obey(self) -> None:
        """Give back what is not assigned any more; the next heartbeat says so."""
        self.reading &= self.told

    def leave(self, epoch: int = -1) -> None:
        self.bench.beat(ConsumerHeartbeat(self.member_id, epoch, instance_id=self.instance_id))
        self.epoch, self.reading, self.told, self.said = 0, set(), frozenset(), None


def settle(clients: list[Client], rounds: int = 60) -> None:
    """Let all clients send heartbeats and obey until nothing changes any more."""
    for _ in range(rounds):
        before = [(client.epoch, set(client.reading)) for client in clients]
        for client in clients:
            client.beat()
            client.obey()
        if before == [(client.epoch, client.reading) for client in clients]:
            return
    raise AssertionError("heartbeats go on changing the group")
