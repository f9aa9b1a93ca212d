"""Ends a run in the middle of a batch: afterwards nobody can decide the batch, and none of its transactions
is open.

Spark calls abort while its tasks are still alive, and perhaps while the process that commits is still
working. So the end is marked first: the epoch of the sink's own id is raised, if the id still belongs to this
run. From then on

- no commit under the run's identity can decide: whether the batch is decided is final;
- an attempt that has written its rows sees that nobody waits for it, and aborts its transaction (prepare.py).
  A transaction that it opened before the mark is in the list that is made after the mark.

If the batch is decided, its transactions are committed, as the next begin would do. Only transactions with
the run's own incarnation in their names are aborted, so never those of a newer driver. A driver that has
acquired the sink in the meantime is not fenced.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from eoslog.connector.commit.commands import (
    FENCED,
    Acquire,
    Describe,
    ListOngoing,
    Refused,
    Rules,
    Unknown,
    ask,
    look_up,
)
from eoslog.connector.commit.decision import decode
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.finish import clear_run, finish_late, is_of
from eoslog.connector.commit.sink_transaction import was_used, write_lost_markers
from eoslog.connector.commit.task_reports import Begun, Report, Run
from eoslog.connector.commit.transactional_ids import Participant, Sink


class Aborted(Enum):
    """The batch's outcome when its run has ended."""

    CLEARED = "the batch's transactions are aborted"
    LEFT = "not enough is known to abort anything; the next begin clears it"
    DECIDED = "the batch is decided; nothing may be aborted"


class Ended(NamedTuple):
    """How a run has ended. `aborted`: transactional ids. `left`: which transactions may still be open, and
    why. `decided`: participants of a decision, which are never aborted."""

    outcome: Aborted
    aborted: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    decided: tuple[Participant, ...] = ()


def run_of(reports: Sequence[Report | None], begun: Begun | None = None) -> Run | None:
    """The run that a batch's reports, or else the result of begin, belong to. None: there is neither."""
    known = next((report.stamp for report in reports if report is not None), begun)
    return None if known is None else Run(known.incarnation, known.identity, known.batch)


def rests(sink: Sink, run: Run) -> Rules[bool]:
    """Whether the run's last batch is decided and its transactions have ended, so nothing is left to end."""
    stored = yield from look_up(sink.group)
    if isinstance(stored, (Refused, Unknown)):
        return False
    last = decode(sink, stored.chunks)
    if last is None or (last.incarnation, last.batch[:2]) != (run.incarnation, run.batch[:2]):
        return False
    return not (yield from _open_of(sink, run))


def is_over(sink: Sink, run: Run) -> Rules[bool]:
    """Whether nobody need end the run's last batch any more: it rests; or the sink's epoch was raised since
    it began, as an end does, so that it cannot be decided, and nothing is open."""
    described = yield from ask(Describe((sink.coordinator,)))
    if isinstance(described, (Refused, Unknown)):
        return False
    own = described.get(sink.coordinator)
    if own is not None and own.identity != run.identity:
        return not (yield from _open_of(sink, run))
    return (yield from rests(sink, run))


def _open_of(sink: Sink, run: Run) -> Rules[bool]:
    """Whether a transaction of the run is open, or may be."""
    listed = yield from ask(ListOngoing(sink.coordinator))
    if isinstance(listed, (Refused, Unknown)):
        return True
    return any(name == sink.coordinator or is_of(sink, name, run.incarnation) for name in listed.ongoing)


def end_run(sink: Sink, run: Run) -> Rules[Ended]:
    """End the transactions that the run has left open. Never raises CommitFault. Any process may call it, at
    any time and more than once.

    Nothing is aborted while it is unknown whether the batch is decided: on transaction.version 2 a late abort
    would overwrite the proof of a commit.
    """
    try:
        # Acquire destroys the state that shows how the last transaction ended.
        state = yield from write_lost_markers(sink)
        used = yield from was_used(sink, state)
    except CommitFault as fault:
        return Ended(Aborted.LEFT, left=(str(fault),))
    raised = yield from ask(Acquire(sink.coordinator, run.identity, used))
    if isinstance(raised, Unknown) or (isinstance(raised, Refused) and raised.code not in FENCED):
        return Ended(Aborted.LEFT, left=(f"{sink.coordinator}: {raised}",))
    stored = yield from look_up(sink.group)
    if isinstance(stored, (Refused, Unknown)):
        return Ended(Aborted.LEFT, left=(f"the last decision of sink {sink.id}: {stored}",))
    last = decode(sink, stored.chunks)
    ours = last if last is not None and last.incarnation == run.incarnation else None
    if ours is not None and ours.batch.query_id == run.batch.query_id and ours.batch > run.batch:
        return Ended(Aborted.DECIDED)  # the run is at a later batch, to which open transactions belong
    unfinished: tuple[str, ...] = ()
    if ours is not None:
        try:
            yield from finish_late(ours)
        except CommitFault as fault:
            unfinished = (str(fault),)
    decided = ours.participants if ours is not None else ()
    outcome = Aborted.CLEARED
    if ours is not None and ours.batch[:2] == run.batch[:2]:
        outcome = Aborted.DECIDED
    ended = yield from clear_again(sink, run, Ended(outcome, decided=decided))
    return ended._replace(left=(*unfinished, *ended.left))


def clear_again(sink: Sink, run: Run, ended: Ended) -> Rules[Ended]:
    """Abort transactions that tasks have opened since `ended`: they may run on for a while. It must be known
    how the run ended: not LEFT."""
    aborted, left = yield from clear_run(sink, run.incarnation, ended.decided)
    remaining = tuple(f"{name}: {why}" for name, why in left.items())
    return ended._replace(aborted=(*ended.aborted, *aborted), left=remaining)
