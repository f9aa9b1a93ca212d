"""Reads a log's files as they are on the disk, without opening them for writing. A report says what was read,
what is wrong, and what of it can be repaired."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, NamedTuple

from eoslog.broker.log import files
from eoslog.broker.log.index import OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY

READ_ONLY = os.O_RDONLY | os.O_CLOEXEC


class ReadOnlyFile:
    """A `broker.ports.File` that refuses to write, so that an inspected file cannot change."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, READ_ONLY)

    def read(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`."""
        return os.pread(self._fd, size, position)

    def size(self) -> int:
        """Bytes in the file."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)

    def fileno(self) -> int:
        """The file descriptor."""
        return self._fd

    def write(self, parts: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        """Refused. Raises OSError."""
        raise OSError(f"{self.path} is open for reading only")

    def truncate(self, size: int) -> None:
        """Refused. Raises OSError."""
        raise OSError(f"{self.path} is open for reading only")

    def sync(self) -> None:
        """Does nothing: there is nothing to sync."""


def whole(path: str) -> bytes:
    """All bytes of a file. Raises OSError."""
    with open(path, "rb") as file:
        return file.read()


def base_offset(path: str) -> int:
    """The offset in a file's name. Raises ValueError for a name without one."""
    digits = os.path.basename(path)[:20]
    if len(digits) != 20 or not digits.isdigit():
        raise ValueError("the file's name does not begin with an offset of 20 digits")
    return int(digits)


def offset_entries(path: str) -> Iterator[tuple[int, int]]:
    """(offset, byte position) pairs of an `.index`. Raises ValueError if the last entry is not complete."""
    base = base_offset(path)
    for relative, position in _entries(path, OFFSET_ENTRY):
        if not position:
            return  # Kafka's index of an active segment ends in zeros; no entry is about the first batch
        yield base + relative, position


def time_entries(path: str) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) pairs of a `.timeindex`. Raises ValueError as above."""
    base = base_offset(path)
    for timestamp, relative in _entries(path, TIME_ENTRY):
        if not timestamp and not relative:
            return  # see above; no record is as old as 1970
        yield timestamp, base + relative


def transaction_entries(path: str) -> Iterator[tuple[int, int, int, int, int]]:
    """(version, producer id, first offset, last offset, last stable offset) of a `.txnindex`. Raises as
    above.
    """
    yield from _entries(path, TXN_ENTRY)


def _entries(path: str, entry: Struct) -> Iterator[Any]:
    data = whole(path)
    if len(data) % entry.size:
        raise ValueError(f"{len(data)} bytes, not a multiple of an entry's {entry.size}")
    yield from entry.iter_unpack(data)


def with_suffix(path: str, suffix: str) -> str:
    """The path of another kind of file of the same segment."""
    return path[: -len(files.LOG)] + suffix


COPY = (
    "Put the file back from a copy while no broker runs on it; or let readers begin behind it, as "
    "operating.md says under Damage"
)
"""What to do about lost records: no other file has them."""


class Fix(NamedTuple):
    """How to repair a file that is derived from the logs: replace its content. None: remove it; the broker
    makes it again or does without it.
    """

    content: bytes | None = None


@dataclass(frozen=True)
class LogFinding:
    """Something wrong at a byte position of a file; position 0 if it concerns the whole file."""

    path: str
    position: int
    text: str
    fix: Fix | None = None
    repaired: bool = False

    @property
    def repair(self) -> str | None:
        """What --repair would do ("remove", "rewrite") or did ("removed", "rewritten")."""
        if self.fix is None:
            return None
        words = ("rewrite", "rewritten") if self.fix.content is not None else ("remove", "removed")
        return words[self.repaired]

    def as_json(self) -> dict[str, object]:
        """The finding as part of the JSON document."""
        return {"path": self.path, "position": self.position, "text": self.text, "repair": self.repair}


def _nothing(size: int) -> None:
    """Ignores progress."""


@dataclass
class Report:
    """What was read, and what was found. `progress` is called with the number of bytes of each batch."""

    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("partitions", "segments", "batches", "bytes"), 0)
    )
    findings: list[LogFinding] = field(default_factory=list)
    running: list[str] = field(default_factory=list)  # data directories that a broker is running on
    progress: Callable[[int], None] = _nothing

    def add(self, path: str, position: int, text: str, fix: Fix | None = None) -> None:
        """Note a finding."""
        self.findings.append(LogFinding(path, position, text, fix))

    @property
    def remaining(self) -> list[LogFinding]:
        """The findings that were not repaired."""
        return [finding for finding in self.findings if not finding.repaired]
