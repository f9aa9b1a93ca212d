"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the server's side.

What is kept of a password is enough to check it, and not to log in with: salt, iterations, StoredKey and
ServerKey. A user who does not exist is refused as late and in the same way as a wrong password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from eoslog.broker.security.mechanism import AuthenticationFailed, Step

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NUMBERS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""The mechanisms by their numbers in AlterUserScramCredentials (KIP-554)."""

LEAST_ITERATIONS, MOST_ITERATIONS = 4096, 16384

_DECOY = secrets.token_bytes(32)
_GS2 = re.compile(r"([nyp])(?:=([^,]*))?,(?:a=([^,]*))?,", re.ASCII)
_FIRST = re.compile(r"(?:m=([^,]*),)?n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)((?:,[A-Za-z]+=[^,]*)*)")
_FINAL = re.compile(
    r"c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)((?:,[A-Za-z]=[^,]*)*),p=([A-Za-z0-9+/=]+)"
)


@dataclass(frozen=True, slots=True)
class Credential:
    """What a server keeps of a user's password for one mechanism."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of_salted(cls, mechanism: str, salt: bytes, iterations: int, salted: bytes) -> Credential:
        """From a salted password, as clients send it."""
        name = HASHES[mechanism]
        client_key = hmac.digest(salted, b"Client Key", name)
        server_key = hmac.digest(salted, b"Server Key", name)
        return cls(salt, iterations, hashlib.new(name, client_key).digest(), server_key)

    @classmethod
    def of_password(cls, mechanism: str, password: str) -> Credential:
        """From a password that the configuration gives."""
        salt = secrets.token_bytes(16)
        salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, LEAST_ITERATIONS)
        return cls.of_salted(mechanism, salt, LEAST_ITERATIONS, salted)


class ScramExchange:
    """Two messages each way."""

    def __init__(self, mechanism: str, credential: Callable[[str], Credential | None]) -> None:
        """`credential`: what is known of a user."""
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._credential = credential
        self._known: Credential | None = None
        self._user = self._nonce = self._gs2 = self._bare = self._told = ""

    async def step(self, token: bytes) -> Step:
        """See `Exchange.step`."""
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("the SCRAM message is not UTF-8") from None
        return self._final(text) if self._told else self._first(text)

    def _first(self, text: str) -> Step:
        head = _GS2.match(text)
        if head is None or head[1] == "p":
            raise AuthenticationFailed("the SCRAM message has no header that is understood")
        found = _FIRST.fullmatch(text, head.end())
        if found is None or found[1] is not None:
            raise AuthenticationFailed("the first SCRAM message is not understood")
        if "tokenauth=true" in found[4]:
            raise AuthenticationFailed("there are no delegation tokens")
        self._user = found[2].replace("=2C", ",").replace("=3D", "=")
        if head[3] and head[3].replace("=2C", ",").replace("=3D", "=") != self._user:
            raise AuthenticationFailed("acting for another user is not possible")
        self._gs2, self._bare = head[0], text[head.end() :]
        self._nonce = found[3] + secrets.token_urlsafe(24)
        self._known = self._credential(self._user)
        salt, iterations = self._salt()
        self._told = f"r={self._nonce},s={base64.b64encode(salt).decode()},i={iterations}"
        return Step(self._told.encode())

    def _salt(self) -> tuple[bytes, int]:
        if self._known is not None:
            return self._known.salt, self._known.iterations
        return hmac.digest(_DECOY, self._user.encode(), "sha256")[:16], LEAST_ITERATIONS

    def _final(self, text: str) -> Step:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise AuthenticationFailed("the final SCRAM message is not understood")
        try:
            binding, proof = (
                base64.b64decode(found[1], validate=True),
                base64.b64decode(found[4], validate=True),
            )
        except binascii.Error:
            raise AuthenticationFailed("the final SCRAM message is not understood") from None
        if binding != self._gs2.encode() or not hmac.compare_digest(found[2], self._nonce):
            raise AuthenticationFailed("the final SCRAM message does not belong to the first")
        signed = ",".join((self._bare, self._told, text[: found.start(4) - 3])).encode()
        known = self._known
        if known is None or not self._proves(known, signed, proof):
            raise AuthenticationFailed(f"invalid credentials with SASL mechanism {self._mechanism}")
        verifier = base64.b64encode(hmac.digest(known.server_key, signed, self._hash))
        return Step(b"v=" + verifier, self._user)

    def _proves(self, known: Credential, signed: bytes, proof: bytes) -> bool:
        signature = hmac.digest(known.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            return False
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        return hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), known.stored_key)
