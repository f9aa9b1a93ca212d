"""Logins with passwords, PLAIN and SCRAM: the users in options and those that are stored."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.config_def import ConfigError
from eoslog.broker.log import files
from eoslog.broker.ports import FileSystem
from eoslog.broker.security.listeners import PREFIX, Listener
from eoslog.protocol import jaas
from eoslog.protocol.errors import ErrorCode, KafkaError
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

# -- users in options ------------------------------------------------------------------------------
# Users and passwords from the configuration: JAAS texts as in Kafka, and a users file.
#
#     listener.name.sasl_ssl.plain.sasl.jaas.config= (one line)
#       org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob="pass";
#     sasl.users.file=/etc/eoslog/users        # lines of NAME=PASSWORD; # begins a comment
#
# In a JAAS text only `user_NAME` options define users; `username` and `password` are what a Kafka broker uses
# for connections to other brokers. SCRAM uses both sources too, besides the credentials that clients manage
# with AlterUserScramCredentials, so that a first administrator can log in.


_USER = "user_"
_OPEN_FILE = "sasl.users.file: others than its owner may read or change %s (mode %o). Type: chmod 600 %s"

logger = logging.getLogger(__name__)


def jaas_users(text: str, option: str) -> dict[str, str]:
    """The passwords in a JAAS text, by user. Raises ConfigError, which shows nothing of the text."""
    try:
        given = jaas.parse(text).options
    except jaas.JaasError as error:
        raise ConfigError(f"{option}: {error}") from None
    return {name.removeprefix(_USER): password for name, password in given.items() if name.startswith(_USER)}


def file_users(path: str) -> dict[str, str]:
    """The passwords in a users file. Raises ConfigError with the line's number, not its text."""
    users = {}
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"sasl.users.file: {path} cannot be read: {reason}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, password = line.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"sasl.users.file: {path}, line {number}: give NAME=PASSWORD")
        users[name.strip()] = password.strip()
    return users


class Passwords:
    """The configured users of one listener and mechanism. The file is read again when it changes."""

    def __init__(self, listener: Listener, mechanism: str, config: BrokerConfig) -> None:
        """Read both sources. Raises ConfigError."""
        option = f"{mechanism.lower()}.sasl.jaas.config"
        text = listener.own.get(option)
        full = f"{PREFIX}{listener.name.lower()}.{option}"
        self._jaas: Mapping[str, str] = jaas_users(text, full) if text else {}
        self._path: str = config.security.sasl_users_file
        self._file: Mapping[str, str] = {}
        self._stamp: tuple[int, int] | None = None
        self._follow()

    def _follow(self) -> None:
        if not self._path:
            return
        try:
            found = os.stat(self._path)
            stamp, mode = (found.st_mtime_ns, found.st_ino), found.st_mode
        except OSError:
            stamp = (0, 0)
            mode = 0
        if stamp != self._stamp:
            self._file, self._stamp = file_users(self._path), stamp
            if mode & 0o077:
                logger.warning(_OPEN_FILE, self._path, mode & 0o777, self._path)

    def password(self, user: str) -> str | None:
        """The user's password; None for an unknown user. Raises ConfigError if the file is invalid."""
        self._follow()
        return self._jaas.get(user, self._file.get(user))

    @property
    def all(self) -> Mapping[str, str]:
        """Passwords by user. Raises ConfigError if the file is invalid."""
        self._follow()
        return {**self._file, **self._jaas}

    def fits(self, user: str, password: str) -> bool:
        """Whether this is the user's password; takes the same time for every wrong one."""
        known = self.password(user)
        right = hmac.compare_digest((known or "").encode(), password.encode())
        return right and known is not None


# -- an exchange, and PLAIN ------------------------------------------------------------------------
# The interface of a SASL mechanism: an exchange of tokens that ends with a user's name or a failure.


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


# -- SCRAM -----------------------------------------------------------------------------------------
# SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the server's side.
#
# What is stored of a password can check it, but not log in with it: salt, iterations, StoredKey and
# ServerKey. An unknown user is refused like a wrong password, at the same step, and has a constant salt
# like all others.


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


# -- users that are stored -------------------------------------------------------------------------
# The SCRAM credentials that clients manage: `scram-credentials.json` of the data directory.
#
# A change takes effect once it is written and synced. The file holds salted keys, not passwords. Only its
# owner can read it.


FILE = "scram-credentials.json"
_VERSION = 1

Key = tuple[str, str]
"""User and mechanism."""


class Credentials:
    """SCRAM credentials by user and mechanism."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        """Load them. Raises files.BadFile, OSError."""
        self._fs = fs
        self._path = os.path.join(directory, FILE)
        self._known: dict[Key, Credential] = {}
        if fs.exists(self._path):
            self._known = decode(files.read_whole(fs, self._path), self._path)

    def get(self, user: str, mechanism: str) -> Credential | None:
        """A user's credential."""
        return self._known.get((user, mechanism))

    def users(self) -> list[str]:
        """All users with credentials, sorted."""
        return sorted({user for user, _ in self._known})

    def of(self, user: str) -> dict[str, Credential]:
        """A user's credentials by mechanism."""
        return {mechanism: known for (name, mechanism), known in self._known.items() if name == user}

    def change(self, put: Iterable[tuple[Key, Credential]], remove: Iterable[Key]) -> None:
        """Add and remove credentials in one step. On KafkaError nothing changes."""
        changed = self._known | dict(put)
        for key in remove:
            del changed[key]
        try:
            files.write_whole(self._fs, self._path, encode(changed), private=True)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the credentials are not changed, {FILE} cannot be written: {error}",
            ) from error
        self._known = changed


def encode(known: dict[Key, Credential]) -> bytes:
    """The file's content."""
    rows = [
        [
            user,
            mechanism,
            c.iterations,
            *(base64.b64encode(b).decode() for b in (c.salt, c.stored_key, c.server_key)),
        ]
        for (user, mechanism), c in sorted(known.items(), key=lambda item: item[0])
    ]
    return json.dumps({"version": _VERSION, "credentials": rows}, indent=0).encode()


def decode(data: bytes, path: str) -> dict[Key, Credential]:
    """Read what `encode` wrote. Raises files.BadFile, which shows nothing of the content."""
    try:
        content: Any = json.loads(data)
        if content["version"] != _VERSION:
            raise ValueError
        known = {}
        for user, mechanism, iterations, *values in content["credentials"]:
            salt, stored, server = (base64.b64decode(value, validate=True) for value in values)
            known[user, mechanism] = Credential(salt, int(iterations), stored, server)
        return known
    except (ValueError, KeyError, TypeError):
        raise files.BadFile(f"{path} cannot be read; put it back from a copy") from None
