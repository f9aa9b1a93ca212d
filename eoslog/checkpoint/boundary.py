"""Finds an offset again in a copy of its log on another cluster, where offsets may differ, and proves it by
the records around it: those below are the ones that were read, those from it on are the ones to come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from eoslog.checkpoint.errors import NotEditable
from eoslog.client.admin.list_offsets import list_offsets
from eoslog.client.records.fetch import fetch
from eoslog.client.wire.cluster import Cluster

WINDOW = 100
"""How many records on each side are compared, if there are so many."""
SCANNED = 100_000
"""How many offsets behind the first with the right timestamp are searched."""
_SAME = ["timestamp", "key", "value", "headers"]


@dataclass(frozen=True)
class Log:
    """A partition on one of the clusters: where it begins, and where a reader of it ends."""

    cluster: Cluster
    topic: str
    partition: int
    first: int
    end: int
    committed: bool

    def below(self, at: int) -> pa.Table:
        """The last records in front of an offset. Raises what fetch() raises, as all of these."""
        width = WINDOW
        while True:
            start = max(self.first, at - width)
            found = self._table(list(self._read(start, at)))
            if len(found) >= WINDOW or start == self.first:
                return found.slice(max(len(found) - WINDOW, 0))
            width *= 8

    def above(self, at: int) -> pa.Table:
        """The first records from an offset on."""
        found, count = [], 0
        for rows in self._read(at, self.end):
            found.append(rows)
            count += len(rows)
            if count >= WINDOW:
                break
        return self._table(found).slice(0, WINDOW)

    def like(self, record: pa.Table) -> list[int]:
        """The offsets of records with this one's timestamp, key and value."""
        time_ms = record["timestamp"][0].as_py()
        where = (self.topic, self.partition)
        start = list_offsets(self.cluster, {where: time_ms}, committed=False)[where]
        found: list[int] = []
        for rows in self._read(start, min(start + SCANNED, self.end)) if start >= 0 else ():
            same = [_equal(rows[name], record[name][0]) for name in ("timestamp", "key", "value")]
            found += rows["offset"].filter(pc.and_(pc.and_(*same[:2]), same[2])).to_pylist()
        return found

    def _read(self, start: int, end: int) -> Iterator[pa.Table]:
        if end <= start:
            return
        answers = fetch(
            self.cluster, self.topic, self.partition, start, end, committed=self.committed, headers=True
        )
        for rows in answers:
            yield pa.table({name: getattr(rows, name) for name in ("offset", *_SAME)})

    def _table(self, found: list[pa.Table]) -> pa.Table:
        return pa.concat_tables(found) if found else pa.table({"offset": pa.array([], pa.int64())})


def found_again(old: Log, new: Log, at: int, given: int | None) -> int:
    """The offset in `new` that is `at` in `old`. `given`: what the user says it is; None: it is `at` itself,
    or is found by the timestamp of a record beside it, and no other place is like it. Raises NotEditable if
    that cannot be proven."""
    below, above = old.below(at), old.above(at)
    if given is not None:
        if not _fits(below, above, new, given):
            raise NotEditable(
                f"{_name(new)}: the records at {given} are not those at {at} of the old cluster"
            )
        return given
    candidates = [
        one for one in sorted({at, *_candidates(below, above, new)}) if _fits(below, above, new, one)
    ]
    if len(candidates) == 1:
        return candidates[0]
    why = (
        f"the records at {', '.join(map(str, candidates))} are all like those at {at} of the old cluster"
        if candidates
        else f"there are no records like those at {at} of the old cluster: the copy has not got so far, or "
        "has other timestamps"
    )
    raise NotEditable(f"{_name(new)}: {why}. Give the offset with --offsets")


def _candidates(below: pa.Table, above: pa.Table, new: Log) -> list[int]:
    if len(below):
        return [at + 1 for at in new.like(below.slice(len(below) - 1))]
    return new.like(above.slice(0, 1)) if len(above) else [new.end]


def _fits(below: pa.Table, above: pa.Table, new: Log, at: int) -> bool:
    """Whether the records around an offset of the new log are these, as far as both logs have them."""
    if not new.first <= at <= new.end:
        return False
    there_below, there_above = new.below(at), new.above(at)
    before, behind = min(len(below), len(there_below)), min(len(above), len(there_above))
    if not before and not behind:
        return not any(map(len, (below, above, there_below, there_above)))
    return _same(below.slice(len(below) - before), there_below.slice(len(there_below) - before)) and _same(
        above.slice(0, behind), there_above.slice(0, behind)
    )


def _same(one: pa.Table, other: pa.Table) -> bool:
    return not len(one) or bool(one.select(_SAME).equals(other.select(_SAME)))


def _equal(column: pa.ChunkedArray, value: pa.Scalar) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(column, value), False) if value.is_valid else pc.is_null(column)


def _name(log: Log) -> str:
    return f"{log.topic}-{log.partition}"
