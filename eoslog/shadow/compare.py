"""Compares step by step what both versions of a query have written, and reports it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from eoslog.audit.bounds import AuditedRange
from eoslog.audit.digest import Digester
from eoslog.audit.identity import Identity
from eoslog.audit.read import halves, records_of
from eoslog.audit.spill import LIMIT, Comparison, OneKey, Rows, compared
from eoslog.client.admin.topics import EARLIEST, list_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.output import ProgressListener, several
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.offsets.offsets import Offsets, ShadowCut
from eoslog.errors import EoslogError
from eoslog.protocol.topic_partitions import TopicPartition

# -- steps -----------------------------------------------------------------------------------------
# What is compared with what: the batches of a shadow, as its checkpoint has them. Pure.
#
# A step is a batch of the shadow with the batches of the running query that have the same source rows.
# Batches of the shadow that end at the same decision are one step, as Spark may run one more to close
# windows.


Ranges = dict[TopicPartition, tuple[int, int]]


class NoShadow(EoslogError):
    """The checkpoint is not that of a shadow, or nothing in it can be compared."""


@dataclass(frozen=True)
class Step:
    """Batches first..last of the shadow, and the decisions of the running query after `after`, up to
    `decision`; `after` None: all. `written` and `own`: where the rows of both stand, start..end-1."""

    first: int
    last: int
    after: int | None
    decision: int
    written: Ranges
    own: Ranges


def cut_of(planned: Planned) -> ShadowCut:
    """The decision at which a batch of a shadow ends. Raises NoShadow."""
    cuts = planned.shadows()
    if len(cuts) != 1:
        raise NoShadow(
            f"batch {planned.batch_id} ends at no decision of another query: it was planned without the "
            "option shadow.of. If it is the last one, start the query with that option. Then compare later "
            f"ones alone: --from-batch {planned.batch_id + 2}"
        )
    if cuts[0].over:
        raise NoShadow(
            f"batch {planned.batch_id} was written in the place of the query with transactional.id="
            f"{cuts[0].sink}: the shadow has taken over, and there is nothing more to compare"
        )
    return cuts[0]


def planned_without_cut(planned: Planned) -> bool:
    """Whether a start without shadow.of has planned the batch. It was stopped, unless the shadow has taken
    over or writes elsewhere."""
    return planned.batch_id > 0 and not planned.shadows()


def steps(batches: Sequence[Planned], own_now: Offsets | None, *, goes_on: bool = False) -> list[Step]:
    """The steps of consecutive batches. The first batch is compared only if it is the query's own first one:
    else it says where the second begins. `own_now`: where the shadow's rows end, if the last batch is done;
    else it is left out. `goes_on`: the first one was compared before. Raises NoShadow."""
    cuts = [(planned.batch_id, cut_of(planned)) for planned in reversed(batches)][::-1]  # newest error first
    found: list[Step] = []
    for number, (batch, cut) in enumerate(cuts):
        before = cuts[number - 1][1] if number else None
        own_end = cuts[number + 1][1].own if number + 1 < len(cuts) else own_now
        if own_end is None or (before is None and (goes_on or batch or _is_empty(batches[number]))):
            continue
        step = Step(
            batch, batch, before.sequence if before else None, cut.sequence,
            _ranges(before.written if before else {}, cut.written), _ranges(cut.own, own_end),
        )  # fmt: skip
        if found and found[-1].decision == step.decision:
            found[-1] = together(found[-1], step)
        else:
            found.append(step)
    return found


def elsewhere(topics: Sequence[tuple[str, int]], compared: Sequence[Step]) -> list[tuple[str, int]]:
    """The topics that are not compared and to which the running query has written since the first step began,
    each with the last decision that did. `topics`: as in Decision."""
    own = {topic for step in compared for topic, _ in step.written}
    since = compared[0].after or 0
    return [(topic, decision) for topic, decision in topics if topic not in own and decision > since]


def _is_empty(planned: Planned) -> bool:
    return planned.beginnings() == planned.topic_offsets()


def _ranges(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Ranges:
    return {place: (min(starts.get(place, 0), end), end) for place, end in ends.items()}


def together(one: Step, other: Step) -> Step:
    """Both as one step, which ends at the same decision."""
    own, written = (
        {place: (first.get(place, (start, end))[0], end) for place, (start, end) in then.items()}
        for first, then in ((one.own, other.own), (one.written, other.written))
    )
    return Step(one.first, other.last, one.after, one.decision, written, own)


# -- comparison ------------------------------------------------------------------------------------
# Compares step by step what both versions of a query have written: which rows have no equal of the other
# version.


ROW = np.dtype([
    ("digest", "<u8"), ("more", "<u8"),  # the two halves of its content's digest
    ("offset", "<i8"), ("place", "<u4"), ("step", "<u4"),
])  # fmt: skip
"""A row: what it is, where it stands, and in which step it was written."""

Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]
_NONE = np.empty(0, np.uint64)


class Judged(NamedTuple):
    """Rows of each step of the running query, by step: `late` ones, which the shadow wrote in another step,
    and `missing` ones, which it did not write. `extra`: rows of the shadow alone. `differing`: those of both.
    `alike`: how many extra rows have an equal of the running query in their step, or one that is late.
    `met`: the digests of those, and of all late rows.
    """

    late: Counts
    missing: Counts
    extra: Counts
    differing: Rows
    alike: int
    met: Numbers


def judge(rows: Rows, running: int, steps: int, met: Numbers = _NONE) -> Judged:
    """Compare all rows of some contents. `running`: how many places are those of the running query; they are
    numbered first. `met`: of rows that were compared before.

    Equal rows are paired within a step first, then those that are left, in the order of their steps.
    """
    order = np.lexsort((rows["offset"], rows["place"], rows["step"], rows["more"], rows["digest"]))
    rows = rows[order]
    of_shadow = rows["place"] >= running
    content = _numbered(rows["digest"], rows["more"])
    cell = _numbered(content, rows["step"])
    both = _both(cell, of_shadow)
    surplus = _rank(cell, of_shadow) >= both
    left, left_content, left_shadow = rows[surplus], content[surplus], of_shadow[surplus]
    left_met = both[surplus] > 0
    by_side = np.lexsort((left_shadow, left_content))  # stable: within a side in the order of steps
    left, left_content, left_shadow = left[by_side], left_content[by_side], left_shadow[by_side]
    paired = _rank(left_content, left_shadow) < _both(left_content, left_shadow)
    alike = np.isin(left_content, left_content[paired]) | left_met[by_side] | np.isin(left["digest"], met)
    return Judged(
        _counts(left[paired & ~left_shadow], steps),
        _counts(left[~paired & ~left_shadow], steps),
        _counts(left[~paired & left_shadow], steps),
        left[~paired],
        int(np.count_nonzero(alike & ~paired & left_shadow)),
        np.unique(left["digest"][alike]),
    )


def _numbered(*columns: Numbers) -> Numbers:
    """Numbers from 0 for runs of rows that are equal in all columns."""
    changed = np.zeros(len(columns[0]), np.bool_)
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return np.cumsum(changed)


def _rank(group: Numbers, side: Numbers) -> Numbers:
    """The number of each row within its group and side, whose rows follow each other."""
    run = _numbered(group, side)
    starts = np.flatnonzero(np.diff(run, prepend=-1))
    return np.arange(len(run)) - starts[run]


def _both(group: Numbers, side: Numbers) -> Numbers:
    """For each row: how many rows of its group each side has at least."""
    groups = int(group[-1]) + 1 if len(group) else 0
    sizes = [np.bincount(group[side == wanted], minlength=groups) for wanted in (False, True)]
    least: Numbers = np.minimum(*sizes)[group]
    return least


def _counts(rows: Rows, steps: int) -> Counts:
    return np.bincount(rows["step"], minlength=steps)


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
class ShadowComparison:
    """Rows by step: of the running query, of the shadow, and as in Judged. `differing`: the first differences
    of each step, and `places` what their places are, of which the first `running` are the running query's.
    `met`: as in Judged. `digester`: what it all was compared with.
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
    met: Numbers
    digester: Digester

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
    before: ShadowComparison | None = None,
) -> ShadowComparison:
    """Compare. `directory` is empty, and used by this alone. `show`: how many differences of a step are kept.
    `before`: the comparison of the first of these steps, whose rows are not read again: what it found to
    differ may have an equal in a later step.

    Raises NoShadow if rows are not in the log any more, OSError, and what reading raises.
    """
    running = _places(cluster, [step.written for step in steps])
    places = [*running, *_places(cluster, [step.own for step in steps])]
    total = np.zeros((2, len(steps)), np.int64)
    late, missing, extra = np.zeros((3, len(steps)), np.int64)
    alike = 0
    examples, met = np.empty(0, ROW), _NONE if before is None else before.met
    digester = Digester() if before is None else before.digester
    judge_them = partial(_judged, running=len(running), steps=len(steps), met=met)
    carried = [] if before is None else [_carried(before, places)]
    for judged in compared(
        chain(carried, _rows(cluster, places, len(running), (identity, digester), total, watch)),
        Comparison(ROW, "digest", judge_them),
        directory / "rows",
        watch,
        expected=sum(place.range.size for place in places),
    ):
        late, missing, extra = late + judged.late, missing + judged.missing, extra + judged.extra
        alike += judged.alike
        met = np.union1d(met, judged.met)
        examples = _first(np.concatenate([examples, judged.differing]), show)
    ranges = [place.range for place in places]
    if before is not None:
        known = len(before.rows)
        total[:, :known] += np.array([before.rows, before.shadows])
        late[:known] += before.late
    found = (total[0], total[1], late, missing, extra, alike, examples, ranges, len(running), met, digester)
    return ShadowComparison(*found)


