"""What a rule of transactional ids answers: persist this, then do that, then say this; and who may ask."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.broker.rules.transactions.transaction_state import TransactionMetadata
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity


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
