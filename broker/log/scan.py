"""Reads the batches of a segment file in order: headers only, or whole batches with their CRC checked."""

from __future__ import annotations

from collections.abc import Iterator

from eoslog.broker.ports import File
from eoslog.protocol.batch import HEADER_SIZE, BatchHeader, CorruptBatch, crc_ok, iter_headers, read_header

HEADERS_CHUNK = 8 << 10
BODIES_CHUNK = 1 << 20


class DamagedBatch(ValueError):
    """The bytes at a file position are not a whole valid batch.

    `path` and `position` say where; `reason` says what is wrong.
    """

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path}, position {position}: {reason}")
        self.path, self.position, self.reason = path, position, reason


def headers(
    file: File, position: int, end: int, chunk: int = HEADERS_CHUNK
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches from file position `position` up to `end`.

    Raises DamagedBatch at an invalid header, or at a batch that reaches past `end`.
    """
    buffer, start = b"", position
    while position < end:
        if position - start + HEADER_SIZE > len(buffer):
            buffer, start = file.read(min(chunk, end - position), position), position
        header = _header(file, buffer, start, position, end)
        yield position, header
        position += header.size


def batches(
    file: File, position: int, end: int, chunk: int = BODIES_CHUNK
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield (position, header, all bytes) of the batches from `position` up to `end`, CRC checked.

    Raises DamagedBatch at the first batch that is not whole and valid.
    """
    buffer, start = b"", position
    while position < end:
        if position - start + HEADER_SIZE > len(buffer):
            buffer, start = file.read(min(chunk, end - position), position), position
        header = _header(file, buffer, start, position, end)
        if position - start + header.size > len(buffer):
            buffer, start = file.read(min(max(chunk, header.size), end - position), position), position
        at = position - start
        if not crc_ok(buffer, at, header):
            raise DamagedBatch(file.path, position, f"batch of offset {header.base_offset} has a wrong CRC")
        yield position, header, memoryview(buffer)[at : at + header.size]
        position += header.size


def check_follows(path: str, position: int, header: BatchHeader, before: int, *, gaps: bool) -> None:
    """Raises DamagedBatch if a batch cannot follow one that ends at offset `before`. `gaps`: offsets may be
    missing in between."""
    base = header.base_offset
    if base < before:
        raise DamagedBatch(path, position, f"batch of offset {base} where {before} must follow")
    if base > before and not gaps:
        reason = f"offsets {before} to {base - 1} are missing before the batch of offset {base}"
        raise DamagedBatch(path, position, reason)


def good(data: bytes, path: str, position: int, *, gaps: bool) -> bytes:
    """The part of `data` before the first batch that is damaged or does not follow the one before it.

    `data` holds batches that were read together at `position` of a file; the last may be cut. Raises
    DamagedBatch if already the first batch is damaged."""
    end, before = 0, -1
    try:
        for at, header in iter_headers(data):
            if at:
                check_follows(path, position + at, header, before, gaps=gaps)
            if not crc_ok(data, at, header):
                reason = f"batch of offset {header.base_offset} has a wrong CRC"
                raise DamagedBatch(path, position + at, reason)
            end, before = at + header.size, header.next_offset
    except CorruptBatch as error:
        if not end:
            raise DamagedBatch(path, position, str(error)) from error
    except DamagedBatch:
        if not end:
            raise
    else:
        return data
    return data[:end]


def _header(file: File, buffer: bytes, start: int, position: int, end: int) -> BatchHeader:
    try:
        header = read_header(buffer, position - start)
    except CorruptBatch as error:
        left = end - position
        raise DamagedBatch(file.path, position, f"no batch header in the {left} bytes up to {end}") from error
    if position + header.size > end:
        reason = f"batch of offset {header.base_offset} has {header.size} bytes, but the file ends at {end}"
        raise DamagedBatch(file.path, position, reason)
    return header
