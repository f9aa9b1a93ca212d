"""Ends an abandoned run: in the abort call that Spark makes, and from background processes.

Spark calls abort while its tasks are still alive, and does not call it at all when the driver application is
killed or ended by a signal. So two background processes are forked. They outlive the process that forked
them, hold none of its sockets, and are independent of Spark:

- abort forks one that looks for open transactions until the killed tasks must be gone, so that query.stop()
  need not wait for that;
- the begin of a run, and of a batch write, forks one that waits until the process that begins batches is gone
  (a Python daemon of Spark's, which dies with its JVM and with its SparkSession), and then ends the
  transactions that the last batch has left open. It goes away when the last batch has ended and no other
  comes for a while, so nothing stays of a query that has ended; the next begin forks another one.

They do what the next begin would do, and nothing that could harm a newer driver (commit/abandon.py). If the
whole machine or container dies, they die too: then the time-out and the next start end those transactions.
"""

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable

from eoslog.connector.commit.abandon import Aborted, Ended, clear_again, end_run, is_over, rests
from eoslog.connector.commit.task_reports import Run
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.run import run_memory
from eoslog.connector.run.runner import Runner
from eoslog.connector.spark import processes
from eoslog.connector.spark.driver_stderr import stderr_of
from eoslog.connector.spark.gc_freeze import is_sparks
from eoslog.connector.spark.logs import look_as_sparks
from eoslog.errors import EoslogError
from eoslog.errors.pages import see
from eoslog.protocol.producer_identity import ProducerIdentity

logger = logging.getLogger(__name__)

TASK_KILL_SECONDS = 3.0
"""How long a killed task's Python process may live: spark.python.task.killTimeout is 2 s, plus a margin."""
LOOK_AGAIN_SECONDS = 0.2
"""Pause between two looks for transactions of tasks that are dying."""
LATE_SECONDS = 30.0
"""How long to look for tasks that die even later: Spark cancels a stopped query's jobs again when abort has
returned, a machine may be busy, and spark.python.task.killTimeout may be longer."""
LATE_LOOK_SECONDS = 1.0
"""Pause between two of these looks."""
LEFT_SECONDS = 600.0
"""How long to try again what brokers did not let end: a right may be given back, a broker may come back. No
later begin finds what a write without a name has left."""
WATCH_SECONDS = 0.25
"""How often a guard checks that its driver is alive, in seconds."""
REST_SECONDS = 30.0
"""After this time without a begin, a guard asks whether the last batch has ended, and goes away if so."""
_PATIENCE_SECONDS = 90
"""A background process ends after this many seconds of work, for instance if its cluster does not answer."""

Runners = Callable[[], Runner]
"""Makes a runner in the process that calls it."""


def end(sink: Sink, run: Run, runners: Runners, *, continues: bool) -> None:
    """End the transactions that the run has left open, and log it. `continues`: tasks may still be dying; in
    a Spark process, a background process waits for them, and tries again what could not be ended."""
    ended = runners().run(end_run(sink, run))
    if not (continues or ended.left):
        _log_outcome(sink, run, ended)
    elif is_sparks():
        _log_outcome(sink, run, ended)
        detached(lambda: _look_late(sink, run, ended, runners()))
    else:
        _log_outcome(sink, run, _look_again(sink, run, ended, runners(), TASK_KILL_SECONDS))


def _look_late(sink: Sink, run: Run, before: Ended, runner: Runner) -> None:
    """Look for transactions while tasks may still open some; runs in a background process. Logs further ones
    when most tasks are gone, and at the end."""
    signal.alarm(_PATIENCE_SECONDS)
    ended = _look_again(sink, run, before, runner, TASK_KILL_SECONDS)
    _log_more(sink, run, before, ended)
    late = _look_again(sink, run, ended, runner, LATE_SECONDS - TASK_KILL_SECONDS, LATE_LOOK_SECONDS)
    _log_more(sink, run, ended, late)
    if late.left:
        signal.alarm(_PATIENCE_SECONDS + round(LEFT_SECONDS))
        at_last = _look_again(sink, run, late, runner, LEFT_SECONDS, LATE_LOOK_SECONDS, for_left=True)
        _log_more(sink, run, late, at_last)


