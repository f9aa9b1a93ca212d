"""Carries an edit out, and takes it back. In this order: the backup; decision and group, in one transaction
under the sink's own transactional id; Spark's files; the backup says that it is done.

From the transaction on, decision and files contradict each other until the last file is changed: a start in
between stops with CheckpointMismatch, CheckpointOlder or DecisionGone. Before it, nothing is changed.

A move to another cluster has its transaction there, which may be refused. After it the old cluster is told
that the query has gone. Until the files are changed, they are those of the old one, where the query goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from eoslog.checkpoint.backups import (
    Backup,
    EditState,
    backup_of,
    batch_of,
    has_gone_on,
    newest_backup,
    taken_by,
)
from eoslog.checkpoint.edit_numbers import LastEdit, NotEditable, check_alone, claimed
from eoslog.checkpoint.edits import Edit, Texts, order, order_back
from eoslog.checkpoint.standing import Standing
from eoslog.client.admin.groups import commit_plain, delete_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.checkpoint_view import CheckpointView
from eoslog.connector.checkpoint.noted_places import NOTED_PLACES, NotedPlaces
from eoslog.connector.checkpoint.noted_sink import NOTED_SINK, NotedSink, NotedStarts
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.commit.decide import SourceOffsets
from eoslog.connector.commit.decision import ANCHOR, Decision
from eoslog.connector.commit.leave_sink import fence
from eoslog.connector.commit.move_decision import move_decision
from eoslog.connector.commit.saved_state import Saving
from eoslog.connector.commit.task_reports import Batch, Start
from eoslog.connector.commit.token_write import note_moved_away
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.group_notes import Note
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.connector.saved.save import CheckpointSaving
from eoslog.connector.sink.noted_rows import note_moved
from eoslog.connector.sink.start_of_run import noted_left, of_group
from eoslog.connector.sink.start_of_run import source_offsets as committed_with
from eoslog.errors import UnknownTopic
from eoslog.protocol.errors import ErrorCode, KafkaError

_MAX_BATCH_BYTES = 900_000
"""Topics take a little more than a megabyte by default (max.message.bytes)."""

_GONE = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Moving(NamedTuple):
    """An edit that moves the query. `to`: the id of the new cluster; `state_topic`: where its state was saved
    on the old one; `leave`: tells that one that the query has gone."""

    to: str
    state_topic: str | None
    leave: Callable[[], None]


def carry_out(cluster: Cluster, standing: Standing, edit: Edit, moving: Moving | None = None) -> Backup:
    """Returns the backup. `cluster`: the new one, if the edit moves the query. Raises CommitFault,
    CheckpointUnreadable, NotEditable, KafkaError, EoslogError."""
    source, moved_to = _source_offsets(standing, edit.end), None if moving is None else moving.to
    moved = None if standing.note is None or moved_to is None else _noted_there(standing.note, edit, moved_to)
    after = _named(edit.after) | ({} if moved is None else {f"eoslog/{NOTED_SINK}": moved.text()})
    topic = (moving and moving.state_topic) or state_topic_of(standing.decision)
    saving = _saving(cluster, standing, batch_of(standing, edit.end), topic, after)
    group = list(source.offsets) if source is not None else []
    with claimed(standing.checkpoint, standing.last_edit) as name:
        backup = backup_of(name, standing, edit, group, moved_to)
        backup.put(standing.checkpoint, EditState.BEGUN)
    _move(cluster, standing, backup.becomes, source, edit.end.ends, saving)
    if moving is not None:
        moving.leave()
    _check_files(standing, backup.before)
    for log, batch in order(backup.after):
        standing.checkpoint.change(log, batch, backup.after[log, batch])
    if backup.was != backup.becomes:
        _unnumber(standing)
    else:  # a rebuilt batch is the one that it was
        _note_decided(standing, backup.becomes)
    if moved is not None:
        note_moved(standing.checkpoint, _topic_of(standing) or "")
        moved.write(standing.checkpoint)
    return backup.put(standing.checkpoint, EditState.DONE)


def _noted_there(note: NotedSink, edit: Edit, cluster: str) -> NotedSink:
    """The note of a sink, moved to another cluster with an edit."""
    return note._replace(cluster=cluster, former=note.left_for(note.sink, cluster, edit.end.batch_id + 1))


def undo(cluster: Cluster, standing: Standing, *, has_ended: bool = False) -> Backup:
    """Take the last edit back. It may be interrupted and repeated. `has_ended`: an edit that another machine
    has begun is not at work. Raises as carry_out()."""
    backup = newest_backup(standing.checkpoint)
    if backup is None or backup.state is EditState.UNDONE:
        raise NotEditable("there is no edit to take back")
    if has_gone_on(standing, backup):
        raise NotEditable(_why_not(standing, backup))
    _begin_undo(standing, backup, has_ended)
    if standing.sink is None or _is_last(standing, backup.becomes):
        _move_back(cluster, standing, backup)
    if backup.cluster is not None:
        _leave_again(cluster, standing, backup)
    _forget_new(cluster, standing, backup)
    _unnumber(standing)
    for batch in _planned_since(standing, backup):
        standing.checkpoint.change("offsets", batch, None)
    for log, batch in order_back(backup.before):
        standing.checkpoint.change(log, batch, backup.before[log, batch])
    if backup.note is not None:
        standing.checkpoint.note(NOTED_SINK, backup.note)
    if backup.places is not None:  # the batches' numbers are those of before
        standing.checkpoint.note(NOTED_PLACES, backup.places)
    return backup.put(standing.checkpoint, EditState.UNDONE)


def _why_not(standing: Standing, backup: Backup) -> str:
    """Why an edit cannot be taken back, and what to do."""
    edit, by = f"the edit {backup.name} ({backup.kind})", taken_by(standing, backup)
    if by is None:
        return (
            f"the query has gone on since {edit}: what it has written since cannot be taken back. Edit the "
            "checkpoint as it is now"
        )
    return (
        f"query {by} has taken the place of this one since {edit}: this one would write its rows again. "
        "Nothing was changed. Stop this query for good. To go back to it, start it with a new checkpoint "
        "and startingOffsets=committed, with its group and transactional.id in source and sink"
    )


def _is_last(standing: Standing, batch: Batch) -> bool:
    """Whether this batch is the sink's last one of a query."""
    made = None if standing.decision is None else standing.decision.of_query
    return made is not None and made.batch == batch


