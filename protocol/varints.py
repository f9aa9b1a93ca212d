"""Kafka's varints for whole columns: sizes, writing and reading of one number per record at once.

A number is zigzag-coded (0, -1, 1, -2 ... become 0, 1, 2, 3 ...) and then written seven bits a byte, lowest
first, with the top bit set in every byte but the last. "Raw" means zigzag-coded, as uint64.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Raw = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

INT_BYTES = 5  # the most bytes of a 32-bit number
_ONE = np.uint64(1)
_FAR = 2**40  # farther than any data reaches
LONG_BYTES = 10  # the most bytes of a 64-bit number


def zigzag(values: Ints) -> Raw:
    """Zigzag-code signed 64-bit numbers."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def unzigzag(raw: Raw) -> Ints:
    """Turn raw numbers back into signed ones."""
    return (raw >> _ONE).view(np.int64) ^ -(raw & _ONE).view(np.int64)


def sizes(raw: Raw) -> Ints:
    """Count the bytes of each raw number."""
    result = np.ones(len(raw), np.int64)
    top = int(raw.max(initial=0))
    bits = 7
    while top >> bits:
        result += raw >= np.uint64(1 << bits)
        bits += 7
    return result


def size_of(raw: int) -> int:
    """Count the bytes of one raw number."""
    return max(1, -(-raw.bit_length() // 7))


def write(out: Bytes, at: Ints, raw: Raw, size: Ints) -> None:
    """Write each raw number, of `size` bytes, to `out` from its position `at`."""
    longest, shortest = int(size.max(initial=1)), int(size.min(initial=LONG_BYTES))
    if longest == 1:
        out[at] = raw
        return
    for step in range(longest):
        if step >= shortest:  # not every number has this byte
            live = np.flatnonzero(size > step)
            at, raw, size = at[live], raw[live], size[live]
        more = np.where(size > step + 1, np.uint8(0x80), np.uint8(0))
        out[at + step] = (raw >> np.uint64(7 * step)).astype(np.uint8) & np.uint8(0x7F) | more


def read(data: Bytes, at: Ints, most: int = INT_BYTES) -> tuple[Raw, Ints]:
    """Read a raw number at each position, and return them with the positions after them.

    Reading stays inside `data` whatever the positions are. After a number of more than `most` bytes the
    position is far away, so that a caller who checks it notices.
    """
    byte: npt.NDArray[Any] = data.take(at, mode="clip")
    after = at + 1
    if byte.tobytes().isascii():  # all below 0x80: the quickest test there is
        return byte.astype(np.uint64), after
    raw = (byte & 0x7F).astype(np.uint64)
    second: npt.NDArray[Any] = data.take(after, mode="clip")
    if (byte & second).tobytes().isascii():  # no number has more than two bytes
        longer = byte >> 7
        raw |= (second * longer).astype(np.uint64) << np.uint64(7)
        return raw, after + longer
    live = np.flatnonzero(byte >= 0x80)
    for step in range(1, most):
        byte = data.take(after[live], mode="clip")
        raw[live] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * step)
        after[live] += 1
        live = live[byte >= 0x80]
        if not len(live):
            return raw, after
    after[live] += _FAR
    return raw, after
