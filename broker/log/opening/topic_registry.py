"""The registry of topics, `topics.json` in the data directory, and its format. Written whole, see `files`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from eoslog.broker.log.segment.files import BadFile, decode_uuid, encode_uuid

FILE = "topics.json"
_VERSION = 1


@dataclass(frozen=True)
class TopicEntry:
    """A topic that exists. `configs`: only those that were set on it."""

    name: str
    topic_id: bytes
    partitions: int
    configs: dict[str, str]


@dataclass(frozen=True)
class TopicRegistry:
    """All topics, and the ids of those being deleted, whose directories may still be there."""

    topics: tuple[TopicEntry, ...] = ()
    deleting: frozenset[bytes] = frozenset()

    @property
    def partitions(self) -> dict[bytes, int]:
        """The number of partitions of each topic that exists, by topic id."""
        return {entry.topic_id: entry.partitions for entry in self.topics}


def encode(topics: Iterable[TopicEntry], deleting: Iterable[bytes]) -> bytes:
    """The file's content."""
    registry = {
        "version": _VERSION,
        "topics": [
            {
                "name": entry.name,
                "id": encode_uuid(entry.topic_id),
                "partitions": entry.partitions,
                "configs": entry.configs,
            }
            for entry in topics
        ],
        "deleting": [encode_uuid(topic_id) for topic_id in deleting],
    }
    return json.dumps(registry, indent=1).encode()


def decode(data: bytes, path: str) -> TopicRegistry:
    """Read what `encode` wrote. Raises BadFile naming the path."""
    try:
        registry = json.loads(data)
        if registry["version"] != _VERSION:
            raise ValueError(f"version {registry['version']}")
        entries = (
            TopicEntry(str(e["name"]), decode_uuid(e["id"]), int(e["partitions"]), dict(e["configs"]))
            for e in registry["topics"]
        )
        return TopicRegistry(tuple(entries), frozenset(map(decode_uuid, registry["deleting"])))
    except (ValueError, KeyError, TypeError) as error:
        raise BadFile(f"{path} cannot be understood ({error!r}); restore it from a copy") from error
