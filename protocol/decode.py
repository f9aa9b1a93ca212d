"""Record batches -> Arrow columns, for all records of all batches at once.

`layout` finds where the parts of records lie. Keys and values are not cut out in Python: the whole payload is
viewed as one Arrow column whose offsets are the starts and ends of keys and values, and Arrow takes the
elements needed, which copies them. The result shares no memory with the input.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eoslog.protocol import batch
from eoslog.protocol.batch import BatchHeader, Buffer, PayloadTooLarge
from eoslog.protocol.layout import Layout, Sections, Span, lay_out, open_sections
from eoslog.protocol.varints import Bytes, Ints

__all__ = ["HEADERS", "DecodedRecords", "PayloadTooLarge", "decode_batches"]

MAX_PAYLOAD = 1024 * 1024 * 1024  # uncompressed bytes in one call; Arrow's 32-bit offsets end at 2 GiB

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """Columns of equal length, one row per record, in the order of the batches. Times are ms since 1970."""

    key: pa.Array  # binary
    value: pa.Array  # binary
    offset: pa.Array  # int64
    timestamp: pa.Array  # int64
    timestamp_type: pa.Array  # int32: 0 if the producer set the time, 1 if the broker did
    headers: pa.Array | None  # `HEADERS`, an empty list for a record without any; None if not asked for

    def __len__(self) -> int:
        return len(self.offset)


def decode_batches(
    buf: Buffer,
    batches: Sequence[tuple[int, BatchHeader]] | None = None,
    *,
    headers: bool = False,
    check_crc: bool = True,
    max_payload: int | None = None,
) -> DecodedRecords:
    """Decode the records of `batches`, given as (position in `buf`, header), or of all in `buf`.

    The offset of a record is the batch's base plus the record's delta, so batches with gaps, which compaction
    leaves, come out right. Without `headers` the records' headers are skipped unread. `max_payload`: the most
    bytes that compressed batches may decompress to, if less than MAX_PAYLOAD.

    Raises CorruptBatch, with the batch's base offset, for a wrong CRC, damaged compression, records that do
    not fill their batch, or offsets that do not rise or are outside of the batch; PayloadTooLarge; and
    ValueError for a control batch, which has no records of an application.
    """
    chosen = list(batch.iter_headers(buf)) if batches is None else batches
    most = MAX_PAYLOAD if max_payload is None else max_payload
    sections = open_sections(buf, chosen, check_crc, most)
    if not sections.headers:
        return _nothing(headers)
    return _decode(sections, headers)


def _decode(sections: Sections, want_headers: bool) -> DecodedRecords:
    found = lay_out(sections)
    offsets = found.offsets()
    lists = _headers(found) if want_headers else None
    keys, values = _take(found.data, found.key, found.value)
    kinds = pa.array(found.batches.spread("log_append_time").astype(np.int32))
    return DecodedRecords(keys, values, pa.array(offsets), pa.array(found.times()), kinds, lists)


def _nothing(headers: bool) -> DecodedRecords:
    empty, numbers = pa.array([], pa.binary()), pa.array([], pa.int64())
    lists = pa.array([], HEADERS) if headers else None
    return DecodedRecords(empty, empty, numbers, numbers, pa.array([], pa.int32()), lists)


def _take(data: Bytes, first: Span, second: Span) -> tuple[pa.Array, pa.Array]:
    """Copy two spans of each row out of `data`, nulls where lengths are negative.

    One Arrow column over all of `data` has as its offsets the starts and ends of the spans, in the order of
    the bytes. So of each four elements the first and the third are needed, and Arrow takes these.
    """
    rows = len(first.begins)
    edges = np.empty((rows, 4), np.int32)
    for place, edge in enumerate((first.begins, first.ends, second.begins, second.ends)):
        edges[:, place] = edge
    column = pa.Array.from_buffers(pa.binary(), 4 * rows - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    indices = np.arange(0, 4 * rows, 4)
    return _pick(column, indices, first.lengths), _pick(column, indices + 2, second.lengths)


def _pick(column: pa.Array, indices: Ints, lengths: Ints) -> pa.Array:
    null = lengths < 0
    if null.all():
        return pa.nulls(len(indices), pa.binary())
    return column.take(pa.array(indices, mask=null) if null.any() else pa.array(indices))


def _headers(found: Layout) -> pa.Array:
    """The headers of all records as lists."""
    offsets: Ints = np.concatenate([np.zeros(1, np.int64), np.cumsum(found.header_counts)])
    spans = found.headers()
    items = pa.array([], HEADERS.value_type)
    if len(spans[0].lengths):
        key, value = _take(found.data, *spans)
        items = pa.StructArray.from_arrays([_text(key), value], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), items, type=HEADERS)


def _text(keys: pa.Array) -> pa.Array:
    """Header keys as strings. Clients may put any bytes there: like the Java client, this replaces invalid
    ones.
    """
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        distinct = keys.dictionary_encode()
        texts = [key.decode(errors="replace") for key in distinct.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(distinct.indices)
