"""The committer, on the driver: begin, commit and abort collect what the rules need, and run them.

Begin runs in one driver process, commit and abort in another. What commit needs comes back in the tasks'
reports. Only begin remembers anything from batch to batch, and nothing breaks if it forgets.
"""

import hashlib
import logging
import os
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, NoReturn

from eoslog.client.admin import groups as group_offsets
from eoslog.client.wire.cluster import shared_cluster
from eoslog.connector.checkpoint.accepted_differences import acceptable, to_accept
from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.checkpoint_view import CheckpointView
from eoslog.connector.checkpoint.noted_places import NotedPlaces
from eoslog.connector.checkpoint.noted_sink import NotedStarts
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.commit.abandon import run_of
from eoslog.connector.commit.begin import begin, mark_attempt, may_read_more
from eoslog.connector.commit.commands import Around, Command, End, Perform
from eoslog.connector.commit.decide import Noting, SourceOffsets, Terms, commit
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.faults import CommitFault, RowsGone, SinkFenced
from eoslog.connector.commit.finish import await_readable
from eoslog.connector.commit.leave_sink import fence, stable_decision
from eoslog.connector.commit.marker_proof import prove_last
from eoslog.connector.commit.move_decision import give_up
from eoslog.connector.commit.places import Places, Seen, open_rows_of, places_of
from eoslog.connector.commit.saved_state import Saving
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Prepared, Report, Run
from eoslog.connector.commit.token_write import (
    batch_write,
    begin_in_run,
    begin_within,
    check_remembered,
    check_renamed,
    commit_within,
    go_on_in_run,
    note_finished,
    read_writes,
)
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.commit.write_token import sink_of_query
from eoslog.connector.offsets.group_notes import Note
from eoslog.connector.options.sink_options import Guarantee, SinkOptions
from eoslog.connector.progress import figures, log_progress, tell, timed
from eoslog.connector.run import abandoned_run, run_memory
from eoslog.connector.run.places_in_log import look_at
from eoslog.connector.run.run_memory import Life
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner, commit_known
from eoslog.connector.saved.run_again import check_equal_run, check_state_topic, is_run_again
from eoslog.connector.sink import token_begin
from eoslog.connector.sink.noted_rows import lost_with_a_leader
from eoslog.connector.sink.shadow_sink import (
    as_begun,
    check_left_shadow,
    in_its_place,
    note_if_taken,
    stand_if_wanted,
)
from eoslog.connector.sink.source_check import check_begins, check_sources, plans_decided, takes_over
from eoslog.connector.sink.start_of_run import (
    StartOfRun,
    known_id,
    leave_for_none,
    noted_left,
    of_group,
    source_offsets,
)
from eoslog.connector.spark.driver_folder import is_relative
from eoslog.errors import OptionError
from eoslog.errors.pages import see

logger = logging.getLogger(__name__)

_PASSED = (
    "%s has written %s to %s before, and was given the same rows again, which were not written. If they are "
    'a second write that is meant, give it a token: .option("write.token", f"NAME-{batch_id}"). '
    f"{see('rows-of-foreachbatch-were-not-written-again')}"
)
_IN_THREAD = (
    "a df.write without write.token was made while streaming queries run, and Spark does not say of which "
    "micro-batch it is. If a thread of foreachBatch has made it, it is written again with its batch: wrap "
    "what the thread calls in pyspark.inheritable_thread_target, or give the write a token. "
    f"{see('a-write-may-belong-to-a-micro-batch')}"
)
_MAY_NOT_NOTE = (
    "{}: what its df.writes with a token have written is noted in group {}, which this user may not read. "
    "Nothing was written. Give the user Read on groups that begin with eoslog-write:"
)
_RELATIVE = (
    "checkpointLocation=%s is relative, and the query's checkpoint is %s. A start in another working folder "
    "would have a new one, and write all rows again (earliest) or leave some out (latest): give the whole "
    "path, or a transactional.id. "
    f"{see('a-checkpoint-at-a-relative-place')}"
)
_MANY_TOPICS = (
    "sink %s: its rows name their topics, and what a batch over very many topics decides needs further "
    "groups, which this user may not read. Such a batch stops before it is decided, and can be run again. "
    "Give the user Read on groups that begin with %s/. "
    f"{see('a-batch-over-very-many-topics-would-stop')}"
)
_SEE_LATE = see("readers-may-see-a-part-of-a-batch")


