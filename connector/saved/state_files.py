"""The files of a saved checkpoint: its manifest, and those of the state stores."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from eoslog.connector.commit.saved_state import Saved

# -- manifest --------------------------------------------------------------------------------------
# What one save consists of, and the records it is kept in. Pure.
#
# A record's key is JSON: `[1, sink, kind, name, number]`. Its value is a piece of at most PIECE bytes, the
# `number`th. Kinds:
#
# - `file`: a file of the checkpoint, `name` is its path there;
# - `manifest`: the files of the newest save, with their sizes and digests;
# - `decided`: a batch that was decided since, `name` is its number (DecidedBatch).
#
# The topic is compacted: the newest record of a key counts, and null removes it.


PIECE = 256 * 1024
"""Bytes of a file in one record: a topic takes a million (max.message.bytes) by default."""
FILE, MANIFEST, DECIDED = "file", "manifest", "decided"
_FORMAT = 1


class Key(NamedTuple):
    """The key of a record."""

    sink: str
    kind: str
    name: str
    number: int = 0

    def packed(self) -> bytes:
        """The key as bytes."""
        return json.dumps([_FORMAT, *self], separators=(",", ":")).encode()

    @classmethod
    def read(cls, packed: bytes | None) -> Self | None:
        """The reverse of packed(). None: somebody else has written the record."""
        try:
            version, sink, kind, name, number = json.loads(packed or b"")
            return cls(str(sink), str(kind), str(name), int(number)) if version == _FORMAT else None
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
    if found["version"] != _FORMAT:
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
        said = {"version": _FORMAT, "query": self.query, "batch": self.batch, "files": self.files}
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
        return json.dumps({"version": _FORMAT, **self._asdict()}, separators=(",", ":"))

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


# -- state stores ----------------------------------------------------------------------------------
# Which files of a checkpoint Spark needs to run a batch. Pure, but for the zip files that it is given.
#
# The state before batch B is version B. Each partition of each operator has a folder with a file for each
# version: what changed (`<version>.delta`, `<version>.changelog`), and now and then all of it (`.snapshot`,
# `.zip`). With Spark's checkpoint format 2 a name has the unique id of the task that wrote it
# (`<version>_<id>.zip`), as several may have. A zip of RocksDB names further files, in SSTs/ and logs/,
# that it shares with other versions.


_WHOLE, _CHANGES = ("snapshot", "zip"), ("delta", "changelog")
_VERSION = re.compile(rf"(\d+)(?:_([^.]+))?\.({'|'.join((*_WHOLE, *_CHANGES))})(\.crc)?")
_SHARED = re.compile(r"state/\d+/.*/(SSTs|logs)/[^/]+")
_STATE = re.compile(r"(state/\d+/\d+(?:/[^/]+)?)/([^/]+)")
_KEPT_WHOLE = re.compile(r"metadata|eoslog/sink|eoslog/sources|eoslog/left|sources/.*|state/.*")

ReadFile = Callable[[str], bytes]


class StateGone(ValueError):
    """The checkpoint lacks files of the state; the message says which."""


class _Versioned(NamedTuple):
    """A file of one version of a partition's state."""

    version: int
    unique_id: str
    kind: str
    name: str


def files_before(batch: int, names: Iterable[str], read: ReadFile, *, planned: bool = True) -> list[str]:
    """The files that Spark needs to run a batch, of all names in the checkpoint. `read`: a file's content.
    `planned`: the batch is planned already; else the files are those that it takes to plan it.

    Raises StateGone.
    """
    there = {name for name in names if not _is_hidden(name)}
    folders: dict[str, list[_Versioned]] = {}
    plain = []
    for name in sorted(there):
        found = _STATE.fullmatch(name)
        versioned = found and _VERSION.fullmatch(found[2])
        if found and versioned:
            if not versioned[4]:
                one = _Versioned(int(versioned[1]), versioned[2] or "", versioned[3], name)
                folders.setdefault(found[1], []).append(one)
        elif _KEPT_WHOLE.fullmatch(name) and not _SHARED.fullmatch(name):
            plain.append(name)
    last = batch if planned else batch - 1  # Spark reads two entries of the offset log when it starts
    logs = [f"offsets/{n}" for n in (last, last - 1) if n >= 0] + [f"commits/{batch - 1}"] * (batch > 0)
    state = [one for folder, files in folders.items() for one in _needed(folder, files, batch)]
    shared = {name for one in state for name in _named_in(one, read)}
    wanted = {*plain, *logs, *(one.name for one in state), *shared}
    lacks = sorted(wanted - there)
    if lacks:
        raise StateGone(f"{', '.join(lacks[:5])} of {len(lacks)} files that batch {batch} needs are missing")
    sums = {f"{one.name}.crc" for one in state} & there
    return sorted(wanted | sums)


def is_of_checkpoint(name: str) -> bool:
    """Whether this may be the name of a saved file. A name from elsewhere must not lead out of the folder."""
    known = _KEPT_WHOLE.fullmatch(name) or re.fullmatch(r"(offsets|commits)/\d+", name)
    return bool(known) and not any(part in ("", ".", "..") for part in name.split("/"))


def is_versioned(name: str) -> bool:
    """Whether a file belongs to one version of the state: it does not change once that is complete."""
    return bool(_SHARED.fullmatch(name)) or bool(_VERSION.fullmatch(name.rpartition("/")[2]))


def _is_hidden(name: str) -> bool:
    """Whether it is a draft, or a checksum of Hadoop's, which no other file system has."""
    return "/." in name or name.startswith(".")


def _needed(folder: str, files: list[_Versioned], version: int) -> Iterator[_Versioned]:
    """The files of the newest version that is there as a whole, and of the changes from there on."""
    if version == 0:
        return
    old = [one for one in files if one.version <= version]
    ids = _ids(old)
    whole = sorted({one.version for one in old if one.kind in _WHOLE}, reverse=True)
    for begin in (*whole, 0):
        clear = begin == version or all(len(ids.get(n, ())) == 1 for n in range(max(begin, 1), version + 1))
        if clear:
            yield from (one for one in old if one.version == begin and one.kind in _WHOLE)
            yield from (one for one in old if one.version > begin and one.kind in _CHANGES)
            return
    raise StateGone(f"{folder} has no unbroken line of files up to version {version}")


def _ids(files: list[_Versioned]) -> Mapping[int, set[str]]:
    """The unique ids of each version. If there are several, only a whole version tells which one counts."""
    found: dict[int, set[str]] = {}
    for one in files:
        found.setdefault(one.version, set()).add(one.unique_id)
    return found


def _named_in(one: _Versioned, read: ReadFile) -> Iterator[str]:
    """The files that a zip of RocksDB shares with other versions."""
    if one.kind != "zip":
        return
    folder = one.name.rpartition("/")[0]
    with zipfile.ZipFile(io.BytesIO(read(one.name))) as packed:
        text = packed.read("metadata").decode()
    said = json.loads(text.partition("\n")[2])
    for kind, place, key in (("sstFiles", "SSTs", "dfsSstFileName"), ("logFiles", "logs", "dfsLogFileName")):
        yield from (f"{folder}/{place}/{file[key]}" for file in said.get(kind) or ())
