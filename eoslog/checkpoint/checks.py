"""What would stop the query's next start, or lose rows: the checks of a start, and of the files, without a
start."""

from __future__ import annotations

from collections.abc import Iterator

from eoslog.checkpoint.backups import interrupted
from eoslog.checkpoint.edit_numbers import NotEditable
from eoslog.checkpoint.standing import NextStart, Standing
from eoslog.client.admin.topics import EARLIEST, LATEST, cut_below, list_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.checkpoint_view import CheckpointView, has_rested, kept_of
from eoslog.connector.checkpoint.completed_batches import check_forgotten, check_last
from eoslog.connector.checkpoint.new_checkpoint import remade
from eoslog.connector.checkpoint.noted_places import NotedPlaces
from eoslog.connector.checkpoint.source_changes import SourcesChanged, check_grown, grown
from eoslog.connector.checkpoint.spark_logs import Planned, source_position
from eoslog.connector.checkpoint.start_checks import check_story
from eoslog.connector.checkpoint.start_facts import StartFacts
from eoslog.connector.commit.begin import check_checkpoint, check_start, is_complete
from eoslog.connector.commit.faults import CommitFault, ParticipantsLost
from eoslog.connector.commit.finish import find_lost
from eoslog.connector.commit.places import Seen
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.offsets import plan
from eoslog.connector.offsets.offsets import Offsets, SourcePosition
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.connector.sink.noted_rows import rows_behind, rows_found, seen_of_planned
from eoslog.connector.sink.source_check import plans_decided, read_before
from eoslog.connector.sink.start_of_run import (
    cut_of,
    fresh_of,
    known_id,
    left_out_of,
    plan_of,
    successor,
    unread_of,
)


def problems(cluster: Cluster, standing: Standing) -> list[str]:
    """Everything that is wrong, one text each; empty: the next start goes on. Raises KafkaError,
    EoslogError."""
    found = [*_unfinished(standing), *_files(standing), *_foreach(standing), *_story(cluster, standing)]
    found += [*_lost_rows(cluster, standing), *_lost(cluster, standing), *_grown(cluster, standing)]
    return list(dict.fromkeys(found))


def stops(cluster: Cluster, standing: Standing, *, forked: bool = False) -> list[str]:
    """What would stop the next start, as far as checkpoint, sink, group and the sink's log tell. `forked`: of
    a query that begins under names of its own where this one stands: what a copy has decided, here or in the
    sink for which it has left this one, is not its."""
    if forked and (standing.is_anothers or standing.copy_has_left):
        return [*_files(standing)]
    found = [*_files(standing), *_foreach(standing), *_faults(cluster, standing)]
    return [*found, *_lost_rows(cluster, standing)]


def says(cluster: Cluster, standing: Standing) -> str:
    """What the next start will do first, or what will stop it. Raises KafkaError, EoslogError."""
    found = [*_unfinished(standing), *stops(cluster, standing)]
    found += [*_lost(cluster, standing), *_grown(cluster, standing)]
    if found:
        return f"stop: {found[0]}"
    return (NextStart.DECIDE_AGAIN if is_forgotten(cluster, standing) else standing.next_start).value


def is_forgotten(cluster: Cluster, standing: Standing) -> bool:
    """Whether the planned batch is decided, as its visible rows or the checkpoint tell, and the sink has no
    decision on it any more."""
    if standing.next_start is not NextStart.REPLAY:
        return False
    view, note = CheckpointView.of(standing.checkpoint), NotedPlaces.read(standing.checkpoint)
    seen = seen_of_planned(cluster, view, standing.decided).values()
    return Seen.COMMITTED in seen or note.says_decided(view.batch, seen)


def _unfinished(standing: Standing) -> Iterator[str]:
    backup = interrupted(standing)
    if backup is not None:
        yield (
            f"the edit {backup.name} ({backup.kind}) was interrupted: no start accepts the checkpoint as it "
            f"is. Take it back: {backup.way_back}"
        )


