"""The audit by identity from beginning to end: reads both sides into buckets, compares each bucket, then
checks the order. A side is the partitions of topics, or the files of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from eoslog.audit.bounds import AuditedRange
from eoslog.audit.digest import Digester
from eoslog.audit.findings import Findings
from eoslog.audit.match import Verdict, compare
from eoslog.audit.one_key import compare_one
from eoslog.audit.order import RunningOrder, check_groups
from eoslog.audit.place import Place
from eoslog.audit.read import Read, ReadSettings, read
from eoslog.audit.rows import ITEM, PAIR, Rows
from eoslog.audit.spill import OneKey, Spill
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.progress import ProgressListener
from eoslog.errors import EoslogError

LIMIT = 1 << 16
"""The most rows in memory at a time; work on them takes some 300 bytes each."""


class NoIdentity(EoslogError):
    """A source record has nothing to compare it by."""


@dataclass(frozen=True)
class AuditedCluster:
    """A cluster and the places on it that are audited."""

    cluster: Cluster
    places: Sequence[AuditedRange]

    def read(
        self, first: int, way: ReadSettings, digester: Digester, watch: ProgressListener
    ) -> Iterator[Read]:
        """All records of each place; `first`: the number of the first one. Raises what fetch does."""
        for number, place in enumerate(self.places, first):
            if not place.size:
                continue
            watch.begin(f"reading {place}", place.size)
            at = place.start
            for got in read(self.cluster, place, number, way, digester):
                yield got
                reached = 1 + int(max(rows["offset"][-1] for rows in (got.rows, got.without) if len(rows)))
                watch.advance(reached - at)
                at = reached


class AuditedSide(Protocol):
    """What is compared with a topic: another one, or a table."""

    @property
    def places(self) -> Sequence[Place]:
        """Where its rows are."""

    def read(
        self, first: int, way: ReadSettings, digester: Digester, watch: ProgressListener
    ) -> Iterator[Read]:
        """All its rows, place by place; `first`: the number of its first place."""


@dataclass(frozen=True)
class Job:
    """What to do, and with what: `directory` is empty and used by this job alone, `limit` is as LIMIT."""

    way: ReadSettings
    in_order: bool
    directory: Path
    settled: Sequence[int]
    """For each source place, the offset from which a record may still be on its way."""
    show: int = 20
    """How many findings of each kind to list."""
    limit: int = LIMIT


def audit(source: AuditedCluster, target: AuditedSide, job: Job, watch: ProgressListener) -> Findings:
    """Compare. Raises NoIdentity, DigestsCollide, OSError (the disk is full), and what reading raises."""
    places, sources = [*source.places, *target.places], len(source.places)
    findings = Findings(places, sources, list(job.settled), job.show)
    items = _read_all(source, target, job, findings, watch)
    pairs = _pairs(job, findings) if job.in_order else None
    watch.begin("comparing", items.count)
    for rows in items.ranges():
        for verdict in _verdicts(rows, sources, job.limit):
            _note(verdict, findings, pairs)
        watch.advance(rows.count if isinstance(rows, OneKey) else len(rows))
    if pairs is not None:
        watch.begin("checking the order", pairs.count)
        _check_order(pairs, job, findings, watch)
    return findings


def _read_all(
    source: AuditedCluster, target: AuditedSide, job: Job, findings: Findings, watch: ProgressListener
) -> Spill:
    items = Spill(
        job.directory / "items", ITEM, "digest",
        expected=sum(place.size for place in findings.places), limit=job.limit,
    )  # fmt: skip
    digester = Digester()
    for side, first in ((source, 0), (target, len(source.places))):
        for got in side.read(first, job.way, digester, watch):
            findings.records[got.place] += len(got.rows) + len(got.without)
            if len(got.without):
                _without_identity(got.without, side is source, job, findings)
            items.add(got.rows)
    return items


def _without_identity(rows: Rows, is_source: bool, job: Job, findings: Findings) -> None:
    if is_source:
        place, offset = findings.places[rows["place"][0]], rows["offset"][0]
        raise NoIdentity(
            f"the record at offset {offset} of {place} has no {job.way.identity}: it cannot be "
            "found in the target. Compare by something that all records have (--key, --header, --content)"
        )
    findings.foreign.add(rows)


def _verdicts(rows: Rows | OneKey, sources: int, limit: int) -> Iterable[Verdict]:
    return compare_one(rows, sources, limit) if isinstance(rows, OneKey) else [compare(rows, sources)]


def _note(verdict: Verdict, findings: Findings, pairs: Spill | None) -> None:
    findings.matched += verdict.pairs
    findings.lose(verdict.lost)
    findings.foreign.add(verdict.foreign)
    findings.doubled.add(verdict.doubled, verdict.doubled_source, verdict.doubled_first)
    if pairs is None:
        return
    findings.loose += verdict.loose
    rows = np.empty(len(verdict.source), PAIR)
    rows["line"] = findings.lines(verdict.target)
    for name in ("group", "offset", "place"):
        rows[name] = verdict.source[name]
    pairs.add(rows)


def _pairs(job: Job, findings: Findings) -> Spill:
    """The store of pairs that wait for the check of order: by key, or by position in the target."""
    sources = len(job.settled)
    lines = sum(place.size for place in findings.places[sources:])
    if job.way.by_key:
        return Spill(job.directory / "pairs", PAIR, "group", expected=lines, limit=job.limit)
    return _by_line(job.directory / "pairs", lines, lines, job.limit)


def _by_line(directory: Path, lines: int, expected: int, limit: int) -> Spill:
    return Spill(directory, PAIR, "line", high=max(lines - 1, 0), expected=expected, limit=limit)


def _check_order(pairs: Spill, job: Job, findings: Findings, watch: ProgressListener) -> None:
    running = RunningOrder(findings.bases, len(job.settled))
    for rows in pairs.ranges():
        if isinstance(rows, OneKey):
            _check_one_group(rows, job, findings)
        elif job.way.by_key:
            findings.disorder(check_groups(rows, findings.bases))
        else:
            findings.disorder(running.check(rows))
        watch.advance(rows.count if isinstance(rows, OneKey) else len(rows))


def _check_one_group(group: OneKey, job: Job, findings: Findings) -> None:
    """Check the order of a group that does not fit into memory: sort its rows by position in the target."""
    lines = sum(place.size for place in findings.places[len(job.settled) :])
    spill = _by_line(job.directory / "group", lines, group.count, job.limit)
    for piece in group.pieces(job.limit):
        spill.add(piece)
    running = RunningOrder(findings.bases, len(job.settled))
    for rows in spill.ranges():
        assert not isinstance(rows, OneKey), "no two rows of the target have the same line"
        findings.disorder(running.check(rows))
