"""What is compared with what: the batches of a shadow, as its checkpoint has them. Pure.

A step is a batch of the shadow with the batches of the running query that have the same source rows. Batches
of the shadow that end at the same decision are one step, as Spark may run one more to close windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.offsets.offsets import Offsets, ShadowCut
from eoslog.errors import EoslogError
from eoslog.protocol.topic_partitions import TopicPartition

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
            f"batch {planned.batch_id} ends at no decision of another query: this is not the checkpoint of a "
            "query with the option shadow.of, or not from this batch on; give a batch with --from-batch"
        )
    return cuts[0]


def planned_without_cut(planned: Planned) -> bool:
    """Whether a start without shadow.of has planned the batch. It was stopped, unless the shadow has taken
    over or writes elsewhere."""
    return planned.batch_id > 0 and not planned.shadows()


def steps(batches: Sequence[Planned], own_now: Offsets | None) -> list[Step]:
    """The steps of consecutive batches. The first batch is compared only if it is the query's own first one:
    else it says where the second begins. `own_now`: where the shadow's rows end, if the last batch is done;
    else it is left out. Raises NoShadow."""
    cuts = [(planned.batch_id, cut_of(planned)) for planned in batches]
    found: list[Step] = []
    for number, (batch, cut) in enumerate(cuts):
        before = cuts[number - 1][1] if number else None
        own_end = cuts[number + 1][1].own if number + 1 < len(cuts) else own_now
        if own_end is None or (before is None and (batch or _is_empty(batches[number]))):
            continue
        step = Step(
            batch, batch, before.sequence if before else None, cut.sequence,
            _ranges(before.written if before else {}, cut.written), _ranges(cut.own, own_end),
        )  # fmt: skip
        if found and found[-1].decision == step.decision:
            found[-1] = _together(found[-1], step)
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


def _together(one: Step, other: Step) -> Step:
    own = {place: (one.own.get(place, (start, end))[0], end) for place, (start, end) in other.own.items()}
    return Step(one.first, other.last, one.after, one.decision, one.written, own)
