"""The start of a sink's run: reads what start_checks.py compares, and logs its warnings.

It runs once in a run, around the first begin, and its number of round trips does not depend on the number of
partitions (Metadata before begin; after it OffsetFetch, and finding the group's coordinator).
"""

import logging
import time
from typing import NamedTuple, Self

from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.cluster_check import check_group_cluster, check_sink_cluster
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.checkpoint.refreshed_flow import check_not_refreshed
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.checkpoint.start_checks import (
    Completed,
    StartFacts,
    check_completed,
    check_followed,
    check_given,
    check_plain_start,
    check_story,
    check_taken_over,
)
from eoslog.connector.client.admin import group_offsets as group_offsets
from eoslog.connector.client.wire.cluster import Cluster
from eoslog.connector.client.wire.retry import retrying
from eoslog.connector.client.wire.shared_clusters import shared_cluster
from eoslog.connector.commit.begin import check_noted_place
from eoslog.connector.commit.leave_sink import decided_by, fence, leave
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.task_reports import Batch, Begun
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.group_notes import NotedOffset, read_note
from eoslog.connector.offsets.offsets import Offsets
from eoslog.connector.options.source_and_sink import SinkOptions
from eoslog.connector.run.runner import Runner
from eoslog.connector.saved.run_again import check_restored

log = logging.getLogger(__name__)

FRESH_SECONDS = 6.5 * 24 * 3600
"""A query that completed a batch within this time finds its decision: clusters keep the offsets of an idle
group for a week by default (offsets.retention.minutes)."""


class CheckpointView(NamedTuple):
    """What the checkpoint contains: the batch to write, and the newest completed one."""

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
        return cls(checkpoint, planned, checkpoint.newest_completed(), batch)

    @property
    def leads_to(self) -> Batch:
        """The batch up to which Spark runs decided batches again, in a restored checkpoint; else `batch`."""
        last = self.planned.leads_to
        return Batch(self.batch.query_id, last.batch_id, last.digest)


class StartOfRun:
    """The comparisons around the first begin of a run."""

    def __init__(self, options: SinkOptions, view: CheckpointView, sink: Sink, runner: Runner) -> None:
        self._options, self._view, self._sink, self._runner = options, view, sink, runner
        self._cluster = shared_cluster(options.client)
        self._upgraded = False

    def before(self) -> None:
        """Compare the clusters, leave the checkpoint's former sink if it was another one, and note this one.

        Call it before the sink is acquired. Raises WrongCluster, SinkChanged, TakenOver, StartsElsewhere,
        CommitFault, CheckpointUnreadable.
        """
        view, sink, accepted = self._view, self._sink, self._options.accepted
        check_restored(view.checkpoint)
        if self._options.transactional_id is None and view.completed is None:
            repeats = check_not_refreshed(view.checkpoint, accepted)
            if repeats:
                log.warning(repeats)
        if view.completed is not None:
            view.checkpoint.check_completed(view.completed)
        now = cluster_id(self._cluster)
        if self._options.group_id is not None:
            check_group_cluster(view.planned.clusters(), now, self._options.group_id)
        given = NotedSink.read(view.checkpoint)
        self._look_for_a_successor(given)
        moved = given is not None and check_sink_cluster(given.cluster, now, sink.id, accepted)
        if given is not None and given.sink is not None and not moved:
            check_noted_place(given.sink, given.decisions, self._options.decision_topic)
        if given is not None and given.sink not in (None, sink.id) and not moved:
            self._leave(str(given.sink), given.since)
        self._upgraded = given is None
        is_new = given is None or given.sink != sink.id or moved
        if given is None or is_new or given.group != self._options.group_id:
            since = view.batch.batch_id if given is None or is_new else given.since
            group, topic = self._options.group_id, self._options.decision_topic
            NotedSink(sink.id, now, since, group, topic).write(view.checkpoint)

    def _look_for_a_successor(self, given: NotedSink | None) -> None:
        """Raise TakenOver if another query has replaced this one, under its present or its former names.

        It is checked before the sink is acquired, which would stop that query, and again after that.
        """
        names = {(self._sink.id, self._options.group_id)}
        if given is not None and given.sink is not None:
            names.add((given.sink, given.group))
        for sink, group in sorted(names, key=str):
            self._check_taken_over(sink, group)
            last = self._runner.run(observed_decision(Sink(sink)))
            by = None if last is None else last.successor_of(self._view.batch.query_id)
            check_followed(sink, self._view.batch, group, by, self._options.accepted)

    def _check_taken_over(self, sink: str, group: str | None) -> None:
        view = self._view
        if view.completed is None:
            return
        ends = view.planned.topic_offsets()
        before = view.checkpoint.planned_if_kept(view.batch.batch_id - 1)
        committed = committed_offsets(self._cluster, group, ends, stable=False)
        stands = ends if before is None else before.topic_offsets()
        accepted, is_left = self._options.accepted, sink != self._sink.id
        check_taken_over(sink, view.batch, group, committed, stands, accepted, is_left=is_left)

    def _leave(self, old: str, since: int) -> None:
        batch, completed, accepted = self._view.batch, self._view.completed, self._options.accepted
        decided = self._runner.run(decided_by(Sink(old), batch.query_id))
        check_completed(old, Completed(completed, since, has_rested(self._view)), decided, accepted)
        check_given(old, self._sink.id, decided, batch, accepted)
        if decided is None or decided.batch_id < batch.batch_id:
            self._runner.run(leave(Sink(old), batch, completed))
            log.info("%s: sink %s is left for sink %s", batch, old, self._sink.id)

    def after(self, begun: Begun) -> None:
        """Compare checkpoint, decision and group, and log warnings.

        Call it when the sink is acquired, so that its former owner can no longer change the group.
        Raises DecisionGone, CheckpointOlder, CheckpointMismatch, StartsElsewhere, TakenOver.
        """
        view, options = self._view, self._options
        given = None if self._upgraded else NotedSink.read(view.checkpoint)
        ended = ended_in(view, begun.decided)
        ends = view.planned.topic_offsets()
        wanted = {**(ended[1] if ended else {}), **ends}
        story = StartFacts(
            sink=begun.sink_id,
            batch=view.batch,
            ends=ends,
            begins=view.planned.beginnings(),
            completed=view.completed,
            decided=begun.decided,
            ended=ended,
            group=options.group_id,
            committed=committed_offsets(self._cluster, options.group_id, wanted),
            taken=view.planned.taken(),
            since=None if given is None else given.since,
            rested=has_rested(view),
            accepted=options.accepted,
            left_state=begun.left_state,
            followed_by=begun.followed_by,
        )
        for warning in check_story(story):
            log.warning(warning)
        if story.is_new:
            _finish_others(story, self._runner)


