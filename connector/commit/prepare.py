"""Prepare: decides what a task does with its rows, from the result of begin; and, once they are written,
whether the batch still waits for them."""

from enum import Enum

from eoslog.connector.commit.commands import (
    Describe,
    Description,
    End,
    Refused,
    Rules,
    TransactionVersion,
    Unknown,
    ask,
)
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.sink_transaction import TV2
from eoslog.connector.commit.task_reports import Begun, Stamp
from eoslog.connector.commit.transactional_ids import Participant, ParticipantSlot, Sink, parity


class Task(Enum):
    """What to do with the rows of a task."""

    WRITE = "write them in a transaction of the task's own"
    PASS_DECIDED = "count them and let them pass: the batch was decided in an earlier run"
    DROP = "let them pass: at_most_once has attempted the batch before"


def judge(begun: Begun, query_id: str, batch_id: int, partition: int) -> tuple[Task, Stamp]:
    """What to do, and the stamp for the report. Spark gives the ids and the partition to the task.

    Of a decided batch only lost partitions are written again (replay.py).

    Raises CommitFault if begin did not prepare for this query and batch.
    """
    if begun.batch[:2] != (query_id, batch_id):
        raise CommitFault(
            f"sink {begun.sink_id} was made ready for {begun.batch}, but the task runs batch {batch_id} "
            f"of query {query_id}. Does another query use this checkpoint? Give each its own and start again"
        )
    stamp = stamp_of(begun)
    done = begun.decided
    if done is not None and (begun.passes or done[:2] == (query_id, batch_id)):
        return Task.WRITE if partition in begun.lost else Task.PASS_DECIDED, stamp
    return Task.DROP if begun.dropped else Task.WRITE, stamp


def stamp_of(begun: Begun) -> Stamp:
    """The stamp for the reports of the batch's tasks."""
    who = (begun.sink_id, begun.incarnation, begun.identity)
    return Stamp(*who, begun.sequence, begun.anchors, begun.batch, begun.lost, start=begun.start)


def participant_name(stamp: Stamp, worker: str, number: int) -> str:
    """Transactional id of this process's `number`th transaction in the batch."""
    slot = ParticipantSlot(stamp.incarnation, parity(stamp.batch.batch_id), worker, number)
    return Sink(stamp.sink_id).participant(slot)


def withdraw_if_late(stamp: Stamp, participant: Participant) -> Rules[str | None]:
    """Abort the transaction of an attempt if its batch no longer waits for it. Call it when all of the
    attempt's rows are written, and before it reports: perhaps nobody else will come to abort it.

    Begin has left the sink's own id at the stamp's identity, with no transaction open. A decision, the end of
    the run (ending.py) and a newer driver each change the identity or open a transaction. If that has
    happened, no decision names this transaction, because the attempt has not reported it yet; so the attempt
    may abort it. The attempt reports as usual: a driver that used the report would find the transaction
    aborted. If it has not happened, then whatever changes the sink later looks for left-over transactions
    after that, and finds this one open.

    Returns a warning to log, or None. If the state cannot be looked up, the attempt does not fail: the next
    begin aborts the transaction if it is left over.
    """
    own = Sink(stamp.sink_id).coordinator
    states = yield from ask(Describe((own,)))
    version = yield from ask(TransactionVersion())
    if isinstance(states, (Refused, Unknown)) or isinstance(version, (Refused, Unknown)):
        failure = version if isinstance(version, (Refused, Unknown)) else states
        return f"whether {stamp.batch} is decided already could not be looked up: {failure}"
    state = states[own]
    if state is None or _is_as_begun(state, stamp, version):
        return None
    answers = yield from ask(End(False, (participant,)))
    answer = answers if isinstance(answers, (Refused, Unknown)) else answers[participant.name]
    left = f", and does not know whether that was done: {answer}" if isinstance(answer, Unknown) else ""
    return f"{stamp.batch} was decided or ended without this attempt, which aborts {participant.name}{left}"


def _is_as_begun(state: Description, stamp: Stamp, version: int) -> bool:
    """Whether the sink's own id is as begin left it. On transaction.version 2 it may be committed: the last
    decision has raised the epoch, and the next one raises it again. On 1 it is Empty (begin.py)."""
    before = ("Empty", "PrepareCommit", "CompleteCommit") if version >= TV2 else ("Empty",)
    return state.identity == stamp.identity and state.state in before
