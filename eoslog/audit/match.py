"""Which records are lost, doubled or foreign, and which source record is which target record. Pure.

Records of the same identity are matched by their order only: the first in the source with the first in the
target, and so on. What is left over on one side is lost, or doubled. An identity that the source does not
have at all is foreign.

Not all pairs are evidence about order. If an identity has as many records in the target as in the source, all
in one partition on each side, its pairs are certain: two sequences of the same things are in order only if
the first is the first. Otherwise another pairing may be the true one, and the pair is left out of the check
of order (`loose`), so that nothing in order is ever called reordered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from eoslog.audit.spill import OneKey, Rows
from eoslog.errors import EoslogError
from eoslog.protocol.varints import Ints

ITEM = np.dtype([
    ("digest", "<u8"), ("more", "<u8"),  # the two halves of its identity's digest
    ("group", "<u8"),  # its key's digest if order is checked among records of the same key; else 0
    ("offset", "<i8"), ("place", "<u4"),
])  # fmt: skip
"""A record."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Rows of `ITEM`. Row i of `source` and row i of `target` are a pair whose order can be
    checked.
    """

    lost: Rows
    foreign: Rows
    doubled: Rows
    doubled_source: Rows  # for each row of `doubled`: the source's first record with its identity
    doubled_first: Rows  # and the target's first one
    pairs: int
    loose: int  # pairs whose order cannot be checked, of identities whose number is right
    source: Rows
    target: Rows


class DigestsCollide(EoslogError):
    """Two identities have the same first half of their digests. A new run draws other random numbers."""

    def __init__(self) -> None:
        super().__init__(
            "two different identities have the same first half of their digests, a chance of one in "
            "billions: run the audit again, which draws other random numbers"
        )


def compare(rows: Rows, sources: int) -> Verdict:
    """Compare all rows of some identities, in the order of places and offsets. Places below `sources` are
    those of the source.
    """
    rows = rows[_by_identity(rows)]
    same = (rows["digest"][1:] == rows["digest"][:-1]) & (rows["more"][1:] == rows["more"][:-1])
    first = np.flatnonzero(np.concatenate([[True], ~same]))  # index of each identity's first row
    count = np.diff(np.append(first, len(rows)))
    ident = np.arange(len(first)).repeat(count)
    in_target = rows["place"] >= sources
    wanted = count - np.add.reduceat(in_target.astype(np.int64), first)  # rows of each identity in the source
    present = count - wanted
    rank = np.arange(len(rows)) - first[ident] - np.where(in_target, wanted[ident], 0)
    paired = rank < np.minimum(wanted, present)[ident]
    foreign = in_target & (wanted == 0)[ident]
    doubled = np.flatnonzero(in_target & ~paired & ~foreign)
    even = (wanted == present)[ident]
    firm = even & _in_one_place(rows["place"], first, wanted, present)[ident]
    return Verdict(
        lost=rows[~in_target & ~paired],
        foreign=rows[foreign],
        doubled=rows[doubled],
        doubled_source=rows[first[ident[doubled]]],
        doubled_first=rows[first[ident[doubled]] + wanted[ident[doubled]]],
        pairs=int(np.count_nonzero(paired & in_target)),
        loose=int(np.count_nonzero(even & ~firm & in_target)),
        source=rows[firm & ~in_target],
        target=rows[firm & in_target],
    )


def _by_identity(rows: Rows) -> Ints:
    """The order of the rows by identity, and within an identity as they came."""
    order: Ints = np.argsort(rows["digest"], kind="stable")
    digest, more = rows["digest"][order], rows["more"][order]
    if np.any((digest[1:] == digest[:-1]) & (more[1:] != more[:-1])):
        order = np.lexsort((rows["more"], rows["digest"]))
    return order


def _in_one_place(place: Rows, first: Ints, wanted: Ints, present: Ints) -> Rows:
    """For each identity: whether both sides have it, each in a single place."""
    both = (wanted > 0) & (present > 0)
    split = first + wanted  # where its target rows begin
    source_last, target_first = np.where(both, split - 1, 0), np.where(both, split, 0)
    one: Rows = (place[first] == place[source_last]) & (place[target_first] == place[split + present - 1])
    return both & one


def verdicts(rows: Rows | OneKey, sources: int, limit: int) -> Iterable[Verdict]:
    """The verdicts about all rows of some identities. Raises DigestsCollide."""
    return compare_one(rows, sources, limit) if isinstance(rows, OneKey) else [compare(rows, sources)]


_NONE: Rows = np.empty(0, ITEM)


@dataclass
class _Shape:
    """The number of source rows, and whether each side is in a single place."""

    wanted: int = 0
    more: int = -1
    places: tuple[set[int], set[int]] = (set(), set())

    def add(self, rows: Rows, sources: int) -> None:
        if self.more < 0:
            self.more = int(rows["more"][0])
        if np.any(rows["more"] != np.uint64(self.more)):
            raise DigestsCollide
        in_target = rows["place"] >= sources
        self.wanted += int(np.count_nonzero(~in_target))
        self.places[0].update(np.unique(rows["place"][~in_target]).tolist())
        self.places[1].update(np.unique(rows["place"][in_target]).tolist())


def compare_one(one: OneKey, sources: int, size: int) -> Iterator[Verdict]:
    """Verdicts that add up to what `compare` would return for all rows. Raises DigestsCollide."""
    shape = _Shape(places=(set(), set()))
    for rows in one.pieces(size):
        shape.add(rows, sources)
    wanted, present = shape.wanted, one.count - shape.wanted
    pairs = min(wanted, present)
    firm = all(len(places) == 1 for places in shape.places)
    for source, target in zip(
        one.pieces(size, 0, pairs), one.pieces(size, wanted, wanted + pairs), strict=True
    ):
        if wanted != present:
            yield _verdict(pairs=len(source))
        elif firm:
            yield _verdict(pairs=len(source), source=source, target=target)
        else:
            yield _verdict(pairs=len(source), loose=len(source))
    for rows in one.pieces(size, pairs, wanted):
        yield _verdict(lost=rows)
    for rows in one.pieces(size, wanted + pairs):
        yield _surplus(one, rows, wanted)


def _surplus(one: OneKey, rows: Rows, wanted: int) -> Verdict:
    if not wanted:
        return _verdict(foreign=rows)
    (source,), (first,) = one.pieces(1, 0, 1), one.pieces(1, wanted, wanted + 1)
    return _verdict(
        doubled=rows, doubled_source=source.repeat(len(rows)), doubled_first=first.repeat(len(rows))
    )


def _verdict(pairs: int = 0, loose: int = 0, **rows: Rows) -> Verdict:
    kinds = ("lost", "foreign", "doubled", "doubled_source", "doubled_first", "source", "target")
    return Verdict(pairs=pairs, loose=loose, **{kind: rows.get(kind, _NONE) for kind in kinds})
