"""Producer state on disk: Kafka's `.snapshot` file, version 1 (message ProducerSnapshot).

Kafka writes one entry per producer: its last batch. Here each remembered batch is an entry, oldest first.
Kafka's reader uses the last entry of a producer id. Ours reads all of them, so a batch that is sent again
after a restart is recognized. A batch of an ended transaction, which cannot be sent again, has the offset
delta -1.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Container, Iterable

from eoslog.broker.log import files
from eoslog.broker.ports import FileSystem
from eoslog.broker.rules.producer_state import ProducerState, Written
from eoslog.protocol import sequence
from eoslog.protocol.batch import crc32c

VERSION = 1

_HEAD = struct.Struct(">hIi")  # version, CRC-32C of all that follows the CRC, number of entries
_CRC_FROM = 6
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
# first offset of the open transaction
_ENTRY = struct.Struct(">qhiqiqiq")


class BadSnapshot(ValueError):
    """A snapshot file is torn, or not of version 1."""


def encode(states: Iterable[ProducerState]) -> bytes:
    """The content of a snapshot file."""
    entries = [
        _ENTRY.pack(
            state.producer_id,
            state.epoch,
            batch.last_sequence,
            batch.last_offset,
            batch.last_offset - batch.first_offset,
            state.last_timestamp,
            state.coordinator_epoch,
            state.transaction_start,
        )
        for state in states
        for batch in (state.batches or [Written(-1, -1, -1, -1)])
    ]
    body = struct.pack(">i", len(entries)) + b"".join(entries)
    return struct.pack(">hI", VERSION, crc32c([body])) + body


def decode(data: bytes) -> list[ProducerState]:
    """Read a snapshot file. Raises BadSnapshot."""
    if len(data) < _HEAD.size:
        raise BadSnapshot(f"snapshot of {len(data)} bytes has no header")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION or crc != crc32c([data[_CRC_FROM:]]):
        raise BadSnapshot(f"snapshot of version {version} is not of version {VERSION}, or its CRC is wrong")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise BadSnapshot(f"snapshot of {count} entries has {len(data)} bytes")
    states: dict[int, ProducerState] = {}
    for entry in _ENTRY.iter_unpack(data[_HEAD.size :]):
        pid, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, start = entry
        state = states.get(pid)
        if state is None:
            state = states[pid] = ProducerState(pid, epoch, coordinator_epoch, timestamp, start)
        if last_offset >= 0:
            repeatable = last_sequence >= 0 and delta >= 0
            first_sequence = sequence.add(last_sequence, -delta) if repeatable else sequence.NO_SEQUENCE
            state.batches.append(Written(first_sequence, last_sequence, last_offset - delta, last_offset))
    return list(states.values())


def save(fs: FileSystem, directory: str, offset: int, states: Iterable[ProducerState]) -> None:
    """Write the snapshot of a log that ends at `offset`. The caller syncs the directory. Raises OSError."""
    path = os.path.join(directory, files.offset_name(offset, files.SNAPSHOT))
    files.write_whole(fs, path, encode(states), sync_dir=False)


def drop_others(fs: FileSystem, directory: str, keep: Container[int]) -> None:
    """Remove the snapshots whose offset is not in `keep`. Raises OSError."""
    for offset in files.offsets_of(fs.list(directory), files.SNAPSHOT):
        if offset not in keep:
            fs.remove(os.path.join(directory, files.offset_name(offset, files.SNAPSHOT)))
