"""The report of an audit of a table: a document for programs, lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eoslog.audit.digest import COLLISION
from eoslog.audit.findings import Findings
from eoslog.audit.identity import Identity
from eoslog.audit.report import found_lines
from eoslog.audit.table.columns import Columns
from eoslog.audit.table_findings import TableFindings

KINDS = {
    "lost": "of the topic, not in the table",
    "doubled": "once more in the table",
    "altered": "with another key or value than the record at their offset",
    "phantom": "at offsets where the topic has no committed record",
    "foreign": "of no partition of the topic",
    "pending": "of the topic, not in the table yet (--grace)",
    "unchecked": "at offsets that the topic no longer has: they cannot be checked",
}
"""The kinds of findings, and their meaning."""

BY_CONTENT = {kind: KINDS[kind] for kind in ("lost", "doubled", "pending")} | {
    "foreign": "like no record of the topic"
}
"""The same where rows are told by their key or content."""

WRONG = ("lost", "doubled", "altered", "phantom", "foreign")


def document(findings: TableFindings, table: str, columns: Columns, *, allow_foreign: bool) -> Any:
    """The whole report, as JSON. `right`: nothing is wrong. Foreign rows are wrong unless allowed."""
    counts = {kind: getattr(findings, kind).count for kind in KINDS}
    records, rows = sum(findings.records), sum(findings.rows)
    return {
        "right": _is_right(counts, allow_foreign),
        "table": table,
        "identity": "place",
        "compared": ", ".join(["partition", "offset", *columns.contents]),
        "columns": dict(columns.names),
        "counts": {
            "source": records, "target": rows, "matched": findings.matched, **counts,
            "outside_of_bounds": findings.outside,
        },
        **{kind: getattr(findings, kind).listed(findings.places) for kind in KINDS},
        "source": [p.described(n) for p, n in zip(findings.ranges, findings.records, strict=True)],
        "target": [p.described(n) for p, n in zip(findings.files, findings.rows, strict=True)],
        "collision_probability": min(1.0, COLLISION * rows) if columns.contents else 0.0,
    }  # fmt: skip


def content_document(
    findings: Findings, sources: int, table: str, columns: Columns, identity: Identity, *, allow_foreign: bool
) -> Any:
    """The report where rows are told by their key or content; `sources`: how many places are the topic's."""
    counts = {kind: getattr(findings, kind).count for kind in BY_CONTENT}
    records = findings.records
    described = [p.described(n) for p, n in zip(findings.places, records, strict=True)]
    return {
        "right": _is_right(counts, allow_foreign),
        "table": table,
        "identity": "key" if identity.key else "content",
        "compared": str(identity),
        "columns": {part: columns.names[part] for part in identity.contents},
        "counts": {
            "source": sum(records[:sources]), "target": sum(records[sources:]),
            "matched": findings.matched, **counts,
        },
        **{kind: getattr(findings, kind).listed(findings.places) for kind in BY_CONTENT},
        "source": described[:sources],
        "target": described[sources:],
        "collision_probability": min(1.0, COLLISION * sum(records) ** 2 / 2),
    }  # fmt: skip


def _is_right(counts: dict[str, int], allow_foreign: bool) -> bool:
    return not any(counts.get(kind) for kind in WRONG if kind != "foreign" or not allow_foreign)


def lines(report: Any) -> Iterator[str]:
    """The report as text."""
    counts = report["counts"]
    names = ", ".join(f"{p['topic']}-{p['partition']} {p['start']}..{p['end']}" for p in report["source"])
    yield f"topic: {counts['source']:,} records ({names})"
    yield f"table: {counts['target']:,} rows in {len(report['target']):,} files ({report['table']})"
    yield f"compared by {report['compared']}"
    yield from _notes(report)
    yield from found_lines(report, KINDS if report["identity"] == "place" else BY_CONTENT, _line)
    yield _verdict(report)


def _notes(report: Any) -> Iterator[str]:
    counts = report["counts"]
    for place in report["source"]:
        if place["hidden_by_open_transactions"]:
            yield (
                f"note: {place['topic']}-{place['partition']} continues after offset {place['end']}, "
                "hidden by an open transaction; that is not part of this audit"
            )
    if counts.get("outside_of_bounds"):
        yield f"note: {counts['outside_of_bounds']:,} rows are outside of --from-start and --from-end"
    if not counts["source"]:
        yield "note: the topic has no records within the bounds"
    if "key" not in report["columns"] and "value" not in report["columns"]:
        yield "note: the table has neither key nor value: whether rows were altered is not checked"


def _verdict(report: Any) -> str:
    counts = report["counts"]
    wrong = [f"{counts[kind]:,} {kind}" for kind in WRONG if counts.get(kind)]
    if not report["right"]:
        return f"WRONG: {', '.join(wrong)}"
    rest = f"; {counts['unchecked']:,} rows could not be checked" if counts.get("unchecked") else ""
    return f"right: {counts['matched']:,} records are in the table exactly once{rest}"


def _line(kind: str, found: Any) -> str:
    if kind in ("lost", "pending"):
        return _record(found["at"])
    row = _row(found["at"])
    if kind == "doubled":
        return f"{row} repeats {_row(found['other'])}, both are {_record(found['source'])}"
    return f"{row} is {_record(found['source'])}" if "source" in found else row


def _row(where: Any) -> str:
    return f"row {where['row']} of {where['file']}"


def _record(where: Any) -> str:
    return f"{where['topic']}-{where['partition']} offset {where['offset']}"
