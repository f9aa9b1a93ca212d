"""Begin: own the sink, roll the last decision forward, clear what is left over. Then tasks may run.

The order matters: no participant is touched before the last decision has been read and carried out,
and nothing is aborted before it is certain that no newer driver owns the sink.
"""

from typing import NamedTuple

from eoslog.connector.commit.commands import (
    FENCED,
    Acquire,
    AskOngoing,
    CommitOffsets,
    Describe,
    Description,
    FetchStored,
    Refused,
    Rules,
    Unknown,
    ask,
    demand,
)
from eoslog.connector.commit.decision import ANCHOR, Decision, Stored, decode
from eoslog.connector.commit.faults import CheckpointMismatch, CheckpointOlder, CommitFault, ParticipantsLost
from eoslog.connector.commit.finish import clear, fenced, finish
from eoslog.connector.commit.messages import Batch, Begun, Run
from eoslog.connector.commit.names import Sink
from eoslog.connector.commit.own import fetch_stored, write_lost_markers
from eoslog.connector.commit.prove import prove
from eoslog.connector.commit.replay import OnLost, to_replay
from eoslog.connector.commit.seal import TwoPhase, check_offered
from eoslog.protocol.producer_identity import ProducerIdentity

LAST_EPOCH = 32_766
"""The highest epoch of a producer id: while a commit under it is prepared, Kafka names one more, and a new id
when it is complete."""


class Owned(NamedTuple):
    """The sink is ours: since when, as what, and what its group holds. `anew`: acquired just now."""

    incarnation: ProducerIdentity
    identity: ProducerIdentity
    stored: Stored
    anew: bool


def begin(
    sink: Sink,
    batch: Batch,
    *,
    last_run: Run | None = None,
    completed: int | None = None,
    once_at_most: bool = False,
    two_phase: TwoPhase = TwoPhase.AUTO,
    on_lost: OnLost = OnLost.STOP,
) -> Rules[tuple[Begun, Run]]:
    """Make the sink ready for the tasks of `batch`.

    `last_run` is what this process remembers of this query's last batch; `completed` the newest
    batch in Spark's own commit log. Returns what tasks need, and what to remember. Raises CommitFault.
    """
    owned = None
    if last_run is not None and batch.batch_id == last_run.batch.batch_id + 1:
        owned = yield from _keep(sink, last_run)
    if owned is None:
        owned = yield from acquire(sink)
        if two_phase is TwoPhase.REQUIRE:
            yield from check_offered(sink)
    last = decode(sink, owned.stored.chunks)
    begun = yield from make_ready(
        sink,
        owned,
        last,
        batch,
        is_complete=_is_complete(last, batch, completed),
        once_at_most=once_at_most,
        on_lost=on_lost,
    )
    return begun, Run(owned.incarnation, owned.identity, batch)


def make_ready(
    sink: Sink,
    owned: Owned,
    last: Decision | None,
    batch: Batch,
    *,
    is_complete: bool,
    once_at_most: bool = False,
    on_lost: OnLost = OnLost.STOP,
) -> Rules[Begun]:
    """Carry the last decision out, unless it surely is already, and clear what is left over. Raises
    CommitFault."""
    lost: tuple[int, ...] = ()
    if last is not None and not is_complete:
        lost = yield from _roll_forward(sink, last, batch, on_lost)
    check_checkpoint(sink, last, batch)
    spared = last.participants if last else ()
    kept = yield from clear(sink, spared, owner=owned.identity, asked=not owned.anew)
    if last is not None and kept:
        yield from finish(last.only(kept))
    dropped = False
    if once_at_most:
        dropped = yield from _mark_attempt(sink, batch)
    return Begun(
        sink_id=sink.id,
        incarnation=owned.incarnation,
        identity=owned.identity,
        sequence=last.sequence if last else 0,
        anchors=owned.stored.anchors,
        batch=batch,
        decided=(last.last_of(batch.query_id) or last.batch) if last else None,
        dropped=dropped,
        lost=lost,
        anew=owned.anew,
    )


def _roll_forward(sink: Sink, last: Decision, batch: Batch, on_lost: OnLost) -> Rules[tuple[int, ...]]:
    """Carry the last decision out; returns the Spark partitions of `batch` that are to be written again."""
    lost: tuple[int, ...] = ()
    try:
        yield from finish(last)
    except ParticipantsLost as loss:
        if on_lost is OnLost.STOP:
            raise
        check_checkpoint(sink, last, batch)
        lost = to_replay(loss, last, batch)
    yield from prove(last.without(lost))
    return lost


def acquire(sink: Sink) -> Rules[Owned]:
    """Take over the sink from its owner, whoever that is. Raises CommitFault."""
    yield from write_lost_markers(sink)  # before the state that tells how the last transaction ended is gone
    identity = yield from demand(Acquire(sink.coordinator), f"sink {sink.id} cannot be acquired")
    return Owned(identity, identity, (yield from fetch_stored(sink, identity)), True)


