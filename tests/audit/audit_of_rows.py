"""An audit without a cluster, of rows that are given; and a plain judge to compare with."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from eoslog.audit import run
from eoslog.audit.bounds import AuditedRange
from eoslog.audit.digest import Digester
from eoslog.audit.findings import Findings
from eoslog.audit.identity import Identity
from eoslog.audit.match import ITEM
from eoslog.audit.read import Read, ReadSettings

Records = Sequence[tuple[int, int, int]]
"""(offset, identity, key) of a partition's records."""

GAP = 3  # offsets lie apart, as compaction and markers leave them


class Silent:
    """Watches nothing."""

    def begin(self, what: str, total: int) -> None: ...

    def advance(self, steps: int) -> None: ...


def spread(number: int) -> int:
    """A number like a digest: equal for equal ones, and anywhere in 64 bits."""
    return number * 0x9E3779B97F4A7C15 % 2**64


def judged(
    source: Sequence[Records], target: Sequence[Records], *, limit: int = 4, by_key: bool = False,
    in_order: bool = True, settled: Sequence[int] | None = None, show: int = 1000,
) -> Findings:  # fmt: skip
    """What an audit finds of partitions with these records, with so many rows in memory at a time."""
    sides = {"a": source, "b": target}
    places = {
        name: [
            AuditedRange(name, None, n, 0, max((offset for offset, *_ in part), default=-1) + 1)
            for n, part in enumerate(parts)
        ]
        for name, parts in sides.items()
    }  # fmt: skip

    def read(_: Any, place: AuditedRange, number: int, way: ReadSettings, digester: Digester) -> Any:
        records = sides[place.topic][place.partition]
        for first in range(0, len(records), limit):
            piece = records[first : first + limit]
            rows = np.zeros(len(piece), ITEM)
            rows["digest"] = [spread(ident) for _, ident, _ in piece]
            rows["more"] = [ident for _, ident, _ in piece]
            rows["group"] = [spread(key) if way.by_key else 0 for _, _, key in piece]
            rows["offset"] = [offset for offset, _, _ in piece]
            rows["place"] = number
            yield Read(number, rows, rows[:0])

    with tempfile.TemporaryDirectory() as directory, patch.object(run, "read", read):
        job = run.Job(
            Path(directory), [p.end for p in places["a"]] if settled is None else settled, show, limit
        )
        way = ReadSettings(Identity(content=True), by_key)
        none: Any = None
        found = run.audit(
            run.AuditedCluster(none, places["a"]), run.AuditedCluster(none, places["b"]), way, job, Silent(),
            in_order=in_order,
        )  # fmt: skip
        assert not list(Path(directory).iterdir()), "files are left"
        return found


@dataclass
class Expected:
    """What the plain judge says: positions as (partition, offset)."""

    lost: set[tuple[int, int]] = field(default_factory=set)
    doubled: set[tuple[int, int]] = field(default_factory=set)
    foreign: set[tuple[int, int]] = field(default_factory=set)
    reordered: set[tuple[int, int]] = field(default_factory=set)
    matched: int = 0
    loose: int = 0


def plainly(source: Sequence[Records], target: Sequence[Records], *, by_key: bool = False) -> Expected:
    """The same rules, with dictionaries and one record after the other."""
    a, b = _by_identity(source), _by_identity(target)
    said, lanes = Expected(), defaultdict(list)
    for ident in a.keys() | b.keys():
        mine, theirs = a.get(ident, []), b.get(ident, [])
        pairs = min(len(mine), len(theirs))
        said.matched += pairs
        said.lost |= {place[:2] for place in mine[pairs:]}
        (said.doubled if mine else said.foreign).update(place[:2] for place in theirs[pairs:])
        if len(mine) == len(theirs) and len({p for p, *_ in mine}) == len({p for p, *_ in theirs}) == 1:
            for (p, offset, key), (q, at, _) in zip(mine, theirs, strict=True):
                lanes[p, q, key if by_key else None].append((at, offset))
        elif len(mine) == len(theirs):
            said.loose += pairs
    for (_, q, _), lane in lanes.items():
        lane.sort()
        said.reordered |= {(q, at) for (_, before), (at, offset) in pairwise(lane) if offset < before}
    return said


def _by_identity(side: Sequence[Records]) -> dict[int, list[tuple[int, int, int]]]:
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for number, records in enumerate(side):
        for offset, ident, key in records:
            found[ident].append((number, offset, key))
    return found


def at(findings: Findings, kind: str) -> set[tuple[int, int]]:
    """Where the listed findings of a kind are."""
    listed = findings[kind].listed(findings.places)
    return {(row["at"]["partition"], row["at"]["offset"]) for row in listed}


def partition(identities: Sequence[int], keys: Sequence[int] | None = None) -> Records:
    """Records at every third offset."""
    keys = [0] * len(identities) if keys is None else keys
    return [(GAP * n, ident, key) for n, (ident, key) in enumerate(zip(identities, keys, strict=True))]


def multiplicity(side: Sequence[Records]) -> Counter[int]:
    return Counter(ident for records in side for _, ident, _ in records)
