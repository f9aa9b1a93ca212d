"""SCRAM (RFC 5802, RFC 7677): its arithmetic and its messages, for both sides of an exchange.

Kafka's dialect: no channel binding, names and passwords as UTF-8 without further preparation.

    client first   n,,n=NAME,r=NONCE
    server first   r=NONCE+MORE,s=SALT,i=ITERATIONS
    client final   c=biws,r=NONCE+MORE,p=PROOF
    server final   v=SIGNATURE, or e=REASON
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import NamedTuple

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The mechanisms, and the hash function of each by hashlib's name."""
NUMBERS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""The mechanisms by their numbers in AlterUserScramCredentials (KIP-554)."""

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16_384
"""Kafka's bounds (KIP-554)."""

_GS2_HEADER = "n,,"
_CHANNEL = base64.b64encode(_GS2_HEADER.encode()).decode()


class ScramError(ValueError):
    """A message that is not valid or proves nothing; the text contains no secret."""


class Credential(NamedTuple):
    """What a server stores of a password: enough to check a proof, too little to make one."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Hi() of RFC 5802: the slow step, which a client of KIP-554 does instead of the server."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """The credential for a salted password."""
    stored_key = _hash(mechanism, _hmac(mechanism, salted, b"Client Key"))
    return Credential(salt, iterations, stored_key, _hmac(mechanism, salted, b"Server Key"))


def proof_holds(mechanism: str, credential: Credential, message: bytes, proof: bytes) -> bool:
    """Whether the client that sent `proof` over the auth message knows the password."""
    signature = _hmac(mechanism, credential.stored_key, message)
    if len(proof) != len(signature):
        return False
    return hmac.compare_digest(_hash(mechanism, _xor(proof, signature)), credential.stored_key)


def server_signature(mechanism: str, credential: Credential, message: bytes) -> bytes:
    """The proof to the client that the server knows the credential."""
    return _hmac(mechanism, credential.server_key, message)


def auth_message(client_first_bare: str, server_first: str, client_final_bare: str) -> bytes:
    """What both sides sign: the exchange so far."""
    return ",".join((client_first_bare, server_first, client_final_bare)).encode()


def attributes(message: str) -> dict[str, str]:
    """`a=one,b=two` as a mapping. Raises ScramError."""
    found: dict[str, str] = {}
    for piece in message.split(","):
        name, equals, value = piece.partition("=")
        if not equals or not name or name in found:
            raise ScramError("a SCRAM message has a piece that is not NAME=VALUE")
        found[name] = value
    return found


def quoted(name: str) -> str:
    """A user's name as it is written in a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unquoted(name: str) -> str:
    """The reverse of `quoted`. Raises ScramError."""
    if "=" in name.replace("=2C", "").replace("=3D", ""):
        raise ScramError("a user name with a lone '='")
    return name.replace("=2C", ",").replace("=3D", "=")


def binary(text: str) -> bytes:
    """Base64 as bytes. Raises ScramError."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ScramError("a SCRAM message has a value that is not base64") from error


class ClientExchange:
    """The client's side, message by message: `first`, `final`, `check`."""

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str, *, delegated: bool = False
    ) -> None:
        """`nonce`: random printable text without commas, new for every exchange. `delegated`: user and
        password are id and HMAC of a delegation token (KIP-48)."""
        self._mechanism, self._password, self._nonce = mechanism, password, nonce
        self._first_bare = f"n={quoted(user)},r={nonce}{',tokenauth=true' if delegated else ''}"
        self._signature = b""

    def first(self) -> bytes:
        """The first message to the server."""
        return (_GS2_HEADER + self._first_bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """The answer to the server's first message. Raises ScramError."""
        text = server_first.decode("utf-8", "replace")
        found = attributes(text)
        if "e" in found or not {"r", "s", "i"} <= found.keys():
            raise ScramError(f"the server refused: {found.get('e', 'it left out nonce, salt or iterations')}")
        if not found["r"].startswith(self._nonce) or found["r"] == self._nonce:
            raise ScramError("the server's nonce does not continue ours")
        if not found["i"].isdecimal() or int(found["i"]) < MIN_ITERATIONS:
            raise ScramError(f"the server asks for fewer than {MIN_ITERATIONS} iterations")
        salt, iterations = binary(found["s"]), int(found["i"])
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        final_bare = f"c={_CHANNEL},r={found['r']}"
        message = auth_message(self._first_bare, text, final_bare)
        credential = credential_of(self._mechanism, salted, salt, iterations)
        self._signature = server_signature(self._mechanism, credential, message)
        client_key = _hmac(self._mechanism, salted, b"Client Key")
        proof = _xor(client_key, _hmac(self._mechanism, credential.stored_key, message))
        return f"{final_bare},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """Check that the server knows the password too. Raises ScramError."""
        found = attributes(server_final.decode("utf-8", "replace"))
        if "e" in found:
            raise ScramError(f"the server refused: {found['e']}")
        if not hmac.compare_digest(binary(found.get("v", "")), self._signature):
            raise ScramError("the server does not know this user's password: it is not the right server")


def _hmac(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, HASHES[mechanism])


def _hash(mechanism: str, data: bytes) -> bytes:
    return hashlib.new(HASHES[mechanism], data).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
