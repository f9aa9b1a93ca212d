"""What a broker's error code means for each request: try again, refused, or an answer. Pure.

The kind of a code (KIP-360: retriable, abortable, fatal) is in one table, `protocol/error_codes.py`.
Exceptions for single requests are here, with the reason. Nothing else decides whether a request is sent
again. docs/connector-errors.md is made from both.
"""

from enum import Enum
from typing import NamedTuple

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, info

BRIEF_MS = 2_000
"""How long a broker may not know yet what another one knows: brokers learn of topics after a moment."""


class ErrorOutcome(Enum):
    """What the client does with a request after an error."""

    AGAIN = "sent again, until the named time-out is over"
    BRIEFLY = "sent again for 2 s, then final"
    REFUSED = "not sent again: the error is raised"
    ANSWER = "no error: it is the answer"


class ErrorDeparture(NamedTuple):
    """An exception: for one request the code means something else than its kind says."""

    outcome: ErrorOutcome
    why: str


_DELETED = "the topic existed when its rows were read; if it stays unknown, it was deleted meanwhile"

DEPARTURES: dict[tuple[ApiKey, ErrorCode], ErrorDeparture] = {
    (ApiKey.PRODUCE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER): ErrorDeparture(
        ErrorOutcome.ANSWER, "an earlier try wrote this batch, so long ago that its offset is forgotten"
    ),
    (ApiKey.FETCH, ErrorCode.UNKNOWN_SERVER_ERROR): ErrorDeparture(
        ErrorOutcome.AGAIN, "reading again changes nothing, and the next leader may not have the fault"
    ),
    (ApiKey.FETCH, ErrorCode.CORRUPT_MESSAGE): ErrorDeparture(
        ErrorOutcome.REFUSED, "the log itself is damaged there: reading it again gives the same result"
    ),
    (ApiKey.FETCH, ErrorCode.OFFSET_OUT_OF_RANGE): ErrorDeparture(
        ErrorOutcome.ANSWER, "the records were deleted, or never existed: OffsetsGone; see failOnDataLoss"
    ),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): ErrorDeparture(
        ErrorOutcome.BRIEFLY, _DELETED
    ),
    (ApiKey.OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): ErrorDeparture(
        ErrorOutcome.BRIEFLY, _DELETED
    ),
    (ApiKey.OFFSET_FETCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): ErrorDeparture(
        ErrorOutcome.BRIEFLY, _DELETED
    ),
    (ApiKey.DESCRIBE_PRODUCERS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): ErrorDeparture(
        ErrorOutcome.BRIEFLY, "a deleted partition holds nothing back"
    ),
    (ApiKey.WRITE_TXN_MARKERS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): ErrorDeparture(
        ErrorOutcome.BRIEFLY, "a deleted partition needs no marker"
    ),
    (ApiKey.DESCRIBE_TRANSACTIONS, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND): ErrorDeparture(
        ErrorOutcome.ANSWER, "the coordinator does not know this transactional id"
    ),
}


def outcome(code: int, api: ApiKey | None = None) -> ErrorOutcome:
    """What to do with a request that was answered with `code`; `api` None: by the code's kind alone."""
    departure = _BY_NUMBER.get((api, code))
    if departure is not None:
        return departure.outcome
    return ErrorOutcome.AGAIN if info(code).retriable else ErrorOutcome.REFUSED


_BY_NUMBER: dict[tuple[ApiKey | None, int], ErrorDeparture] = {
    (api, int(code)): departure for (api, code), departure in DEPARTURES.items()
}
"""The same, by the number on the wire: newer brokers may have codes that ErrorCode lacks."""
