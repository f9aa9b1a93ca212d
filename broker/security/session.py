"""Who a connection's client is, and what it may send before that is known.

A client of a listener without SASL is known at once: by its certificate, or ANONYMOUS. With SASL the states
are these; what is not in the table closes the connection.

| state | may come | next |
|---|---|---|
| START | ApiVersions | START |
| START | SaslHandshake | EXCHANGE, the mechanism chosen; version 0: TOKENS |
| EXCHANGE | ApiVersions; SaslAuthenticate | EXCHANGE until the mechanism is done, then KNOWN; FAILED |
| TOKENS | frames that are the mechanism's tokens, without a header | the same |
| KNOWN | everything; SaslHandshake begins anew (KIP-368) | KNOWN, EXCHANGE |

A session with an end (connections.max.reauth.ms, or a token's) admits nothing after it but to begin anew.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from eoslog.broker.security.listeners import Listener
from eoslog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from eoslog.broker.security.mechanism import Exchange

ANONYMOUS = "User:ANONYMOUS"


class State(Enum):
    """How far a client's authentication is."""

    START = "start"
    EXCHANGE = "exchange"
    TOKENS = "tokens"
    KNOWN = "known"
    FAILED = "failed"


_ALWAYS = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class Session:
    """One connection's listener, state and principal."""

    __slots__ = ("ends_at", "exchange", "listener", "mechanism", "principal", "state")

    def __init__(self, listener: Listener, principal: str = ANONYMOUS) -> None:
        """`principal`: who it is on a listener without SASL."""
        self.listener = listener
        self.principal = principal
        self.state = State.START if listener.sasl else State.KNOWN
        self.mechanism = ""
        self.exchange: Exchange | None = None
        self.ends_at = float("inf")
        """When the session ends, on the monotonic clock in seconds."""

    def refuses(self, key: int, now: float) -> str | None:
        """Why a request must not be served now; None if it may be."""
        if key in _ALWAYS:
            return None
        if self.state is not State.KNOWN:
            return f"API key {key} before authentication on listener {self.listener.name}"
        if now > self.ends_at:
            return f"the session of {self.principal} has ended and was not renewed"
        return None

    @property
    def known(self) -> bool:
        """Whether the client has authenticated, be it that it does so anew."""
        return self.principal != ANONYMOUS or not self.listener.sasl


OPEN = Session(Listener())
"""A session of nobody in particular."""
