"""Users and passwords from the configuration: JAAS texts as in Kafka, and a users file.

    listener.name.sasl_ssl.plain.sasl.jaas.config=\
        org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob="pass";
    sasl.users.file=/etc/eoslog/users        # lines of NAME=PASSWORD; # begins a comment

In a JAAS text only `user_NAME` options define users; `username` and `password` are what a Kafka broker uses
for connections to other brokers. SCRAM uses both sources too, besides the credentials that clients manage
with AlterUserScramCredentials, so that a first administrator can log in.
"""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Mapping

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.config_def import ConfigError
from eoslog.broker.security.listeners import PREFIX, Listener
from eoslog.protocol import jaas

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
