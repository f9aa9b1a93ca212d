"""EndTxn: the two tables of answers, before (TV1) and with (TV2) an epoch bump at every end.

TV1 takes the current epoch only, and the same end twice is answered twice. Under TV2 the epoch tells
a retry from the next end: a retry comes with the epoch before the bump, or, where the bump used up
the epochs, with the old producer id at its last epoch (KIP-890).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from eoslog.broker.rules.transactions.transaction_result import TransactionResult, fenced, refuse, wrong_id
from eoslog.broker.rules.transactions.transaction_state import (
    MAX_EPOCH,
    TV1,
    TV2,
    TransactionMetadata,
    TransactionState,
    complete,
    prepare,
)
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity


@dataclass(frozen=True, slots=True)
class EndRequest:
    """EndTxn; `client_version` is TV2 from version 5 of the request on."""

    producer_id: int
    epoch: int
    commit: bool
    client_version: int


class EndAction(Enum):
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


class IdentityAge(Enum):
    """Whose request it is by its producer id and epoch."""

    CURRENT = auto()
    RETRY = auto()
    OTHER = auto()


ABORT, COMMIT = False, True
_O = EndAction

TV1_TABLE: Mapping[tuple[TransactionState, bool], EndAction] = {
    (TransactionState.EMPTY, ABORT): _O.STATE,
    (TransactionState.EMPTY, COMMIT): _O.STATE,
    (TransactionState.ONGOING, ABORT): _O.END,
    (TransactionState.ONGOING, COMMIT): _O.END,
    (TransactionState.PREPARE_ABORT, ABORT): _O.BUSY,
    (TransactionState.PREPARE_ABORT, COMMIT): _O.STATE,
    (TransactionState.PREPARE_COMMIT, ABORT): _O.STATE,
    (TransactionState.PREPARE_COMMIT, COMMIT): _O.BUSY,
    (TransactionState.COMPLETE_ABORT, ABORT): _O.DONE,
    (TransactionState.COMPLETE_ABORT, COMMIT): _O.STATE,
    (TransactionState.COMPLETE_COMMIT, ABORT): _O.STATE,
    (TransactionState.COMPLETE_COMMIT, COMMIT): _O.DONE,
}
"""(state, commit) -> outcome, at the current epoch; any other epoch is FENCED."""

TV2_TABLE: Mapping[tuple[TransactionState, bool], tuple[EndAction, EndAction]] = {
    (TransactionState.EMPTY, ABORT): (_O.FENCED, _O.END),
    (TransactionState.EMPTY, COMMIT): (_O.FENCED, _O.STATE),
    (TransactionState.ONGOING, ABORT): (_O.FENCED, _O.END),
    (TransactionState.ONGOING, COMMIT): (_O.FENCED, _O.END),
    (TransactionState.PREPARE_ABORT, ABORT): (_O.BUSY, _O.FENCED),
    (TransactionState.PREPARE_ABORT, COMMIT): (_O.STATE, _O.FENCED),
    (TransactionState.PREPARE_COMMIT, ABORT): (_O.STATE, _O.FENCED),
    (TransactionState.PREPARE_COMMIT, COMMIT): (_O.BUSY, _O.FENCED),
    (TransactionState.COMPLETE_ABORT, ABORT): (_O.DONE, _O.END),
    (TransactionState.COMPLETE_ABORT, COMMIT): (_O.STATE, _O.STATE),
    (TransactionState.COMPLETE_COMMIT, ABORT): (_O.STATE, _O.END),
    (TransactionState.COMPLETE_COMMIT, COMMIT): (_O.DONE, _O.STATE),
}
"""(state, commit) -> (outcome of a retry, outcome at the current epoch); any other epoch is FENCED."""


def end_txn(
    metadata: TransactionMetadata | None, request: EndRequest, now_ms: int, *, new_producer_id: int
) -> TransactionResult:
    """EndTxn: commit or abort. The answer is the (producer id, epoch) to go on with.

    `new_producer_id` is used where `wants_producer_id` says so.
    """
    if metadata is None:
        return refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "this transactional id is not known")
    age = _age(metadata, request)
    if age is IdentityAge.OTHER:
        if request.producer_id != metadata.holder.producer_id:
            return wrong_id(metadata, request.producer_id)
        return fenced(metadata, request.producer_id, request.epoch)
    outcome = _outcome(metadata.state, request, age)
    if outcome is EndAction.END:
        return _end(metadata, request, now_ms, new_producer_id)
    if outcome is EndAction.DONE:
        return TransactionResult(answer=metadata.holder)
    if outcome is EndAction.FENCED:
        return fenced(metadata, request.producer_id, request.epoch)
    wanted = "commit" if request.commit else "abort"
    reason = f"{metadata.transactional_id} is in {metadata.state.text}, asked to {wanted}"
    busy = outcome is EndAction.BUSY
    return refuse(ErrorCode.CONCURRENT_TRANSACTIONS if busy else ErrorCode.INVALID_TXN_STATE, reason)


def decided_with(
    first: TransactionMetadata,
    metadata: TransactionMetadata | None,
    holder: ProducerIdentity,
    now_ms: int,
    *,
    new_producer_id: int,
) -> TransactionMetadata | None:
    """What follows for a transaction that was decided with the prepared `first`; None if it has gone on."""
    if metadata is None or metadata.state is not TransactionState.ONGOING or metadata.holder != holder:
        return None
    request = EndRequest(*holder, first.state is TransactionState.PREPARE_COMMIT, first.client_version)
    return _end(metadata, request, now_ms, new_producer_id).following


def _age(metadata: TransactionMetadata, request: EndRequest) -> IdentityAge:
    """CURRENT for the very producer; under TV2, RETRY for the one that it was before its last end.

    Stricter than Kafka: after an end under TV1, which bumps nothing, the epoch before is that of another
    producer, whom it must not be taken for.
    """
    held, current = metadata.holder
    if (request.producer_id, request.epoch) == (held, current):
        return IdentityAge.CURRENT
    if request.client_version < TV2 or metadata.client_version < TV2:
        return IdentityAge.OTHER
    bumped = request.producer_id == held and request.epoch + 1 == current
    rotated = (
        request.producer_id == metadata.previous_producer_id
        and request.epoch == MAX_EPOCH - 1
        and current == 0
    )
    return IdentityAge.RETRY if bumped or rotated else IdentityAge.OTHER


def _outcome(state: TransactionState, request: EndRequest, age: IdentityAge) -> EndAction:
    if request.client_version < TV2:
        return TV1_TABLE[state, request.commit]
    return TV2_TABLE[state, request.commit][0 if age is IdentityAge.RETRY else 1]


def _end(
    metadata: TransactionMetadata, request: EndRequest, now_ms: int, new_producer_id: int
) -> TransactionResult:
    state = TransactionState.PREPARE_COMMIT if request.commit else TransactionState.PREPARE_ABORT
    version = TV2 if request.client_version >= TV2 else TV1
    following = prepare(metadata, state, version, now_ms, new_producer_id)
    completed = complete(following, now_ms)
    return TransactionResult(following, answer=completed.writer)