def runner_for(options: SinkOptions) -> Runner:
    """A runner on the options' cluster, over this process's connections."""
    timeout_ms = min(OWN_TIMEOUT_MS, options.transaction_timeout_ms)
    return Runner(shared_cluster(options.client), timeout_ms, decisions=options.decision_topic)


def begin_stream(options: SinkOptions, runner: Runner | None = None) -> Begun | None:
    """Make the sink ready for the tasks of a micro-batch. None: at_least_once, which needs nothing of begin.

    Raises OptionError, CommitFault, WrongCluster, CheckpointUnreadable.
    """
    given = options, runner
    options, view = _read_checkpoint(*given)
    _warn_of_place(options, view)
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        if view is not None:
            _begin_plainly(options, view, runner or runner_for(options))
        return None
    assert view is not None  # otherwise an error was raised
    sink = Sink(options.transactional_id or view.batch.query_id)
    key = _memory_key(options, sink, view.batch)
    last_run, continues = _remembered(options, view, key)
    runner = runner or runner_for(options)
    acquainted = last_run is not None and runner.acquainted
    start = StartOfRun(options, view, sink, runner)
    if not continues:
        if options.state is not None:
            check_state_topic(shared_cluster(options.client), options.state, view.planned)
        check_begins(view, options.accepted)
        check_left_shadow(options, view)
        start.before()
        if start.acquired:
            last_run = None
        runner.run(give_up(sink, options.accepted))
        _warn_of_right(options, runner)

    def begins(last_run: Run | None) -> tuple[Begun, Run]:
        return runner.run(
            begin(
                sink,
                view.batch,
                last_run=last_run,
                completed=view.completed,
                two_phase=options.two_phase,
                on_lost=options.on_lost,
                leads_to=view.leads_to,
                starts=None if continues else start.known_starts,
            )
        )

    begun, run = begins(last_run)
    if begun.acquired_now and view.planned.shadows() and note_if_taken(options, view, runner_for, ended=True):
        return begin_stream(*given)
    if runner.disturbed() or not acquainted:
        runner.run(prove_last(sink, begun.identity, begun.lost))
    if continues and begun.acquired_now:  # the brokers have lost what this driver remembers, or are others
        start.before()
        if start.acquired:  # to decide again what they have lost
            begun, run = begins(None)
    if not continues or begun.acquired_now:
        start.after(begun)
    decided = partial(plans_decided, shared_cluster(options.client), runner, view, sink.id)
    check_sources(options, view, sink.id, begun, decided)
    compared = begun.is_decided and is_run_again(view.checkpoint, view.batch.batch_id)
    begun = replace(begun, sums=compared or not view.planned.identifies_rows)
    if continues and last_run is not None:
        run = replace(run, start=last_run.start, options=last_run.options, streams=last_run.streams)
    else:
        since = view.batch.batch_id + begun.is_decided
        noted = NotedStarts.read(view.checkpoint).add(
            view.checkpoint, begun.last_start, since, options.topic or ""
        )
        run = replace(run, start=noted, options=_digest(options), streams=run_memory.streams_now())
    begun = replace(begun, start=run.start)
    if options.guarantee is Guarantee.AT_MOST_ONCE and runner.run(mark_attempt(sink, view.batch)):
        begun = replace(begun, dropped=True)
    run_memory.keep(run, *key)
    abandoned_run.watch(sink, run.incarnation, key, partial(runner_for, options))
    return begun


