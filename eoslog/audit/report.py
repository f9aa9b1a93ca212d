"""The final report of an audit: a document for programs, lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eoslog.audit.digest import COLLISION
from eoslog.audit.findings import FOREIGN, Findings, Kinds
from eoslog.commands.output import several


def document(
    findings: Findings,
    *,
    compared: str,
    allow_foreign: bool,
    heads: Mapping[str, Any],
    counts: Mapping[str, int] | None = None,
    pairs: float | None = None,
) -> Any:
    """The whole report, as JSON. `right`: nothing is wrong. Foreign records are wrong unless allowed.

    `heads`: what else stands at the top. `counts`: other numbers. `pairs`: how many digests were compared;
    None: each with each.
    """
    wrong = {kind for kind, of in findings.kinds.items() if of.wrong} - (
        {FOREIGN} if allow_foreign else set()
    )
    records, sources = findings.records, findings.sources
    described = [place.described(n) for place, n in zip(findings.places, records, strict=True)]
    compared_pairs = sum(records) ** 2 / 2 if pairs is None else pairs
    return {
        "right": not any(findings[kind].count for kind in wrong),
        **heads,
        "compared": compared,
        "counts": {
            "source": sum(records[:sources]),
            "target": sum(records[sources:]),
            "matched": findings.matched,
            **{kind: findings[kind].count for kind in findings.kinds},
            **(counts or {}),
        },
        **{kind: findings[kind].listed(findings.places) for kind in findings.kinds},
        "source": described[:sources],
        "target": described[sources:],
        "collision_probability": min(1.0, COLLISION * compared_pairs),
    }


def lines(report: Any, kinds: Kinds) -> Iterator[str]:
    """The report as text."""
    counts = report["counts"]
    if "table" in report:
        yield f"topic: {several(counts['source'], 'record')} ({_ranges(report['source'])})"
        files = several(len(report["target"]), "file")
        yield f"table: {several(counts['target'], 'row')} in {files} ({report['table']})"
        yield f"compared by {report['compared']}"
    else:
        for side in ("source", "target"):
            yield f"{side}: {several(counts[side], 'record')} ({_ranges(report[side])})"
        yield f"compared by {report['compared']}; order: {report['order']}"
    yield from _notes(report)
    for kind, of in kinds.items():
        if counts[kind]:
            yield f"{kind}: {counts[kind]:,} {of.meaning}"
            yield from (f"  {_line(kind, found)}" for found in report[kind])
            if counts[kind] > len(report[kind]) > 0:
                yield f"  ... and {counts[kind] - len(report[kind]):,} more"
    yield _verdict(report, kinds)


def _ranges(places: Any) -> str:
    return ", ".join(f"{p['topic']}-{p['partition']} {p['start']}..{p['end']}" for p in places)


def _verdict(report: Any, kinds: Kinds) -> str:
    counts, of_table = report["counts"], "table" in report
    if report["right"]:
        where = "table" if of_table else "target"
        rest = f"; {counts['unchecked']:,} rows could not be checked" if counts.get("unchecked") else ""
        rest += ", in order" if report.get("order", "none") != "none" else ""
        return f"right: {counts['matched']:,} records are in the {where} exactly once{rest}"
    if not (of_table or counts["matched"]) and counts["lost"]:
        return (
            "WRONG: no record was found again. If records change on their way, compare by --key or --header"
        )
    wrong = (f"{counts[kind]:,} {kind}" for kind, of in kinds.items() if of.wrong and counts[kind])
    return f"WRONG: {', '.join(wrong)}"


def _notes(report: Any) -> Iterator[str]:
    counts, of_table = report["counts"], "table" in report
    if counts.get("order_not_checked"):
        yield (
            f"note: the order of {counts['order_not_checked']:,} records was not checked: there are several "
            "alike, in more than one partition"
        )
    for place in (*report["source"], *report["target"]):
        if place.get("hidden_by_open_transactions"):
            yield (
                f"note: {place['topic']}-{place['partition']} continues after offset {place['end']}, "
                "hidden by an open transaction; that is not part of this audit"
            )
    if counts.get("outside_of_bounds"):
        yield f"note: {counts['outside_of_bounds']:,} rows are outside of --from-start and --from-end"
    if not counts["source"]:
        yield f"note: the {'topic' if of_table else 'source'} has no records within the bounds"
    if of_table and "key" not in report["columns"] and "value" not in report["columns"]:
        yield "note: the table has neither key nor value: whether rows were altered is not checked"


def _line(kind: str, found: Any) -> str:
    text = _at(found["at"])
    if kind == "doubled":
        return f"{text} repeats {_at(found['other'])}, both are {_at(found['source'])}"
    if kind == "reordered":
        return (
            f"{text} (from {_at(found['source'])}) is after {_at(found['other'])} "
            f"(from {_at(found['other_source'])})"
        )
    return f"{text} is {_at(found['source'])}" if "source" in found else text


def _at(where: Any) -> str:
    if "file" in where:
        return f"row {where['row']} of {where['file']}"
    return f"{where['topic']}-{where['partition']} offset {where['offset']}"
