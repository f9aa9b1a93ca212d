"""What a transaction coordinator knows of one transactional id, and which state may follow which.

States, their numbers on disk and their order are those of Kafka's `__transaction_state` records
(KIP-98, KIP-890, KIP-939). `TransactionMetadata` is a value: a change is a new one, made by `follow`, which
refuses what the table below does not allow.

A transaction that a new user keeps (KIP-939) stays under the (producer id, epoch) that wrote it, as its
markers must carry that producer id, while the id is held by another pair, kept in the `next_*` fields:

| state      | producer id, epoch              | next producer id, epoch                             |
|------------|---------------------------------|-----------------------------------------------------|
| at rest    | the holder                      | none                                                |
| Ongoing    | the writer, who is the holder   | none                                                |
| ... kept   | the writer                      | the holder                                          |
| prepared   | of the markers, the next holder | none, or (id, none): the epochs are used up, then 0 |
| ... kept   | of the markers                  | the next holder                                     |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity

NO_PRODUCER_ID = -1
NO_EPOCH = -1
MAX_EPOCH = 2**15 - 1
NO_TIMEOUT_MS = 2**31 - 1
"""Time-out of a transaction under two-phase commit (KIP-939): it never ends by itself."""

TV1 = 0
"""Client transaction version of producers before KIP-890 part 2, as the log has it."""
TV2 = 2
"""Client transaction version of producers whose every end of a transaction bumps the epoch."""


class TransactionState(IntEnum):
    """State of a transaction; the values are those of `TransactionStatus` in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The name that DescribeTransactions and ListTransactions use, such as `PrepareCommit`."""
        return self.name.title().replace("_", "")


STATE_BY_TEXT: Mapping[str, TransactionState] = {state.text: state for state in TransactionState}

COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
ENDED = PREPARED | COMPLETE
AT_REST = COMPLETE | {TransactionState.EMPTY}
NEVER_PERSISTED = frozenset({TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE})

PREDECESSORS: Mapping[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: AT_REST,
    TransactionState.ONGOING: AT_REST | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: AT_REST
    | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: AT_REST,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}
"""State -> the states it may follow. PrepareAbort after a state at rest is for TV2 producers only."""


class IllegalTransactionState(RuntimeError):
    """A rule tried to make a state follow one that it may not follow: a fault in the rules themselves."""


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """One transactional id. Times in ms since the epoch, -1 for none."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    last_update_ms: int
    producer_epoch: int = NO_EPOCH
    """-1 only before the first InitProducerId is answered."""
    last_epoch: int = NO_EPOCH
    """The epoch that the same producer had before its last bump (KIP-360); not in the log."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_EPOCH
    """See the table above: set where the holder is, or after the end will be, another than the writer."""
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[tuple[str, int]] = frozenset()
    """(topic, partition) of the open or prepared transaction."""
    start_ms: int = -1
    client_version: int = TV1
    """TV1 or TV2: which rules the client that caused the last change follows."""
    together: tuple[tuple[str, int, int], ...] = ()
    """Prepared: the open transactions that were decided with it, as (transactional id, *holder)."""

    @property
    def kept(self) -> bool:
        """Whether the transaction was taken over from the producer that wrote it (KIP-939)."""
        return self.next_producer_epoch != NO_EPOCH

    @property
    def holder(self) -> ProducerIdentity:
        """Who clients have to come as."""
        if self.kept:
            return ProducerIdentity(self.next_producer_id, self.next_producer_epoch)
        return self.writer

    @property
    def writer(self) -> ProducerIdentity:
        """Who wrote the open transaction, or the markers of a prepared one; at rest the holder."""
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def exhausted(self) -> bool:
        """Whether the epoch cannot be bumped for a client: the last one is kept for fencing."""
        return self.holder.epoch >= MAX_EPOCH - 1

    @property
    def two_phase(self) -> bool:
        """Whether the transaction is exempt from the time-out (KIP-939)."""
        return self.timeout_ms == NO_TIMEOUT_MS


def follow(metadata: TransactionMetadata, state: TransactionState, **changes: Any) -> TransactionMetadata:
    """`metadata` in `state`, with `changes` to its fields. Raises IllegalTransition by the table.

    The producer id before the change becomes the previous one, as Kafka records it at every change.
    """
    if metadata.state not in PREDECESSORS[state]:
        order = f"{state.text} may not follow {metadata.state.text}"
        raise IllegalTransactionState(f"{metadata.transactional_id}: {order}")
    return replace(metadata, **{"state": state, "previous_producer_id": metadata.producer_id, **changes})


def next_holder(metadata: TransactionMetadata, new_producer_id: int) -> ProducerIdentity:
    """The holder after the current one; `new_producer_id` where its epochs are used up."""
    if metadata.exhausted:
        return ProducerIdentity(new_producer_id, 0)
    return metadata.holder._replace(epoch=metadata.holder.epoch + 1)


def prepare(
    metadata: TransactionMetadata,
    state: TransactionState,
    client_version: int,
    now_ms: int,
    new_producer_id: int,
) -> TransactionMetadata:
    """`metadata` in PrepareCommit or PrepareAbort: the decision, which is final once it is durable.

    Under TV2 the epoch is bumped: markers carry the new one, so that a batch of the ended
    transaction that comes late is refused by its partition. Where that uses up the epochs, Complete
    goes over to `new_producer_id`. An end without a transaction counts from now.
    """
    changes: dict[str, Any] = {"client_version": client_version, "last_update_ms": now_ms}
    if client_version >= TV2 or metadata.kept:
        # The very last epoch cannot be bumped; Complete leaves that producer id anyway.
        changes["producer_epoch"] = min(metadata.producer_epoch + 1, MAX_EPOCH)
    if client_version >= TV2:
        changes["last_epoch"] = metadata.holder.epoch
        changes["start_ms"] = now_ms if metadata.state in AT_REST else metadata.start_ms
    if metadata.kept:
        producer_id, epoch = metadata.holder
        if client_version >= TV2:
            producer_id, epoch = next_holder(metadata, new_producer_id)
        changes |= {"next_producer_id": producer_id, "next_producer_epoch": epoch}
        changes["previous_producer_id"] = metadata.holder.producer_id
    elif client_version >= TV2:
        changes["next_producer_id"] = new_producer_id if metadata.exhausted else NO_PRODUCER_ID
    return follow(metadata, state, **changes)


def complete(metadata: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """What follows a prepared state once every marker is durable."""
    state = (
        TransactionState.COMPLETE_COMMIT
        if metadata.state is TransactionState.PREPARE_COMMIT
        else TransactionState.COMPLETE_ABORT
    )
    producer_id, epoch = metadata.holder
    if not metadata.kept and metadata.next_producer_id != NO_PRODUCER_ID:
        producer_id, epoch = metadata.next_producer_id, 0
    return follow(
        metadata, state, producer_id=producer_id, producer_epoch=epoch,
        previous_producer_id=metadata.previous_producer_id if metadata.kept else metadata.producer_id,
        next_producer_id=NO_PRODUCER_ID, next_producer_epoch=NO_EPOCH, partitions=frozenset(),
        last_update_ms=now_ms, together=(),
    )  # fmt: skip


def remembered_epoch(state: TransactionState, epoch: int, client_version: int) -> int:
    """The epoch before `epoch`, the holder's, as far as a record tells it; -1 where it does not.

    An end under TV2 bumps the epoch by one, so there it is known; after InitProducerId it is not.
    """
    if client_version < TV2 or state not in ENDED:
        return NO_EPOCH
    return MAX_EPOCH - 1 if epoch == 0 else epoch - 1


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The outcome of one request.

    `following` has to be durable before anything else happens; where it is prepared, markers and
    completion come after it. Then `error` is answered, or `answer`.
    """

    following: TransactionMetadata | None = None
    error: ErrorCode = ErrorCode.NONE
    answer: ProducerIdentity | None = None
    ongoing: ProducerIdentity | None = None
    """Whose open transaction was kept (KIP-939)."""
    reason: str = ""