def _warn_of_place(options: SinkOptions, view: CheckpointView | None) -> None:
    """Warn of a new checkpoint whose place depends on the working folder, if no name tells its query."""
    given = options.checkpoint_location
    is_new = view is not None and view.completed is None and view.batch.batch_id == 0
    if view is not None and is_new and options.transactional_id is None and is_relative(given or "/"):
        logger.warning(_RELATIVE, given, os.path.abspath(view.checkpoint.location))


def _warn_of_right(options: SinkOptions, runner: Runner) -> None:
    """Warn of a missing right that a decision needs only if its batch has gone to very many topics."""
    if options.topic is None and options.transactional_id is not None:
        sink = Sink(options.transactional_id)
        if not runner.run(may_read_more(sink)):
            logger.warning(_MANY_TOPICS, sink.id, sink.group)


def _remembered(options: SinkOptions, view: CheckpointView, key: tuple[str, ...]) -> tuple[Run | None, bool]:
    """What this driver remembers of the query's last batch, and whether its run goes on with this one.

    If that is not certain, this may be a new start, and is checked as one; but the sink is not taken from
    others."""
    last_run = run_memory.take(*key)
    if last_run is None or takes_over(view) or view.batch.batch_id != last_run.batch.batch_id + 1:
        return None, False
    life, last_run = run_memory.life_of(last_run, _digest(options))
    return (None if life is Life.ENDED else last_run), life is Life.GOES_ON


def _digest(options: SinkOptions) -> str:
    """A digest of all options of a sink; it tells none of them."""
    said = (repr(replace(options, accepted=frozenset())), *sorted(options.accepted))
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:16]


def _begin_plainly(options: SinkOptions, view: CheckpointView, runner: Runner) -> None:
    """Begin a micro-batch of at_least_once: finish batches that earlier users of the checkpoint have decided,
    and, once in a run, batches that earlier users of the transactional.id have decided."""
    check_begins(view, options.accepted)
    check_left_shadow(options, view)
    leave_for_none(options, runner, view)
    check_sources(options, view, options.transactional_id or view.batch.query_id, None)
    if options.transactional_id is None:
        return
    sink = Sink(options.transactional_id)
    key = (*_memory_key(options, sink, view.batch), options.guarantee.value)
    run, continues = _remembered(options, view, key)
    if run is None or not continues:
        run_memory.take(*_memory_key(options, sink, view.batch))  # of another guarantee: the epoch moves now
        runner.run(give_up(sink, options.accepted))
        identity = runner.run(fence(sink, noted_left(view, "")))
        run = Run(identity, identity, view.batch, options=_digest(options), streams=run_memory.streams_now())
    run_memory.keep(replace(run, batch=view.batch), *key)


def begin_batch(options: SinkOptions, runner: Runner | None = None) -> Begun | None:
    """Make the sink ready for the tasks of a batch write. Every write counts as a query of one batch; writes
    with the same token count as the same query."""
    if runner is None:
        shared_cluster(options.client).meet()
    runner = runner or runner_for(options)
    if options.transactional_id is not None:
        runner.run(give_up(Sink(options.transactional_id), options.accepted))
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        if options.transactional_id is not None:
            runner.run(fence(Sink(options.transactional_id)))
        return None
    if options.write_token is not None:
        started = token_begin.begin_token(options, options.write_token, runner)
    else:
        batch = Batch(str(uuid.uuid4()), 0)
        sink = Sink(options.transactional_id or batch.query_id)
        _warn_of_right(options, runner)
        rules = begin(sink, batch, two_phase=options.two_phase, on_lost=options.on_lost)
        started = token_begin.StartedWrite(*runner.run(rules))
    _watch(options, started)
    return started.begun


def _watch(options: SinkOptions, started: token_begin.StartedWrite) -> None:
    begun, run, key = started
    sink, runners = Sink(begun.sink_id), partial(runner_for, options)
    if key is None:
        abandoned_run.watch_once(sink, run, _write_key(options, run), runners)
    else:
        abandoned_run.watch(sink, run.incarnation, key, runners)