def _carried(before: ShadowComparison, places: Sequence[_Place]) -> Rows:
    """The rows that differ so far, with the numbers that their places have now."""
    now = {(place.range.topic, place.range.partition): number for number, place in enumerate(places)}
    numbers = np.array([now[place.topic, place.partition] for place in before.places], "<u4")
    rows = before.differing.copy()
    rows["place"] = numbers[rows["place"]]
    return rows


def _rows(
    cluster: Cluster,
    places: Sequence[_Place],
    running: int,
    by: tuple[Identity, Digester],
    total: Counts,
    watch: ProgressListener,
) -> Iterator[Rows]:
    """All rows of both sides. Counts them in `total`, by side and step."""
    for number, place in enumerate(places):
        watch.begin(f"reading {place.range}", place.range.size)
        for got in _read(cluster, place, number, *by, watch):
            total[int(number >= running)] += np.bincount(got["step"], minlength=total.shape[1])
            yield got


def _judged(rows: Rows | OneKey, running: int, steps: int, met: Numbers) -> list[Judged]:
    """The verdict. So many equal rows that they do not fit into memory are compared at once all the same."""
    whole = np.concatenate(list(rows.pieces(LIMIT))) if isinstance(rows, OneKey) else rows
    return [judge(whole, running, steps, met)]


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


# -- report ----------------------------------------------------------------------------------------
# The report of `eoslog shadow report`: a document for programs, lines for people. Pure.


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
