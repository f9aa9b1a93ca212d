"""The interface of a SASL mechanism: an exchange of tokens that ends with a user's name or a failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from eoslog.broker.security.users import Passwords


class AuthenticationFailed(Exception):
    """Authentication failed. The text is for the client, so it holds no secret. `user`: who it said it is."""

    def __init__(self, text: str, user: str = "") -> None:
        super().__init__(text)
        self.user = user


@dataclass(frozen=True, slots=True)
class SaslStep:
    """An answer to one token. `user`: the authenticated user, once the exchange is done.

    `lifetime_ms`: how long the client's token is valid; 0: without end.
    """

    token: bytes
    user: str | None = None
    lifetime_ms: int = 0


class Exchange(Protocol):
    """One authentication in progress."""

    async def step(self, token: bytes) -> SaslStep:
        """Answer the client's next token. Raises AuthenticationFailed."""


class PlainExchange:
    """SASL PLAIN (RFC 4616): one message, with user and password in clear text. For connections with TLS."""

    def __init__(self, passwords: Passwords) -> None:
        self._passwords = passwords

    async def step(self, token: bytes) -> SaslStep:
        """See `Exchange.step`."""
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailed("the PLAIN message is not UTF-8") from None
        if len(parts) != 3:
            raise AuthenticationFailed("a PLAIN message has three parts: authorization id, user, password")
        authorization_id, user, password = parts
        if not user or not password:
            raise AuthenticationFailed("user or password is empty")
        if not self._passwords.fits(user, password):
            raise AuthenticationFailed("Invalid username or password", user)
        if authorization_id not in ("", user):
            raise AuthenticationFailed("acting for another user is not possible", user)
        return SaslStep(b"", user)
