"""Reads a log's files as they are on the disk, without opening them for writing, and shows what they hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, NamedTuple

from eoslog.broker.log import files, producer_snapshot
from eoslog.broker.log.index import OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY
from eoslog.broker.log.scan import headers
from eoslog.broker.rules.producer_state import Written
from eoslog.protocol.batch import BatchHeader, crc_ok
from eoslog.protocol.control import COMMIT, read_control
from eoslog.protocol.plain_records import Record, iter_records

# -- files -----------------------------------------------------------------------------------------
# Reads a log's files as they are on the disk, without opening them for writing. A report says what was read,
# what is wrong, and what of it can be repaired.


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


# -- dump ------------------------------------------------------------------------------------------
# The contents of a log's files: batches (in Kafka's words), index entries, producers, checkpoints.


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Entry = dict[str, Any]


def entries(path: str, *, records: bool = False) -> Iterator[Entry]:
    """The entries of a file, read as its name says. Raises ValueError if it is not valid, OSError."""
    for suffix, read in _READERS.items():
        if path.endswith(suffix):
            yield from read(path)
            return
    if not path.endswith(files.LOG):
        raise ValueError(f"not one of the files that can be read: {', '.join(READABLE)}")
    yield from _segment(path, records)


def _segment(path: str, records: bool) -> Iterator[Entry]:
    file = ReadOnlyFile(path)
    decode = _decoder(path) if records else None
    try:
        for position, header in headers(file, 0, file.size()):
            data = file.read(header.size, position)
            valid = crc_ok(data, 0, header)
            yield batch_entry(position, header, valid)
            if decode is not None and valid:
                for record in iter_records(data, 0, header):
                    yield _record(record, header, data, decode)
    finally:
        file.close()


def batch_entry(position: int, header: BatchHeader, valid: bool) -> Entry:
    """A batch in the words of Kafka's DumpLogSegments."""
    codec = CODECS[header.codec] if header.codec < len(CODECS) else str(header.codec)
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.base_timestamp if header.has_delete_horizon else None,
        "position": position,
        "LogAppendTime" if header.log_append_time else "CreateTime": header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": codec,
        "crc": header.crc,
        "isvalid": valid,
    }


def _record(record: Record, header: BatchHeader, data: bytes, decode: Callable[[Record], object]) -> Entry:
    entry: Entry = {"batch": header.base_offset, "offset": record.offset, "CreateTime": record.timestamp}
    if header.is_control:
        control = read_control(data, 0, header)
        kind = "COMMIT" if control.type == COMMIT else "ABORT"
        return entry | {"endTxnMarker": kind, "coordinatorEpoch": control.coordinator_epoch}
    decoded = decode(record)
    if decoded is not None:
        return entry | {"record": str(decoded)}
    names = [name for name, _ in record.headers]
    return entry | {"headerKeys": names, "key": record.key, "payload": record.value}


def _decoder(path: str) -> Callable[[Record], object]:
    """The function that decodes records of the broker's own topics, chosen by the directory's name."""
    topic = os.path.basename(os.path.dirname(os.path.abspath(path))).rpartition("-")[0]
    if topic == "__consumer_offsets":
        from eoslog.broker.coordinator.groups import group_records

        return group_records.decode
    if topic == "__transaction_state":
        from eoslog.broker.coordinator.transactions import transaction_journal

        return transaction_journal.decode
    return lambda record: None


def _index(path: str) -> Iterator[Entry]:
    for offset, position in offset_entries(path):
        yield {"offset": offset, "position": position}


def _time_index(path: str) -> Iterator[Entry]:
    for timestamp, offset in time_entries(path):
        yield {"timestamp": timestamp, "offset": offset}


def _transaction_index(path: str) -> Iterator[Entry]:
    names = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
    for values in transaction_entries(path):
        yield dict(zip(names, values, strict=True))


def _snapshot(path: str) -> Iterator[Entry]:
    base_offset(path)
    for state in producer_snapshot.decode(whole(path)):
        yield {
            "producerId": state.producer_id,
            "producerEpoch": state.epoch,
            "coordinatorEpoch": state.coordinator_epoch,
            "currentTxnFirstOffset": state.transaction_start,
            "lastTimestamp": state.last_timestamp,
            "batches": [_remembered(batch) for batch in state.batches],
        }


def _remembered(batch: Written) -> str:
    """A batch's sequences and offsets; after the end of its transaction only the last sequence is stored."""
    if batch.first_sequence < 0:
        return f"..{batch.last_sequence}"
    return f"{batch.first_sequence}..{batch.last_sequence}@{batch.first_offset}..{batch.last_offset}"


def _checkpoint(path: str) -> Iterator[Entry]:
    for row in files.decode_checkpoint(whole(path), path):
        yield {"row": " ".join(row)}


_READERS: dict[str, Callable[[str], Iterator[Entry]]] = {
    files.TIME_INDEX: _time_index,
    files.TXN_INDEX: _transaction_index,
    files.INDEX: _index,
    files.SNAPSHOT: _snapshot,
    "-checkpoint": _checkpoint,
}
READABLE = (files.LOG, *_READERS)
"""How the names of the files end that can be read."""