def refuse(error: ErrorCode, reason: str) -> TransactionResult:
    """A decision that changes nothing."""
    return TransactionResult(error=error, reason=reason)


def check_producer(
    metadata: TransactionMetadata | None, producer_id: int, epoch: int
) -> tuple[TransactionMetadata, TransactionResult] | tuple[None, TransactionResult]:
    """The metadata if (producer id, epoch) is the current producer, else None and the refusal."""
    if metadata is None:
        return None, refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "this transactional id is not known")
    held, current = metadata.holder
    if held != producer_id:
        return None, wrong_id(metadata, producer_id)
    if current != epoch:
        return None, fenced(metadata, producer_id, epoch)
    return metadata, TransactionResult()


def wrong_id(metadata: TransactionMetadata, producer_id: int) -> TransactionResult:
    """Refuse a producer id that is not the one of this transactional id."""
    holder = metadata.holder.producer_id
    text = f"{metadata.transactional_id} belongs to producer id {holder}, not to {producer_id}"
    return refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)


def fenced(metadata: TransactionMetadata, producer_id: int, epoch: int) -> TransactionResult:
    """Refuse a producer at another epoch than the current one."""
    current = metadata.holder
    text = f"{metadata.transactional_id} is now held by {current}; {producer_id}.{epoch} is fenced"
    return refuse(ErrorCode.PRODUCER_FENCED, text)