def _unnumber(standing: Standing) -> None:
    """Note where rows are, and of no batch: their numbers mean others from now on. What the log has not of
    these rows, the next start asks about. That the newest batch is done, Spark's own note alone says then."""
    standing.checkpoint.sync_completed()
    decided = -1 if standing.decided is None else standing.decided.batch_id
    done = max(decided, -1 if standing.completed is None else standing.completed)
    note = NotedPlaces.read(standing.checkpoint)
    kept = note.unnumbered(done + 1)
    if kept != note:
        kept.write(standing.checkpoint)


def _note_decided(standing: Standing, batch: Batch) -> None:
    """Note where the rows of a batch are whose plan is written again, as its decision has them."""
    made, note = standing.decision and standing.decision.of_query, NotedPlaces.read(standing.checkpoint)
    if made is None or made.batch != batch or note.newest > batch.batch_id:
        return
    note = note.after(batch.batch_id, made.places, more=True, digest=batch.digest)
    note._replace(decided=True).write(standing.checkpoint, durable=True)


def _begin_undo(standing: Standing, backup: Backup, has_ended: bool) -> None:
    """Note that the edit is being taken back, unless another edit begins."""
    check_alone(standing.checkpoint, standing.last_edit)
    if backup.at_work is not None:
        raise NotEditable(
            f"the edit {backup.name} ({backup.kind}) is at work at this moment: process {backup.at_work} of "
            "this machine. Nothing was changed. Wait until it has ended"
        )
    if backup.elsewhere is not None and not has_ended:
        raise NotEditable(
            f"the edit {backup.name} ({backup.kind}) was begun on the machine {backup.elsewhere}, and may be "
            "at work there. Nothing was changed. Take it back on that machine; if it has surely ended, give "
            "--edit-has-ended"
        )
    now = backup.put(standing.checkpoint, EditState.UNDOING)
    try:
        check_alone(standing.checkpoint, LastEdit(standing.last_edit.number, now.text()))
    except NotEditable:
        backup.put(standing.checkpoint, backup.state)
        raise


