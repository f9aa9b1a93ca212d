"""128-bit digests of byte strings, for all rows of a column at once, with a known chance of a collision.

There are four lanes of 32 bits. Each is the multilinear hash of Lemire and Kaser ("Strongly universal string
hashing is fast", 2014): a random 64-bit number, plus for each 32-bit word of the string that word times a
random 64-bit number, modulo 2**64; the upper 32 bits are the result. A lane gives two different strings the
same result with a chance of 2**-32, whatever the strings are, since the random numbers are drawn for each run
and nobody knows them; four lanes do so with 2**-128. The length counts as one more word, and null differs
from every string.

A string of more than `BLOCK` words is cut into blocks, and the digests of its blocks are hashed again with
other random numbers, up to `_LEVELS` times. A record's digest is made in the same way from the digests of its
parts. Each of these steps may collide: for two different records, all steps together do so with a chance of
`COLLISION` at most.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.protocol import columns
from eoslog.protocol.varints import Ints

Words = npt.NDArray[np.uint32]
"""Digests, as an array of shape (rows, LANES)."""
Raw = npt.NDArray[np.uint64]

LANES = 4
BLOCK = 1024  # words
COLLISION = 2.0**-124
"""The chance that two given different records have the same digest: at most 16 steps, each with 2**-128."""

_LEVELS = 4  # 4 KiB, 1 MiB, 256 MiB, 64 GiB: more than a record can have
_STRINGS, _LISTS, _PARTS = 0, _LEVELS, 2 * _LEVELS  # where the random numbers of each purpose begin
_EXTRA, _CONSTANT = BLOCK, BLOCK + 1  # their positions, after those of the words
_AT_ONCE = 1 << 17  # words; a step needs 40 times as many bytes of memory
_PADS = pa.array([b"", b"\0", b"\0\0", b"\0\0\0"], pa.binary())


class Digester:
    """The random numbers of one run. Only digests by the same Digester can be compared. `seed`: whoever has
    it makes the same numbers, and may make strings that collide; None: nobody can."""

    def __init__(self, seed: bytes | None = None) -> None:
        shape = (2 * _LEVELS + 1, LANES, BLOCK + 2)
        size = 8 * int(np.prod(shape))
        drawn = secrets.token_bytes(size) if seed is None else hashlib.shake_256(seed).digest(size)
        self._random = np.frombuffer(drawn, "<u8").astype(np.uint64).reshape(shape)

    def strings(self, column: pa.Array) -> Words:
        """Digests of a binary column, nulls included."""
        lengths = _lengths(column)
        words, counts = _padded(column, lengths)
        return self._fold(words, counts, lengths + 1, _STRINGS)

    def lists(self, items: Words, counts: Ints) -> Words:
        """Digests of lists of items that have digests: `counts` has the number of consecutive items of each
        row.
        """
        return self._fold(np.ascontiguousarray(items).reshape(-1), items.shape[1] * counts, counts, _LISTS)

    def together(self, parts: Sequence[Words]) -> Words:
        """The digest of each row from those of its parts, such as key and value."""
        words = np.concatenate(parts, axis=1)
        rows, width = words.shape
        return self._sum(words.reshape(-1), np.full(rows, width), np.zeros(rows, np.int64), _PARTS)

    def _fold(self, words: Words, counts: Ints, extra: Ints, level: int) -> Words:
        """Digests of rows of any length. How often a row is folded depends only on its own length."""
        blocks = np.maximum(-(-counts // BLOCK), 1)
        if len(blocks) == 0 or blocks.max() == 1:
            return self._sum(words, counts, extra, level)
        ends = np.cumsum(blocks)
        sizes = np.full(ends[-1], BLOCK)
        sizes[ends - 1] = counts - (blocks - 1) * BLOCK
        digests = self._sum(words, sizes, extra.repeat(blocks), level)
        result: Words = digests[ends - 1]
        longer = blocks > 1
        rest = digests[longer.repeat(blocks)].reshape(-1)
        result[longer] = self._fold(rest, LANES * blocks[longer], extra[longer], level + 1)
        return result

    def _sum(self, words: Words, counts: Ints, extra: Ints, level: int) -> Words:
        """Digests of rows of up to BLOCK words each, which follow each other in `words`."""
        result = np.empty((len(counts), LANES), np.uint32)
        ends = np.cumsum(counts)
        for first, last in _slices(ends, _AT_ONCE):
            begin = int(ends[first - 1]) if first else 0
            piece = words[begin : int(ends[last - 1])].astype(np.uint64)
            self._sum_slice(piece, counts[first:last], extra[first:last], level, result[first:last])
        return result

    def _sum_slice(self, words: Raw, counts: Ints, extra: Ints, level: int, out: Words) -> None:
        ends = np.cumsum(counts)
        begins = ends - counts
        place = np.arange(len(words)) - begins.repeat(counts)
        sums = np.zeros(len(words) + 1, np.uint64)
        for lane, random in enumerate(self._random[level]):
            np.cumsum(random.take(place) * words, out=sums[1:])
            total = sums[ends] - sums[begins] + extra.astype(np.uint64) * random[_EXTRA] + random[_CONSTANT]
            out[:, lane] = total >> np.uint64(32)


def _lengths(column: pa.Array) -> Ints:
    """Bytes of each row, -1 for null."""
    lengths = np.diff(columns.offsets_of(column))
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return lengths


def _padded(column: pa.Array, lengths: Ints) -> tuple[Words, Ints]:
    """All rows, one after the other, as 32-bit words padded with zeros; and the number of words of each."""
    sizes = np.maximum(lengths, 0)
    pads = _PADS.take(pa.array(-sizes & 3))
    whole = pc.binary_join_element_wise(
        column, pads, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b""
    )
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    offsets = columns.offsets_of(whole)
    data = np.frombuffer(whole.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    words: Words = data.view("<u4")
    return words, (sizes + 3) >> 2


def _slices(ends: Ints, most: int) -> Iterator[tuple[int, int]]:
    """Split the rows that end at `ends` into runs of at most `most` words, or of one row."""
    first = 0
    while first < len(ends):
        begin = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, begin + most, "right")), first + 1)
        yield first, last
        first = last