def commit_stream(
    options: SinkOptions, reports: Sequence[Report | None], batch_id: int, runner: Runner | None = None
) -> None:
    """Make a micro-batch visible with its source offsets. Raises CommitFault."""
    planned = _planned(options, batch_id)
    options = as_begun(options, next((report.stamp for report in reports if report is not None), None))
    source = _source_offsets(options, planned, reports, batch_id)
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        if source is not None and source.offsets:
            cluster, group, epochs = shared_cluster(options.client), source.group, source.epochs
            commit_known(
                cluster,
                group,
                source.offsets,
                lambda offsets: group_offsets.commit_plain(cluster, group, offsets, epochs),
            )
        return
    runner, sink = runner or runner_for(options), _sink_of(reports)
    spent: dict[str, float] = {}
    retries = runner.retries
    check_equal_run(options, reports, batch_id)
    saving, ends = _saving(options, reports), "" if planned is None else planned.ends
    other = _accept_other(options, planned)
    accept = partial(_option_for, options)
    terms = Terms(None, saving, ends, other, options.deadletter_topic, accept)
    rules = commit(sink, reports, batch_id, source, options.two_phase, terms)
    with _kept_first(options, reports, batch_id) as kept:
        last = runner.run(rules, kept, timed(spent, sink))
    _prove_if_disturbed(runner, sink, reports)
    readable = _await_readable(runner, sink, last, spent)
    said = figures(sink, reports, spent, runner.retries - retries)
    log_progress(said, loud=options.progress_log)
    if readable:
        stand_if_wanted(options, planned)


@contextmanager
def _kept_first(options: SinkOptions, reports: Sequence[Report | None], batch_id: int) -> Iterator[Around]:
    """Nothing is committed before the checkpoint notes where the batch's rows are, and the batch's plan is on
    the disk (checkpoint.sync). The disk works while the rules ask the brokers. A driver that was replaced
    fails at one of these, and notes nothing: its rows are none of the batch's. Raises
    CheckpointUnreadable."""
    replaced, cluster = _replaced(options, reports, batch_id), shared_cluster(options.client)
    sink = _sink_of(reports).id
    with ThreadPoolExecutor(1) as disk:
        synced, noted = disk.submit(_looked_up, options, reports, batch_id, replaced), list[Rows]()

        def around(perform: Perform, command: Command[Any]) -> Any:
            if isinstance(command, End) and command.commit and not noted:
                noted.append(synced.result())
                rows = noted[0]  # leaders have just answered
                if said := lost_with_a_leader(cluster, sink, rows.earlier, rows.now):
                    _refuse(batch_id, said)
                if noted[0].note is not None and options.checkpoint_location is not None:
                    noted[0].note.write(Checkpoint.at(options.checkpoint_location))
            return perform(command)

        yield around


def _replaced(options: SinkOptions, reports: Sequence[Report | None], batch_id: int) -> Places:
    """Where rows of a decided batch were aborted that are written again now: nobody is to miss those.
    Raises KafkaError, RetriesExhausted, CheckpointUnreadable."""
    kinds = {type(report) for report in reports}
    if options.checkpoint_location is None or not {Decided, Prepared} <= kinds:
        return ()
    noted = dict(NotedPlaces.read(Checkpoint.at(options.checkpoint_location)).batches).get(batch_id, ())
    seen = look_at(shared_cluster(options.client), noted)
    return tuple(place for place, how in seen.items() if how is Seen.ABORTED)


class Rows(NamedTuple):
    """Where rows of earlier batches are, and those of this one; what the checkpoint is to note of them, None:
    what it has."""

    earlier: Places = ()
    now: Places = ()
    note: NotedPlaces | None = None


