"""The driver's side of the sink: what begin, commit and abort need to know, and the rules run with it.

Begin happens in one driver process and commit or abort in another; what commit needs comes back in
the tasks' reports. Only begin remembers anything from batch to batch, and it may forget it.
"""

import logging
import time
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from eoslog.connector import memory
from eoslog.connector.checkpoint import Checkpoint, CheckpointUnreadable, Planned
from eoslog.connector.client import offsets as group_offsets
from eoslog.connector.commit import token as token_rules
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.decide import Aborted, SourceOffsets, abort, commit
from eoslog.connector.commit.messages import Batch, Begun, Report
from eoslog.connector.commit.names import Sink
from eoslog.connector.commit.prove import prove_last
from eoslog.connector.crosscheck import Note
from eoslog.connector.driver import Driver, shared_cluster
from eoslog.connector.errors import OptionError
from eoslog.connector.options import Guarantee, SinkOptions
from eoslog.connector.progress import tell, timed
from eoslog.connector.start_of_run import check_source_cluster, check_start

log = logging.getLogger(__name__)

OWN_TIMEOUT_MS = 60_000
"""Time-out of the sink's own transaction: it is open for a few requests only, and while a crashed driver's
is open, nobody who starts from the committed source offsets can read them."""

TASK_KILL_SECONDS = 3.0
"""How long a killed task's Python process may go on: spark.python.task.killTimeout is 2 s, and a margin."""

LOOK_AGAIN_SECONDS = 0.25
"""How often a failed batch write looks for transactions of tasks that are dying."""


def driver_for(options: SinkOptions) -> Driver:
    """Runs rules on the options' cluster, over this process's connections."""
    return Driver(shared_cluster(options.client), min(OWN_TIMEOUT_MS, options.transaction_timeout_ms))


class _View(NamedTuple):
    """What the checkpoint tells; all None where it cannot be read."""

    query_id: str | None
    planned: Planned | None
    completed: int | None


def begin_stream(options: SinkOptions, driver: Driver | None = None) -> Begun | None:
    """Before the tasks of a micro-batch; None where the guarantee needs nothing.

    Raises OptionError, CommitFault.
    """
    view = _read_checkpoint(options)
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        return None
    sink = Sink(options.transactional_id or str(view.query_id))
    batch = None
    if view.query_id is not None and view.planned is not None:
        batch = Batch(view.query_id, view.planned.batch_id, view.planned.digest)
    key = (repr(options.client.bootstrap), sink.id, str(view.query_id))
    last_run = memory.take(*key)
    driver = driver or driver_for(options)
    acquainted = last_run is not None and driver.acquainted
    cluster = shared_cluster(options.client)
    if last_run is None:
        check_source_cluster(options, cluster, view.planned)
    begun, run = driver.run(
        begin(
            sink,
            batch,
            last_run=last_run,
            completed=view.completed,
            once_at_most=options.guarantee is Guarantee.AT_MOST_ONCE,
            two_phase=options.two_phase,
            on_lost=options.on_lost,
        )
    )
    if driver.disturbed() or not acquainted:
        driver.run(prove_last(sink, begun.identity))
    if last_run is None:
        check_start(options, cluster, view.planned, view.completed, begun)
    if run is not None:
        memory.keep(run, *key)
    return begun


def begin_batch(options: SinkOptions, driver: Driver | None = None) -> Begun | None:
    """Before the tasks of a batch write. Every write is a query of its own, with one batch; writes with the
    same token are the same query."""
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        return None
    driver, token = driver or driver_for(options), options.write_token
    write_id = token or str(uuid.uuid4())
    sink = _sink_of_write(options, write_id)
    completed = token_rules.BATCH if token and driver.run(token_rules.is_finished(sink, token)) else None
    batch = Batch(write_id, token_rules.BATCH)
    rules = begin(sink, batch, completed=completed, two_phase=options.two_phase, on_lost=options.on_lost)
    begun, _ = driver.run(rules)
    return begun


def _sink_of_write(options: SinkOptions, write_id: str) -> Sink:
    """A token has a sink of its own, so that no other write's decision takes the place of its own."""
    if options.write_token is None:
        return Sink(options.transactional_id or write_id)
    return Sink(f"{options.transactional_id or 'eoslog-write'}.{options.write_token}")


def commit_stream(
    options: SinkOptions, reports: Sequence[Report | None], batch_id: int, driver: Driver | None = None
) -> None:
    """Make a micro-batch visible with its source offsets. Raises CommitFault."""
    source = _source_offsets(options, reports, batch_id)
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        if source is not None and source.offsets:
            group_offsets.commit_plain(shared_cluster(options.client), source.group, source.offsets)
        return
    driver, sink = driver or driver_for(options), _sink_of(reports)
    spent: dict[str, float] = {}
    driver.run(timed(commit(sink, reports, batch_id, source, options.two_phase), spent, sink))
    _prove_if_disturbed(driver, sink, reports)
    tell(sink, reports, spent, loud=options.progress_log)


