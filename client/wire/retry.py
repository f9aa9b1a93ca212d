"""What is tried again, and for how long: the one loop around every call that may fail for a while.

The kind of an error code (KIP-360: retriable, abortable, fatal) is in one table, `protocol/error_codes.py`.
Exceptions for single requests are here, with the reason. Nothing else decides whether a request is sent
again. docs/connector-errors.md is made from both. A broker that restarts, a coordinator that moves, a
transaction whose markers are still being written (KIP-98): all these pass by themselves.
"""

import logging
import math
import random
import time
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

from eoslog.client.wire.config import PROTOCOL_OPTION, ClientConfig
from eoslog.errors import BrokerUnreachable, ConnectionLost, RefusedByBroker, RetriesExhausted
from eoslog.errors.pages import see
from eoslog.protocol import errors
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError, info

logger = logging.getLogger(__name__)

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


T = TypeVar("T")

API_TIMEOUT, DELIVERY_TIMEOUT = "kafka.default.api.timeout.ms", "kafka.delivery.timeout.ms"
"""The options that bound how long a call is tried again."""
_QUICK = (errors.ConcurrentTransactions, errors.UnstableOffsetCommit)
"""Errors that pass within milliseconds: markers follow EndTxn's answer at once."""
_QUICK_MS = 2.0


def check(code: int, what: str) -> None:
    """Raise RefusedByBroker for a code other than 0. `what` names the request."""
    if code:
        raise RefusedByBroker(code, what)


def passes(error: Exception, api: ApiKey | None = None) -> bool:
    """Whether the failure may pass by itself, so that the same request (`api`) may be sent again."""
    if isinstance(error, KafkaError):
        return outcome(error.code, api) in (ErrorOutcome.AGAIN, ErrorOutcome.BRIEFLY)
    return isinstance(error, (ConnectionLost, BrokerUnreachable))


HINT_S = 3.0
"""After so many seconds a warning says what a wrong protocol looks like. A broker that ends looks alike, so
the call is tried again nevertheless."""


_SEE = see("brokerunreachable")


class Backoff:
    """Growing pauses with jitter, until a deadline `timeout_ms` after its creation."""

    def __init__(self, config: ClientConfig, timeout_ms: float) -> None:
        began = time.monotonic()
        self.deadline, self._hint_at = began + timeout_ms / 1000, began + HINT_S
        self._first, self._max = config.retry_backoff_ms, config.retry_backoff_max_ms
        self._tries = self._quick_tries = 0

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.deadline

    def pause(self, error: Exception | None = None) -> None:
        """Sleep before the next try, never past the deadline. Says once if the protocol may be wrong."""
        if time.monotonic() >= self._hint_at and PROTOCOL_OPTION in str(error):
            self._hint_at = math.inf
            left = max(0.0, self.deadline - time.monotonic())
            logger.warning(f"%s. It is tried again for %.0f s more. {_SEE}", error, left)
        if isinstance(error, _QUICK):
            wait = min(_QUICK_MS * 2**self._quick_tries, float(self._first))
            self._quick_tries = min(self._quick_tries + 1, 20)
        else:
            wait = float(min(self._first * 2**self._tries, max(self._first, self._max)))
            self._tries = min(self._tries + 1, 20)
        wait *= random.uniform(0.8, 1.2)
        time.sleep(max(0.0, min(wait / 1000, self.deadline - time.monotonic())))


class Tried(Protocol):
    """What `retrying` needs of a cluster."""

    config: ClientConfig

    @property
    def reached(self) -> bool:
        """Whether any broker has answered."""

    def note(self, error: Exception) -> None:
        """Remember a failure."""


def retrying(
    cluster: Tried,
    what: str,
    attempt: Callable[[], T],
    *,
    option: str = API_TIMEOUT,
    least_ms: int = 0,
    forget: Callable[[], None] | None = None,
    final: tuple[type[KafkaError], ...] = (),
    api: ApiKey | None = None,
) -> T:
    """The result of `attempt`, tried again while failures may pass, for as long as `option` says, and for
    `least_ms` at least.

    `forget` drops what the client knows about the cluster before the next try. Classes in `final` are raised
    at once; `outcome` says what others mean for the request `api`. A cluster that never answered is
    not tried again: its addresses are probably wrong. Raises KafkaError, BrokerUnreachable, or
    RetriesExhausted from the last failure.
    """
    timeout_ms = max(cluster.config.value_of(option), least_ms)
    backoff = Backoff(cluster.config, timeout_ms)
    brief: Backoff | None = None
    while True:
        try:
            return attempt()
        except (KafkaError, ConnectionLost, BrokerUnreachable) as error:
            if not passes(error, api) or isinstance(error, final):
                raise
            if isinstance(error, KafkaError) and outcome(error.code, api) is ErrorOutcome.BRIEFLY:
                brief = brief or Backoff(cluster.config, min(BRIEF_MS, timeout_ms))
                if brief.over:
                    raise
            if isinstance(error, BrokerUnreachable) and not cluster.reached:
                raise
            if backoff.over:
                raise RetriesExhausted(
                    f"{what}: gave up after {timeout_ms} ms ({option}): {error}. Are the brokers up and "
                    "well? Then start the query again"
                ) from error
            cluster.note(error)
            if forget is not None:
                forget()
            backoff.pause(error)