def _look_again(
    sink: Sink,
    run: Run,
    ended: Ended,
    runner: Runner,
    seconds: float,
    pause: float = LOOK_AGAIN_SECONDS,
    *,
    for_left: bool = False,
) -> Ended:
    """Look again and again, for so many seconds; `for_left`: no longer than something is left."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and (ended.left or not for_left):
        time.sleep(pause)
        if ended.outcome is Aborted.LEFT:
            ended = runner.run(end_run(sink, run))
        else:
            ended = runner.run(clear_again(sink, run, ended))
    return ended


def _log_outcome(sink: Sink, run: Run, ended: Ended) -> None:
    logger.info(
        "%s of sink %s is over: %s (%s)",
        run.batch,
        sink.id,
        ended.outcome.value,
        ", ".join(ended.aborted) or "none was open",
    )
    if ended.left:
        logger.warning(
            "%s of sink %s is over, and may hold back readers: %s. This is tried again for %d minutes; then "
            "a start of the query, or kafka.transaction.timeout.ms, ends what is open. `eoslog transactions` "
            "lists it, and `eoslog transactions abort --force` ends what is not decided. "
            f"{see('a-batch-is-over-and-may-hold-back-readers')}",
            run.batch,
            sink.id,
            "; ".join(ended.left),
            LEFT_SECONDS / 60,
        )


def _log_more(sink: Sink, run: Run, before: Ended, ended: Ended) -> None:
    if (ended.aborted, ended.left) != (before.aborted, before.left):
        _log_outcome(sink, run, ended)


def watch(sink: Sink, incarnation: ProducerIdentity, key: tuple[str, ...], runners: Runners) -> None:
    """From now on, end the run of the sink when its driver is gone, for any reason. Each begin calls this
    after run_memory keeps its batch under the key: one guard watches the run."""
    if not is_sparks():
        return
    lock = *key, str(incarnation)
    held = run_memory.hold(*lock)
    if held is None:
        return
    run_memory.release(held, *lock)
    begins = processes.parent_of(os.getpid())
    detached(lambda: _guard(sink, incarnation, key, begins, runners))


def watch_once(sink: Sink, run: Run, key: tuple[str, ...], runners: Runners) -> None:
    """Do the same for a run of one batch. The run is over when nothing is kept under the key."""
    if is_sparks():
        run_memory.keep(run, *key)
        begins = processes.parent_of(os.getpid())
        detached(lambda: _guard_once(sink, run, key, begins, runners))


def _guard_once(
    sink: Sink, run: Run, key: tuple[str, ...], begins: processes.ProcessIdentity, runners: Runners
) -> None:
    while processes.lives(begins):
        time.sleep(WATCH_SECONDS)
        if run_memory.look(*key) is None:
            return
    _end_last(sink, run.incarnation, key, runners)


def _guard(
    sink: Sink,
    incarnation: ProducerIdentity,
    key: tuple[str, ...],
    begins: processes.ProcessIdentity,
    runners: Runners,
) -> None:
    """A begin keeps its batch before it looks for the lock, and a guard gives the lock back before it looks
    for the batch: so one of the two sees the other."""
    lock = *key, str(incarnation)
    held, kept, asks_at = run_memory.hold(*lock), run_memory.stamp(*key), time.monotonic() + REST_SECONDS
    while held is not None and processes.lives(begins):
        time.sleep(WATCH_SECONDS)
        now, run = run_memory.stamp(*key), run_memory.look(*key)
        if run is not None and run.incarnation != incarnation:
            run_memory.release(held, *lock)  # a begin with its own guard has acquired the sink again
            return
        if now != kept:
            kept, asks_at = now, time.monotonic() + REST_SECONDS
        elif time.monotonic() >= asks_at:
            asks_at = time.monotonic() + REST_SECONDS
            if run is None or _is_over(sink, run, runners):
                run_memory.release(held, *lock)
                held = None if run_memory.stamp(*key) == kept else run_memory.hold(*lock)
    if held is not None:
        _end_last(sink, incarnation, key, runners)
        run_memory.release(held, *lock)


def _is_over(sink: Sink, run: Run, runners: Runners) -> bool:
    """False also if nobody answers: then the guard stays."""
    try:
        return runners().run(is_over(sink, run))
    except EoslogError as error:
        logger.debug("%s of sink %s may not be over: %s", run.batch, sink.id, error)
        return False


def _end_last(sink: Sink, incarnation: ProducerIdentity, key: tuple[str, ...], runners: Runners) -> None:
    """The driver is gone: end what its last batch has left open."""
    run = run_memory.look(*key)
    if run is None or run.incarnation != incarnation:
        return
    signal.alarm(_PATIENCE_SECONDS)
    runner = runners()
    if runner.run(rests(sink, run)):
        return
    ended = runner.run(end_run(sink, run))
    _log_outcome(sink, run, ended)
    _look_late(sink, run, ended, runner)


def detached(work: Callable[[], object]) -> None:
    """Do the work in a separate process, outside Spark's process groups and any terminal."""
    processes.driver_process()  # found by way of the parent processes, so before the fork
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _cut_loose()
            work()
    except BaseException:  # the fork must never come back into Spark's code
        logger.exception("the background process that ends a batch's open transactions has failed")
    finally:
        os._exit(0)


def _cut_loose() -> None:
    """Close all of the parent's descriptors, so that a process that waits for the parent does not wait for
    this one. Logs go to the driver's stderr, if it can be opened."""
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    error_output = stderr_of(processes.driver_process().pid)
    if error_output is None:
        error_output = nothing
    for number, source in ((0, nothing), (1, nothing), (2, error_output)):
        os.dup2(source, number)
    for number in map(int, os.listdir("/dev/fd")):
        if number > 2:
            with contextlib.suppress(OSError):  # listdir's own descriptor is already closed
                os.close(number)
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    logging.root.handlers.clear()  # their files are closed
    look_as_sparks()
    logger.setLevel(logging.INFO)
