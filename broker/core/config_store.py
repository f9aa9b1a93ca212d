"""Configs of brokers and groups that clients set while the broker runs, stored in `configs.json`.

A config belongs to a kind (broker or group) and a name: a broker's id, "" for all brokers, or a group id.
Configs of topics are in the registry of topics. Secrets are in clear, as in Kafka's log of metadata: only
its owner can read the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Literal, get_args

from eoslog.broker.log import files
from eoslog.broker.log.reserve import Reserve
from eoslog.broker.ports import FileSystem
from eoslog.protocol.errors import ErrorCode, KafkaError

FILE = "configs.json"
_VERSION = 1
Kind = Literal["broker", "group"]

_Configs = dict[str, dict[str, str]]


class ConfigStore:
    """All of them, in memory and on disk."""

    def __init__(self, fs: FileSystem, data_dir: str) -> None:
        """Read what is stored. Raises files.BadFile, OSError."""
        self._fs = fs
        self.reserve: Reserve | None = None
        """May be used on a full disk: a broker's option may shorten retention."""
        self.path = os.path.join(data_dir, FILE)
        self._kinds: dict[str, _Configs] = {kind: {} for kind in get_args(Kind)}
        if fs.exists(self.path):
            self._kinds = _decode(files.read_whole(fs, self.path), self.path)

    def get(self, kind: Kind, name: str) -> dict[str, str]:
        """The configs that are set there, by name. The caller must not change the mapping."""
        return self._kinds[kind].get(name, {})

    def names(self, kind: Kind) -> list[str]:
        """The names for which something is set, sorted."""
        return sorted(self._kinds[kind])

    def put(self, kind: Kind, name: str, configs: Mapping[str, str]) -> None:
        """Set exactly these configs there. On KafkaError KAFKA_STORAGE_ERROR nothing changes."""
        changed = {**self._kinds[kind], name: dict(configs)}
        if not configs:
            del changed[name]
        content = {"version": _VERSION, **self._kinds, kind: changed}
        data = json.dumps(content, indent=1).encode()
        try:
            files.write_whole(self._fs, self.path, data, private=True, reserve=self.reserve)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the configs of {kind} {name!r} are as they were: {self.path}: {error}",
            ) from error
        self._kinds[kind] = changed


def _decode(data: bytes, path: str) -> dict[str, _Configs]:
    try:
        content: Any = json.loads(data)
        if content["version"] != _VERSION:
            raise ValueError("another version")
        return {
            kind: {
                name: {str(key): str(value) for key, value in configs.items()}
                for name, configs in content.get(kind, {}).items()
            }
            for kind in get_args(Kind)
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise files.BadFile(f"{path} cannot be understood ({error!r}); put it back from a copy") from error
