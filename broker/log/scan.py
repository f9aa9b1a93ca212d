"""Walks over the batches of a segment file: headers only, or whole batches with their CRC checked."""

from __future__ import annotations

from collections.abc import Iterator

from eoslog.broker.ports import File
from eoslog.protocol.batch import HEADER_SIZE, BatchHeader, CorruptBatch, crc_ok, read_header

HEADERS_CHUNK = 8 << 10
BODIES_CHUNK = 1 << 20


class DamagedBatch(ValueError):
    """The bytes at a file position are no whole valid batch.

    `path` and `position` say where; `reason` says what was found.
    """

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path}, position {position}: {reason}")
        self.path, self.position, self.reason = path, position, reason


def headers(
    file: File, position: int, end: int, chunk: int = HEADERS_CHUNK
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches from file position `position` up to `end`.

    Raises DamagedBatch at a header that cannot be one, or a batch that reaches past `end`.
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

    Raises DamagedBatch at the first that is not whole and valid.
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
