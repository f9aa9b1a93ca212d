"""The four codecs of record batches: section bytes <-> compressed bytes.

Every client can read what is written here: Kafka's own snappy framing ("xerial", as snappy-java writes it;
the Java client and librdkafka read it framed and raw alike), and LZ4 frames of independent blocks, since
Kafka's LZ4 reader refuses frames whose blocks depend on each other. Any of these can be read here, and raw
snappy, which librdkafka writes. The output is limited, so that a few bytes cannot fill the memory.

zlib and pyarrow do the work. pyarrow is imported with the first use, or by `load`: what only reads headers
starts sooner and stays smaller without it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Buffer = bytes | bytearray | memoryview
Function = TypeVar("Function")

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
NAMES = {number: name for name, number in CODECS.items()}

# With default limits, a broker's batch has about 1 MB compressed; this is the limit when decompressed.
MAX_UNCOMPRESSED = 256 * 1024 * 1024

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)  # magic, version, lowest compatible version
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK = 32 * 1024
# LZ4 frame: magic; version 1, independent blocks; blocks up to 64 KiB; second byte of the XXH32 of these two.
_LZ4_HEADER = struct.pack("<I", 0x184D2204) + b"\x60\x40\x82"
_LZ4_BLOCK = 64 * 1024
_LENGTH, _LE_LENGTH = struct.Struct(">i"), struct.Struct("<I")
_GZIP = 16 + zlib.MAX_WBITS  # zlib's name for a stream with a header of gzip
_LZ4_LEAST = 11  # magic, two bytes of flags, their checksum, the end mark
_LZ4_INDEPENDENT, _LZ4_CHECKED_BLOCKS, _LZ4_SIZED, _LZ4_CHECKED = 0x20, 0x10, 0x08, 0x04  # in the first flags
_LZ4_STORED = 0x80000000  # set in a block's length if the block is not compressed


class CompressionError(ValueError):
    """Bytes that the codec cannot read, an unknown codec, or more output than allowed."""


class OutputTooLarge(CompressionError):
    """More output than allowed."""


def compress(codec: int, parts: Sequence[Buffer]) -> bytes:
    """Compress `parts`, one after another, into one section. Raises CompressionError for an unknown codec."""
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    return _lookup(_COMPRESSORS, codec)(data)


def decompress(codec: int, buf: Buffer, max_size: int = MAX_UNCOMPRESSED) -> Buffer:
    """Decompress a section.

    Raises CompressionError for invalid or incomplete input and an unknown codec, TooLarge for output above
    `max_size` bytes.
    """
    decompressor = _lookup(_DECOMPRESSORS, codec)
    try:
        return decompressor(buf, max_size)
    except (OSError, zlib.error, _arrow().ArrowException, struct.error) as error:
        raise CompressionError(f"damaged {NAMES[codec]} data: {error}") from error


def load() -> None:
    """Import what the codecs need, so that none has to wait for it later."""
    _arrow()


def _arrow() -> Any:
    """Import pyarrow; see the docstring of this file."""
    import pyarrow

    return pyarrow


def _lookup(table: dict[int, Function], codec: int) -> Function:
    if codec not in table:
        raise CompressionError(f"unknown compression codec {codec}; known: {CODECS}")
    return table[codec]


def _bounded(size: int, max_size: int) -> int:
    if size > max_size:
        raise OutputTooLarge(f"section of more than {max_size} bytes when decompressed")
    return size


def _store(data: Buffer) -> bytes:
    return bytes(data)


def _load(buf: Buffer, max_size: int) -> bytes:
    _bounded(len(buf), max_size)
    return bytes(buf)


def _one_shot(name: str) -> Callable[[Buffer], bytes]:
    """A function that lets pyarrow compress all at once into one frame."""

    def compressor(data: Buffer) -> bytes:
        compressed: bytes = _arrow().Codec(name).compress(data, asbytes=True)
        return compressed

    return compressor


def _streamed(name: str) -> Callable[[Buffer, int], Buffer]:
    """A function that lets pyarrow decompress piece by piece: frames of these codecs need not contain their
    size.
    """

    def decompressor(buf: Buffer, max_size: int) -> Buffer:
        if not len(buf):
            raise CompressionError(f"damaged {name} data: empty")
        pa = _arrow()
        stream = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(buf)), name)
        pieces, size, ask = [], 0, 4 * len(buf) + 1024
        while True:
            # Not `read`, which copies all of it once more.
            piece = memoryview(stream.read_buffer(min(ask, max_size - size + 1))).cast("B")
            size = _bounded(size + len(piece), max_size)
            pieces.append(piece)
            if len(piece) < ask:  # a read returns less than it was asked for only at the end
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            ask *= 4

    return decompressor


def _gunzip(buf: Buffer, max_size: int) -> bytes:
    """Read all members of a gzip stream: zlib is three times as fast as pyarrow's stream."""
    pieces, size, rest = [], 0, buf
    while True:
        member = zlib.decompressobj(_GZIP)
        piece = member.decompress(rest, max_size - size + 1)
        size = _bounded(size + len(piece), max_size)
        pieces.append(piece)
        if not member.eof:
            raise CompressionError("damaged gzip data: it is cut")
        rest = member.unused_data
        if not rest:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def check_lz4(section: Buffer) -> None:
    """Check the framing that only Kafka's own reader needs: one frame, whose blocks are independent.

    Raises CompressionError. What is in the blocks is for `decompress` to judge.
    """
    if len(section) < _LZ4_LEAST:
        raise CompressionError("damaged lz4 data: its frame is cut")
    flags = section[4]
    if not flags & _LZ4_INDEPENDENT:
        raise CompressionError("lz4 data of dependent blocks, which Kafka's Java client cannot read")
    pos, trailer = 7 + 8 * bool(flags & _LZ4_SIZED), 4 * bool(flags & _LZ4_CHECKED_BLOCKS)
    try:
        while length := _LE_LENGTH.unpack_from(section, pos)[0] & ~_LZ4_STORED:
            pos += _LE_LENGTH.size + length + trailer
    except struct.error as error:
        raise CompressionError("damaged lz4 data: its frame has no end") from error
    end = pos + _LE_LENGTH.size + 4 * bool(flags & _LZ4_CHECKED)
    if end != len(section):
        raise CompressionError(f"lz4 data of {len(section)} bytes, whose first frame ends at {end}")


