"""The smallest pieces of Kafka's wire format: varints, lengths, and the one error for invalid bytes.

The generated readers and writers (`reader_source.py`, `writer_source.py`) inline the common cases and call
this module for the rare ones. Everything reads from a `memoryview` at a position and never beyond its end.
"""

from __future__ import annotations

from typing import NoReturn

Buffer = bytes | bytearray | memoryview

MAX_STRING = 0x7FFF
"""Longest string in bytes of UTF-8: the classic encoding has 15 bits for the length, the compact one has the
same limit.
"""

MAX_LENGTH = 0x7FFFFFFF
"""Largest array count, byte length or records length: an int32."""


class ProtocolError(ValueError):
    """Bytes that are incomplete or not valid, or a value that does not fit its field."""


def cut_short() -> NoReturn:
    """Refuse a length or a count that points beyond the end of the bytes."""
    raise ProtocolError("a length points beyond the end of the message")


def too_many_things() -> NoReturn:
    """Refuse a message whose arrays together have more items than its reader allows."""
    raise ProtocolError("its arrays have more items than are read in one message")


def null_value(field: str) -> NoReturn:
    """Refuse null (a negative length) in `field`, which must have a value."""
    raise ProtocolError(f"{field} is null and must not be")


def bad_size(field: str, stated: int, used: int) -> NoReturn:
    """Refuse a tagged field whose content does not have the stated size."""
    raise ProtocolError(f"{field} is a tagged field of {stated} bytes, but its content takes {used}")


def string_too_long(field: str, size: int) -> NoReturn:
    """Refuse a string above the protocol's limit."""
    raise ProtocolError(f"{field} is a string of {size} bytes, the protocol allows {MAX_STRING}")


def read_uvarint(buf: memoryview, pos: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits; IndexError at the end of the bytes."""
    value = shift = 0
    while shift < 35:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if shift > 28 or value > 0xFFFFFFFF:
        raise ProtocolError("a varint is longer than 32 bits")
    return value, pos


def read_length(buf: memoryview, pos: int) -> tuple[int, int]:
    """Read a compact length or count: the varint is the value plus one, so that -1 can be null."""
    value, pos = read_uvarint(buf, pos)
    if value > MAX_LENGTH:
        raise ProtocolError(f"a compact length of {value - 1} is above an int32")
    return value - 1, pos


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint (lengths plus one, tags, sizes)."""
    if value < 0x80:
        return value.to_bytes(1, "big")
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