def _planned_since(standing: Standing, backup: Backup) -> list[int]:
    """Batches that a start has planned since the edit, the highest first. The sink has decided none of
    them."""
    least = backup.least
    planned = [n for n in standing.checkpoint.batches("offsets") if n >= least]
    return [n for n in reversed(planned) if ("offsets", n) not in backup.before and n > backup.was.batch_id]


def source_offsets(
    group: str | None, sink: str, to: Batch, end: Planned, *, decided: bool, cluster: str | None
) -> SourceOffsets | None:
    """The group's offsets at the end of a batch, as the sink would commit them. None: there is no group.
    `cluster`: the id of the sink's."""
    if group is None:
        return None
    note = Note(sink, to.query_id, to.batch_id, decided=decided)
    return committed_with(group, of_group(end, group, sink, cluster), note)


def state_topic_of(decision: Decision | None) -> str | None:
    """Where the state is saved of the query that has decided last (state.topic). None: it is not."""
    known = None if decision is None else decision.of_query
    return None if known is None or known.saved is None else known.saved.topic


def state_saving(
    cluster: Cluster, checkpoint: Checkpoint, sink: Sink | None, to: Batch, topic: str | None
) -> CheckpointSaving | None:
    """What saves a checkpoint with a moved decision, so that it can be restored from then on. `topic`: where
    it was saved before; None: nowhere. Raises NotEditable if it cannot be saved."""
    if topic is None or sink is None:
        return None
    is_done = checkpoint.has_completed(to.batch_id)
    found = CheckpointSaving(cluster, checkpoint, sink.id, to, topic, 1, _MAX_BATCH_BYTES, is_done)
    why = f"the query's state is saved in the topic {topic} (state.topic), and has to be saved again"
    try:
        cluster.describe(topic)
        found.check()
    except UnknownTopic as error:
        raise NotEditable(
            f"{why}: {error}. Nothing was changed. Make the topic, and give the command again: eoslog topics "
            f"create {topic} --partitions 1 --config cleanup.policy=compact"
        ) from error
    except CheckpointUnreadable as error:
        raise NotEditable(f"{why}: {error}. Nothing was changed") from error
    return found


def move(
    cluster: Cluster,
    sink: Sink | None,
    seen: Decision | None,
    to: Batch,
    source: SourceOffsets | None,
    completed: int | None,
    decisions: str,
    ends: str,
    saving: Saving | None = None,
    start: Start | None = None,
) -> None:
    """Move the sink's decision and the group's offsets together, and save the state. A sink without decisions
    has the group alone. `ends`, `start`: of the batch `to`, as in Decision. Raises CommitFault, KafkaError,
    EoslogError."""
    if sink is not None:
        rules = move_decision(sink, seen, to, source, completed, saving, ends, start)
        Runner(cluster, OWN_TIMEOUT_MS, decisions=decisions).run(rules)
    elif source is not None:
        commit_plain(cluster, source.group, source.offsets, source.epochs)


def _source_offsets(standing: Standing, end: Planned) -> SourceOffsets | None:
    note = standing.note
    if note is None:
        return None
    sink = note.sink or standing.query_id
    to, cluster, decided = batch_of(standing, end), standing.cluster_id, note.sink is not None
    return source_offsets(note.group, sink, to, end, decided=decided, cluster=cluster)


def _move(
    cluster: Cluster,
    standing: Standing,
    to: Batch,
    source: SourceOffsets | None,
    ends: str,
    saving: Saving | None,
) -> None:
    decisions = ANCHOR if standing.note is None else standing.note.decisions
    decided = None if standing.decision is None else standing.decision.start
    topic = _topic_of(standing)
    start = NotedStarts.read(standing.checkpoint).add(  # copies stop from now on
        standing.checkpoint, decided, to.batch_id + 1, topic
    )
    done = standing.completed
    move(cluster, standing.sink, standing.decision, to, source, done, decisions, ends, saving, start)


