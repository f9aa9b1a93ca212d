"""Short ways to say the events of classic groups, for the tests of their rules."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

from eoslog.broker.coordinator.groups import classic_group as classic_group
from eoslog.broker.coordinator.groups.classic_group_state import (
    Answer,
    ClassicGroup,
    ClassicGroupSettings,
    ClassicGroupState,
    Event,
    Heartbeat,
    HeartbeatAnswer,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Sync,
    SyncAnswer,
    Tick,
)

RANGE = (("range", b"r"),)
BOTH = (("range", b"r"), ("roundrobin", b"o"))


def join(member: str = "", *, new: str = "new", instance: str | None = None, **changes: object) -> Join:
    event = Join(
        member_id=member,
        instance_id=instance,
        client_id="client",
        client_host="/127.0.0.1",
        protocol_type="consumer",
        protocols=RANGE,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        new_member_id=new,
        requires_known_id=False,
    )
    return replace(event, **changes)  # type: ignore[arg-type]


def sync(
    member: str,
    generation: int = 1,
    instance: str | None = None,
    assignments: dict[str, bytes] | None = None,
) -> Sync:
    return Sync(member, instance, generation, "consumer", "range", assignments or {})


def beat(member: str, generation: int = 1, instance: str | None = None) -> Heartbeat:
    return Heartbeat(member, instance, generation)


def leave(*members: str) -> Leave:
    return Leave(tuple((member, None) for member in members))


@dataclass
class ClassicBench:
    """One group under test, its time, and what it has answered; steps must not change their input."""

    settings: ClassicGroupSettings = field(
        default_factory=lambda: ClassicGroupSettings(group_initial_rebalance_delay_ms=3_000)
    )
    group: ClassicGroup = field(default_factory=lambda: ClassicGroup("g"))
    now: int = 0
    tickets: int = 0
    answers: dict[int, Answer] = field(default_factory=dict)
    asked_at: dict[int, int] = field(default_factory=dict)
    persisted: ClassicGroup | None = None

    def do(self, event: Event) -> int:
        """Apply an event; returns its ticket. Answers land in `answers`."""
        ticket = classic_group.NO_TICKET
        if not isinstance(event, Tick):
            self.tickets += 1
            ticket = self.tickets
            self.asked_at[ticket] = self.now
        before = copy.deepcopy(self.group)
        outcome = classic_group.step(self.group, event, ticket, self.now, self.settings)
        assert self.group == before, "a step changed the group it was given"
        self.group = outcome.group
        for answered, answer in outcome.answers:
            assert answered in self.asked_at, f"ticket {answered} was answered but is not waiting"
            del self.asked_at[answered]
            self.answers[answered] = answer
        if outcome.persist:
            self.persisted = copy.deepcopy(outcome.group)
        return ticket

    def advance(self, ms: int) -> None:
        """Let time pass, with a tick at every deadline on the way."""
        target = self.now + ms
        while (deadline := self.group.next_deadline()) is not None and deadline <= target:
            self.now = max(self.now, deadline)
            self.do(Tick())
            after = self.group.next_deadline()
            assert after is None or after > self.now, "a deadline stays after its tick: a busy loop"
        self.now = target

    def joined(self, event: Join) -> JoinAnswer:
        answer = self.answers[self.do(event)]
        assert isinstance(answer, JoinAnswer)
        return answer

    def join_answer(self, ticket: int) -> JoinAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, event: Sync) -> SyncAnswer:
        answer = self.answers[self.do(event)]
        assert isinstance(answer, SyncAnswer)
        return answer

    def sync_answer(self, ticket: int) -> SyncAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncAnswer)
        return answer

    def heard(self, event: Heartbeat) -> int:
        answer = self.answers[self.do(event)]
        assert isinstance(answer, HeartbeatAnswer)
        return answer.error

    def left(self, event: Leave) -> LeaveAnswer:
        answer = self.answers[self.do(event)]
        assert isinstance(answer, LeaveAnswer)
        return answer

    def state(self) -> ClassicGroupState:
        """The group's state now."""
        return self.group.state

    def forget_what_is_persisted(self) -> None:
        """What is persisted from now on can be told from what was before."""
        self.persisted = None

    def stable(self, *members: str) -> ClassicBench:
        """Bring the group to Stable, generation 1, with these dynamic members, the first leading."""
        for member in members:
            self.do(join(new=member))
        self.advance(self.settings.group_initial_rebalance_delay_ms * (1 + len(members)))
        for member in members[1:]:
            self.do(sync(member))
        self.do(sync(members[0], assignments={m: m.encode() for m in members}))
        assert self.group.state is ClassicGroupState.STABLE
        assert not self.asked_at
        return self
