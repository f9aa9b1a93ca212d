"""Arrow columns in the form that the codec needs: one binary type, lengths as NumPy columns, times in ms.

Callers pass binary or string columns, with 32 or 64-bit offsets, sliced, chunked, with bytes under nulls. All
of that is made uniform here, once, so that `encode` need not know about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.protocol import equal_lengths, varints
from eoslog.protocol.varints import Ints, Raw

ARROW_32 = 2**31 - 1  # bytes that fit into an Arrow array with 32-bit offsets
_MOST_DELTAS = 1 + 3 * varints.LONG_BYTES  # attributes, length and deltas of a record, at most

_BINARY = (pa.types.is_binary, pa.types.is_string, pa.types.is_fixed_size_binary, pa.types.is_null,
           pa.types.is_binary_view, pa.types.is_string_view)  # fmt: skip
_LARGE = (pa.types.is_large_binary, pa.types.is_large_string)
_PER_MS = {"us": 1_000, "ns": 1_000_000}


@dataclass(frozen=True)
class BinaryColumn:
    """A binary column and the length of each row as it is written: -1 for null."""

    data: pa.Array | None  # None: null in every row
    lengths: Ints

    @classmethod
    def of(cls, name: str, column: Any, count: int) -> "BinaryColumn":
        """Make a caller's column uniform. Raises ValueError, which names the column, if it is not binary."""
        if column is None:
            return cls(None, np.full(count, -1, np.int64))
        data = _binary(name, column)
        lengths = np.diff(offsets_of(data))
        if data.null_count:
            lengths[data.is_null().to_numpy(zero_copy_only=False)] = -1
        return cls(data, lengths)

    @cached_property
    def prefix(self) -> tuple[Raw, Ints]:
        """The lengths as raw varints, and how many bytes each of these takes."""
        raw = varints.zigzag(self.lengths)
        return raw, varints.sizes(raw)

    def sizes(self) -> Ints:
        """Bytes of each row, its length's varint included."""
        return self.prefix[1] + np.maximum(self.lengths, 0)

    def as_table(self) -> equal_lengths.Column | None:
        """The column as a table if all rows are equally long, or all null."""
        if self.data is None or self.data.null_count == len(self.data):
            return equal_lengths.column_of(None, self.lengths)
        if self.data.null_count:
            return None
        offsets, data = offsets_of(self.data), np.frombuffer(self.data.buffers()[2] or b"", np.uint8)
        return equal_lengths.column_of(data[offsets[0] : offsets[-1]], self.lengths)

    @property
    def large(self) -> bool:
        """Whether the column has 64-bit offsets."""
        return self.data is not None and pa.types.is_large_binary(self.data.type)


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of equal length, ready to be joined into records."""

    count: int
    key: BinaryColumn
    value: BinaryColumn
    times: Ints
    header_counts: tuple[Raw, Ints] | None  # None: no record has headers
    headers: pa.Array | None
    sizes: Ints  # bytes of a record after its deltas: key, value, headers, with their lengths and counts

    @classmethod
    def of(cls, key: Any, value: Any, headers: Any, timestamps: Any) -> "Rows":
        """Make the columns of `encode_batches` uniform. Raises ValueError if they cannot be records."""
        count = _common_length({"key": key, "value": value, "headers": headers, "timestamps": timestamps})
        keys, values = BinaryColumn.of("key", key, count), BinaryColumn.of("value", value, count)
        counts, header_bytes = _headers(headers)
        sizes = keys.sizes() + values.sizes()
        if counts is None or header_bytes is None:
            sizes += 1
        else:
            sizes += counts[1] + np.diff(offsets_of(header_bytes))
        return cls(count, keys, values, _milliseconds(timestamps, count), counts, header_bytes, sizes)

    @property
    def large(self) -> bool:
        """Whether the joined records need 64-bit offsets."""
        return (
            self.key.large
            or self.value.large
            or (self.headers is not None and pa.types.is_large_binary(self.headers.type))
            or int(self.sizes.sum()) + _MOST_DELTAS * self.count > ARROW_32
        )


def offsets_of(column: pa.Array) -> Ints:
    """Offsets of a binary column's rows in its data buffer: one more than there are rows."""
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    if not len(column):
        return np.zeros(1, np.int64)
    offsets: npt.NDArray[Any] = np.frombuffer(column.buffers()[1], width)
    return offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)


def stable_order(numbers: Ints) -> Ints:
    """The indexes that sort the numbers; equal ones keep their order. NumPy sorts 16-bit numbers by their
    digits, four times faster than longer ones.
    """
    least = int(numbers.min(initial=0))
    narrow = int(numbers.max(initial=0)) - least < 1 << 16
    return np.argsort((numbers - least).astype(np.uint16) if narrow else numbers, kind="stable")


