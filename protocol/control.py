"""Control batches: the markers that end a transaction on a partition (KIP-98)."""

import struct
from typing import NamedTuple

from eoslog.protocol.batch import BatchHeader, Buffer, CorruptBatch, build_header
from eoslog.protocol.plain_records import iter_records

ABORT = 0
COMMIT = 1

_CONTROL_KEY = struct.Struct(">hh")  # version, type
_CONTROL_VALUE = struct.Struct(">hi")  # version, coordinator epoch
# One record: length, attributes, time delta, offset delta, key length, key, value length, value, no headers.
# The sizes of key (4) and value (6) are fixed, so its varints are constants (zigzag: twice the number).
_CONTROL_RECORD = struct.Struct(">5b4sb6sb")


class ControlRecord(NamedTuple):
    """The marker that ends a transaction: `type` is COMMIT or ABORT (other types: see ControlRecordType)."""

    version: int
    type: int
    coordinator_epoch: int


def control_batch(
    kind: int, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp: int
) -> bytes:
    """Make the marker that ends a transaction on one partition (KIP-98): `kind` is COMMIT or ABORT."""
    key, value = _CONTROL_KEY.pack(0, kind), _CONTROL_VALUE.pack(0, coordinator_epoch)
    length = _CONTROL_RECORD.size - 1  # without the length's own byte
    record = _CONTROL_RECORD.pack(2 * length, 0, 0, 0, 2 * len(key), key, 2 * len(value), value, 0)
    header = build_header(
        [record], 1, base_timestamp=timestamp, max_timestamp=timestamp, producer_id=producer_id,
        producer_epoch=producer_epoch, transactional=True, control=True,
    )  # fmt: skip
    return header + record


def read_control(buf: Buffer, pos: int, header: BatchHeader) -> ControlRecord:
    """Read the control record of the batch at `pos`. Raises CorruptBatch if there is none."""
    if not header.is_control:
        raise CorruptBatch(f"batch of offset {header.base_offset} is not a control batch", header.base_offset)
    record = next(iter_records(buf, pos, header), None)
    if record is None or record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise CorruptBatch(f"control batch of offset {header.base_offset} has no key", header.base_offset)
    version, kind = _CONTROL_KEY.unpack_from(record.key)
    value = record.value or b""
    if kind in (ABORT, COMMIT) and len(value) < _CONTROL_VALUE.size:
        raise CorruptBatch(
            f"marker at offset {header.base_offset} has no coordinator epoch", header.base_offset
        )
    epoch = _CONTROL_VALUE.unpack_from(value)[1] if kind in (ABORT, COMMIT) else -1
    return ControlRecord(version, kind, epoch)