def _keep(sink: Sink, run: Run) -> Rules[Owned | None]:
    """Go on under the run's identity if it still owns the sink; None: acquire it again.

    The next number means that Spark has committed the batch begun here: this is the same run. (The
    same number is a replay, and after a gap somebody else has begun batches in between.) The state is
    asked before the decision, never after: a state that is followed by our own decision as the newest
    cannot have been left by another driver. On transaction.version 1 a commit leaves the epoch as it is; it
    is raised here, so that no request of the last batch that comes late can get into the next transaction:
    neither its commit, before the next batch is verified, nor its decision in the place of the next one.

    Kafka answers EndTxn before its markers are written, so the state may be PrepareCommit still: that
    nobody can take back, and the decision has just been read, so the marker is where it counts. Whatever is
    asked of the coordinator next waits until it has written the others. Raises SinkFenced.
    """
    yield from ask(AskOngoing(sink.prefix))
    states = yield from demand(Describe((sink.coordinator,)), f"sink {sink.id} cannot be looked up")
    state = states[sink.coordinator]
    stored = yield from fetch_stored(sink, run.identity)
    if state is None:  # expired after days of rest; nobody has acquired it since
        return None
    if not left_by(run, state, decode(sink, stored.chunks)):
        if state.identity != run.identity:
            raise fenced(
                sink, f"it is at {state.identity} {state.state}, this driver began as {run.identity}"
            )
        # The decision that Spark has noted is gone: brokers were restored from an older copy. Compare all.
        return Owned(run.incarnation, (yield from raise_epoch(sink, run.identity)), stored, True)
    if state.identity.epoch > LAST_EPOCH:
        return None
    identity = state.identity
    if identity == run.identity:
        identity = yield from raise_epoch(sink, identity)
    return Owned(run.incarnation, identity, stored, False)


def raise_epoch(sink: Sink, identity: ProducerIdentity) -> Rules[ProducerIdentity]:
    """The sink's next identity, if this one still owns it."""
    raised = yield from ask(Acquire(sink.coordinator, identity))
    if isinstance(raised, Refused) and raised.code in FENCED:
        raise fenced(sink, raised)
    if isinstance(raised, (Refused, Unknown)):
        raise CommitFault(
            f"sink {sink.id} cannot be acquired: {raised}. When that is mended, start the query again"
        )
    return raised


def left_by(run: Run, state: Description, last: Decision | None) -> bool:
    """Whether the state is what this run's own last decision made of it (EndTxn raised the epoch)."""
    ours = last is not None and (last.incarnation, last.batch) == (run.incarnation, run.batch)
    return ours and state.state in ("PrepareCommit", "CompleteCommit")


def _is_complete(last: Decision | None, batch: Batch, completed: int | None) -> bool:
    """Spark logs a batch as committed only after commit() has returned, all winners committed.

    Then nothing needs to be asked; and a query that rested longer than the broker keeps idle
    transactional ids must not take the expired ones for lost. (What is open all the same, as another
    connector has run the batch again meanwhile, is found with the left-overs.)
    """
    if last is None or completed is None:
        return False
    return last.batch.query_id == batch.query_id and last.batch.batch_id <= completed


def check_checkpoint(sink: Sink, last: Decision | None, batch: Batch) -> None:
    """The batch is new to the sink, or a replay of its query's last decided one; raises CheckpointMismatch.

    A checkpoint that was set back plans its next batches from old offsets up to now under numbers
    that are decided already. Their rows must be neither written again nor dropped.
    """
    decided = last.last_of(batch.query_id) if last else None
    if decided is None or batch.batch_id > decided.batch_id:
        return
    if batch.batch_id < decided.batch_id:
        raise CheckpointOlder(
            f"sink {sink.id}: the sink has decided {decided} already, and the checkpoint is at batch "
            f"{batch.batch_id}. {CheckpointOlder.advice}"
        )
    if batch.digest and decided.digest and batch.digest != decided.digest:
        raise CheckpointMismatch(
            f"sink {sink.id}: the sink has decided {decided} with other source offsets than the "
            f"checkpoint plans now. {CheckpointMismatch.advice}"
        )


def _mark_attempt(sink: Sink, batch: Batch) -> Rules[bool]:
    """at_most_once: note that the batch is tried now; True if it was tried before."""
    what = f"attempts at sink {sink.id}"
    stored = yield from demand(FetchStored(sink.attempts_group), f"{what} cannot be read")
    if stored.chunks.get(0) == (batch.batch_id, batch.query_id):
        return True
    note = {(ANCHOR, 0): (batch.batch_id, batch.query_id)}
    yield from demand(CommitOffsets(sink.attempts_group, note), f"{what} cannot be noted")
    return False
