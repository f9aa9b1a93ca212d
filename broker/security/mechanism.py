"""The interface of a SASL mechanism: an exchange of tokens that ends with a user's name or a failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class AuthenticationFailed(Exception):
    """Authentication failed. The text is for the client, so it holds no secret."""


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
