"""Options of a write: the target, and what is promised about rows. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from eoslog.client.records.produce import MAX_UNANSWERED
from eoslog.client.wire.config import ClientConfig
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.seal import TwoPhase, of_write
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.options.parsing import fields_of, parse
from eoslog.connector.options.table import CODEC_NAMES, Use
from eoslog.errors import OptionError


class Guarantee(Enum):
    """What the sink promises about rows when something fails (`processing.guarantee`)."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class StateOptions(NamedTuple):
    """Where the query's state is saved: the topic, and every so many batches."""

    topic: str
    every: int


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """The options of a writer; table.py says which fields get a value as it is. `codec`: the compression's
    number in a batch's attributes. Sizes in bytes."""

    client: ClientConfig
    topic: str | None
    transactional_id: str | None
    decision_topic: str
    write_token: str | None = None
    deadletter_topic: str | None
    guarantee: Guarantee
    idempotent: bool
    group_id: str | None
    commits_offsets: bool = True
    transaction_timeout_ms: int
    two_phase: TwoPhase
    on_lost: OnLost
    codec: int
    max_batch_bytes: int
    checkpoint_location: str | None
    checkpoint_sync: bool = False
    progress_log: bool = False
    accepted: frozenset[str]
    state: StateOptions | None = None

    def group_of(self, sink: str) -> str | None:
        """The group that gets the source offsets of a stream that this sink decides: kafka.group.id, or by
        default that of the sink's name. None: no group."""
        by_default = self.commits_offsets and self.guarantee is Guarantee.EXACTLY_ONCE
        return self.group_id or (Sink(sink).offsets_group if by_default else None)


def sink_options(raw: Mapping[str, str], *, stream: bool) -> SinkOptions:
    """The options of a write. Raises OptionError."""
    values = parse(raw, Use.WRITE_STREAM if stream else Use.WRITE)
    for check in _CHECKS:
        check(values)
    return SinkOptions(
        **fields_of(SinkOptions, values),
        client=ClientConfig.from_options(values),
        guarantee=Guarantee(values["processing.guarantee"]),
        two_phase=_two_phase(values, stream),
        on_lost=_on_lost(values, stream),
        codec=CODEC_NAMES.index(values["kafka.compression.type"]),
        accepted=frozenset(word.strip() for word in (values.get("start.accepted") or "").split(",")),
        state=_state(values),
    )


def _check_offsets(values: Mapping[str, Any]) -> None:
    if not values.get("commit.source.offsets", True) and values["kafka.group.id"] is not None:
        raise OptionError(
            "commit.source.offsets=false, and kafka.group.id names a group for the source offsets: leave one "
            "of them out"
        )
    name, group = values["transactional.id"], values["kafka.group.id"]
    of_sink = () if name is None else (Sink(name).group, Sink(name).attempts_group)
    if values["decision.topic"] != ANCHOR and group in of_sink:
        raise OptionError(
            f"kafka.group.id={group} is the group that keeps the decisions of transactional.id={name}. With "
            "decision.topic they have places in a topic, and offsets of that topic would overwrite them. "
            "Give kafka.group.id another name, or leave it out"
        )


def _state(values: Mapping[str, Any]) -> StateOptions | None:
    topic: str | None = values.get("state.topic")
    every: int | None = values.get("state.every.batches")
    if topic is None:
        if every is not None:
            raise OptionError("state.every.batches needs state.topic: give it, or leave it out")
        return None
    if values["processing.guarantee"] != "exactly_once":
        raise OptionError("state.topic needs processing.guarantee=exactly_once: leave one of them out")
    if values["transactional.id"] is None:
        raise OptionError(
            "state.topic needs transactional.id: without it the state would be saved under the query's id, "
            "which is lost with the checkpoint. Give the query a name"
        )
    for other in ("topic", "deadletter.topic", "decision.topic"):
        if values[other] == topic:
            raise OptionError(
                f"options state.topic and {other} are both {topic!r}: choose another state.topic"
            )
    return StateOptions(topic, every or 1)


def _check_idempotence(values: Mapping[str, Any]) -> None:
    if values["kafka.enable.idempotence"]:
        return
    guarantee = values["processing.guarantee"]
    if guarantee != "at_least_once":
        raise OptionError(
            f"kafka.enable.idempotence=false: processing.guarantee={guarantee} needs transactions, and they "
            "need producer ids. Without them a retried task's rows can be there twice: give "
            "processing.guarantee=at_least_once, or leave kafka.enable.idempotence out"
        )
    if values["transactional.id"] is not None:
        raise OptionError(
            "kafka.enable.idempotence=false: transactional.id stops an earlier query of that name by its "
            "producer id; leave one of them out"
        )


def _check_deadletters(values: Mapping[str, Any]) -> None:
    topic: str | None = values["deadletter.topic"]
    if topic is not None and topic == values["topic"]:
        raise OptionError("deadletter.topic must be another topic than topic: choose one")


def _check_token(values: Mapping[str, Any]) -> None:
    token: str | None = values.get("write.token")
    if token is not None and values["processing.guarantee"] != "exactly_once":
        raise OptionError("write.token needs processing.guarantee=exactly_once: leave one of them out")
    if token == "":
        raise OptionError("write.token is empty: give the write a name, or leave the option out")


def _two_phase(values: Mapping[str, Any], stream: bool) -> TwoPhase:
    policy = TwoPhase(values["two.phase.commit"])
    named = stream or not (values["transactional.id"] is None and values["write.token"] is None)
    if policy is TwoPhase.REQUIRE and values["processing.guarantee"] == "at_least_once":
        raise OptionError(
            "two.phase.commit=require: processing.guarantee=at_least_once has no transactions; leave one out"
        )
    if policy is TwoPhase.REQUIRE and not named:
        raise OptionError(
            "two.phase.commit=require: a batch write without a name keeps no transaction from timing out, as "
            "nobody could start it again to end it; give transactional.id or write.token"
        )
    return of_write(policy, named=named)


def _check_progress(values: Mapping[str, Any]) -> None:
    if values.get("progress.log") and values["processing.guarantee"] == "at_least_once":
        raise OptionError(
            "progress.log reports commits, and processing.guarantee=at_least_once has none: leave one "
            "of them out"
        )


def _on_lost(values: Mapping[str, Any], stream: bool) -> OnLost:
    policy = OnLost(values["on.lost.transaction"])
    if policy is OnLost.REPLAY and values["processing.guarantee"] != "exactly_once":
        raise OptionError("on.lost.transaction=replay needs processing.guarantee=exactly_once: set it")
    if policy is OnLost.REPLAY and not stream and values["write.token"] is None:
        raise OptionError("on.lost.transaction=replay needs write.token: give one")
    return policy


def _check_in_flight(values: Mapping[str, Any]) -> None:
    name = "kafka.max.in.flight.requests.per.connection"
    if values[name] > MAX_UNANSWERED:
        raise OptionError(
            f"option {name} cannot be {values[name]}: brokers remember the last {MAX_UNANSWERED} batches of "
            f"a producer, so rows could be doubled or change places; give {MAX_UNANSWERED} at most"
        )


_CHECKS = (
    _check_in_flight,
    _check_idempotence,
    _check_token,
    _check_deadletters,
    _check_offsets,
    _check_progress,
)
"""What no single option can say: rules about two of them."""
