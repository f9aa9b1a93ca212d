"""The rules of transactional ids: who may start, join and end a transaction, and what follows.

Pure. Each function takes what is known of the id, the request and the time, and returns a
`TransactionResult`: what to persist, what to do after that is durable, and what to answer. A refused request
changes nothing. Whether an earlier change of the same id is still being written is the caller's to
know: it answers CONCURRENT_TRANSACTIONS without asking here. States and their order are in
`transaction_state`.

Sources: KIP-98 (transactions), KIP-360 (recovery by epoch bump), KIP-890 (TV2), KIP-939 (two-phase commit).

EndTxn has two tables of answers, before (TV1) and with (TV2) an epoch bump at every end. TV1 takes the
current epoch only, and the same end twice is answered twice. Under TV2 the epoch tells
a retry from the next end: a retry comes with the epoch before the bump, or, where the bump used up
the epochs, with the old producer id at its last epoch (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from eoslog.broker.coordinator.transactions.transaction_state import (
    AT_REST,
    MAX_EPOCH,
    NO_EPOCH,
    NO_TIMEOUT_MS,
    PREDECESSORS,
    PREPARED,
    TV1,
    TV2,
    TransactionMetadata,
    TransactionResult,
    TransactionState,
    check_producer,
    complete,
    fenced,
    follow,
    next_holder,
    prepare,
    refuse,
    wrong_id,
)
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity


@dataclass(frozen=True, slots=True)
class InitRequest:
    """InitProducerId for a transactional id."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity | None = None
    """(producer id, epoch) of a producer that goes on after an error (KIP-360)."""
    two_phase: bool = False
    """Its transactions never time out (KIP-939: enable2Pc)."""
    keep_prepared: bool = False
    """An open transaction is not aborted but taken over, to be committed or aborted (KIP-939)."""


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """What the broker's options allow."""

    max_timeout_ms: int
    two_phase: bool = True


def wants_producer_id(metadata: TransactionMetadata | None) -> bool:
    """Whether a request may need a new producer id: the id is unknown, or its epochs are used up."""
    return metadata is None or metadata.exhausted


def init_producer_id(
    metadata: TransactionMetadata | None,
    request: InitRequest,
    now_ms: int,
    *,
    limits: TransactionLimits,
    new_producer_id: int,
) -> TransactionResult:
    """InitProducerId: a producer id and an epoch that no other producer of this transactional id holds.

    `new_producer_id` is used where `wants_producer_id` says so. An open transaction is aborted
    under a bumped epoch, and CONCURRENT_TRANSACTIONS makes the client come again; or it is kept, if the
    request says so.
    """
    wrong = _refusal(request, limits)
    if wrong is not None:
        return wrong
    timeout_ms = NO_TIMEOUT_MS if request.two_phase else request.timeout_ms
    if metadata is None:
        metadata = TransactionMetadata(request.transactional_id, new_producer_id, timeout_ms, now_ms)
    elif request.expected is not None and not _may_go_on(metadata, *request.expected):
        return fenced(metadata, *request.expected)
    if metadata.state in PREPARED:
        return refuse(ErrorCode.CONCURRENT_TRANSACTIONS, f"the last transaction is in {metadata.state.text}")
    if metadata.state is TransactionState.ONGOING:
        if request.keep_prepared:
            return _keep(metadata, timeout_ms, now_ms, new_producer_id)
        return fence(metadata, now_ms, new_producer_id=new_producer_id)
    return _start(metadata, request.expected, timeout_ms, now_ms, new_producer_id)


def _refusal(request: InitRequest, limits: TransactionLimits) -> TransactionResult | None:
    """What makes a request wrong whatever is known of the id."""
    if not request.transactional_id:
        return refuse(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if request.two_phase and not limits.two_phase:
        text = "asks for two-phase commit, but transaction.two.phase.commit.enable=false"
        return refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, f"{request.transactional_id} {text}")
    if not request.two_phase and not 0 < request.timeout_ms <= limits.max_timeout_ms:
        limit = f"{request.timeout_ms} ms is not within 1 to {limits.max_timeout_ms} ms"
        return refuse(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"transaction time-out {limit}")
    return None


