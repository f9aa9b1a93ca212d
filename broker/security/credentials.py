"""The SCRAM credentials that clients manage: `scram-credentials.json` of the data directory.

A change takes effect once it is written and synced. The file holds salted keys, not passwords. Only its owner
can read it.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable
from typing import Any

from eoslog.broker.log import files
from eoslog.broker.ports.ports import FileSystem
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.scram import Credential

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
