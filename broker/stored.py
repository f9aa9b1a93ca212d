"""A small file of the data directory that is read at the start and written whole at each change, as JSON."""

from __future__ import annotations

import json
import os
from typing import Any

from eoslog.broker.log import files
from eoslog.broker.log.files import BadFile
from eoslog.broker.ports import FileSystem
from eoslog.protocol.errors import ErrorCode, KafkaError


class StoredJson:
    """One such file; `name` ends in .json."""

    def __init__(self, fs: FileSystem, directory: str, name: str, version: int = 1) -> None:
        """`version` is that of the content; another one is not read."""
        self.path = os.path.join(directory, name)
        self._fs, self._version = fs, version

    def load(self) -> dict[str, Any]:
        """The content, empty if there is no file. Raises BadFile, OSError."""
        if not self._fs.exists(self.path):
            return {}
        try:
            content: dict[str, Any] = json.loads(files.read_whole(self._fs, self.path))
            if content.pop("version") != self._version:
                raise ValueError("another version")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self.bad(error) from error
        return content

    def save(self, content: dict[str, Any], what: str) -> None:
        """Replace the content, durably. Raises KafkaError KAFKA_STORAGE_ERROR saying that `what` failed."""
        data = json.dumps({"version": self._version, **content}, indent=1).encode()
        try:
            files.write_whole(self._fs, self.path, data)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {self.path}: {error}") from error

    def bad(self, error: Exception) -> BadFile:
        """What to raise about content that makes no sense."""
        return BadFile(f"{self.path} cannot be understood ({error!r}); put it back from a copy")
