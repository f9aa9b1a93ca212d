"""A connection's authentication: who the client is, and what it may send before that is known.

On a listener without SASL the client is known at once: by its certificate, or as ANONYMOUS. With SASL these
are the states. A request that is not in the table closes the connection.

| state | allowed | next |
|---|---|---|
| START | ApiVersions | START |
| START | SaslHandshake | EXCHANGE, the mechanism chosen; version 0: TOKENS |
| EXCHANGE | ApiVersions; SaslAuthenticate | EXCHANGE until the mechanism is done, then KNOWN; FAILED |
| TOKENS | frames that are the mechanism's tokens, without a header | the same |
| KNOWN | everything; SaslHandshake starts again (KIP-368) | KNOWN, EXCHANGE |

After the end of a session (connections.max.reauth.ms, or a token's), only a new authentication is allowed.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from eoslog.broker.security.listeners import Listener
from eoslog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from eoslog.broker.security.mechanism import Exchange

ANONYMOUS = "User:ANONYMOUS"


class AuthenticationState(Enum):
    """The state of a client's authentication."""

    START = "start"
    EXCHANGE = "exchange"
    TOKENS = "tokens"
    KNOWN = "known"
    FAILED = "failed"


_ALWAYS = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class ClientSession:
    """One connection's listener, state and principal."""

    __slots__ = ("ends_at", "exchange", "listener", "mechanism", "principal", "state")

    def __init__(self, listener: Listener, principal: str = ANONYMOUS) -> None:
        """`principal`: the client's on a listener without SASL."""
        self.listener = listener
        self.principal = principal
        self.state = AuthenticationState.START if listener.sasl else AuthenticationState.KNOWN
        self.mechanism = ""
        self.exchange: Exchange | None = None
        self.ends_at = float("inf")
        """When the session ends, on the monotonic clock in seconds."""

    def refuses(self, key: int, now: float) -> str | None:
        """Why a request must not be served now; None if it may."""
        if key in _ALWAYS:
            return None
        if self.state is not AuthenticationState.KNOWN:
            return f"API key {key} before authentication on listener {self.listener.name}"
        if now > self.ends_at:
            return f"the session of {self.principal} has ended and was not renewed"
        return None

    @property
    def known(self) -> bool:
        """Whether the client has authenticated; also while it does so again."""
        return self.principal != ANONYMOUS or not self.listener.sasl


OPEN = ClientSession(Listener())
"""A session of an anonymous client."""
