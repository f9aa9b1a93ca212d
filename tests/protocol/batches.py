"""Strategies for records and batches, and what the codec's columns say, row by row."""

import struct
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from eoslog.protocol.decode import DecodedRecords
from tests.protocol.oracle import Batch, Rec, crc32c

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LARGE_HEADERS = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))

# Lengths on both sides of where a varint grows: 63/64 and 8191/8192 (zigzag doubles them).
sizes = st.integers(0, 12) | st.sampled_from([62, 63, 64, 65, 100, 8190, 8191, 8192])
blobs = st.none() | st.binary(max_size=20) | sizes.map(lambda size: b"%" * size)
texts = st.none() | st.text(max_size=20) | sizes.map(lambda size: "ü" * size)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4)
times = st.integers(0, 2**41) | st.sampled_from([-1, 0, 1, 63, 64, 2**61, -(2**61)])


@st.composite
def records(draw: st.DrawFn, deltas: st.SearchStrategy[int]) -> Batch:
    """One batch as a producer or a compacting broker leaves it."""
    first = draw(st.integers(0, 2**40))
    base_time = draw(times)
    rows, offset = [], first
    for _ in range(draw(st.integers(1, 5))):
        offset += draw(deltas)
        row_headers = draw(st.just([]) | headers)
        rows.append(Rec(draw(blobs), draw(blobs), base_time + draw(times | st.just(0)), row_headers, offset))
        offset += 1
    return Batch(
        rows,
        base_offset=first,
        codec=draw(st.integers(0, 4)),
        log_append_time=draw(st.booleans()),
        transactional=draw(st.booleans()),
        base_timestamp=base_time,
        max_timestamp=max(row.timestamp for row in rows),
        last_offset_delta=offset - 1 - first + draw(deltas),
    )


def rows_of(decoded: DecodedRecords) -> list[Rec]:
    lists = decoded.headers.to_pylist() if decoded.headers is not None else [[]] * len(decoded)
    columns = [
        column.to_pylist() for column in (decoded.key, decoded.value, decoded.timestamp, decoded.offset)
    ]
    return [
        Rec(key, value, timestamp, [(header["key"], header["value"]) for header in row_headers], offset)
        for key, value, timestamp, offset, row_headers in zip(*columns, lists, strict=True)
    ]


def read_back(batches: list[Batch]) -> list[Rec]:
    """The rows a reader must get from these batches."""
    return [
        Rec(r.key, r.value, wrap(b.max_timestamp if b.log_append_time else r.timestamp), r.headers, r.offset)
        for b in batches
        for r in b.records
    ]


def wrap(value: int) -> int:
    """As a 64-bit number."""
    return (value + 2**63) % 2**64 - 2**63


def with_right_crc(batch: bytes) -> bytes:
    """The batch with its CRC made to match, so that only its structure can give it away."""
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


def header_column(rows: list[list[tuple[str, Any]] | None], kind: pa.DataType = HEADERS) -> pa.Array:
    as_structs = [None if row is None else [{"key": k, "value": v} for k, v in row] for row in rows]
    return pa.array(as_structs, kind)