def _may_go_on(metadata: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    """KIP-360: the current epoch goes on; the last one is a retry whose answer was lost.

    Stricter than Kafka where a transaction is open: there an outdated epoch aborts it before it is refused.
    """
    if (producer_id, epoch) == metadata.holder:
        return True
    if metadata.state is TransactionState.ONGOING or epoch != metadata.last_epoch:
        return False
    rotated = producer_id == metadata.previous_producer_id and epoch >= MAX_EPOCH - 1
    return rotated or producer_id == metadata.holder.producer_id


def _start(
    metadata: TransactionMetadata,
    expected: ProducerIdentity | None,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: int,
) -> TransactionResult:
    """From a state at rest to Empty under the next epoch, the same one for a retry, or a new producer id."""
    producer_id, epoch, last = metadata.producer_id, metadata.producer_epoch, metadata.last_epoch
    previous = metadata.previous_producer_id
    retry = expected is not None and epoch != NO_EPOCH and expected != (producer_id, epoch)
    if not retry:
        last, previous = (NO_EPOCH if expected is None else epoch), producer_id
        producer_id, epoch = next_holder(metadata, new_producer_id)
    following = follow(
        metadata, TransactionState.EMPTY, producer_id=producer_id, producer_epoch=epoch, last_epoch=last,
        previous_producer_id=previous, timeout_ms=timeout_ms, partitions=frozenset(), start_ms=-1,
        last_update_ms=now_ms,
    )  # fmt: skip
    return TransactionResult(following, answer=following.writer)


def _keep(
    metadata: TransactionMetadata, timeout_ms: int, now_ms: int, new_producer_id: int
) -> TransactionResult:
    """The open transaction goes on under a new holder, who can only end it; all older ones are fenced.

    It never gets less time than it had: who keeps a prepared transaction without asking for two-phase
    commit again must not lose it to the time-out.
    """
    producer_id, epoch = next_holder(metadata, new_producer_id)
    following = follow(
        metadata, TransactionState.ONGOING,
        next_producer_id=producer_id, next_producer_epoch=epoch, last_epoch=NO_EPOCH,
        timeout_ms=max(timeout_ms, metadata.timeout_ms), last_update_ms=now_ms,
    )  # fmt: skip
    return TransactionResult(following, answer=following.holder, ongoing=metadata.writer)


def fence(metadata: TransactionMetadata, now_ms: int, *, new_producer_id: int) -> TransactionResult:
    """Abort an open transaction on the coordinator's own account: its producer's epoch becomes stale.

    By TV2's rules whatever the client's, so that its late batches and its late end are refused. The
    answer, for InitProducerId, is CONCURRENT_TRANSACTIONS: come again when the abort is through.
    """
    closed = follow(metadata, TransactionState.PREPARE_EPOCH_FENCE)
    following = prepare(closed, TransactionState.PREPARE_ABORT, TV2, now_ms, new_producer_id)
    reason = "the open transaction is being aborted"
    return TransactionResult(following, ErrorCode.CONCURRENT_TRANSACTIONS, reason=reason)


def has_expired(metadata: TransactionMetadata, now_ms: int) -> bool:
    """Whether a transaction is open for longer than its time-out: it has to be ended by `fence`."""
    if metadata.state is not TransactionState.ONGOING or metadata.two_phase:
        return False
    return metadata.start_ms + metadata.timeout_ms < now_ms


def is_idle(metadata: TransactionMetadata, now_ms: int, idle_ms: int) -> bool:
    """Whether a transactional id may be forgotten: nothing is open or prepared, and it is long unused."""
    return (
        metadata.state in PREDECESSORS[TransactionState.DEAD] and metadata.last_update_ms <= now_ms - idle_ms
    )


def add_partitions(
    metadata: TransactionMetadata | None,
    producer_id: int,
    epoch: int,
    partitions: Iterable[tuple[str, int]],
    now_ms: int,
    client_version: int,
) -> TransactionResult:
    """AddPartitionsToTxn, AddOffsetsToTxn and the implicit join of TV2: Ongoing, with these partitions."""
    metadata, refusal = check_producer(metadata, producer_id, epoch)
    if metadata is None:
        return refusal
    if metadata.state in PREPARED:
        return refuse(ErrorCode.CONCURRENT_TRANSACTIONS, f"the last transaction is in {metadata.state.text}")
    if metadata.kept:
        return _only_to_end(metadata)
    joined = metadata.partitions.union(partitions)
    if metadata.state is TransactionState.ONGOING and joined == metadata.partitions:
        return TransactionResult()
    start_ms = now_ms if metadata.state in AT_REST else metadata.start_ms
    following = follow(
        metadata, TransactionState.ONGOING, partitions=joined, start_ms=start_ms, last_update_ms=now_ms,
        client_version=client_version,
    )  # fmt: skip
    return TransactionResult(following)


def _only_to_end(metadata: TransactionMetadata) -> TransactionResult:
    """Refuse to write in a transaction that was kept: its records are those of the producer before."""
    text = f"{metadata.transactional_id} has kept a prepared transaction; commit or abort it first"
    return refuse(ErrorCode.INVALID_TXN_STATE, text)


def verify(
    metadata: TransactionMetadata | None, producer_id: int, epoch: int, partition: tuple[str, int]
) -> TransactionResult:
    """Whether `partition` takes part in the open transaction of this very producer; changes nothing.

    TRANSACTION_ABORTABLE where it does not: clients that do not know that code get INVALID_TXN_STATE.
    """
    metadata, refusal = check_producer(metadata, producer_id, epoch)
    if metadata is None:
        return refusal
    if metadata.state in PREPARED:
        return refuse(ErrorCode.CONCURRENT_TRANSACTIONS, f"the last transaction is in {metadata.state.text}")
    if metadata.kept:
        return _only_to_end(metadata)
    if partition not in metadata.partitions:
        where = f"{partition[0]}-{partition[1]} is in no transaction of {metadata.transactional_id}"
        return refuse(ErrorCode.TRANSACTION_ABORTABLE, f"{where} ({metadata.state.text}); add it first")
    return TransactionResult()


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
