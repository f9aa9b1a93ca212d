"""When to try again, and for how long: the one loop around every call that may fail for a while.

A broker that restarts, a coordinator that moves, a transaction whose markers are still being written
(KIP-98): all these pass by themselves. error_outcomes.py has the codes; the loop ends at its time-out.
"""

import random
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from eoslog.client.wire.config import ClientConfig
from eoslog.client.wire.error_outcomes import BRIEF_MS, ErrorOutcome, outcome
from eoslog.errors import BrokerUnreachable, ConnectionLost, RefusedByBroker, RetriesExhausted
from eoslog.protocol import errors
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import KafkaError

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


class Backoff:
    """Growing pauses with jitter, until a deadline `timeout_ms` after its creation."""

    def __init__(self, config: ClientConfig, timeout_ms: float) -> None:
        self.deadline = time.monotonic() + timeout_ms / 1000
        self._first, self._max = config.retry_backoff_ms, config.retry_backoff_max_ms
        self._tries = self._quick_tries = 0

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.deadline

    def pause(self, error: Exception | None = None) -> None:
        """Sleep before the next try, never past the deadline."""
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
