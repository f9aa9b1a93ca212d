"""The final report of an audit: a document for programs, lines for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from eoslog.audit.digest import COLLISION
from eoslog.audit.findings import Findings
from eoslog.audit.place import Place

KINDS = {
    "lost": "of the source, not in the target",
    "doubled": "once more in the target than in the source",
    "reordered": "after a record of its partition that follows it in the source",
    "foreign": "in the target, not in the source",
    "pending": "of the source, not in the target yet (--grace)",
}
"""The kinds of findings, and their meaning."""


def document(findings: Findings, sources: int, *, compared: str, order: str, allow_foreign: bool) -> Any:
    """The whole report, as JSON. `right`: nothing is wrong. Foreign records are wrong unless allowed."""
    wrong = ["lost", "doubled", "reordered", *([] if allow_foreign else ["foreign"])]
    records = findings.records
    return {
        "right": not any(getattr(findings, kind).count for kind in wrong),
        "compared": compared,
        "order": order,
        "counts": {
            "source": sum(records[:sources]),
            "target": sum(records[sources:]),
            "matched": findings.matched,
            **{kind: getattr(findings, kind).count for kind in KINDS},
            "order_not_checked": findings.loose,
        },
        **{kind: getattr(findings, kind).listed(findings.places) for kind in KINDS},
        "source": _described(findings.places[:sources], records[:sources]),
        "target": _described(findings.places[sources:], records[sources:]),
        "collision_probability": min(1.0, COLLISION * sum(records) ** 2 / 2),
    }


def _described(places: Sequence[Place], records: Sequence[int]) -> list[dict[str, Any]]:
    return [place.described(count) for place, count in zip(places, records, strict=True)]


def lines(report: Any) -> Iterator[str]:
    """The report as text."""
    counts = report["counts"]
    for side in ("source", "target"):
        names = ", ".join(f"{p['topic']}-{p['partition']} {p['start']}..{p['end']}" for p in report[side])
        yield f"{side}: {counts[side]:,} records ({names})"
    yield f"compared by {report['compared']}; order: {report['order']}"
    yield from _notes(report)
    yield from found_lines(report, KINDS, _finding_line)
    yield _verdict(report)


def found_lines(report: Any, kinds: Mapping[str, str], line: Callable[[str, Any], str]) -> Iterator[str]:
    """The findings of each kind that there are: how many, and those that are listed, each by `line`."""
    counts = report["counts"]
    for kind, meaning in kinds.items():
        if counts[kind]:
            yield f"{kind}: {counts[kind]:,} {meaning}"
            yield from (f"  {line(kind, found)}" for found in report[kind])
            if counts[kind] > len(report[kind]) > 0:
                yield f"  ... and {counts[kind] - len(report[kind]):,} more"


def _verdict(report: Any) -> str:
    counts = report["counts"]
    if report["right"]:
        return f"right: {counts['matched']:,} records are in the target exactly once{_in_order(report)}"
    if not counts["matched"] and counts["lost"]:
        return (
            "WRONG: no record was found again. If records change on their way, compare by --key or --header"
        )
    wrong = (
        f"{counts[kind]:,} {kind}" for kind in ("lost", "doubled", "reordered", "foreign") if counts[kind]
    )
    return f"WRONG: {', '.join(wrong)}"


def _in_order(report: Any) -> str:
    return "" if report["order"] == "none" else ", in order"


def _notes(report: Any) -> Iterator[str]:
    counts = report["counts"]
    if counts["order_not_checked"]:
        yield (
            f"note: the order of {counts['order_not_checked']:,} records was not checked: there are several "
            "alike, in more than one partition"
        )
    for side in ("source", "target"):
        for place in report[side]:
            if place["hidden_by_open_transactions"]:
                yield (
                    f"note: {place['topic']}-{place['partition']} continues after offset {place['end']}, "
                    "hidden by an open transaction; that is not part of this audit"
                )
    if not counts["source"]:
        yield "note: the source has no records within the bounds"


def _finding_line(kind: str, found: Any) -> str:
    text = _at(found["at"])
    if kind == "doubled":
        return f"{text} repeats {_at(found['other'])}, both are {_at(found['source'])}"
    if kind == "reordered":
        return (
            f"{text} (from {_at(found['source'])}) is after {_at(found['other'])} "
            f"(from {_at(found['other_source'])})"
        )
    return text


def _at(where: Any) -> str:
    return f"{where['topic']}-{where['partition']} offset {where['offset']}"
