"""Compares the sources of a micro-batch with those of the batch before, and with those that run.

It is done before a row is written. The rules are in source_changes.py."""

from collections.abc import Callable, Collection

from eoslog.client.wire.cluster import Cluster, shared_cluster
from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.checkpoint_view import CheckpointView
from eoslog.connector.checkpoint.noted_left import note_left, stood_in
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.checkpoint.source_changes import (
    Change,
    RemovedSources,
    added_offsets,
    canonical_text,
    check_added,
    check_exchanged,
    check_exchanged_files,
    check_grown,
    check_present,
    check_remade,
    grown,
)
from eoslog.connector.checkpoint.spark_logs import Planned, taken_of
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.faults import CheckpointMismatch
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.task_reports import Begun
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.options.sink_options import SinkOptions
from eoslog.connector.run.runner import Runner
from eoslog.connector.run.source_ends import asked_ends, asked_starts
from eoslog.connector.sink.start_of_run import committed_offsets, known_id, of_group, plan_of
from eoslog.protocol.topic_partitions import TopicPartition

_FILE = "sources"


def check_sources(
    options: SinkOptions,
    view: CheckpointView,
    sink: str,
    begun: Begun | None,
    decided: Callable[[], Collection[Planned]] = tuple,
) -> None:
    """Check the sources of a batch that is to be written; `begun`: what begin found, None for at_least_once.
    `decided`: plans_decided(), which is asked if a source reads what it did not read in the batch before.

    Call it when the sink is acquired, and for each batch: a run may replay one batch and have other sources
    in the next. Raises SourcesChanged, CheckpointUnreadable.
    """
    now, checkpoint = view.planned, view.checkpoint
    if begun is not None and _is_written(begun):
        return
    before = checkpoint.planned_if_kept(now.batch_id - 1)
    if before is not None and (len(now.sources) > 1 or now.names):
        check_exchanged(before, now, options.accepted)
        _check_files(checkpoint, before, now, options.accepted)
    if begun is not None and before is not None and grown(before, now):  # at_least_once may read again
        known = shared_cluster(options.client), options.group_of(sink), sink
        check_grown(before, now, read_before(*known, view, before, decided()), options.accepted)
    if before is not None:
        note_left(checkpoint, before, now)
    if not now.names:
        return
    asked = asked_ends()
    if asked is not None:
        check_present(before, now, asked, options.accepted)
    if before is None or before.by_name.keys() == now.by_name.keys():
        return
    removed = _removed(checkpoint).after(before, now)
    cluster, group = shared_cluster(options.client), options.group_of(sink)
    here = None if group is None else known_id(cluster)
    wanted = added_offsets(*(of_group(planned, group, sink, here) for planned in (before, now)))
    committed = committed_offsets(cluster, group, wanted)
    check_added(Change(sink, before, now, removed, committed, options.accepted))
    checkpoint.note(_FILE, removed.text())


def plans_decided(cluster: Cluster, runner: Runner, view: CheckpointView, sink: str) -> list[Planned]:
    """The plans of what the query has decided last in its sink, and in those that it had before on the
    cluster: Spark may have removed them. Raises CommitFault, CheckpointUnreadable."""
    note, here = NotedSink.read(view.checkpoint), known_id(cluster)
    former = () if note is None else note.former
    sinks = {name: since for of, name, since in former if of == here} | {sink: view.planned.batch_id + 1}
    found = [(runner.run(observed_decision(Sink(name))), since) for name, since in sorted(sinks.items())]
    plans = [(plan_of(last), since) for last, since in found if _made_by(last, view.batch.query_id)]
    return [plan for plan, since in plans if plan is not None and plan.batch_id < since]


def _made_by(last: Decision | None, query_id: str) -> bool:
    made = None if last is None else last.of_query
    return made is not None and made.batch.query_id == query_id


