"""What a SASL mechanism is to the rest: an exchange of tokens that ends in a name or a failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class AuthenticationFailed(Exception):
    """The client is not who it says it is. The text is for the client: it holds no secret."""


@dataclass(frozen=True, slots=True)
class Step:
    """An answer to one token. `user`: whose session begins, once the exchange is done.

    `lifetime_ms`: how long what the client showed is good for; 0: without end.
    """

    token: bytes
    user: str | None = None
    lifetime_ms: int = 0


class Exchange(Protocol):
    """One authentication on its way."""

    async def step(self, token: bytes) -> Step:
        """Take the client's next token. Raises AuthenticationFailed."""