def _lz4_compress(data: Buffer) -> bytes:
    """Make one LZ4 frame of independent blocks (pyarrow's own frames have dependent ones above 64 KiB)."""
    codec, view = _arrow().Codec("lz4_raw"), memoryview(data)
    parts: list[Buffer] = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK):
        block = view[start : start + _LZ4_BLOCK]
        packed = codec.compress(block, asbytes=True)
        if len(packed) < len(block):
            parts += [_LE_LENGTH.pack(len(packed)), packed]
        else:
            parts += [_LE_LENGTH.pack(len(block) | _LZ4_STORED), block]
    parts.append(_LE_LENGTH.pack(0))
    return b"".join(parts)


def _snappy_compress(data: Buffer) -> bytes:
    codec, view = _arrow().Codec("snappy"), memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        packed = codec.compress(view[start : start + _XERIAL_BLOCK], asbytes=True)
        parts += [_LENGTH.pack(len(packed)), packed]
    return b"".join(parts)


def _snappy_decompress(buf: Buffer, max_size: int) -> bytes:
    if bytes(buf[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _raw_snappy(buf, max_size)
    view, pos, size = memoryview(buf), len(_XERIAL_HEADER), 0
    if len(view) < pos:
        raise CompressionError("damaged snappy data: its framing is cut")
    parts = []
    while pos < len(view):
        (length,) = _LENGTH.unpack_from(view, pos)
        pos += _LENGTH.size
        if not 0 < length <= len(view) - pos:
            raise CompressionError(f"damaged snappy data: block of {length} at byte {pos} of {len(view)}")
        parts.append(_raw_snappy(view[pos : pos + length], max_size - size))
        size += len(parts[-1])
        pos += length
    return b"".join(parts)


def _raw_snappy(block: Buffer, max_size: int) -> bytes:
    """Decompress one snappy block, which begins with its uncompressed size as a base-128 number."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            data: bytes = _arrow().Codec("snappy").decompress(block, _bounded(size, max_size), asbytes=True)
            return data
    raise CompressionError("damaged snappy data: no size at its start")


_COMPRESSORS: dict[int, Callable[[Buffer], bytes]] = {
    0: _store,
    1: _one_shot("gzip"),
    2: _snappy_compress,
    3: _lz4_compress,
    4: _one_shot("zstd"),
}
_DECOMPRESSORS: dict[int, Callable[[Buffer, int], Buffer]] = {
    0: _load,
    1: _gunzip,
    2: _snappy_decompress,
    3: _streamed("lz4"),
    4: _streamed("zstd"),
}
