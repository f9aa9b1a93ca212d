"""What one save consists of, and the records it is kept in. Pure.

A record's key is JSON: `[1, sink, kind, name, number]`. Its value is a piece of at most PIECE bytes, the
`number`th. Kinds:

- `file`: a file of the checkpoint, `name` is its path there;
- `manifest`: the files of the newest save, with their sizes and digests;
- `decided`: a batch that was decided since, `name` is its number (DecidedBatch).

The topic is compacted: the newest record of a key counts, and null removes it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from eoslog.connector.commit.saved_state import Saved

PIECE = 256 * 1024
"""Bytes of a file in one record: a topic takes a million (max.message.bytes) by default."""
FILE, MANIFEST, DECIDED = "file", "manifest", "decided"
_VERSION = 1


class Key(NamedTuple):
    """The key of a record."""

    sink: str
    kind: str
    name: str
    number: int = 0

    def packed(self) -> bytes:
        """The key as bytes."""
        return json.dumps([_VERSION, *self], separators=(",", ":")).encode()

    @classmethod
    def read(cls, packed: bytes | None) -> Self | None:
        """The reverse of packed(). None: somebody else has written the record."""
        try:
            version, sink, kind, name, number = json.loads(packed or b"")
            return cls(str(sink), str(kind), str(name), int(number)) if version == _VERSION else None
        except (ValueError, TypeError):
            return None


class Content(NamedTuple):
    """Size in bytes and digest of a file: the first half of its SHA-256, in hexadecimal."""

    size: int
    digest: str

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Those of some data."""
        return cls(len(data), hashlib.sha256(data).hexdigest()[:32])


def _found(text: str) -> Any:
    found: Any = json.loads(text)
    if found["version"] != _VERSION:
        raise ValueError(f"its version is {found['version']}")
    return found


@dataclass(frozen=True)
class Manifest:
    """One save. `batch`: the files are what Spark needs to run this batch of the query."""

    query: str
    batch: int
    files: Mapping[str, Content]

    def text(self) -> str:
        """The manifest's text in the topic and in the checkpoint's note."""
        said = {"version": _VERSION, "query": self.query, "batch": self.batch, "files": self.files}
        return json.dumps(said, separators=(",", ":"), sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The reverse of text(). Raises ValueError."""
        try:
            found = _found(text)
            files = {str(name): Content(int(size), str(sha)) for name, (size, sha) in found["files"].items()}
            return cls(str(found["query"]), int(found["batch"]), files)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(str(error)) from error

    @property
    def is_stateful(self) -> bool:
        """Whether there is any state."""
        return any(name.startswith("state/") for name in self.files)

    def keys(self, sink: str) -> set[Key]:
        """The keys of all of its files' records."""
        return {
            key for name, content in self.files.items() for key in keys_of(sink, FILE, name, content.size)
        }


class DecidedBatch(NamedTuple):
    """A batch as it ran: its entry in the offset log, and rows and checksum of each of its tasks."""

    planned: str
    rows: tuple[int, ...]
    checksums: tuple[int, ...]

    def text(self) -> str:
        """The text of the record."""
        return json.dumps({"version": _VERSION, **self._asdict()}, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The reverse of text(). Raises ValueError."""
        try:
            found = _found(text)
            return cls(str(found["planned"]), *(tuple(map(int, found[n])) for n in ("rows", "checksums")))
        except (KeyError, TypeError) as error:
            raise ValueError(str(error)) from error


def keys_of(sink: str, kind: str, name: str, size: int) -> list[Key]:
    """The keys of a file's records; an empty file has one."""
    return [Key(sink, kind, name, number) for number in range(max(1, -(-size // PIECE)))]


def pieces(sink: str, kind: str, name: str, data: bytes) -> Iterator[tuple[Key, bytes]]:
    """A file's records."""
    for key in keys_of(sink, kind, name, len(data)):
        yield key, data[key.number * PIECE : (key.number + 1) * PIECE]


def is_that_of(saved: Saved, text: str) -> bool:
    """Whether a manifest's text is the one that a decision names."""
    return Content.of(text.encode()) == (saved.size, saved.digest)
