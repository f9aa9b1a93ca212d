"""The contents of a log's files: batches (in Kafka's words), index entries, producers, checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from eoslog.broker.log import files, producer_snapshot
from eoslog.broker.log.scan import headers
from eoslog.broker.rules.producer_state import Written
from eoslog.commands.log_files import (
    ReadOnlyFile,
    base_offset,
    offset_entries,
    time_entries,
    transaction_entries,
    whole,
)
from eoslog.protocol.batch import BatchHeader, crc_ok
from eoslog.protocol.control import COMMIT, read_control
from eoslog.protocol.plain_records import Record, iter_records

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
