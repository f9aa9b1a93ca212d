"""Prepare: what a task does with its rows, judged from what begin found out; and once they are written,
whether anybody still waits for them."""

from enum import Enum

from eoslog.connector.commit.commands import End, FetchSequence, Refused, Rules, Unknown, ask
from eoslog.connector.commit.faults import CheckpointOlder, CommitFault
from eoslog.connector.commit.messages import Batch, Begun, Stamp
from eoslog.connector.commit.names import Participant, Sink, Slot, parity


class Task(Enum):
    """What to do with the rows of a task."""

    WRITE = "write them in a transaction of the task's own"
    PASS_DECIDED = "count them and let them pass: the batch was decided in an earlier run"
    DROP = "let them pass: at_most_once has attempted the batch before"


def judge(begun: Begun, query_id: str, batch_id: int, partition: int) -> tuple[Task, Stamp]:
    """What to do, and the stamp for the report. Ids and partition are those that Spark tells the task.

    Of a decided batch only partitions that were lost are written again (replay.py).

    Raises CommitFault if they are not those that begin prepared for, CheckpointOlder if the sink
    is ahead of the query.
    """
    batch = begun.batch or Batch(query_id, batch_id)
    if batch[:2] != (query_id, batch_id):
        raise CommitFault(
            f"sink {begun.sink_id} was made ready for {batch}, but the task runs batch {batch_id} "
            f"of query {query_id}. Does another query use this checkpoint? Give each its own and start again"
        )
    stamp = stamp_of(begun, batch)
    known = (begun.decided, *begun.earlier)
    decided = next((other for other in known if other is not None and other.query_id == query_id), None)
    if decided is not None and decided.batch_id >= batch_id:
        if decided.batch_id > batch_id:
            raise CheckpointOlder(
                f"sink {begun.sink_id} has decided {decided} already; this is batch {batch_id}. "
                f"{CheckpointOlder.advice}"
            )
        return Task.WRITE if partition in begun.lost else Task.PASS_DECIDED, stamp
    return Task.DROP if begun.dropped else Task.WRITE, stamp


def stamp_of(begun: Begun, batch: Batch) -> Stamp:
    """Under what the tasks of `batch` work."""
    return Stamp(
        begun.sink_id, begun.incarnation, begun.identity, begun.sequence, begun.anchors, batch, begun.lost
    )


def participant_name(stamp: Stamp, worker: str, number: int) -> str:
    """Transactional id of this process's `number`th transaction in the batch."""
    slot = Slot(stamp.incarnation, parity(stamp.batch.batch_id), worker, number)
    return Sink(stamp.sink_id).participant(slot)


def withdraw_if_late(stamp: Stamp, participant: Participant) -> Rules[str | None]:
    """All rows of an attempt are written and not reported: is its batch still to be decided? If not, it
    aborts its transaction, as nobody else may come to do so.

    When the sink's number has gone up since begin, the batch was decided with another attempt of the task,
    or a newer driver owns the sink. Either way no decision names this transaction, for nobody has been told
    of it; so the attempt may abort it. It reports as ever: a driver that took the report would find it
    aborted. While the number has not gone up, whoever decides later looks for left-overs later still, and
    finds it open.

    Returns what is to be said, None if all is well. A look that fails is no fault of the rows: the next
    begin clears, as without it.
    """
    group = Sink(stamp.sink_id).group
    found = yield from ask(FetchSequence(group))
    if isinstance(found, Unknown):
        # Perhaps because of the next batch's decision, which need not be waited for.
        found = yield from ask(FetchSequence(group, stable=False))
    if isinstance(found, (Refused, Unknown)):
        return f"whether {stamp.batch} is decided already could not be looked up: {found}"
    if found <= stamp.sequence:
        return None
    answers = yield from ask(End(False, (participant,)))
    answer = answers if isinstance(answers, (Refused, Unknown)) else answers[participant.name]
    left = f", and does not know whether that was done: {answer}" if isinstance(answer, Unknown) else ""
    return f"{stamp.batch} was decided without this attempt, which aborts {participant.name}{left}"
