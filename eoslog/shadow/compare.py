"""Reads what both versions of a query have written, and compares it step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eoslog.audit.bounds import AuditedRange
from eoslog.audit.digest import Digester
from eoslog.audit.identity import Identity
from eoslog.audit.read import halves, records_of
from eoslog.audit.rows import Rows
from eoslog.audit.run import LIMIT
from eoslog.audit.spill import OneKey, Spill
from eoslog.client.admin.list_offsets import EARLIEST, list_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.progress import ProgressListener
from eoslog.shadow.judge import ROW, Counts, judge
from eoslog.shadow.steps import NoShadow, Ranges, Step


@dataclass(frozen=True)
class Difference:
    """A row that one version alone has written in this step."""

    step: int
    of_shadow: bool
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Comparison:
    """Rows by step: of the running query, of the shadow, and as in Judged. `differing`: the first differences
    of each step, and `places` what their places are, of which the first `running` are the running query's.
    """

    rows: Counts
    shadows: Counts
    late: Counts
    missing: Counts
    extra: Counts
    alike: int
    differing: Rows
    places: Sequence[AuditedRange]
    running: int

    @property
    def differs(self) -> Counts:
        """Rows of each step that one of both alone has written."""
        return self.missing + self.extra

    def examples(self, cluster: Cluster) -> list[Difference]:
        """The differing rows, read one by one."""
        return [self._difference(cluster, row) for row in self.differing]

    def _difference(self, cluster: Cluster, row: np.void) -> Difference:
        number, offset = int(row["place"]), int(row["offset"])
        found = self.places[number]
        one = AuditedRange(found.topic, None, found.partition, offset, offset + 1)
        record = next(records_of(cluster, one, committed=True))
        return Difference(
            int(row["step"]), number >= self.running, found.topic, found.partition, offset,
            record.key[0].as_py(), record.value[0].as_py(),
        )  # fmt: skip


@dataclass(frozen=True)
class _Place:
    range: AuditedRange
    ends: Sequence[int]
    """Where each step ends in it."""


def compare(
    cluster: Cluster,
    steps: Sequence[Step],
    identity: Identity,
    directory: Path,
    show: int,
    watch: ProgressListener,
) -> Comparison:
    """Compare. `directory` is empty, and used by this alone. `show`: how many differences of a step are kept.

    Raises NoShadow if rows are not in the log any more, OSError, and what reading raises.
    """
    running = _places(cluster, [step.written for step in steps])
    places = [*running, *_places(cluster, [step.own for step in steps])]
    expected = sum(place.range.size for place in places)
    rows = Spill(directory / "rows", ROW, "digest", expected=expected, limit=LIMIT)
    total = np.zeros((2, len(steps)), np.int64)
    digester = Digester()
    for number, place in enumerate(places):
        watch.begin(f"reading {place.range}", place.range.size)
        for got in _read(cluster, place, number, identity, digester, watch):
            total[int(number >= len(running))] += np.bincount(got["step"], minlength=len(steps))
            rows.add(got)
    watch.begin("comparing", rows.count)
    late, missing, extra = np.zeros((3, len(steps)), np.int64)
    alike = 0
    examples = np.empty(0, ROW)
    for piece in rows.ranges():
        if isinstance(piece, OneKey):  # so many equal rows that they do not fit: they are compared at once
            piece = np.concatenate(list(piece.pieces(LIMIT)))
        judged = judge(piece, len(running), len(steps))
        late, missing, extra = late + judged.late, missing + judged.missing, extra + judged.extra
        alike += judged.alike
        examples = _first(np.concatenate([examples, judged.differing]), show)
        watch.advance(len(piece))
    ranges = [place.range for place in places]
    return Comparison(total[0], total[1], late, missing, extra, alike, examples, ranges, len(running))


def _places(cluster: Cluster, ranges: Sequence[Ranges]) -> list[_Place]:
    """The partitions of one side. A partition that is new in a step begins there."""
    names = sorted({name for step in ranges for name in step})
    firsts = list_offsets(cluster, dict.fromkeys(names, EARLIEST), committed=True)
    found = []
    for topic, partition in names:
        known = [step.get((topic, partition)) for step in ranges]
        start = next(one[0] for one in known if one is not None)
        ends, at = [], start
        for one in known:
            at = at if one is None else one[1]
            ends.append(at)
        if start < firsts[topic, partition] and at > start:
            raise NoShadow(
                f"{topic}-{partition} begins at {firsts[topic, partition]}, and the first batch to compare "
                f"has rows from {start} on: compare later ones, with --from-batch"
            )
        found.append(_Place(AuditedRange(topic, None, partition, start, at), ends))
    return found


def _read(
    cluster: Cluster,
    place: _Place,
    number: int,
    identity: Identity,
    digester: Digester,
    watch: ProgressListener,
) -> Iterator[Rows]:
    if not place.range.size:
        return
    at = place.range.start
    for records in records_of(cluster, place.range, committed=True, headers=identity.needs_headers):
        words, _ = identity.digests(digester, records)
        rows = np.zeros(len(records), ROW)
        rows["digest"], rows["more"] = halves(words).T
        rows["offset"] = records.offset.to_numpy()
        rows["place"] = number
        rows["step"] = np.searchsorted(place.ends, rows["offset"], "right")
        yield rows
        watch.advance(int(rows["offset"][-1]) + 1 - at)
        at = int(rows["offset"][-1]) + 1


def _first(rows: Rows, show: int) -> Rows:
    """The first so many rows of each step."""
    rows = rows[np.lexsort((rows["offset"], rows["place"], rows["step"]))]
    starts = np.searchsorted(rows["step"], rows["step"], "left")
    kept: Rows = rows[np.arange(len(rows)) - starts < show]
    return kept