def _topic_of(standing: Standing) -> str | None:
    """As in Start, of the sink's last decision. None: not recorded."""
    start = None if standing.decision is None else standing.decision.start
    return None if start is None else start.topic


def _saving(
    cluster: Cluster, standing: Standing, to: Batch, topic: str | None, changes: Mapping[str, str | None]
) -> CheckpointSaving | None:
    """What saves the query's checkpoint as the edit will leave it. `changes`: of files, by name."""
    return state_saving(cluster, standing.checkpoint.changed(changes), standing.sink, to, topic)


def _named(texts: Texts) -> dict[str, str | None]:
    return {f"{log}/{batch}": text for (log, batch), text in texts.items()}


def _move_back(cluster: Cluster, standing: Standing, backup: Backup) -> None:
    """Decision and group as they were before the edit."""
    group = standing.note.group if standing.note is not None else None
    kept = {tp: offset for tp, offset in backup.group.items() if offset is not None}
    source = SourceOffsets(group, kept) if group is not None and kept else None
    number = backup.was.batch_id
    now = standing.checkpoint.text(f"offsets/{number}")
    text = backup.before.get(("offsets", number), now)
    ends = "" if text is None else Planned.parse(number, text).ends
    made = None if standing.decision is None else standing.decision.of_query
    if made is not None and made.batch == backup.was:  # a rebuild: the files had it not, or another one
        ends = made.ends
    before = {f"offsets/{batch}": None for batch in _planned_since(standing, backup)} | _named(backup.before)
    if backup.note is not None:
        before[f"eoslog/{NOTED_SINK}"] = backup.note
    saving = _saving(cluster, standing, backup.was, state_topic_of(standing.decision), before)
    _move(cluster, standing, backup.was, source, ends, saving)


def _leave_again(cluster: Cluster, standing: Standing, backup: Backup) -> None:
    """Note that the query goes back to the cluster that it was to leave, with the decision on the other one,
    which is on offsets of that one now, and for its foreachBatch."""
    sink, note, view = standing.sink, standing.note, CheckpointView.of(standing.checkpoint)
    view = view._replace(batch=backup.was._replace(batch_id=backup.was.batch_id + 1))
    if standing.may_be_foreach:
        mark = noted_left(view, standing.query_id)
        Runner(cluster, OWN_TIMEOUT_MS).run(note_moved_away(standing.query_id, mark))
    if (
        sink is None
        or note is None
        or not any(_is_last(standing, one) for one in (backup.was, backup.becomes))
    ):
        return
    Runner(cluster, OWN_TIMEOUT_MS, decisions=note.decisions).run(fence(sink, noted_left(view, sink.id)))


def _forget_new(cluster: Cluster, standing: Standing, backup: Backup) -> None:
    """Delete the group's offsets of partitions that had none before the edit. Of a group or a topic that is
    gone there are none."""
    new = [tp for tp, offset in backup.group.items() if offset is None]
    if standing.note is None or standing.note.group is None or not new:
        return
    try:
        refused = [*delete_offsets(cluster, standing.note.group, new).values()]
    except KafkaError as error:
        refused = [error]
    for said in refused:
        if said is not None and said.code not in _GONE:
            raise said


def _check_files(standing: Standing, before: Mapping[tuple[str, int], str | None]) -> None:
    """Raise NotEditable if the query has changed its files since they were looked at."""
    newest = max(standing.checkpoint.batches("offsets"), default=None)
    then = standing.newest.batch_id if standing.newest else None
    changed = [f for f, text in before.items() if standing.checkpoint.text(f"{f[0]}/{f[1]}") != text]
    if newest != then or changed:
        raise NotEditable(
            "the query has gone on while its checkpoint was edited, so it runs. It has been stopped by this "
            "edit. Take the edit back: eoslog checkpoint undo"
        )
