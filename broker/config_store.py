"""Configs that clients set while the broker runs, apart from those of topics: kept in `configs.json`.

They are of a kind (the broker's options, groups) and of a name: a broker's id or "" for all brokers, a group
id. Topics keep theirs in the registry of topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from eoslog.broker.ports import FileSystem
from eoslog.broker.stored import StoredJson

FILE = "configs.json"
Kind = Literal["broker", "group"]

_Configs = dict[str, dict[str, str]]


class ConfigStore:
    """All of them, in memory and on disk."""

    def __init__(self, fs: FileSystem, data_dir: str) -> None:
        """Read what is stored. Raises BadFile, OSError."""
        self._file = StoredJson(fs, data_dir, FILE)
        content = self._file.load()
        try:
            self._kinds: dict[str, _Configs] = {
                kind: {
                    name: {str(key): str(value) for key, value in configs.items()}
                    for name, configs in content.get(kind, {}).items()
                }
                for kind in get_args(Kind)
            }
        except AttributeError as error:
            raise self._file.bad(error) from error

    @property
    def path(self) -> str:
        """The file's path."""
        return self._file.path

    def get(self, kind: Kind, name: str) -> dict[str, str]:
        """What is set there, by config; empty if nothing is. The caller must not change it."""
        return self._kinds[kind].get(name, {})

    def names(self, kind: Kind) -> list[str]:
        """Where something is set, sorted."""
        return sorted(self._kinds[kind])

    def put(self, kind: Kind, name: str, configs: Mapping[str, str]) -> None:
        """Set these configs and no others there. Raises KafkaError KAFKA_STORAGE_ERROR, changing nothing."""
        changed = {**self._kinds[kind], name: dict(configs)}
        if not configs:
            del changed[name]
        self._file.save({**self._kinds, kind: changed}, f"the configs of {kind} {name!r} are as they were")
        self._kinds[kind] = changed