def commit_batch(
    options: SinkOptions, reports: Sequence[Report | None], driver: Driver | None = None
) -> None:
    """Make a batch write visible. Raises CommitFault."""
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        return
    driver, sink = driver or driver_for(options), _sink_of(reports)
    driver.run(commit(sink, reports, token_rules.BATCH, two_phase=options.two_phase))
    _prove_if_disturbed(driver, sink, reports)
    if options.write_token is not None:
        driver.run(token_rules.note_finished(sink, options.write_token))


def _prove_if_disturbed(driver: Driver, sink: Sink, reports: Sequence[Report | None]) -> None:
    """A node that dies right after it has answered a commit may lose markers: ask the partitions."""
    if driver.disturbed():
        own = next((report.stamp.identity for report in reports if report is not None), None)
        driver.run(prove_last(sink, own))


def abort_batch(
    options: SinkOptions, reports: Sequence[Report | None], batch_id: int, driver: Driver | None = None
) -> None:
    """End what a failed batch left open, as far as that is known to be safe."""
    if options.guarantee is Guarantee.AT_LEAST_ONCE or not any(reports):
        return
    done = (driver or driver_for(options)).run(abort(_sink_of(reports), reports, batch_id))
    if done is not Aborted.CLEARED:
        log.warning("batch %d failed: %s", batch_id, done.value)


def abort_write(
    options: SinkOptions, begun: Begun | None, reports: Sequence[Report | None], driver: Driver | None = None
) -> None:
    """End what a failed batch write left open, of killed tasks too: no later begin would clear it.

    A task without a report may be dying still. Its producer is fenced with its transaction, but it may
    open one a moment later; so the names of this write are looked at until Spark has killed it.
    """
    if begun is None:
        return
    driver = driver or driver_for(options)
    until = time.monotonic() + (0 if all(reports) else TASK_KILL_SECONDS)
    while True:
        done = driver.run(abort(Sink(begun.sink_id), reports, 0, begun))
        if done is not Aborted.CLEARED:
            log.warning("a batch write failed: %s", done.value)
            return
        if time.monotonic() >= until:
            return
        time.sleep(LOOK_AGAIN_SECONDS)


def _sink_of(reports: Sequence[Report | None]) -> Sink:
    """The sink under which the tasks worked."""
    return Sink(next((report.stamp.sink_id for report in reports if report is not None), ""))


def _source_offsets(
    options: SinkOptions, reports: Sequence[Report | None], batch_id: int
) -> SourceOffsets | None:
    """The batch's end offsets for the user's group, with a note whose they are (crosscheck.py).

    With at_least_once they tell of no decision, and have no note.
    """
    if options.group_id is None:
        return None
    if options.checkpoint_location is None:
        raise OptionError(_needs_checkpoint("kafka.group.id", "checkpointLocation is not among the options"))
    ends = Checkpoint.at(options.checkpoint_location).planned(batch_id).topic_offsets()
    stamp = next((report.stamp for report in reports if report is not None), None)
    note = "" if stamp is None else Note(stamp.sink_id, stamp.batch.query_id, batch_id).text()
    return SourceOffsets(options.group_id, {place: (offset, note) for place, offset in ends.items()})


def _read_checkpoint(options: SinkOptions) -> _View:
    """What begin needs of the checkpoint; OptionError where it cannot be read and is needed."""
    try:
        if options.checkpoint_location is None:
            raise CheckpointUnreadable("(none)", "checkpointLocation is not among the options")
        checkpoint = Checkpoint.at(options.checkpoint_location)
        planned, completed = checkpoint.newest_planned(), checkpoint.newest_completed()
        return _View(checkpoint.query_id(), planned, completed)
    except CheckpointUnreadable as error:
        if options.group_id is not None:
            raise OptionError(_needs_checkpoint("kafka.group.id", error)) from error
        if options.guarantee is Guarantee.AT_LEAST_ONCE:
            return _View(None, None, None)
        if options.transactional_id is None:
            raise OptionError(
                _needs_checkpoint("a sink without the option transactional.id", error)
            ) from error
        log.warning("the sink goes on without the checkpoint, and is acquired for every batch: %s", error)
        return _View(None, None, None)


def _needs_checkpoint(who: str, why: object) -> str:
    return f"{who} needs a checkpoint that the driver can read: {why}; give the option checkpointLocation"
