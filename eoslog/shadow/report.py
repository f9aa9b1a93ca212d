"""The report of `eoslog shadow report`: a document for programs, lines for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from eoslog.commands.output import several
from eoslog.shadow.compare import Difference, ShadowComparison
from eoslog.shadow.steps import Step

COLUMNS = ("batches", "decisions", "rows", "shadow's", "missing", "extra", "late")
_SHOWN = 60
"""Characters of a key or a value."""


def document(
    steps: Sequence[Step],
    found: ShadowComparison,
    examples: Sequence[Difference],
    *,
    sink: str,
    compared: str,
    behind: int | None,
    others: Sequence[tuple[str, int]] = (),
) -> Any:
    """The whole report, as JSON. `behind`: how many decisions the running query has made since the last step;
    None: not known. `others`: topics of the running query that are not compared, with its last decision that
    wrote to each."""
    differs = np.flatnonzero(found.differs)
    return {
        "equal": not len(differs),
        "shadow_of": sink,
        "compared": compared,
        "differs_first_in_batch": steps[differs[0]].first if len(differs) else None,
        "decisions_behind": behind,
        "not_compared": dict(others),
        "counts": {
            "running": int(found.rows.sum()), "shadow": int(found.shadows.sum()),
            **{name: int(getattr(found, name).sum()) for name in ("late", "missing", "extra")},
        },
        "steps": [
            {
                "first_batch": step.first, "last_batch": step.last,
                "after_decision": step.after, "decision": step.decision,
                "running": int(found.rows[n]), "shadow": int(found.shadows[n]), "late": int(found.late[n]),
                "missing": int(found.missing[n]), "extra": int(found.extra[n]),
            }
            for n, step in enumerate(steps)
        ],
        "differences": [_described(one, steps[one.step]) for one in examples],
    }  # fmt: skip


def _described(one: Difference, step: Step) -> dict[str, Any]:
    return {
        "kind": "extra" if one.of_shadow else "missing", "batch": step.first, "topic": one.topic,
        "partition": one.partition, "offset": one.offset, "key": _text(one.key), "value": _text(one.value),
    }  # fmt: skip


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


def rows(report: Any) -> list[dict[str, Any]]:
    """The steps as a table, see COLUMNS."""
    return [
        {
            "batches": _range(step["first_batch"], step["last_batch"]),
            "decisions": _range((step["after_decision"] or 0) + 1, step["decision"]),
            "rows": step["running"], "shadow's": step["shadow"],
            "missing": step["missing"], "extra": step["extra"], "late": step["late"],
        }
        for step in report["steps"]
    ]  # fmt: skip


def _range(first: int, last: int) -> str:
    return str(last) if first >= last else f"{first}-{last}"


def lines(report: Any) -> Iterator[str]:
    """What is said after the table."""
    for one in report["differences"]:
        what = "only the running query wrote" if one["kind"] == "missing" else "only the shadow wrote"
        where = f"{one['topic']}-{one['partition']} offset {one['offset']}"
        said = f"key {_short(one['key'])}, value {_short(one['value'])}"
        yield f"batch {one['batch']}: {what} {where}: {said}"
    if report["decisions_behind"]:
        yield f"the running query has made {several(report['decisions_behind'], 'decision')} since"
    for topic, decision in report["not_compared"].items():
        yield f"the running query has written to {topic}, too, last in decision {decision}: not compared"
    counts = report["counts"]
    if report["equal"]:
        late = f", {counts['late']:,} of them in another batch" if counts["late"] else ""
        yield f"equal: {several(counts['running'], 'row')} in {several(len(report['steps']), 'step')}{late}"
    else:
        yield (
            f"DIFFERENT from batch {report['differs_first_in_batch']} on: {counts['missing']:,} missing, "
            f"{counts['extra']:,} extra"
        )


def _short(text: str | None) -> str:
    if text is None:
        return "null"
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