def _looked_up(
    options: SinkOptions, reports: Sequence[Report | None], batch_id: int, replaced: Places
) -> Rows:
    """Where the batch's rows are, unless those of earlier ones are gone. Raises RowsGone, SinkFenced,
    CheckpointUnreadable."""
    if options.checkpoint_location is None:
        return Rows()
    checkpoint = Checkpoint.at(options.checkpoint_location)
    prepared = [report for report in reports if isinstance(report, Prepared)]
    again = any(isinstance(report, Decided) for report in reports)
    if prepared and not prepared[0].stamp.sequence:
        _check_nobody_else(checkpoint, prepared[0].stamp.sink_id, batch_id)
    noted, places = NotedPlaces.read(checkpoint).without(replaced), places_of(prepared)
    earlier = batch_id + again  # what was never decided of this batch is not missed
    if said := noted.remade(places, earlier) or noted.cut(open_rows_of(prepared), earlier):
        _refuse(batch_id, said)
    note = None
    if prepared or not again or noted.newest < batch_id:
        digest = next((report.stamp.batch.digest for report in reports if report is not None), "")
        note = noted.after(batch_id, places, more=again, digest=digest)
    if options.checkpoint_sync:
        checkpoint.sync_planned(batch_id)
        if options.state is not None:
            checkpoint.sync_completed()  # each save needs the note of the batch before
    return Rows(noted.up_to(earlier), places, note)


def _check_nobody_else(checkpoint: Checkpoint, sink: str, batch_id: int) -> None:
    """Check that no other driver has completed a batch before which the sink knew of no decision: it has
    forgotten one that was made while this driver stood still. Raises SinkFenced."""
    if checkpoint.has_completed(batch_id):
        raise SinkFenced(
            f"another driver owns the sink {sink}: it has noted batch {batch_id} as done in the checkpoint "
            "while this driver stood still, and the cluster has forgotten the decision. Nothing was written. "
            "Stop this driver; if it is the only one, start it again"
        )


def _refuse(batch_id: int, said: str) -> NoReturn:
    raise RowsGone(
        f"batch {batch_id} is not decided: {said}. Rows of earlier batches are gone. "
        "Nothing was written. Start the query again: it says which, and how to go on"
    )


def commit_batch(
    options: SinkOptions, reports: Sequence[Report | None], runner: Runner | None = None
) -> None:
    """Make a batch write visible. Raises CommitFault."""
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        return
    runner, sink = runner or runner_for(options), _sink_of(reports)
    within = next((report.stamp.within for report in reports if report is not None), None)
    if within is not None and options.write_token is None:
        _commit_within(options, reports, within, runner)
        return
    batch_id = next((report.stamp.batch.batch_id for report in reports if report is not None), 0)
    if within is None and is_known_by_its_batch(options):
        _warn_of_threads()
    with _noted(options, reports, within, runner) as noting:
        write_of = "" if within is None else within.query_id
        terms = Terms(options.write_token, write_of=write_of, noting=noting)
        done = runner.run(commit(sink, reports, batch_id, two_phase=options.two_phase, terms=terms))
    _prove_if_disturbed(runner, sink, reports)
    readable = _await_readable(runner, sink, done, {})
    if options.write_token is not None and done is not None and readable:
        runner.run(note_finished(sink, done))
    _unwatch(options, run_of(reports))


def is_known_by_its_batch(options: SinkOptions) -> bool:
    """Whether a batch write is exact in foreachBatch only if its micro-batch is known."""
    return options.write_token is None and options.guarantee is not Guarantee.AT_LEAST_ONCE


_warned: set[str] = set()


def _warn_of_threads() -> None:
    """Warn once of writes that may belong to a micro-batch, as Spark does not say so in each thread."""
    if run_memory.streams_now() and run_memory.driver_token() not in _warned:
        _warned.add(run_memory.driver_token())
        logger.warning(_IN_THREAD)


