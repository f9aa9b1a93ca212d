"""Arrow columns -> record batches, for all records at once.

The bytes between keys and values (lengths, deltas) are computed as columns and written into two byte arrays:
one for what comes before a key, one for what comes between key and value. Arrow then joins before, key,
between, value and headers row by row. The joined column's data is the records sections of all batches, one
after another; batches are slices of it.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eoslog.protocol import batch, columns, compression, equal_lengths, sequence, varints
from eoslog.protocol.varints import Ints, Raw

Buffer = batch.Buffer

_MAX_RECORD = 2**31 - 1  # a record's length is an int32
_SMALLEST_RECORD = 7  # bytes: five one-byte numbers, attributes, count of headers
_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Records of one batch, encoded and compressed, still without a producer's identity and a CRC.

    `parts` is the records section, to be sent in this order; `size` counts bytes with the header. Timestamps
    are ms since the epoch.
    """

    parts: list[Buffer]
    count: int
    codec: int
    base_timestamp: int
    max_timestamp: int

    @property
    def size(self) -> int:
        """Bytes of the finished batch."""
        return batch.HEADER_SIZE + sum(map(len, self.parts))

    def finish(
        self,
        producer_id: int = batch.NO_PRODUCER_ID,
        epoch: int = batch.NO_PRODUCER_EPOCH,
        base_sequence: int = sequence.NO_SEQUENCE,
        transactional: bool = False,
    ) -> list[Buffer]:
        """Return the batch ready to send: [header with CRC, *parts]."""
        header = batch.build_header(
            self.parts, self.count, base_timestamp=self.base_timestamp, max_timestamp=self.max_timestamp,
            codec=self.codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence,
            transactional=transactional,
        )  # fmt: skip
        return [header, *self.parts]


def encode_batches(
    key: pa.Array | None,
    value: pa.Array | None,
    headers: pa.Array | None,
    timestamps: "pa.Array | Ints | int",
    *,
    codec: int,
    max_batch_bytes: int,
    groups: Sequence[int] = (),
) -> list[EncodedBatch]:
    """Encode columns of equal length into batches, in order.

    `key` and `value`: binary or string of any kind, chunked or not, or None if all are null. `headers`:
    list<struct<key: string, value: binary>>, in which a null list is an empty one. `timestamps`: int64 ms
    since the epoch, Arrow timestamps, or one int for all. No batch is larger than `max_batch_bytes`, header
    included and before compression, except that a larger record has a batch of its own. A section that
    compression would make larger is sent uncompressed, as the format allows for each batch. `groups`:
    ascending row numbers at which a batch must end. They let rows of several partitions, one partition after
    another, be encoded together; each batch then has its own bytes.

    Raises ValueError for columns that cannot be records: unequal lengths, other types, null timestamps, null
    header keys, records above 2 GiB.
    """
    rows = columns.Rows.of(key, value, headers, timestamps)
    if not rows.count:
        return []
    sizes = _upper_sizes(rows, max_batch_bytes)
    ends = _cut(sizes, max_batch_bytes - batch.HEADER_SIZE, [*groups, rows.count])
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    sections = _as_table(rows, starts, ends) or _joined(rows, starts, ends, apart=bool(len(groups)))
    first, latest = rows.times[starts], np.maximum.reduceat(rows.times, starts)
    counts = (ends - starts).tolist()
    return [
        _encoded(section, codec, *facts)
        for section, *facts in zip(sections, counts, first.tolist(), latest.tolist(), strict=True)
    ]


def _encoded(section: Buffer, codec: int, count: int, first: int, latest: int) -> EncodedBatch:
    packed = compression.compress(codec, [section]) if codec else None
    if packed is None or len(packed) >= len(section):
        return EncodedBatch([section], count, 0, first, latest)
    return EncodedBatch([packed], count, codec, first, latest)


def _upper_sizes(rows: columns.Rows, max_batch_bytes: int) -> Ints:
    """The most bytes that each record can take, wherever batches begin: its deltas depend on that."""
    span = int(rows.times.max()) - int(rows.times.min())
    time_size = varints.size_of(2 * span) if span < _INT64 else varints.LONG_BYTES
    most = min(rows.count, max(max_batch_bytes, 0) // _SMALLEST_RECORD + 1)
    body = rows.sizes + (1 + time_size + varints.size_of(2 * most))
    if int(body.max()) > _MAX_RECORD:
        row = int(body.argmax())
        raise ValueError(f"record {row} takes {body[row]} bytes, more than Kafka's 2 GiB")
    return body + varints.sizes(varints.zigzag(body))


def _cut(sizes: Ints, budget: int, groups: Sequence[int]) -> Ints:
    """Ends of the batches (row numbers), with as many records in each as fit into `budget` bytes. `groups`:
    ascending ends that no batch may cross.
    """
    total = np.cumsum(sizes)
    ends, start, done = [], 0, 0
    for last in groups:
        while start < last:
            start = min(max(int(np.searchsorted(total, done + budget, "right")), start + 1), last)
            done = int(total[start - 1])
            ends.append(start)
    return np.array(ends, np.int64)


def _as_table(rows: columns.Rows, starts: Ints, ends: Ints) -> list[Buffer] | None:
    """The batches' records sections, if all records are equally long and have one time."""
    if rows.header_counts is not None or (rows.times != rows.times[0]).any():
        return None
    key, value = rows.key.as_table(), rows.value.as_table()
    if key is None or value is None:
        return None
    return [
        equal_lengths.section(key, value, *bounds)
        for bounds in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def _joined(rows: columns.Rows, starts: Ints, ends: Ints, apart: bool) -> list[Buffer]:
    """The batches' records sections, for any records. `apart`: each with its own bytes."""
    data, offsets = _join(rows, starts, ends - starts)
    bounds = offsets[np.append(starts, rows.count)].tolist()
    sections: list[Buffer] = [data[begin:end] for begin, end in itertools.pairwise(bounds)]
    if apart:  # so that a partition that waits does not keep the bytes of all others in memory
        sections = [bytes(section) for section in sections]
    return sections


def _join(rows: columns.Rows, starts: Ints, counts: Ints) -> tuple[memoryview, Ints]:
    """All records one after another, and the offset of each in these bytes."""
    since = rows.times - rows.times[starts].repeat(counts)
    times = _raw(since) if since.any() else None  # a zero byte each
    deltas = _raw(np.arange(rows.count) - starts.repeat(counts))
    lengths = _raw(rows.sizes + 1 + (1 if times is None else times[1]) + deltas[1])
    large = rows.large
    before = columns.number_column([lengths, None, times, deltas, rows.key.prefix], large)
    between = columns.number_column([rows.value.prefix], large)
    tail = columns.number_column([rows.header_counts], large) if rows.header_counts else b"\x00"
    joined = columns.join([before, rows.key.data, between, rows.value.data, tail, rows.headers], large)
    return memoryview(joined.buffers()[2]), columns.offsets_of(joined)


def _raw(values: Ints) -> tuple[Raw, Ints]:
    raw = varints.zigzag(values)
    return raw, varints.sizes(raw)
