"""Events that reach a consumer group (KIP-848), its answers, and the result of a step. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from eoslog.broker.rules.consumer.consumer_group_state import ConsumerGroup, Part
from eoslog.broker.rules.consumer.group_facts import Fact


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """The options that the rules need, for one group, under Kafka's names with dots as underscores."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is the default."""


@dataclass(frozen=True, slots=True)
class Now:
    """The time by both clocks, in ms: `monotonic` for deadlines, `wall` (since the epoch) for records."""

    monotonic: int
    wall: int


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat. A field is None where the request omits it because nothing changed."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: frozenset[Part] | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def complete(self) -> bool:
        """True if it has every field; then the answer must have every field too."""
        says_topics = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and says_topics and self.owned is not None


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatAnswer:
    """Answer to a heartbeat; `assignment` is None if the member already has it."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assignment: frozenset[Part] | None = None


class Timer(Enum):
    """The deadlines that a member can have."""

    SESSION = "its session ended"
    REBALANCE = "it did not give its partitions back in time"


Deadlines = dict[tuple[Timer, str], int | None]
"""By timer and member id: the deadline (monotonic ms), or None to stop it."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupResult:
    """The result of a step: write `facts`, then replace the group by `group`, set `deadlines`, and answer."""

    group: ConsumerGroup
    facts: tuple[Fact, ...] = ()
    deadlines: Deadlines = field(default_factory=dict)