def _commit_within(
    options: SinkOptions, reports: Sequence[Report | None], within: Batch, runner: Runner
) -> None:
    """Make a write without token in foreachBatch visible, once for its micro-batch and topic.

    Its own sink, in whose names the tasks have written, is ended last: then late attempts see that nobody
    waits for them, and rows that had been written before are aborted.
    """
    written_by, run, place = run_of(reports), _run_word(reports), options.topic or ""
    assert written_by is not None  # one report has said within
    sink = sink_of_query(within.query_id)
    with _turn(options, within) as turn:
        turn.check_newest(run, within.batch_id)
        claimed, accept = turn.claimed(run, within.batch_id), acceptable(options.accepted)
        notes, first = None, turn.is_first(run, within.batch_id)
        if first:
            runner.run(give_up(sink, options.accepted))
            notes = runner.run(begin_in_run(within, options.transactional_id or "", accept))
        others = () if notes is None else notes.writes.kept
        begun = runner.run(begin_within(within.query_id, options.two_phase))
        ours = Run(written_by.incarnation, begun.identity, begun.batch)
        abandoned_run.watch_once(sink, ours, _write_key(options, ours), partial(runner_for, options))
        terms = begun, reports, place, options.two_phase
        rules = commit_within(*terms, claimed=claimed, others=others, accept=accept, starts=first)
        try:
            done = runner.run(rules)
            if runner.disturbed():
                runner.run(prove_last(sink, begun.identity))
            readable = _await_readable(runner, sink, done.last, {})
            if readable and (done.last.batch == begun.batch or done.last.sequence == begun.sequence):
                runner.run(note_finished(sink, done.last))
            turn.claim(run, within.batch_id, place)
        finally:
            _unwatch(options, ours)
    abandoned_run.end(_sink_of(reports), written_by, lambda: runner, continues=False)
    _unwatch(options, written_by)
    if done.passed and done.written.content.rows:
        logger.warning(_PASSED, within, done.written.content, done.written.where)


@contextmanager
def _noted(
    options: SinkOptions, reports: Sequence[Report | None], within: Batch | None, runner: Runner
) -> Iterator[Noting | None]:
    """What is to be noted of a write with a token in foreachBatch when it is decided: the writes of one
    driver take turns. None: of no micro-batch, or done before. Raises SinkChanged if it was written under
    another name.

    Only the first batch of a run can be one that an earlier run has written.
    """
    if within is None or options.write_token is None:
        yield None
        return
    run, number, accept = _run_word(reports), within.batch_id, acceptable(options.accepted)
    write = batch_write(reports, options.topic or "", options.write_token, options.transactional_id or "")
    with _turn(options, within) as turn:
        noting, late = None, turn.is_late(run, number)
        if not any(isinstance(report, Decided) for report in reports):
            first, claimed = turn.is_first(run, number), turn.claimed(run, number)
            begins = begin_in_run(within, options.transactional_id or "", accept)
            notes = runner.run(begins if first else go_on_in_run(within, accept))
            without = runner.run(read_writes(within.query_id)) if first else ()
            known = (*without, *(() if notes is None else notes.writes.kept))
            runner.run(check_renamed(within, known, write, claimed, accept, late=late))
            if notes is not None and not late:
                since = known if first else ()
                runner.run(check_remembered(within, notes.writes.kept, write, accept, since))
            stamp = next(report.stamp for report in reports if report is not None)
            if notes is None:
                raise CommitFault(_MAY_NOT_NOTE.format(within, sink_of_query(within.query_id).writes_group))
            noting = notes.with_write(write, stamp)
        yield noting
        turn.claim(run, number, write.known_by)


def _turn(options: SinkOptions, within: Batch) -> AbstractContextManager[run_memory.Turn]:
    return run_memory.turn(repr(options.client.bootstrap), within.query_id)


def _run_word(reports: Sequence[Report | None]) -> str:
    """The word for the run of the query in whose foreachBatch the tasks have written."""
    return next((report.stamp.run for report in reports if report is not None), "")


