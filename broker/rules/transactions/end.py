"""EndTxn: the two tables of answers, before (TV1) and with (TV2) an epoch bump at every end.

TV1 takes the current epoch only, and the same end twice is answered twice. Under TV2 the epoch tells
a retry from the next end: a retry comes with the epoch before the bump, or, where the bump used up
the epochs, with the old producer id at its last epoch (KIP-890).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from eoslog.broker.rules.transactions.decision import Decision, fenced, refuse, wrong_id
from eoslog.broker.rules.transactions.state import MAX_EPOCH, TV1, TV2, Metadata, State, complete, prepare
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity


@dataclass(frozen=True, slots=True)
class EndRequest:
    """EndTxn; `client_version` is TV2 from version 5 of the request on."""

    producer_id: int
    epoch: int
    commit: bool
    client_version: int


class Outcome(Enum):
    """What a line of the tables leads to."""

    END = auto()
    """Persist the decision, write the markers, complete."""
    DONE = auto()
    """It has ended like that already: answer what the first end answered."""
    BUSY = auto()
    """It is ending like that: CONCURRENT_TRANSACTIONS until it is through."""
    STATE = auto()
    """Nothing to end, or it has the opposite end: INVALID_TXN_STATE."""
    FENCED = auto()
    """Not the epoch of the current producer: PRODUCER_FENCED."""


class Age(Enum):
    """Whose request it is by its producer id and epoch."""

    CURRENT = auto()
    RETRY = auto()
    OTHER = auto()


ABORT, COMMIT = False, True
_O = Outcome

TV1_TABLE: Mapping[tuple[State, bool], Outcome] = {
    (State.EMPTY, ABORT): _O.STATE,
    (State.EMPTY, COMMIT): _O.STATE,
    (State.ONGOING, ABORT): _O.END,
    (State.ONGOING, COMMIT): _O.END,
    (State.PREPARE_ABORT, ABORT): _O.BUSY,
    (State.PREPARE_ABORT, COMMIT): _O.STATE,
    (State.PREPARE_COMMIT, ABORT): _O.STATE,
    (State.PREPARE_COMMIT, COMMIT): _O.BUSY,
    (State.COMPLETE_ABORT, ABORT): _O.DONE,
    (State.COMPLETE_ABORT, COMMIT): _O.STATE,
    (State.COMPLETE_COMMIT, ABORT): _O.STATE,
    (State.COMPLETE_COMMIT, COMMIT): _O.DONE,
}
"""(state, commit) -> outcome, at the current epoch; any other epoch is FENCED."""

TV2_TABLE: Mapping[tuple[State, bool], tuple[Outcome, Outcome]] = {
    (State.EMPTY, ABORT): (_O.FENCED, _O.END),
    (State.EMPTY, COMMIT): (_O.FENCED, _O.STATE),
    (State.ONGOING, ABORT): (_O.FENCED, _O.END),
    (State.ONGOING, COMMIT): (_O.FENCED, _O.END),
    (State.PREPARE_ABORT, ABORT): (_O.BUSY, _O.FENCED),
    (State.PREPARE_ABORT, COMMIT): (_O.STATE, _O.FENCED),
    (State.PREPARE_COMMIT, ABORT): (_O.STATE, _O.FENCED),
    (State.PREPARE_COMMIT, COMMIT): (_O.BUSY, _O.FENCED),
    (State.COMPLETE_ABORT, ABORT): (_O.DONE, _O.END),
    (State.COMPLETE_ABORT, COMMIT): (_O.STATE, _O.STATE),
    (State.COMPLETE_COMMIT, ABORT): (_O.STATE, _O.END),
    (State.COMPLETE_COMMIT, COMMIT): (_O.DONE, _O.STATE),
}
"""(state, commit) -> (outcome of a retry, outcome at the current epoch); any other epoch is FENCED."""


def end_txn(metadata: Metadata | None, request: EndRequest, now_ms: int, *, new_producer_id: int) -> Decision:
    """EndTxn: commit or abort. The answer is the (producer id, epoch) to go on with.

    `new_producer_id` is used where `wants_producer_id` says so.
    """
    if metadata is None:
        return refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "this transactional id is not known")
    age = _age(metadata, request)
    if age is Age.OTHER:
        if request.producer_id != metadata.holder.producer_id:
            return wrong_id(metadata, request.producer_id)
        return fenced(metadata, request.producer_id, request.epoch)
    outcome = _outcome(metadata.state, request, age)
    if outcome is Outcome.END:
        return _end(metadata, request, now_ms, new_producer_id)
    if outcome is Outcome.DONE:
        return Decision(answer=metadata.holder)
    if outcome is Outcome.FENCED:
        return fenced(metadata, request.producer_id, request.epoch)
    wanted = "commit" if request.commit else "abort"
    reason = f"{metadata.transactional_id} is in {metadata.state.text}, asked to {wanted}"
    busy = outcome is Outcome.BUSY
    return refuse(ErrorCode.CONCURRENT_TRANSACTIONS if busy else ErrorCode.INVALID_TXN_STATE, reason)


def decided_with(
    first: Metadata, metadata: Metadata | None, holder: ProducerIdentity, now_ms: int, *, new_producer_id: int
) -> Metadata | None:
    """What follows for a transaction that was decided with the prepared `first`; None if it has gone on."""
    if metadata is None or metadata.state is not State.ONGOING or metadata.holder != holder:
        return None
    request = EndRequest(*holder, first.state is State.PREPARE_COMMIT, first.client_version)
    return _end(metadata, request, now_ms, new_producer_id).following


def _age(metadata: Metadata, request: EndRequest) -> Age:
    """CURRENT for the very producer; under TV2, RETRY for the one that it was before its last end.

    Stricter than Kafka: after an end under TV1, which bumps nothing, the epoch before is that of another
    producer, whom it must not be taken for.
    """
    held, current = metadata.holder
    if (request.producer_id, request.epoch) == (held, current):
        return Age.CURRENT
    if request.client_version < TV2 or metadata.client_version < TV2:
        return Age.OTHER
    bumped = request.producer_id == held and request.epoch + 1 == current
    rotated = (
        request.producer_id == metadata.previous_producer_id
        and request.epoch == MAX_EPOCH - 1
        and current == 0
    )
    return Age.RETRY if bumped or rotated else Age.OTHER


def _outcome(state: State, request: EndRequest, age: Age) -> Outcome:
    if request.client_version < TV2:
        return TV1_TABLE[state, request.commit]
    return TV2_TABLE[state, request.commit][0 if age is Age.RETRY else 1]


def _end(metadata: Metadata, request: EndRequest, now_ms: int, new_producer_id: int) -> Decision:
    state = State.PREPARE_COMMIT if request.commit else State.PREPARE_ABORT
    version = TV2 if request.client_version >= TV2 else TV1
    following = prepare(metadata, state, version, now_ms, new_producer_id)
    completed = complete(following, now_ms)
    return Decision(following, answer=completed.writer)
