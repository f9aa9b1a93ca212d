"""What a start reads of the checkpoint: the batch to write, and the newest completed one."""

import time
from typing import NamedTuple, Self

from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.commit.task_reports import Batch

FRESH_SECONDS = 6.5 * 24 * 3600
"""A query that completed a batch within this time finds its decision: clusters keep the offsets of an idle
group for a week by default (offsets.retention.minutes)."""


class CheckpointView(NamedTuple):
    """What the checkpoint contains: the batch to write, and the newest completed one. That is the one before
    the planned one, also where a power cut has taken Spark's note: Spark does not run it again."""

    checkpoint: Checkpoint
    planned: Planned
    completed: int | None
    batch: Batch

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """Read the checkpoint. Raises CheckpointUnreadable."""
        planned = checkpoint.newest_planned()
        if planned is None:
            raise CheckpointUnreadable(checkpoint.location, "no batch is planned in it (offsets/ is empty)")
        batch = Batch(checkpoint.query_id(), planned.batch_id, planned.digest)
        before = planned.batch_id - 1 if planned.batch_id > 0 else None
        noted = (checkpoint.newest_completed(), before)
        completed = max((number for number in noted if number is not None), default=None)
        return cls(checkpoint, planned, completed, batch)

    @property
    def leads_to(self) -> Batch:
        """The batch up to which Spark runs decided batches again, in a restored checkpoint; else `batch`."""
        last = self.planned.leads_to
        return Batch(self.batch.query_id, last.batch_id, last.digest)


def done_in(view: CheckpointView) -> int:
    """The newest completed batch; -1: none."""
    return -1 if view.completed is None else view.completed


def kept_of(view: CheckpointView, decided: Batch | None) -> Planned | None:
    """The decided batch in the checkpoint, if it is this query's and Spark still has it: it keeps 100."""
    planned = view.planned
    if decided is None or decided.query_id != view.batch.query_id or decided.batch_id > planned.batch_id:
        return None
    if decided.batch_id < planned.batch_id:
        return view.checkpoint.planned_if_kept(decided.batch_id)
    return planned


def has_rested(view: CheckpointView, noted: int | None = None) -> bool:
    """Whether the last completed batch is so old that the cluster may have forgotten its decision. `noted`:
    the last one that the sink got, if the checkpoint notes that."""
    if view.completed is None:
        return False
    at = view.checkpoint.completed_at(view.completed if noted is None else min(noted, view.completed))
    return at is None or time.time() - at > FRESH_SECONDS