def _prove_if_disturbed(runner: Runner, sink: Sink, reports: Sequence[Report | None]) -> None:
    """Ask the partitions for lost markers if a broker was lost: it may have died right after a commit."""
    if runner.disturbed():
        own = next((report.stamp.identity for report in reports if report is not None), None)
        runner.run(prove_last(sink, own))


def _await_readable(runner: Runner, sink: Sink, last: Decision | None, spent: dict[str, float]) -> bool:
    """Wait until readers of committed data see the whole batch; warn if that takes too long: then the next
    begin waits on, and stops the query in the end. Returns whether they see it."""
    why = runner.run(await_readable(last), timed(spent, sink)) if last is not None else None
    if last is not None and why is not None:
        logger.warning(
            f"%s is committed, and readers may see a part of it only for a while: %s. {_SEE_LATE}",
            last.batch,
            why,
        )
    return why is None


def abort_batch(
    options: SinkOptions, reports: Sequence[Report | None], batch_id: int, runner: Runner | None = None
) -> None:
    """End open transactions of a failed or stopped batch, also of tasks that are dying without a report."""
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        return
    options, view = _read_checkpoint(options)
    assert view is not None  # otherwise an error was raised
    sink = Sink(options.transactional_id or view.batch.query_id)
    run = run_of(reports) or run_memory.look(*_memory_key(options, sink, view.batch))
    if run is None or run.batch[:2] != (view.batch.query_id, batch_id):
        logger.info("batch %d of sink %s is over: it was not begun", batch_id, sink.id)
        return
    abandoned_run.end(sink, run, lambda: runner or runner_for(options), continues=not all(reports))
    tell("aborted", query=view.batch.query_id, batch=batch_id, tasks=len(reports))


def abort_write(options: SinkOptions, begun: Begun | None, reports: Sequence[Report | None]) -> None:
    """End open transactions of a failed batch write, also of killed tasks: no later begin would."""
    run = run_of(reports, begun)
    if begun is not None and run is not None:
        abandoned_run.end(Sink(begun.sink_id), run, partial(runner_for, options), continues=not all(reports))
        _unwatch(options, run)


def _unwatch(options: SinkOptions, run: Run | None) -> None:
    """Forget the run of a batch write that has ended, which ends its guard."""
    if run is not None:
        run_memory.take(*_write_key(options, run))


def _write_key(options: SinkOptions, run: Run) -> tuple[str, ...]:
    """The memory key of one write: each write has its own producer id and epoch."""
    return repr(options.client.bootstrap), "a write", str(run.incarnation), str(run.identity)


def _memory_key(options: SinkOptions, sink: Sink, batch: Batch) -> tuple[str, ...]:
    return repr(options.client.bootstrap), sink.id, batch.query_id


def _sink_of(reports: Sequence[Report | None]) -> Sink:
    """The sink under which the tasks worked."""
    return Sink(next((report.stamp.sink_id for report in reports if report is not None), ""))


def _saving(options: SinkOptions, reports: Sequence[Report | None]) -> Saving | None:
    """What saves the query's state with the batch (state.topic). None: nothing is to be saved."""
    stamp = next((report.stamp for report in reports if report is not None), None)
    if options.state is None or stamp is None:
        return None
    assert options.checkpoint_location is not None  # otherwise begin has raised an error
    from eoslog.connector.saved.save import CheckpointSaving  # others need no codec

    checkpoint = Checkpoint.at(options.checkpoint_location)
    cluster, size = shared_cluster(options.client), options.max_batch_bytes
    return CheckpointSaving(cluster, checkpoint, stamp.sink_id, stamp.batch, *options.state, size)


def _accept_other(options: SinkOptions, planned: Planned | None) -> str | None:
    """The option with which other rows of a decided batch may be left out. None: they are not compared: the
    plan says which rows they are, or that is accepted."""
    if planned is None or planned.identifies_rows:
        return None
    return _option_for(options, f"other-rows:{planned.batch_id}")


