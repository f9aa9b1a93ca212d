"""Prepare: decides what a task does with its rows, from what begin found out; and, once they are written,
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
from eoslog.connector.commit.messages import Begun, Stamp
from eoslog.connector.commit.names import Participant, Sink, Slot, parity
from eoslog.connector.commit.own import TV2


class Task(Enum):
    """What to do with the rows of a task."""

    WRITE = "write them in a transaction of the task's own"
    PASS_DECIDED = "count them and let them pass: the batch was decided in an earlier run"
    DROP = "let them pass: at_most_once has attempted the batch before"


def judge(begun: Begun, query_id: str, batch_id: int, partition: int) -> tuple[Task, Stamp]:
    """What to do, and the stamp for the report. Ids and partition are those that Spark tells the task.

    Of a decided batch only partitions that were lost are written again (replay.py).

    Raises CommitFault if they are not those that begin prepared for.
    """
    if begun.batch[:2] != (query_id, batch_id):
        raise CommitFault(
            f"sink {begun.sink_id} was made ready for {begun.batch}, but the task runs batch {batch_id} "
            f"of query {query_id}. Does another query use this checkpoint? Give each its own and start again"
        )
    stamp = stamp_of(begun)
    if begun.decided is not None and begun.decided[:2] == (query_id, batch_id):
        return Task.WRITE if partition in begun.lost else Task.PASS_DECIDED, stamp
    return Task.DROP if begun.dropped else Task.WRITE, stamp


def stamp_of(begun: Begun) -> Stamp:
    """Under what the tasks of the batch work."""
    who = (begun.sink_id, begun.incarnation, begun.identity)
    return Stamp(*who, begun.sequence, begun.anchors, begun.batch, begun.lost)


def participant_name(stamp: Stamp, worker: str, number: int) -> str:
    """Transactional id of this process's `number`th transaction in the batch."""
    slot = Slot(stamp.incarnation, parity(stamp.batch.batch_id), worker, number)
    return Sink(stamp.sink_id).participant(slot)


def withdraw_if_late(stamp: Stamp, participant: Participant) -> Rules[str | None]:
    """All rows of an attempt are written and not reported: is its batch still to be decided? If not, it
    aborts its transaction, as nobody else may come to do so.

    Begin has left the sink's own id at the stamp's identity, and with nothing open. A decision moves it, or
    opens a transaction on its way; so does the end of the run (ending.py); so does a newer driver. Either way
    no decision names this transaction, for nobody has been told of it; so the attempt may abort it. It
    reports as ever: a driver that took the report would find it aborted. While the sink has not moved,
    whoever moves it later looks for left-overs later still, and finds it open.

    Returns what is to be said, None if all is well. A look that fails is no fault of the rows: the next
    begin clears, as without it.
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
    """Whether the sink's own id is as begin left it. On transaction.version 2 that may be committed: the last
    decision has raised the epoch, and the next one raises it again. On 1 it is empty (begin.py)."""
    before = ("Empty", "PrepareCommit", "CompleteCommit") if version >= TV2 else ("Empty",)
    return state.identity == stamp.identity and state.state in before
