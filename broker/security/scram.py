"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the server's side.

What is stored of a password can check it, but not log in with it: salt, iterations, StoredKey and ServerKey.
An unknown user is refused like a wrong password, at the same step, and has a constant salt like all others.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Callable

from eoslog.broker.security.mechanism import AuthenticationFailed, SaslStep
from eoslog.protocol.scram import (
    MIN_ITERATIONS,
    Credential,
    ScramError,
    auth_message,
    binary,
    credential_of,
    proof_holds,
    salted_password,
    server_signature,
    unquoted,
)

_DECOY = secrets.token_bytes(32)
_GS2 = re.compile(r"([nyp])(?:=([^,]*))?,(?:a=([^,]*))?,", re.ASCII)
_FIRST = re.compile(r"(?:m=([^,]*),)?n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)((?:,[A-Za-z]+=[^,]*)*)")
_FINAL = re.compile(
    r"c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)((?:,[A-Za-z]=[^,]*)*),p=([A-Za-z0-9+/=]+)"
)


def credential_of_password(mechanism: str, user: str, password: str) -> Credential:
    """The credential for a password of the configuration; takes some milliseconds of hashing."""
    salt = _salt_of(user)
    salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
    return credential_of(mechanism, salted, salt, MIN_ITERATIONS)


def _salt_of(user: str) -> bytes:
    """The salt of a user without a stored one. It does not show whether the user exists."""
    return hmac.digest(_DECOY, user.encode(), "sha256")[:16]


class ScramExchange:
    """An exchange of two messages each way."""

    def __init__(self, mechanism: str, credential: Callable[[str], Credential | None]) -> None:
        """`credential`: returns a user's credential, or None."""
        self._mechanism = mechanism
        self._credential = credential
        self._known: Credential | None = None
        self._user = self._nonce = self._gs2 = self._bare = self._server_first = ""

    async def step(self, token: bytes) -> SaslStep:
        """See `Exchange.step`."""
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("the SCRAM message is not UTF-8") from None
        return self._final(text) if self._server_first else self._first(text)

    def _first(self, text: str) -> SaslStep:
        head = _GS2.match(text)
        if head is None or head[1] == "p":
            raise AuthenticationFailed("the SCRAM message has no header that is understood")
        found = _FIRST.fullmatch(text, head.end())
        if found is None or found[1] is not None:
            raise AuthenticationFailed("the first SCRAM message is not understood")
        if "tokenauth=true" in found[4]:
            raise AuthenticationFailed("there are no delegation tokens")
        self._user = _name(found[2])
        if head[3] and _name(head[3]) != self._user:
            raise AuthenticationFailed("acting for another user is not possible")
        self._gs2, self._bare = head[0], text[head.end() :]
        self._nonce = found[3] + secrets.token_urlsafe(24)
        self._known = self._credential(self._user)
        salt, iterations = self._salt()
        self._server_first = f"r={self._nonce},s={base64.b64encode(salt).decode()},i={iterations}"
        return SaslStep(self._server_first.encode())

    def _salt(self) -> tuple[bytes, int]:
        if self._known is not None:
            return self._known.salt, self._known.iterations
        return _salt_of(self._user), MIN_ITERATIONS

    def _final(self, text: str) -> SaslStep:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise AuthenticationFailed("the final SCRAM message is not understood")
        try:
            bound, proof = binary(found[1]), binary(found[4])
        except ScramError:
            raise AuthenticationFailed("the final SCRAM message is not understood") from None
        if bound != self._gs2.encode() or not hmac.compare_digest(found[2], self._nonce):
            raise AuthenticationFailed("the final SCRAM message does not belong to the first")
        signed = auth_message(self._bare, self._server_first, text[: found.start(4) - 3])
        known = self._known
        if known is None or not proof_holds(self._mechanism, known, signed, proof):
            why = f"invalid credentials with SASL mechanism {self._mechanism}"
            raise AuthenticationFailed(why, self._user)
        verifier = base64.b64encode(server_signature(self._mechanism, known, signed))
        return SaslStep(b"v=" + verifier, self._user)


def _name(text: str) -> str:
    try:
        return unquoted(text)
    except ScramError:
        raise AuthenticationFailed("the first SCRAM message has a name that is not understood") from None
