"""Opens record batches for compaction, many at once: keys, offsets and the position of each record.

A batch that loses records is rewritten from the bytes of those that stay: their offsets and times are
relative to the batch's base offset and base timestamp, which do not change. Only a new delete horizon changes
the times (KIP-534: the base timestamp then is the horizon).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eoslog.protocol import compression
from eoslog.protocol.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER_SIZE,
    BatchHeader,
    Buffer,
    CorruptBatch,
    length_with,
    seal,
)
from eoslog.protocol.layout import Span, lay_out, open_sections
from eoslog.protocol.plain_records import read_varint, write_varint


@dataclass(frozen=True)
class OpenedBatch:
    """A data batch with its records. `spans`: where each record lies in `section`, which is decompressed."""

    header: BatchHeader
    raw: memoryview  # the whole batch as it is stored
    section: memoryview
    keys: list[bytes | None]
    offsets: list[int]
    tombstones: list[bool]
    timestamps: list[int]
    spans: list[tuple[int, int]]


def open_batches(found: Sequence[tuple[BatchHeader, memoryview]]) -> Iterator[OpenedBatch]:
    """Open data batches, each whole and with at least one record. Raises CorruptBatch."""
    if not found:
        return
    parts: list[Buffer] = []
    plain: list[tuple[int, BatchHeader]] = []
    size = 0
    for header, data in found:
        section = _section(header, data)
        attributes = header.attributes & ~CODEC_MASK
        length = length_with(len(section))
        plain.append((size, header._replace(attributes=attributes, length=length)))
        parts += [bytes(HEADER_SIZE), section]
        size += HEADER_SIZE + len(section)
    buffer = b"".join(parts)
    records = lay_out(open_sections(buffer, plain, False, len(buffer)))
    stops, offsets, times = records.stops.tolist(), records.offsets().tolist(), records.times().tolist()
    keys, tombstones = _keys(buffer, records.key), (records.value.lengths < 0).tolist()
    view, row = memoryview(buffer), 0
    for (header, data), (at, whole) in zip(found, plain, strict=True):
        begin, end = at + HEADER_SIZE, at + whole.size
        rows = slice(row, row + header.count)
        mine = [stop - begin for stop in stops[rows]]
        spans = list(zip([0, *mine[:-1]], mine, strict=True))
        yield OpenedBatch(
            header, data, view[begin:end], keys[rows], offsets[rows], tombstones[rows], times[rows], spans
        )
        row += header.count


def _keys(buffer: bytes, span: Span) -> list[bytes | None]:
    places = zip(span.begins.tolist(), span.ends.tolist(), span.lengths.tolist(), strict=True)
    return [buffer[begin:end] if length >= 0 else None for begin, end, length in places]


def _section(header: BatchHeader, data: memoryview) -> Buffer:
    section = data[HEADER_SIZE:]
    if not header.codec:
        return section
    try:
        return compression.decompress(header.codec, section)
    except compression.CompressionError as error:
        raise CorruptBatch(f"batch of offset {header.base_offset}: {error}", header.base_offset) from error


def rewritten(batch: OpenedBatch, stays: Sequence[bool], horizon: int | None) -> list[Buffer]:
    """The batch with only the records that stay, at least one. `horizon`: a new delete horizon, ms."""
    header = batch.header
    rows = [row for row, kept in enumerate(stays) if kept]
    pieces: list[Buffer] = [batch.section[slice(*batch.spans[row])] for row in rows]
    changes: dict[str, int] = {"count": len(rows)}
    if horizon is not None:
        pieces = [_moved(bytes(piece), header.base_timestamp - horizon) for piece in pieces]
        changes |= {"base_timestamp": horizon, "attributes": header.attributes | DELETE_HORIZON}
    if not header.log_append_time:
        changes["max_timestamp"] = max(batch.timestamps[row] for row in rows)
    section: list[Buffer] = [compression.compress(header.codec, pieces)] if header.codec else pieces
    return [seal(section, header._replace(**changes)), *section]


def marked(header: BatchHeader, raw: memoryview, horizon: int) -> list[Buffer]:
    """A control batch with a new delete horizon. Its one record is not compressed."""
    section: list[Buffer] = [_moved(bytes(raw[HEADER_SIZE:]), header.base_timestamp - horizon)]
    attributes = header.attributes | DELETE_HORIZON
    return [seal(section, header._replace(base_timestamp=horizon, attributes=attributes)), *section]


def emptied(header: BatchHeader) -> list[Buffer]:
    """The batch without records: its offsets, producer and sequences."""
    attributes = header.attributes & ~CODEC_MASK & ~DELETE_HORIZON
    return [seal([], header._replace(count=0, attributes=attributes, base_timestamp=header.max_timestamp))]


def _moved(record: bytes, later: int) -> bytes:
    """The record with its time made relative to a base timestamp that lies `later` ms before its old one."""
    _, at = read_varint(record, 0)
    delta, behind = read_varint(record, at + 1)
    body = record[at : at + 1] + write_varint(delta + later) + record[behind:]
    return write_varint(len(body)) + body
