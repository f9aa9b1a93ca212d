"""Chains of length-prefixed elements, many chains at once: finds where each element begins.

Records in a batch and headers in a record are the same thing to this module: consecutive elements, each a
varint length and as many bytes. This is the only sequential part of decoding a batch: the position of an
element is known only when the one before it has been read. There are three ways, with the same result:

- chains whose elements all have the length of the first are not walked at all;
- many chains are walked in lockstep: one step finds the next element of each;
- few chains are walked one by one, in a loop over single elements that does nothing but jump.

No walk is trusted. All lengths are read again at the positions found, and must lead from each to the next.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eoslog.protocol import varints
from eoslog.protocol.varints import Bytes, Ints

# Fewer chains than this are faster one by one: a lockstep takes as long as this many single jumps.
LOCKSTEP_LEAST = 64


class BrokenChain(ValueError):
    """A chain does not end where it should. `index` is its number."""

    def __init__(self, index: int) -> None:
        super().__init__(f"chain {index} is broken")
        self.index = index


class Elements(NamedTuple):
    """All elements of all chains in order: content's start, length as written, content's end."""

    at: Ints
    lengths: Ints  # -1 is null; there is no content after a negative length
    stops: Ints


def elements(data: Bytes, begins: Ints, ends: Ints, counts: Ints) -> Elements:
    """Find the elements of the chains in `data`, which go from `begins` to `ends` and have `counts` elements
    each.

    Every chain has at least one element. The caller must limit the counts: the result has as many rows as
    their sum. Raises BrokenChain if a chain's elements do not fill it exactly.
    """
    if len(counts) == 1:
        return _one_chain(data, int(begins[0]), int(ends[0]), int(counts[0]))
    rows = np.cumsum(counts) - counts  # where each chain begins in the result
    starts, even = _evenly_spaced(data, rows, begins, ends, counts)
    unknown = ~even
    while True:
        _walk(data, starts, rows, begins, counts, np.flatnonzero(unknown))
        found = _read(data, starts)
        broken = _broken_chains(found.stops, starts, rows, ends)
        if not broken.any():
            return found
        unknown = broken & even  # uneven chains whose length is a multiple of their first element's
        if not unknown.any():
            raise BrokenChain(int(broken.argmax()))
        even &= ~unknown


def _one_chain(data: Bytes, begin: int, end: int, count: int) -> Elements:
    """`elements` of one chain, without what only many need."""
    view = data.data
    try:
        stride = end_of(view, begin) - begin
        if stride * count == end - begin:
            starts = np.arange(begin, end, stride)
            found = _read(data, starts)
            if _leads(found.stops, starts, end):
                return found
        starts = starts_of(view, begin, count)
    except IndexError as error:
        raise BrokenChain(0) from error
    found = _read(data, starts)
    if not _leads(found.stops, starts, end):
        raise BrokenChain(0)
    return found


def _leads(stops: Ints, starts: Ints, end: int) -> bool:
    """Whether each element leads to the next, and the last one to the end."""
    return bool(stops[-1] == end and (stops[:-1] == starts[1:]).all())


def _evenly_spaced(
    data: Bytes, rows: Ints, begins: Ints, ends: Ints, counts: Ints
) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Where elements begin if each is as long as the first of its chain; and for which chains that is
    possible.
    """
    stride = _read(data, begins).stops - begins
    even = stride * counts == ends - begins
    if not even.any():
        return np.empty(int(counts.sum()), np.int64), even
    within = np.arange(int(counts.sum())) - rows.repeat(counts)
    return begins.repeat(counts) + within * stride.repeat(counts), even


def _read(data: Bytes, starts: Ints) -> Elements:
    raw, at = varints.read(data, starts)
    lengths = varints.unzigzag(raw)
    return Elements(at, lengths, at + np.maximum(lengths, 0))


def _broken_chains(stops: Ints, starts: Ints, rows: Ints, ends: Ints) -> npt.NDArray[np.bool_]:
    """For each chain, whether an element does not lead to the next, or the last not to the chain's end."""
    expected = np.empty_like(starts)
    expected[:-1] = starts[1:]
    expected[rows[1:] - 1] = ends[:-1]
    expected[-1] = ends[-1]
    wrong = stops != expected
    return np.logical_or.reduceat(wrong, rows) if wrong.any() else np.zeros(len(rows), np.bool_)


def _walk(
    data: Bytes, starts: Ints, rows: Ints, begins: Ints, counts: Ints, chosen: npt.NDArray[np.intp]
) -> None:
    """Set `starts` for the chosen chains, in lockstep while enough of them have elements left."""
    order = chosen
    if len(chosen) >= LOCKSTEP_LEAST:
        order = chosen[np.argsort(-counts[chosen], kind="stable")]  # longest first
    counts, rows, at, step = counts[order], rows[order], begins[order], 0
    live = len(order)
    while live >= LOCKSTEP_LEAST:
        starts[rows[:live] + step] = at[:live]
        at = _jump(data, at[:live])
        step += 1
        live = int(np.searchsorted(-counts, -step, "left"))  # chains of more than `step` elements
    view = data.data
    for chain, row, place, count in zip(order[:live], rows[:live], at[:live], counts[:live], strict=True):
        try:
            starts[row + step : row + count] = starts_of(view, int(place), int(count) - step)
        except IndexError as error:
            raise BrokenChain(int(chain)) from error


def _jump(data: Bytes, at: Ints) -> Ints:
    """The ends of the elements that begin at `at`. A chain that has left the data stays outside."""
    raw, content = varints.read(data, at)
    return np.minimum(content + (raw >> np.uint64(1)).view(np.int64), len(data))


def starts_of(data: memoryview, at: int, count: int) -> Ints:
    """Where `count` elements begin, the first one at `at`. Raises IndexError if they lead out of the data."""
    return np.fromiter(_jumps(data, at), np.int64, count)


def _jumps(data: memoryview, at: int) -> Iterator[int]:
    """Each element's begin, without an end. A length of two bytes has its lowest bits in the first one."""
    while True:
        yield at
        first = data[at]
        if first < 0x80:
            at += 1 + (first >> 1)
        elif (second := data[at + 1]) < 0x80:
            at += 2 + (second << 6) + ((first & 0x7F) >> 1)
        else:
            at = end_of(data, at)


def end_of(data: memoryview, at: int) -> int:
    """The end of the element at `at`, whose length may have any number of bytes. Raises IndexError."""
    raw = 0
    for index in range(varints.INT_BYTES):
        byte = data[at + index]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return at + index + 1 + (raw >> 1)
    raise IndexError(at)
