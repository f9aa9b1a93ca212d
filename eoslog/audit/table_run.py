"""The audit of a table whose rows name their partition and offset, from beginning to end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from eoslog.audit.digest import Digester
from eoslog.audit.lines import Bools, Lines
from eoslog.audit.read import halves, records_of
from eoslog.audit.rows import Rows
from eoslog.audit.run import LIMIT, AuditedCluster
from eoslog.audit.spill import OneKey, Spill
from eoslog.audit.table.columns import Columns
from eoslog.audit.table.files import Table
from eoslog.audit.table_findings import TableFindings
from eoslog.audit.table_judge import LINE_ROW, RECORD, SEEN, LineVerdict, Rule, judge, judge_one
from eoslog.client.records.fetch import Gaps
from eoslog.commands.progress import ProgressListener


@dataclass(frozen=True)
class TableJob:
    """What to do, and with what: `directory` is empty and used by this job alone, `limit` is as run.LIMIT."""

    columns: Columns
    lines: Lines
    directory: Path
    settled: Sequence[int]
    """For each partition, the offset from which a record may still be on its way."""
    show: int = 20
    limit: int = LIMIT


def audit_table(
    source: AuditedCluster, table: Table, job: TableJob, watch: ProgressListener
) -> TableFindings:
    """Compare. Raises BadTable, OSError (the disk is full), and what reading the topic raises."""
    findings = TableFindings(source.places, table.files, job.lines, job.settled, job.show)
    expected = sum(place.size for place in source.places) + sum(file.size for file in table.files)
    rows = Spill(
        job.directory / "rows", LINE_ROW, "line",
        high=max(job.lines.count - 1, 0), expected=expected, limit=job.limit,
    )  # fmt: skip
    digester = Digester()
    compacted = np.array([_compacted(source, number) for number in range(len(source.places))], np.bool_)
    for number in range(len(source.places)):
        _read_topic(source, number, bool(compacted[number]), job, rows, findings, digester, watch)
    watch.begin(f"reading {len(table.files)} files", sum(file.size for file in table.files))
    for number in range(len(table.files)):
        _read_file(table, number, job, rows, findings, digester, watch)
    watch.begin("comparing", rows.count)
    for verdict in _verdicts(rows, _gone(job.lines, compacted), job.limit, watch):
        findings.add(verdict)
    return findings


def _compacted(source: AuditedCluster, number: int) -> bool:
    place = source.places[number]
    return Gaps(source.cluster, place.topic, place.partition).are_explained()


def _gone(lines: Lines, compacted: Bools) -> Rule:
    """Rows at offsets whose records retention or compaction may have removed."""

    def gone(rows: Rows) -> Bools:
        found: Bools = lines.before_start(rows["line"]) | compacted[lines.back(rows["line"])[0]]
        return found

    return gone


def _verdicts(rows: Spill, gone: Rule, limit: int, watch: ProgressListener) -> Iterator[LineVerdict]:
    for piece in rows.ranges():
        if isinstance(piece, OneKey):
            yield from judge_one(piece, gone, limit)
            watch.advance(piece.count)
        else:
            yield judge(piece, gone)
            watch.advance(len(piece))


def _read_topic(
    source: AuditedCluster, number: int, compacted: bool, job: TableJob, rows: Spill,
    findings: TableFindings, digester: Digester, watch: ProgressListener,
) -> None:  # fmt: skip
    """A compacted topic is read twice: what is there only for read_uncommitted readers was aborted."""
    place = source.places[number]
    for committed in (True, False) if compacted else (True,):
        watch.begin(f"reading {place}", place.size)
        at = place.start
        for records in records_of(source.cluster, place, committed=committed) if place.size else ():
            offsets = records.offset.to_numpy()
            kept = np.zeros(len(records), LINE_ROW)
            kept["line"], kept["offset"] = job.lines.of_place(number, offsets), offsets
            kept["place"] = RECORD if committed else SEEN
            if committed:
                findings.records[number] += len(records)
                contents = {"key": records.key, "value": records.value}
                _digest(kept, (contents[part] for part in job.columns.contents), digester)
            rows.add(kept)
            watch.advance(int(offsets[-1]) + 1 - at)
            at = int(offsets[-1]) + 1


def _read_file(
    table: Table, number: int, job: TableJob, rows: Spill, findings: TableFindings, digester: Digester,
    watch: ProgressListener,
) -> None:  # fmt: skip
    columns = job.columns
    first = 0
    for batch in table.batches(number, list(columns.names.values())):
        topic = columns.array(batch, "topic") if "topic" in columns.names else None
        located = job.lines.locate(topic, columns.array(batch, "partition"), columns.array(batch, "offset"))
        findings.unnumbered(number, first, located)
        kept = np.zeros(batch.num_rows, LINE_ROW)
        kept["line"], kept["place"] = located.line, number
        kept["offset"] = first + np.arange(batch.num_rows)
        _digest(kept, (columns.array(batch, part) for part in columns.contents), digester)
        rows.add(kept[located.inside])
        first += batch.num_rows
        watch.advance(batch.num_rows)
    findings.rows[number] = first


def _digest(rows: Rows, contents: Iterable[pa.Array], digester: Digester) -> None:
    parts = [digester.strings(column) for column in contents]
    if parts and len(rows):
        words = parts[0] if len(parts) == 1 else digester.together(parts)
        rows["digest"], rows["more"] = halves(words).T
