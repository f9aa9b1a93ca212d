"""SASL PLAIN (RFC 4616): user and password in clear text. For connections with TLS."""

from __future__ import annotations

from eoslog.broker.security.mechanism import AuthenticationFailed, SaslStep
from eoslog.broker.security.users import Passwords


class PlainExchange:
    """An exchange of one message."""

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
            raise AuthenticationFailed("Invalid username or password")
        if authorization_id not in ("", user):
            raise AuthenticationFailed("acting for another user is not possible")
        return SaslStep(b"", user)