def _files(standing: Standing) -> Iterator[str]:
    """Files that Spark cannot read, or that are missing between others."""
    yield from unreadable(standing.checkpoint)
    for log in ("offsets", "commits"):
        batches = standing.checkpoint.batches(log)
        gaps = sorted({*range(batches[0], batches[-1])} - {*batches}) if batches else []
        if gaps:
            yield f"{log}/{gaps[0]} is missing between others ({len(gaps)} files): restore it from a copy"
    newest, completed = standing.newest, standing.completed
    if completed is not None and (newest is None or completed > newest.batch_id):
        at = "nothing" if newest is None else f"batch {newest.batch_id}"
        yield f"commits/ has batch {completed}, and offsets/ has {at} as its newest: a file was deleted"
    if newest is not None and (-1 if completed is None else completed) < newest.batch_id - 1:
        said = "no batch" if completed is None else f"batch {completed}"
        yield (
            f"offsets/ is at batch {newest.batch_id}, and commits/ has {said} as its newest: the batches "
            "between would be left out. Restore the files of commits/ from a copy"
        )


def _foreach(standing: Standing) -> Iterator[str]:
    """A batch that foreachBatch has written, and that the checkpoint does not know; or that the query has
    gone on elsewhere."""
    one, gone = standing.foreach, standing.gone
    if gone is not None and gone.word not in standing.starts.words:
        yield (
            f"TakenOver: the query has gone on on another cluster since batch {gone.batch_id}, at "
            f"{gone.time}, and its foreachBatch would write rows again here. Go on there with the checkpoint "
            "that was moved"
        )
    if one is not None and one.batch > standing.next_batch:
        yield (
            f"CheckpointOlder: foreachBatch has written batch {one.batch} of this query, and the next start "
            f"runs batch {standing.next_batch}: the checkpoint was set back, and rows would be written "
            "again. Bring the right checkpoint back"
        )


def _faults(cluster: Cluster, standing: Standing) -> Iterator[str]:
    """The error that would stop the sink at its start."""
    try:
        list(_warnings(cluster, standing))
    except CommitFault as fault:
        yield f"{type(fault).__name__}: {fault}"


def _story(cluster: Cluster, standing: Standing) -> Iterator[str]:
    """What the sink would say at its start."""
    try:
        yield from _warnings(cluster, standing)
    except CommitFault as fault:
        yield f"{type(fault).__name__}: {fault}"


def _warnings(cluster: Cluster, standing: Standing) -> Iterator[str]:
    """Compare as the sink does at its start. Yields its warnings, raises CommitFault."""
    if standing.sink is None or standing.newest is None:
        return
    view = CheckpointView.of(standing.checkpoint)
    last = standing.decision
    decided = standing.decided or ((last.of_query or last).batch if last else None)
    note, kept = standing.note, kept_of(view, decided)
    ended, ends = None if kept is None else (kept.digest, kept.topic_offsets()), view.planned.topic_offsets()
    wanted = {**(ended[1] if ended else {}), **ends}
    group, left = note.group if note else None, plan_of(standing.decision)
    committed = {tp: found for tp, found in standing.noted.items() if tp in wanted}
    known, sink = (standing.decided, standing.decision), standing.sink.id
    rows = rows_found(cluster, view, *known, sink=sink)
    story = StartFacts(
        sink=sink,
        batch=view.batch,
        ends=ends,
        begins=view.planned.each_beginning(),
        completed=view.completed,
        decided=decided,
        ended=ended,
        group=group,
        committed=committed,
        taken=view.planned.taken(),
        since=note.since if note else None,
        rested=has_rested(view, rows.newest),
        rows=rows,
        followed_by=successor(standing.decision, view, group, standing.sink.id, standing.cluster_id),
        left=left,
        without_topics=view.planned.without_topics(),
        unread=unread_of(cluster, view, left, committed),
        remade=remade(left, view.planned),
        cut=cut_of(cluster, view, left, committed),
        word="" if last is None else last.word,
        left_out=left_out_of(cluster, view, left),
        fresh=fresh_of(view, standing.decision),
    )
    if seen := seen_of_planned(cluster, view, standing.decided):
        places = NotedPlaces.read(standing.checkpoint)
        is_known, noted = places.says_decided(view.batch, seen.values()), places.as_noted(view.batch)
        if not is_known and check_forgotten(standing.sink.id, view.batch, seen, (), noted):
            check_last(sink, view.batch, rows_behind(cluster, view.checkpoint, view.batch.batch_id, sink), ())
    check_start(standing.sink, standing.decision, view.batch, standing.starts)
    check_checkpoint(standing.sink, standing.decision, _next_batch(view))
    yield from check_story(story)