def binary_array(offsets: Ints, data: Any, large: bool) -> pa.Array:
    """A binary column over `data`, without a copy of it."""
    kind, width = (pa.large_binary(), np.int64) if large else (pa.binary(), np.int32)
    buffers = [None, pa.py_buffer(offsets.astype(width)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def number_column(fields: Sequence[tuple[Raw, Ints] | None], large: bool) -> pa.Array:
    """A binary column whose row i has the varints of row i of all fields; None is a zero byte."""
    size = sum((field[1] if field else np.int64(1) for field in fields), start=np.int64(0))
    offsets: Ints = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
    out = np.zeros(offsets[-1], np.uint8)
    at = offsets[:-1]
    for field in fields:
        if field:
            varints.write(out, at, *field)
        at = at + (field[1] if field else 1)
    return binary_array(offsets, out, large)


def join(columns: Sequence[pa.Array | bytes | None], large: bool) -> pa.Array:
    """One binary column: the columns' bytes row by row. A bytes object is the same in each row."""
    kind = pa.large_binary() if large else pa.binary()
    ready = [
        pa.scalar(column, kind) if isinstance(column, bytes) else column.cast(kind)
        for column in columns
        if column is not None
    ]
    nothing = pa.scalar(b"", kind)  # the separator
    return pc.binary_join_element_wise(*ready, nothing, null_handling="replace", null_replacement=b"")


def _common_length(columns: dict[str, Any]) -> int:
    given = {
        name: column for name, column in columns.items() if not isinstance(column, int | np.integer | None)
    }
    lengths = {name: len(column) for name, column in given.items()}
    if not lengths:
        raise ValueError("no column given: the number of records is unknown")
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of unequal lengths: {lengths}")
    return lengths.popitem()[1]


def _single(column: Any) -> pa.Array:
    """The column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    chunks = column.chunks or [pa.array([], column.type)]
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _binary(name: str, column: Any) -> pa.Array:
    """The column as binary, or as large_binary if it has 64-bit offsets or is too large for 32-bit ones."""
    kind = column.type
    if any(is_kind(kind) for is_kind in _LARGE) or column.nbytes > ARROW_32:
        return _single(column.cast(pa.large_binary()))
    if not any(is_kind(kind) for is_kind in _BINARY):
        raise ValueError(f"{name} has type {kind}: only binary and string columns can be sent; cast it first")
    return _single(column.cast(pa.binary()))


def _headers(column: Any) -> tuple[tuple[Raw, Ints] | None, pa.Array | None]:
    """For each record: the number of its headers as a varint, and their bytes as sent."""
    if column is None or pa.types.is_null(column.type):
        return None, None
    if not _is_headers(column.type):
        raise ValueError(
            f"headers have type {column.type}: list<struct<key: string, value: binary>> is needed"
        )
    lists = _single(column)
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    if not counts.any():
        return None, None
    flat = pc.list_flatten(lists)
    if flat.null_count:
        raise ValueError("headers have a null element: each needs a key")
    keys = BinaryColumn.of("header keys", pc.struct_field(flat, "key"), len(flat))
    values = BinaryColumn.of("header values", pc.struct_field(flat, "value"), len(flat))
    if keys.lengths.min() < 0:
        raise ValueError("a header's key is null; Kafka allows null for values only")
    total = keys.sizes() + values.sizes()
    large = keys.large or values.large or int(total.sum()) > ARROW_32
    joined = join([number_column([keys.prefix], large), keys.data,
                   number_column([values.prefix], large), values.data], large)  # fmt: skip
    bounds = offsets_of(joined)[np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])]
    raw = varints.zigzag(counts)
    return (raw, varints.sizes(raw)), binary_array(bounds, joined.buffers()[2], large)


def _is_headers(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    return pa.types.is_struct(kind.value_type) and {f.name for f in kind.value_type} == {"key", "value"}


def _milliseconds(timestamps: Any, count: int) -> Ints:
    """The timestamps as int64 ms; more precise Arrow timestamps are rounded down."""
    if isinstance(timestamps, int | np.integer):
        return np.full(count, timestamps, np.int64)
    if isinstance(timestamps, np.ndarray):
        return timestamps.astype(np.int64, casting="safe", copy=False)
    column = _single(timestamps)
    if column.null_count:
        raise ValueError(f"{column.null_count} of the timestamps are null")
    if pa.types.is_integer(column.type):
        whole: Ints = column.cast(pa.int64()).to_numpy()
        return whole
    if not pa.types.is_timestamp(column.type):
        raise ValueError(f"timestamps have type {column.type}: int64 ms or an Arrow timestamp is needed")
    values: Ints = column.cast(pa.int64()).to_numpy()
    unit = column.type.unit
    return values * 1_000 if unit == "s" else values if unit == "ms" else values // _PER_MS[unit]