def leave_for_none(options: SinkOptions, runner: Runner, view: CheckpointView) -> None:
    """Leave the checkpoint's former sink, and commit its last decision's transactions: at_least_once has no
    sink with decisions. Raises CommitFault, WrongCluster, CheckpointUnreadable, StartsElsewhere."""
    check_restored(view.checkpoint)
    if view.completed is None and view.batch.batch_id == 0:
        _check_plain_start(options, view, runner)
    given = NotedSink.read(view.checkpoint)
    if given is None or given.sink is None:
        return
    now = cluster_id(shared_cluster(options.client))
    if not check_sink_cluster(given.cluster, now, given.sink, options.accepted):
        check_noted_place(given.sink, given.decisions, options.decision_topic)
        decided = runner.run(decided_by(Sink(given.sink), view.batch.query_id))
        known = Completed(view.completed, given.since, has_rested(view))
        check_completed(given.sink, known, decided, options.accepted)
        runner.run(leave(Sink(given.sink), view.batch, view.completed))
    NotedSink(None, now, view.batch.batch_id).write(view.checkpoint)


def _check_plain_start(options: SinkOptions, view: CheckpointView, runner: Runner) -> None:
    ends = view.planned.topic_offsets()
    story = StartFacts(
        sink=options.transactional_id or view.batch.query_id,
        batch=view.batch,
        ends=ends,
        begins=view.planned.beginnings(),
        completed=None,
        decided=None,
        ended=None,
        group=options.group_id,
        committed=committed_offsets(shared_cluster(options.client), options.group_id, ends),
        taken=view.planned.taken(),
        accepted=options.accepted,
    )
    check_plain_start(story)
    _finish_others(story, runner)


def _finish_others(story: StartFacts, runner: Runner) -> None:
    """Commit the decided transactions of other sinks at whose offsets the query begins. Raises CommitFault.

    The query does not write the rows before these offsets, so they would be lost if the other driver had died
    after its decision.
    """
    notes = [found.note for found in story.committed.values() if found.note]
    plain = {note.sink for note in notes if not note.decided}  # at_least_once, which decides nothing
    for sink in sorted(({note.sink for note in notes} | {one.sink for one in story.taken}) - plain):
        if sink != story.sink:
            runner.run(fence(Sink(sink)))


def cluster_id(cluster: Cluster) -> str | None:
    """The id of the cluster that answers. None: it does not report one. Raises BrokerUnreachable."""
    cluster.meet()
    return retrying(
        cluster,
        "Metadata",
        lambda: cluster.metadata([]).cluster_id,
        timeout_ms=cluster.config.api_timeout_ms,
        option="kafka.default.api.timeout.ms",
        forget=lambda: None,
    )


def has_rested(view: CheckpointView) -> bool:
    """Whether the last completed batch is so old that the cluster may have forgotten its decision."""
    if view.completed is None:
        return False
    at = view.checkpoint.completed_at(view.completed)
    return at is None or time.time() - at > FRESH_SECONDS


def ended_in(view: CheckpointView, decided: Batch | None) -> tuple[str, Offsets] | None:
    """Digest and end offsets of the decided batch in the checkpoint, if Spark still has it: it keeps 100."""
    planned = view.planned
    if decided is None or decided.query_id != view.batch.query_id or decided.batch_id > planned.batch_id:
        return None
    found: Planned | None = planned
    if decided.batch_id < planned.batch_id:
        found = view.checkpoint.planned_if_kept(decided.batch_id)
    return None if found is None else (found.digest, found.topic_offsets())


def committed_offsets(
    cluster: Cluster, group: str | None, wanted: Offsets, *, stable: bool = True
) -> dict[tuple[str, int], NotedOffset]:
    """The offsets that the group has. `stable` False: without waiting for offsets that a dead driver has left
    pending, which are ended when the sink is acquired."""
    if group is None or not wanted:
        return {}
    found = group_offsets.fetch_committed(cluster, group, sorted(wanted), require_stable=stable)
    return {tp: NotedOffset(at, read_note(text)) for tp, (at, text) in found.items() if at >= 0}