def _lost_rows(cluster: Cluster, standing: Standing) -> Iterator[str]:
    """Decided rows that the next start will not find."""
    decision, note = standing.decision, standing.note
    if decision is None or note is None or is_complete(decision, standing.query_id, standing.completed):
        return
    runner = Runner(cluster, OWN_TIMEOUT_MS, decisions=note.decisions)
    if said := runner.run(find_lost(decision)):
        yield f"{ParticipantsLost.__name__}: {said}"


def _next_batch(view: CheckpointView) -> Batch:
    """The batch that the next start gives to the sink."""
    if view.completed is not None and view.completed >= view.batch.batch_id:
        return Batch(view.batch.query_id, view.batch.batch_id + 1)
    return view.batch


def _lost(cluster: Cluster, standing: Standing) -> Iterator[str]:
    """What the log does not have any more of what the query has read, or has yet to read."""
    last = standing.last_written
    for text in last.sources if last is not None else ():
        position = source_position(text)
        if not position.offsets:
            continue
        there = cluster.metadata(sorted({topic for topic, _ in position.offsets})).topics
        known = [tp for tp in position.offsets if tp[0] in there and tp[1] in there[tp[0]].leaders]
        ends = list_offsets(cluster, dict.fromkeys(known, LATEST), committed=False) if known else {}
        begins = list_offsets(cluster, dict.fromkeys(known, EARLIEST), committed=False) if known else {}
        ids = {topic: info.topic_id for topic, info in there.items() if info.topic_id is not None}
        lost = plan.losses(position.offsets, ends, (position.ids, ids), begins)
        if lost:
            yield f"DataLoss: {lost}"
        for (topic, partition), at in log_cut_at(cluster, position).items():
            yield f"DataLoss: the log of {topic}-{partition} was cut, and differs from offset {at} on"


def _grown(cluster: Cluster, standing: Standing) -> Iterator[str]:
    """The planned batch is the first to read what was read before. An edit takes it out of the checkpoint."""
    if standing.sink is None or standing.next_start is not NextStart.REPLAY:
        return
    view, note = CheckpointView.of(standing.checkpoint), standing.note
    before = standing.checkpoint.planned_if_kept(view.batch.batch_id - 1)
    if before is None or not grown(before, view.planned):
        return
    known = cluster, note.group if note else None, standing.sink.id
    decided = decided_plans(cluster, standing)
    try:
        check_grown(before, view.planned, read_before(*known, view, before, decided), ())
    except SourcesChanged as fault:
        yield f"{type(fault).__name__}: {fault}"


def decided_plans(cluster: Cluster, standing: Standing) -> list[Planned]:
    """What the query's sinks tell of its last batches: plans_decided(). Raises CommitFault."""
    note, view = standing.note, CheckpointView.of(standing.checkpoint)
    if note is None:
        return []
    runner = Runner(cluster, OWN_TIMEOUT_MS, decisions=note.decisions)
    return plans_decided(cluster, runner, view, note.sink or standing.query_id)


def check_log(cluster: Cluster, standing: Standing) -> None:
    """Raise NotEditable if the log is not the one that the query has read, or lacks what it has yet to read:
    on another cluster nobody would see that."""
    if said := next(_lost(cluster, standing), ""):
        raise NotEditable(
            f"{said}. Nothing was changed. Start the query once where it is: with failOnDataLoss=false it "
            "goes on with what is there. Then give the command again"
        )


def log_cut_at(cluster: Cluster, position: SourcePosition) -> Offsets:
    """Partitions whose log is not the one below the position any more, by its leader epochs, and from which
    offset on; empty on another cluster. Raises KafkaError, RetriesExhausted."""
    if not position.epochs or position.cluster != known_id(cluster):
        return {}
    there = cluster.metadata(sorted({topic for topic, _ in position.epochs})).topics
    same = {t for t, info in there.items() if info.topic_id == position.ids.get(t, info.topic_id)}
    asked = {tp: e for tp, e in position.epochs.items() if tp[0] in same and tp[1] in there[tp[0]].leaders}
    return cut_below(cluster, position.offsets, asked)


def unreadable(checkpoint: Checkpoint) -> Iterator[str]:
    """The batches of Spark's logs that cannot be read, and why."""
    for log, parse in (("offsets", checkpoint.planned), ("commits", checkpoint.check_completed)):
        for batch in checkpoint.batches(log):
            try:
                parse(batch)
            except CheckpointUnreadable as error:
                yield str(error)
