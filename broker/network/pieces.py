"""Joins small parts of an answer before they are written, as each write costs a system call."""

from __future__ import annotations

from collections.abc import Iterator

from eoslog.protocol.schema import Buffer

JOIN_BELOW = 16 << 10
"""Answers and parts up to this many bytes are joined. Larger ones are not copied."""
WRITE_AT_ONCE = 1 << 20  # bytes of small parts


def joined(parts: list[Buffer]) -> Iterator[Buffer]:
    """The same bytes, with small neighbouring parts joined."""
    small: list[Buffer] = []
    size = 0
    for part in parts:
        if len(part) > JOIN_BELOW:
            if small:
                yield b"".join(small)
            yield part
            small, size = [], 0
            continue
        small.append(part)
        size += len(part)
        if size > WRITE_AT_ONCE:
            yield b"".join(small)
            small, size = [], 0
    if small:
        yield b"".join(small)
