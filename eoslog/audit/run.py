"""The audit from beginning to end: reads both sides, compares them, then checks the order.

Two comparisons: by identity, of topics and of tables whose rows are told by their key or content; and by
place, of tables whose rows name their partition and offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from eoslog.audit import lines as by_line
from eoslog.audit.bounds import AuditedRange
from eoslog.audit.digest import Digester
from eoslog.audit.findings import (
    DOUBLED,
    FOREIGN,
    OF_CONTENTS,
    OF_NEWEST,
    OF_PLACES,
    OF_TOPICS,
    REORDERED,
    AuditedPlace,
    Findings,
)
from eoslog.audit.identity import Deletes, Identity
from eoslog.audit.lines import KEYED, LINE_ROW, RECORD, SEEN, Bools, KeyMoves, Lines, Rule
from eoslog.audit.match import ITEM, verdicts
from eoslog.audit.order import OrderCheck
from eoslog.audit.read import Read, ReadSettings, halves, read, records_of
from eoslog.audit.spill import LIMIT, Comparison, Rows, compared
from eoslog.audit.table.columns import Columns
from eoslog.audit.table.files import BadTable, Table, TableFile
from eoslog.client.records.fetch import Gaps
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.output import ProgressListener
from eoslog.errors import EoslogError
from eoslog.protocol.decode import DecodedRecords


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


@dataclass(frozen=True)
class AuditedTable:
    """A table and its columns."""

    table: Table
    columns: Columns

    @property
    def places(self) -> Sequence[TableFile]:
        """Its files."""
        return self.table.files

    def read(
        self, first: int, way: ReadSettings, digester: Digester, watch: ProgressListener
    ) -> Iterator[Read]:
        """All rows; `first`: the number of the first file. Raises BadTable, OSError."""
        watch.begin(f"reading {len(self.places)} files", sum(file.size for file in self.places))
        wanted = [self.columns.names[part] for part in way.identity.contents]
        for number in range(len(self.places)):
            row = 0
            for batch in self.table.batches(number, wanted):
                yield self._rows(batch, row, first + number, way.identity, digester)
                row += batch.num_rows
                watch.advance(batch.num_rows)

    def _rows(
        self, batch: pa.RecordBatch, row: int, place: int, identity: Identity, digester: Digester
    ) -> Read:
        words, there = identity.of_contents(
            digester, {part: self.columns.array(batch, part) for part in identity.contents}
        )
        rows = np.zeros(batch.num_rows, ITEM)
        rows["digest"], rows["more"] = halves(words).T
        rows["offset"] = row + np.arange(batch.num_rows)
        rows["place"] = place
        return Read(place, rows[there], rows[~there])


class AuditedSide(Protocol):
    """What is compared with a topic: another one, or a table."""

    @property
    def places(self) -> Sequence[AuditedPlace]:
        """Where its rows are."""

    def read(
        self, first: int, way: ReadSettings, digester: Digester, watch: ProgressListener
    ) -> Iterator[Read]:
        """All its rows, place by place; `first`: the number of its first place."""


@dataclass(frozen=True)
class Job:
    """With what an audit works: `directory` is empty and used by this job alone, `limit` is as LIMIT."""

    directory: Path
    settled: Sequence[int]
    """For each source place, the offset from which a record may still be on its way."""
    show: int = 20
    """How many findings of each kind to list."""
    limit: int = LIMIT


def audit(
    source: AuditedCluster,
    target: AuditedSide,
    way: ReadSettings,
    job: Job,
    watch: ProgressListener,
    *,
    in_order: bool,
) -> Findings:
    """Compare by identity. Raises NoIdentity, DigestsCollide, OSError (the disk is full), and what reading
    raises."""
    places, sources = [*source.places, *target.places], len(source.places)
    kinds = OF_CONTENTS if isinstance(target, AuditedTable) else OF_TOPICS
    findings = Findings(places, sources, job.settled, kinds, job.show)
    order = (
        OrderCheck(places, sources, job.directory, by_key=way.by_key, limit=job.limit) if in_order else None
    )
    for verdict in compared(
        _items(source, target, way, findings, watch),
        Comparison(ITEM, "digest", partial(verdicts, sources=sources, limit=job.limit)),
        job.directory / "items",
        watch,
        expected=sum(place.size for place in places),
        limit=job.limit,
    ):
        findings.matched += verdict.pairs
        findings.lose(verdict.lost)
        findings[FOREIGN].add(verdict.foreign)
        findings[DOUBLED].add(verdict.doubled, verdict.doubled_source, verdict.doubled_first)
        if order is not None:
            findings.loose += verdict.loose
            order.add(verdict)
    for found in order.check(watch) if order is not None else ():
        findings[REORDERED].keep(found)
    return findings


def _items(
    source: AuditedCluster,
    target: AuditedSide,
    way: ReadSettings,
    findings: Findings,
    watch: ProgressListener,
) -> Iterator[Rows]:
    digester = Digester()
    for side, first in ((source, 0), (target, len(source.places))):
        for got in side.read(first, way, digester, watch):
            findings.records[got.place] += len(got.rows) + len(got.without)
            if len(got.without):
                _without_identity(got.without, side is source, way, findings)
            yield got.rows


def _without_identity(rows: Rows, is_source: bool, way: ReadSettings, findings: Findings) -> None:
    if is_source:
        place, offset = findings.places[rows["place"][0]], rows["offset"][0]
        raise NoIdentity(
            f"the record at offset {offset} of {place} has no {way.identity}: it cannot be "
            "found in the target. Compare by something that all records have (--key, --header, --content)"
        )
    findings[FOREIGN].add(rows)


def audit_places(
    source: AuditedCluster,
    target: AuditedTable,
    lines: Lines,
    job: Job,
    watch: ProgressListener,
    deletes: Deletes | None = None,
) -> Findings:
    """Compare by partition and offset. `deletes`: the table has the newest record of each key alone, and none
    if that deletes. Raises BadTable, NoIdentity, OSError (the disk is full), and what reading does."""
    places: list[AuditedPlace] = [*source.places, *target.places]
    sources = len(source.places)
    kinds = OF_PLACES if deletes is None else OF_NEWEST
    findings = Findings(places, sources, job.settled, kinds, job.show)
    # compaction leaves the newest record of each key: a table of those has no row of a record that is gone
    compacted = np.array([deletes is None and _compacted(source, one) for one in range(sources)], np.bool_)
    judge = partial(by_line.verdicts, gone=_gone(lines, compacted), limit=job.limit)
    for verdict in compared(
        _line_rows(source, target, lines, compacted, findings, job, watch, deletes),
        Comparison(LINE_ROW, "line", judge, max(lines.count - 1, 0)),
        job.directory / "rows",
        watch,
        expected=sum(place.size for place in places),
        limit=job.limit,
    ):
        by_line.note(verdict, lines, findings)
    return findings


def _line_rows(
    source: AuditedCluster,
    target: AuditedTable,
    lines: Lines,
    compacted: Bools,
    findings: Findings,
    job: Job,
    watch: ProgressListener,
    deletes: Deletes | None,
) -> Iterator[Rows]:
    digester = Digester()
    records = (
        piece
        for number in range(findings.sources)
        for piece in _of_topic(
            source, number, lines, target.columns.contents, findings, digester, watch, deletes
        )
    )
    yield from records if deletes is None else _newest(records, source, findings, job, watch)
    for number in np.flatnonzero(compacted).tolist():
        yield from _seen(source, number, lines, watch)
    watch.begin(f"reading {len(target.places)} files", sum(file.size for file in target.places))
    for number in range(len(target.places)):
        yield from _of_file(target, number, lines, findings, digester, watch)


def _compacted(source: AuditedCluster, number: int) -> bool:
    place = source.places[number]
    return Gaps(source.cluster, place.topic, place.partition).are_explained()


def _gone(lines: Lines, compacted: Bools) -> Rule:
    """Rows at offsets whose records retention or compaction may have removed."""

    def gone(rows: Rows) -> Bools:
        found: Bools = lines.before_start(rows["line"]) | compacted[lines.back(rows["line"])[0]]
        return found

    return gone


def _of_topic(
    source: AuditedCluster, number: int, lines: Lines, contents: Sequence[str], findings: Findings,
    digester: Digester, watch: ProgressListener, deletes: Deletes | None,
) -> Iterator[Rows]:  # fmt: skip
    """The committed records; rows of KEYED if only the newest of each key count."""
    for records, offsets in _records(source, number, watch, committed=True):
        findings.records[number] += len(records)
        kept = np.zeros(len(records), LINE_ROW if deletes is None else KEYED)
        kept["line"], kept["offset"] = lines.of_place(number, offsets), offsets
        kept["place"] = RECORD
        parts = {"key": records.key, "value": records.value}
        _digest(kept, (parts[part] for part in contents), digester)
        if deletes is not None:
            keys, there = Identity(key=True).of_contents(digester, parts)
            if not there.all():
                raise NoIdentity(
                    f"the record at offset {offsets[~there][0]} of {source.places[number]} has no key: which "
                    "record is the newest of its key nobody can tell. Audit a topic whose records have keys"
                )
            kept["key"], kept["key_more"] = halves(keys).T
            kept["number"], kept["deletes"] = number, deletes.of(records.value)
        yield kept


def _seen(source: AuditedCluster, number: int, lines: Lines, watch: ProgressListener) -> Iterator[Rows]:
    """A compacted topic is read twice: what is there only for read_uncommitted readers was aborted."""
    for _, offsets in _records(source, number, watch, committed=False):
        kept = np.zeros(len(offsets), LINE_ROW)
        kept["line"], kept["offset"], kept["place"] = lines.of_place(number, offsets), offsets, SEEN
        yield kept


def _records(
    source: AuditedCluster, number: int, watch: ProgressListener, *, committed: bool
) -> Iterator[tuple[DecodedRecords, Any]]:
    """Records of a partition, and their offsets."""
    place = source.places[number]
    watch.begin(f"reading {place}", place.size)
    at = place.start
    for records in records_of(source.cluster, place, committed=committed) if place.size else ():
        offsets = records.offset.to_numpy()
        yield records, offsets
        watch.advance(int(offsets[-1]) + 1 - at)
        at = int(offsets[-1]) + 1


def _newest(
    records: Iterator[Rows], source: AuditedCluster, findings: Findings, job: Job, watch: ProgressListener
) -> Iterator[Rows]:
    """All records, as the table has to have them. Raises BadTable if a key is in two partitions."""
    try:
        yield from compared(
            records,
            Comparison(KEYED, "key", partial(by_line.newest, limit=job.limit)),
            job.directory / "keys",
            watch,
            expected=sum(place.size for place in source.places),
            limit=job.limit,
        )
    except KeyMoves as error:
        where = " and ".join(
            f"offset {row['offset']} of {findings.places[int(row['number'])]}" for row in error.records
        )
        raise BadTable(
            f"records of one key are at {where}: which one is the newest nobody can tell. Audit a topic "
            "whose keys stay in their partitions"
        ) from error


def _of_file(
    target: AuditedTable, number: int, lines: Lines, findings: Findings, digester: Digester,
    watch: ProgressListener,
) -> Iterator[Rows]:  # fmt: skip
    columns = target.columns
    first = 0
    for batch in target.table.batches(number, list(columns.names.values())):
        topic = columns.array(batch, "topic") if "topic" in columns.names else None
        located = lines.locate(topic, columns.array(batch, "partition"), columns.array(batch, "offset"))
        by_line.note_unnumbered(findings, number, first, located)
        kept = np.zeros(batch.num_rows, LINE_ROW)
        kept["line"], kept["place"] = located.line, number
        kept["offset"] = first + np.arange(batch.num_rows)
        _digest(kept, (columns.array(batch, part) for part in columns.contents), digester)
        yield kept[located.inside]
        first += batch.num_rows
        watch.advance(batch.num_rows)
    findings.records[findings.sources + number] = first


def _digest(rows: Rows, contents: Iterable[pa.Array], digester: Digester) -> None:
    parts = [digester.strings(column) for column in contents]
    if parts and len(rows):
        words = parts[0] if len(parts) == 1 else digester.together(parts)
        rows["digest"], rows["more"] = halves(words).T


def identity_of(columns: Columns, version: str, *, key: bool) -> Identity:
    """What rows are told by: their key, or what the table has of key and value. Raises BadTable."""
    if key and "key" not in columns.names:
        raise BadTable(f"--key: {version} has no column key: name it by --column key=NAME")
    if not key and "value" not in columns.names:
        raise BadTable(f"--content: {version} has no column value: name it by --column value=NAME")
    return Identity(
        key=key, content=not key and "key" in columns.names, value=not key and "key" not in columns.names
    )