def _option_for(options: SinkOptions, word: str) -> str | None:
    """The option that accepts a finding by its word; None: it is accepted."""
    return None if word in options.accepted else to_accept(word, options.accepted)


def _planned(options: SinkOptions, batch_id: int) -> Planned | None:
    """The batch's plan. None: nobody needs it (at_least_once without a group), or there is no checkpoint."""
    if options.group_id is None and options.guarantee is Guarantee.AT_LEAST_ONCE:
        return None
    if options.checkpoint_location is None:
        if options.group_id is not None:
            why = "checkpointLocation is not among the options"
            raise OptionError(_needs_checkpoint("kafka.group.id", why))
        return None
    return Checkpoint.at(options.checkpoint_location).planned(batch_id)


def _source_offsets(
    options: SinkOptions, planned: Planned | None, reports: Sequence[Report | None], batch_id: int
) -> SourceOffsets | None:
    """The batch's end offsets for the query's group, with a note of sink and query (group_notes.py)."""
    stamp = next((report.stamp for report in reports if report is not None), None)
    group = options.group_id if stamp is None else options.group_of(stamp.sink_id)
    if group is None or planned is None:
        return None
    if stamp is None:
        assert options.checkpoint_location is not None  # otherwise there was an error
        query = Checkpoint.at(options.checkpoint_location).query_id()
        sink, topic = options.transactional_id or query, options.topic or ""
        note = Note(sink, query, batch_id, decided=False, topic=topic)
    else:
        note = Note(stamp.sink_id, stamp.batch.query_id, batch_id)
        if options.group_id is None:
            planned = of_group(planned, group, note.sink, known_id(shared_cluster(options.client)))
    return source_offsets(group, planned, note)


def _read_checkpoint(
    options: SinkOptions, runner: Runner | None = None
) -> tuple[SinkOptions, CheckpointView | None]:
    """What begin needs of the checkpoint, and the options with which the batch is written (in_its_place()).
    None: at_least_once does without it, as its user has accepted, until a query of its name decides
    something.

    Raises OptionError if it cannot be read: without it a sink would not notice that the checkpoint was set
    back, or that transactional.id or the guarantee was changed after a decision. Rows would be lost or
    doubled silently, or held back from readers for ever.
    """
    try:
        if options.checkpoint_location is None:
            raise CheckpointUnreadable("(none)", "checkpointLocation is not among the options")
        view = CheckpointView.of(Checkpoint.at(options.checkpoint_location))
        return in_its_place(options, view, runner_for), view
    except CheckpointUnreadable as error:
        if options.guarantee is not Guarantee.AT_LEAST_ONCE:
            raise OptionError(_needs_checkpoint(_guarantee(options), error)) from error
        if options.group_id is not None:
            raise OptionError(_needs_checkpoint("kafka.group.id", error)) from error
        word = f"{_WORD_NO_CHECKPOINT}:{_decisions_of(options, runner)}"
        if word in options.accepted:
            return options, None
        raise OptionError(
            f"{_needs_checkpoint(_guarantee(options), error)}. If this query has never run with another "
            f"guarantee, set {to_accept(word, options.accepted)}"
        ) from error


def _decisions_of(options: SinkOptions, runner: Runner | None) -> int:
    """The number of the last decision under transactional.id. 0: there is none, or no name."""
    if options.transactional_id is None:
        return 0
    runner = runner or runner_for(options)
    last = runner.run(stable_decision(Sink(options.transactional_id)))
    return 0 if last is None else last.sequence


_WORD_NO_CHECKPOINT = "no-checkpoint"


def _guarantee(options: SinkOptions) -> str:
    return f"processing.guarantee={options.guarantee.value}"


def _needs_checkpoint(who: str, why: object) -> str:
    return (
        f"{who} needs a checkpoint that the driver can read: {why}. Give the writer the option "
        "checkpointLocation; the setting spark.sql.streaming.checkpointLocation does not reach it"
    )