def read_before(
    cluster: Cluster,
    group: str | None,
    sink: str,
    view: CheckpointView,
    before: Planned,
    decided: Collection[Planned],
) -> Callable[[TopicPartition], int]:
    """Up to where a partition was read by former sources, by this one before another connector's batch, which
    names what it reads alone, or before this checkpoint by who had the sink's name and its group; 0: by
    nobody. `before`: the batch before the planned one. `decided`: plans_decided()."""
    now = view.planned
    wanted = {place: 0 for places in grown(before, now).values() for place in places}
    committed = committed_offsets(cluster, group, wanted)
    former = _removed(view.checkpoint).after(before, now)
    kept = stood_in(view.checkpoint, wanted, now.batch_id, now.topic_ids(), decided)

    def read(place: TopicPartition) -> int:
        found, ends = committed.get(place), [*former.ends(place), kept.get(place, 0)]
        note = None if found is None else found.note
        if found is not None and note is not None:
            is_mine = note.query == view.batch.query_id  # under a former name, too
            counts = note.batch < now.batch_id if is_mine else note.sink == sink
            ends = [*ends, found.offset] if counts else ends
        return max(ends, default=0)

    return read


def _check_files(checkpoint: Checkpoint, before: Planned, now: Planned, accepted: Collection[str]) -> None:
    """Check the files of a batch, if a source has some from other folders than the last time: then all logs
    of files are read, which may be long."""
    then, ends = before.file_logs(), now.file_logs()
    files = {
        name: checkpoint.files_read(name, end, then.get(name, -1) + 1)
        for name, end in ends.items()
        if end > then.get(name, -1)
    }
    last = {name: checkpoint.files_read(name, then[name], then[name]) for name in files if name in then}
    if all(_folders(paths) <= _folders(last.get(name, ())) for name, paths in files.items()):
        return
    removed = _removed(checkpoint).after(before, now) if now.names else RemovedSources({})
    read = {name: checkpoint.files_read(name, at) for name, at in {**removed.file_logs(), **then}.items()}
    check_exchanged_files(now, files, read, accepted)


def _folders(paths: Collection[str]) -> set[str]:
    return {path.rpartition("/")[0] for path in paths}


def check_begins(view: CheckpointView, accepted: Collection[str]) -> None:
    """Check that a batch begins where the batch before ends in the checkpoint, and in the same topics. It
    does not if somebody has edited that after Spark had read it, as while a query has nothing to read.
    Spark does not ask a source of which the batch reads nothing: a start that is known then is another
    query's. Raises CheckpointMismatch, SourcesChanged."""
    number, checkpoint = view.batch.batch_id, view.checkpoint
    earlier = map(checkpoint.planned_if_kept, range(number - 1, -1, -1))
    check_remade(view.planned, iter(lambda: next(earlier, None), None), accepted)
    before = view.checkpoint.planned_if_kept(view.batch.batch_id - 1) if view.batch.batch_id else None
    if before is None:
        return
    starts, then = asked_starts(), before.by_name
    for name, end in view.planned.by_name.items():
        known = starts.get(canonical_text(end), set())
        if name in then and known and canonical_text(then[name]) not in {*known, canonical_text(end)}:
            raise CheckpointMismatch(
                f"{view.batch} was planned from another place than where batch {before.batch_id} ends in the "
                "checkpoint: it was edited while the query ran. Nothing was written. Start the query again: "
                "it runs the batch from where the edit has set it"
            )


def takes_over(view: CheckpointView) -> bool:
    """Whether a source begins in this batch at offsets that a sink has committed: before it read them, it has
    stopped that sink's driver, which may be this one."""
    now = view.planned
    if not now.names or not now.taken():
        return False
    before = view.checkpoint.planned_if_kept(now.batch_id - 1)
    then = {} if before is None else before.by_name
    return any(taken_of(end) for name, end in now.by_name.items() if name not in then)


def _is_written(begun: Begun) -> bool:
    """Whether the batch is decided, with nothing to write again: then its tasks drop their rows."""
    return begun.is_decided and not begun.lost


def _removed(checkpoint: Checkpoint) -> RemovedSources:
    text = checkpoint.noted(_FILE)
    try:
        return RemovedSources.parse(text)
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointUnreadable(checkpoint.location, f"eoslog/{_FILE} is {text!r}: {error}") from error
