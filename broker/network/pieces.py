"""Parts of an answer as pieces to write: small ones together, as each piece costs a system call."""

from __future__ import annotations

from collections.abc import Iterator

from eoslog.protocol.schema import Buffer

JOIN_BELOW = 16 << 10
"""Bytes: smaller answers and parts are joined into one piece, larger ones are not copied."""
WRITE_AT_ONCE = 1 << 20  # bytes of small parts


def joined(parts: list[Buffer]) -> Iterator[Buffer]:
    """The same bytes, small neighbours in one piece."""
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
