"""Quotas in effect (KIP-13, KIP-124): who takes more than its share is answered with how long it has to wait.

A client that is over its limit is told so in `throttle_time_ms`, and its connection begins no request for
that time, as from Kafka. All clients that one limit was set for share it: those of a user where it was set
for the user, each client id by itself where it was set for client ids.

Kept are producer_byte_rate (requests of Produce), consumer_byte_rate (records in answers of Fetch) and
request_percentage (time in handlers, of one core). A second's worth may come at once.
"""

from __future__ import annotations

from eoslog.broker.quotas import (
    CLIENT_ID,
    CONSUMER_RATE,
    PRODUCER_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Quotas,
)
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.schema import Message

LONGEST = 30.0
"""Seconds that a client waits at most."""
_BURST = 1.0
_MOST_KEPT = 10_000

Who = tuple[str, str | None, str | None]
"""A limit, and the user and client id that share it; None where they make no difference."""


class Throttle:
    """How far each client is ahead of its limits."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._paid_until: dict[Who, float] = {}  # when what was taken so far is within the limit

    @property
    def idle(self) -> bool:
        """Whether nobody has a limit."""
        return not self._quotas

    def wait(
        self, key: int, principal: str, client_id: str, size: int, answer: Message, busy: float, now: float
    ) -> float:
        """Seconds that the client has to wait after this request.

        `size`: bytes of the request; `busy`: seconds in its handler; `now`: seconds on the monotonic clock.
        """
        taken = {REQUEST_PERCENTAGE: busy * 100}
        if key == ApiKey.PRODUCE:
            taken[PRODUCER_RATE] = size
        elif key == ApiKey.FETCH:
            taken[CONSUMER_RATE] = _records(answer)
        user = principal.removeprefix("User:")
        return max(self._charge(limit, user, client_id, amount, now) for limit, amount in taken.items())

    def _charge(self, limit: str, user: str, client_id: str, amount: float, now: float) -> float:
        found = self._quotas.limit_of(user, client_id, limit)
        if found is None:
            return 0.0
        entity, rate = found
        kinds = {kind for kind, _ in entity}
        who = limit, user if USER in kinds else None, client_id if CLIENT_ID in kinds else None
        if len(self._paid_until) > _MOST_KEPT:
            self._paid_until = {one: until for one, until in self._paid_until.items() if until > now}
        until = max(self._paid_until.get(who, float("-inf")), now - _BURST) + amount / rate
        self._paid_until[who] = min(until, now + LONGEST)
        return max(0.0, self._paid_until[who] - now)


def _records(answer: Message) -> int:
    return sum(
        len(part.get("records") or b"")
        for topic in answer.get("responses", ())
        for part in topic.get("partitions", ())
    )
