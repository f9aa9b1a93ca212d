"""Begin: own the sink, roll the last decision forward, abort left-over transactions. Then tasks may run.

The order matters: no participant is aborted before the winners of the last decision are committed, and before
it is certain that no newer driver owns the sink.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from eoslog.connector.commit.commands import (
    FENCED,
    Acquire,
    AskOngoing,
    CommitOffsets,
    Describe,
    Description,
    FetchStored,
    GroupExists,
    Refused,
    Rules,
    Unknown,
    ask,
    demand,
)
from eoslog.connector.commit.decision import ANCHOR, Decision, Stored, decode, following
from eoslog.connector.commit.faults import (
    CheckpointMismatch,
    CheckpointOlder,
    CommitFault,
    DecisionElsewhere,
    ParticipantsLost,
    SinkFenced,
    TakenOver,
)
from eoslog.connector.commit.finish import clear, fenced, finish_late, lost_to, put_back
from eoslog.connector.commit.marker_proof import look_back
from eoslog.connector.commit.observe import observed
from eoslog.connector.commit.replay import OnLost, copied, to_replay
from eoslog.connector.commit.seal import TwoPhase, check_offered
from eoslog.connector.commit.sink_transaction import fetch_stored, shows_use, was_used, write_lost_markers
from eoslog.connector.commit.task_reports import Batch, Begun, Left, Run
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity

LAST_EPOCH = 32_766
"""The highest epoch of a producer id. While a commit under it is prepared, Kafka reports one more; when it is
complete, a new producer id."""


class KnownStarts(NamedTuple):
    """What a checkpoint knows: the `words` of its query's starts. `place`: where it is, as in Start.
    `topics`: what its query writes to; empty: its rows name them. `accept`: the option that accepts a
    finding, by its word; None: it is accepted. `topic`: as in Start."""

    words: Collection[str]
    place: str
    topics: Collection[str]
    accept: Callable[[str], str | None]
    topic: str | None = None


class Owned(NamedTuple):
    """The sink is ours. `incarnation`: its identity at acquisition. `identity`: the current one. `stored`:
    what its group has. `acquired_now`: not kept from the last batch."""

    incarnation: ProducerIdentity
    identity: ProducerIdentity
    stored: Stored
    acquired_now: bool


def begin(
    sink: Sink,
    batch: Batch,
    *,
    last_run: Run | None = None,
    completed: int | None = None,
    two_phase: TwoPhase = TwoPhase.AUTO,
    on_lost: OnLost = OnLost.STOP,
    leads_to: Batch | None = None,
    starts: KnownStarts | None = None,
) -> Rules[tuple[Begun, Run]]:
    """Make the sink ready for the tasks of `batch`.

    `last_run`: what this process remembers of this query's last batch. `completed`: the newest batch in
    Spark's own commit log. `leads_to`: see check_checkpoint. `starts`: see check_start;
    None: it is not checked. Returns what tasks need, and what to remember.
    Raises CommitFault.
    """
    owned = None
    if last_run is not None and batch.batch_id == last_run.batch.batch_id + 1:
        owned = yield from _keep(sink, last_run)
    if owned is None:
        owned = yield from acquire(sink)
        if two_phase is TwoPhase.REQUIRE:
            yield from check_offered(sink)
    last = decode(sink, owned.stored.chunks)
    check_start(sink, last, batch, starts)
    begun = yield from make_ready(
        sink,
        owned,
        last,
        batch,
        is_complete=is_complete(last, batch.query_id, completed),
        on_lost=on_lost,
        leads_to=leads_to,
    )
    return begun, Run(owned.incarnation, owned.identity, batch)


def make_ready(
    sink: Sink,
    owned: Owned,
    last: Decision | None,
    batch: Batch,
    *,
    is_complete: bool,
    on_lost: OnLost = OnLost.STOP,
    leads_to: Batch | None = None,
) -> Rules[Begun]:
    """Commit the last decision's winners, unless they are certain to be, and abort left-over transactions.

    Raises CommitFault.
    """
    lost: tuple[int, ...] = ()
    if last is not None and not is_complete:
        lost = yield from _roll_forward(sink, last, batch, on_lost, leads_to)
    check_checkpoint(sink, last, batch, leads_to)
    spared = last.participants if last else ()
    kept = yield from clear(sink, spared, owner=owned.identity, asked=not owned.acquired_now)
    if last is not None and kept:
        yield from finish_late(last.only(kept))
    known = None if last is None else last.of_query or last
    decided = None if last is None or known is None else last.last_of(batch.query_id) or known.batch
    return Begun(
        sink_id=sink.id,
        incarnation=owned.incarnation,
        identity=owned.identity,
        sequence=last.sequence if last else 0,
        anchors=owned.stored.anchors,
        batch=batch,
        decided=decided,
        lost=lost,
        acquired_now=owned.acquired_now,
        followed_by=None if last is None else last.successor_of(batch.query_id),
        last_start=known.start if known is not None and known.batch.query_id == batch.query_id else None,
        left_state=known is not None and known.saved is not None and known.saved.stateful,
        passes=last is not None and _passes(last, batch, leads_to),
    )


def _passes(last: Decision, batch: Batch, leads_to: Batch | None) -> bool:
    """Whether Spark runs the batch for its state alone, on the way to the last decided one."""
    decided = last.last_of(batch.query_id)
    leads = decided is not None and leads_to is not None and leads_to.repeats(decided)
    return leads and last.is_after(batch)


def _roll_forward(
    sink: Sink, last: Decision, batch: Batch, on_lost: OnLost, leads_to: Batch | None
) -> Rules[tuple[int, ...]]:
    """Commit the last decision's winners. Returns the Spark partitions of `batch` to write again; none before
    Spark comes to that decision's batch."""
    lost: tuple[int, ...] = ()
    for step in (finish_late, look_back):
        try:
            yield from step(last.without(lost))
        except ParticipantsLost as loss:
            if on_lost is OnLost.STOP:
                raise
            check_checkpoint(sink, last, batch, leads_to)
            if _passes(last, batch, leads_to):
                return ()
            lost += to_replay(loss, last, batch)
    return tuple(sorted(lost))


def acquire(sink: Sink) -> Rules[Owned]:
    """Take over the sink from its owner. Raises CommitFault."""
    # First: Acquire destroys the state that shows how the last one ended, and where it kept its decision.
    left = yield from write_lost_markers(sink)
    if left is not None and left.elsewhere:
        yield from _check_hidden(sink)
    used = yield from was_used(sink, left)
    what = f"sink {sink.id} cannot be acquired"
    identity = yield from demand(Acquire(sink.coordinator, used=used), what)
    stored = yield from fetch_stored(sink, identity, everywhere=True)
    check_place(sink, stored)
    return Owned(identity, identity, stored, True)


def has_forgotten(sink: Sink) -> Rules[bool]:
    """Whether the sink has decided, and its group has no decision any more: it was deleted, or has expired.
    That is seen until the sink decides again. Raises DecisionElsewhere, CommitFault."""
    if (yield from observed(sink)) is not None:
        return False
    what = f"sink {sink.id} cannot be looked up"
    state = (yield from demand(Describe((sink.coordinator,)), what))[sink.coordinator]
    if state is None or not shows_use(state):
        return False
    check_place(sink, (yield from demand(FetchStored(sink.group, everywhere=True, stable=False), what)))
    if state.elsewhere:
        yield from _check_hidden(sink)
    return True


def _check_hidden(sink: Sink) -> Rules[None]:
    """Raise DecisionElsewhere if the sink's last owner kept decisions on another topic, the group is there,
    and this user sees no decision in it: brokers leave out what a user may not describe. Without a group
    nothing was decided, or it has expired with its decision."""
    what = f"whether sink {sink.id} has decided on another topic cannot be seen"
    stored = yield from demand(FetchStored(sink.group, everywhere=True, stable=False), what)
    check_place(sink, stored)
    if not stored.chunks and (yield from demand(GroupExists(sink.group), what)):
        raise DecisionElsewhere(
            f"sink {sink.id}: group {sink.group} keeps decisions on another topic than decision.topic names, "
            "and this user cannot see them. Nothing was written. Give the user Describe on that topic again. "
            f"{DecisionElsewhere.advice}"
        )


def may_read_more(sink: Sink) -> Rules[bool]:
    """Whether this user may read the groups of a decision that the sink's own has no room for, as far as
    brokers say so. How large a decision is, is known when all tasks have reported."""
    answer = yield from ask(FetchStored(following(sink.group, 1), stable=False))
    return not (isinstance(answer, Refused) and answer.code == ErrorCode.GROUP_AUTHORIZATION_FAILED)


def check_noted_place(sink: str, noted: str, now: str) -> None:
    """Raise DecisionElsewhere if the checkpoint's sink keeps its decisions on another topic than `now`: they
    may be hidden from this user, so that check_place does not see them."""
    if noted != now:
        raise DecisionElsewhere(
            f"sink {sink}: the checkpoint has it with decisions on {noted}, and decision.topic is {now}. "
            f"{DecisionElsewhere.advice}"
        )


def check_place(sink: Sink, stored: Stored) -> None:
    """Raise DecisionElsewhere if the group has a decision on another topic: that one may be the newest."""
    if stored.elsewhere:
        raise DecisionElsewhere(
            f"sink {sink.id}: group {sink.group} has decisions on {', '.join(stored.elsewhere)}, and "
            f"decision.topic names another topic. {DecisionElsewhere.advice}"
        )


def _keep(sink: Sink, run: Run) -> Rules[Owned | None]:
    """Keep the sink under the run's identity if the run still owns it. None: it must be acquired again.

    The next batch id means that Spark has committed the batch begun here, so this is the same run. (The same
    id is a replay, and a gap means that another driver has begun batches in between.) The state is read
    before the decision, never after: if our own decision is then the newest, no other driver has left that
    state. On transaction.version 1 a commit does not change the epoch. It is raised here, so that no late
    request of the last batch can get into the next transaction: neither its commit, before the next batch is
    verified, nor its decision in place of the next one.

    Kafka answers EndTxn before its markers are written, so the state may still be PrepareCommit. A prepared
    commit is final, and the decision has just been read, so its marker is written where it matters here. The
    coordinator's next answers wait until it has written the others. Raises SinkFenced.
    """
    yield from ask(AskOngoing(sink.prefix))
    states = yield from demand(Describe((sink.coordinator,)), f"sink {sink.id} cannot be looked up")
    state = states[sink.coordinator]
    stored = yield from fetch_stored(sink, run.identity)
    if state is None:  # expired after days without use, and not acquired since
        return None
    used = shows_use(state) or bool(stored.chunks)
    if not left_by(run, state, decode(sink, stored.chunks)):
        if state.identity != run.identity:
            raise _lost_since(sink, run, state, decode(sink, stored.chunks))
        # The decision of a batch that Spark has noted is gone: brokers were restored from an older copy.
        raised = yield from raise_epoch(sink, run.identity, used, put_back)
        return Owned(run.incarnation, raised, stored, True)
    if state.identity.epoch > LAST_EPOCH:
        return None
    identity = state.identity
    if identity == run.identity:
        identity = yield from raise_epoch(sink, identity, used)
    return Owned(run.incarnation, identity, stored, False)


def _lost_since(sink: Sink, run: Run, state: Description, last: Decision | None) -> SinkFenced:
    """The error for a run whose sink is at another identity than its last batch left it at. Spark has noted
    that batch: another driver would know its decision."""
    decided = None if last is None else last.last_of(run.batch.query_id)
    if decided is not None and decided.batch_id >= run.batch.batch_id:
        return lost_to(sink, run.identity, state)
    known = "none" if last is None else last.batch
    return put_back(sink, f"this driver has decided {run.batch}, and its last decision is {known}")


def raise_epoch(
    sink: Sink, identity: ProducerIdentity, used: bool, lost: Callable[[Sink, object], SinkFenced] = fenced
) -> Rules[ProducerIdentity]:
    """The sink's next identity, if this one still owns it. `used`: as in Acquire. `lost`: the error if it
    does not."""
    raised = yield from ask(Acquire(sink.coordinator, identity, used))
    if isinstance(raised, Refused) and raised.code in FENCED:
        raise lost(sink, raised)
    if isinstance(raised, (Refused, Unknown)):
        raise CommitFault(
            f"sink {sink.id} cannot be acquired: {raised}. Fix that, then start the query again"
        )
    return raised


def left_by(run: Run, state: Description, last: Decision | None) -> bool:
    """Whether this run's own last decision has left this state (EndTxn raised the epoch)."""
    ours = last is not None and (last.incarnation, last.batch) == (run.incarnation, run.batch)
    return ours and state.state in ("PrepareCommit", "CompleteCommit")


def is_complete(last: Decision | None, query_id: str, completed: int | None) -> bool:
    """Whether all winners of the last decision are certain to be committed.

    Spark logs a batch as committed only after commit() has returned, when all winners are committed. Then
    they need not be looked up, and must not be: after a long pause the broker has forgotten idle
    transactional ids, and those must not be taken for lost. (If a winner is open nevertheless, because
    another connector has run the batch again in the meantime, it is found among the left-over transactions.)
    """
    if last is None or completed is None:
        return False
    return last.batch.query_id == query_id and last.batch.batch_id <= completed


def check_checkpoint(sink: Sink, last: Decision | None, batch: Batch, leads_to: Batch | None = None) -> None:
    """Raise CheckpointMismatch unless the batch is new to the sink or replays its query's last decided one.

    `leads_to`: in a checkpoint that was restored from state.topic, the batch up to which Spark runs decided
    batches again, for their state. It has to be the last decided one.

    A checkpoint that was set back plans its next batches from old offsets up to the present, with batch ids
    that are already decided. Their rows must be neither written again nor dropped.
    """
    decided = last.last_of(batch.query_id) if last else None
    if decided is None or batch.batch_id > decided.batch_id:
        return
    if last is not None and _passes(last, batch, leads_to):
        return
    if batch.batch_id < decided.batch_id:
        raise CheckpointOlder(
            f"sink {sink.id}: the sink has decided {decided} already, and the checkpoint is at batch "
            f"{batch.batch_id}. {CheckpointOlder.advice}"
        )
    if not batch.repeats(decided):
        raise CheckpointMismatch(
            f"sink {sink.id}: the sink has decided {decided} with other source offsets than the "
            f"checkpoint plans now. {CheckpointMismatch.advice}"
        )


def is_anothers(last: Decision | None, batch: Batch, starts: KnownStarts) -> bool:
    """Whether a copy of the query's checkpoint has made the sink's last decision.

    A checkpoint that was put back to a backup does not know its query's last starts either. It lies where it
    lay, and the rows are where it would write them: so a replay of them is dropped rightly. A copy that was
    made while the query ran knows its start. So does a moved checkpoint: but its rows are where it writes.
    """
    last = None if last is None else last.of(batch.query_id)
    if last is None or last.start is None:
        return False
    same_place = last.start.place == starts.place
    given = {last.start.topic, starts.topic}
    same_topics = not starts.topics or {topic for topic, _ in last.written} <= set(starts.topics)
    same_topics = same_topics and (None in given or len(given) == 1)
    if last.start.word in starts.words:
        return not same_place and not same_topics and batch.batch_id <= last.batch.batch_id
    return not same_place or not same_topics


def check_start(sink: Sink, last: Decision | None, batch: Batch, starts: KnownStarts | None) -> None:
    """Raise CheckpointCopied if a copy of the checkpoint has made the last decision, or TakenOver if the sink
    was left, unless that is accepted.

    Both copies have one query id. The batches of the one would be taken for replays of the other's.
    """
    if starts is not None and last is not None:
        check_left(sink, last.left, starts)
    made = None if last is None else last.of(batch.query_id)
    if starts is None or made is None or made.start is None or not is_anothers(last, batch, starts):
        return
    accept = starts.accept(f"copied:{made.start.word}")
    if accept is not None:
        raise copied(sink, made, made.start, starts.place, accept)


def check_left(sink: Sink, left: Left | None, starts: KnownStarts) -> None:
    """Raise TakenOver if a checkpoint has left the sink that is not this one, unless that is accepted."""
    if left is None or left.word in starts.words or (accept := starts.accept(f"left:{left.word}")) is None:
        return
    to, on = "at_least_once", "To go on, use that query's checkpoint"
    if left.sink == sink.id:
        to = "another cluster"
        on = (
            "Go on there with the checkpoint that was moved. If it is lost, remove this one, and write that "
            f"one again: eoslog checkpoint rebuild --transactional-id {sink.id}, with the other cluster's "
            "--bootstrap-server"
        )
    elif left.sink:
        to = f"sink {left.sink}"
        on = (
            f"To go on there, start with transactional.id={left.sink}, in source and sink: with the newest "
            "checkpoint, or with another new checkpoint and startingOffsets=committed"
        )
    raise TakenOver(
        f"sink {sink.id}: it was left for {to} by batch {left.batch_id} of query {left.query_id}, at "
        f"{left.time}. "
        "This checkpoint knows nothing of that and would write rows again. Nothing was written. "
        f"{on}. If rows may be there twice, set {accept}"
    )


def mark_attempt(sink: Sink, batch: Batch) -> Rules[bool]:
    """at_most_once: note that this batch is attempted, when nothing is left to be compared: a batch that no
    task has had is not attempted. Returns whether it was attempted before. Raises CommitFault."""
    tried = yield from attempted(sink)
    if tried is not None and batch.repeats(tried):
        return True
    yield from note_attempt(sink, batch)
    return False


def attempted(sink: Sink) -> Rules[Batch | None]:
    """at_most_once: the last batch that was attempted. Earlier versions noted no digest."""
    stored = yield from demand(FetchStored(sink.attempts_group), f"attempts at sink {sink.id} cannot be read")
    number, text = stored.chunks.get(0, (0, ""))
    query, _, digest = text.partition("\n")
    return Batch(query, number, digest) if query else None


def note_attempt(sink: Sink, batch: Batch) -> Rules[None]:
    """at_most_once: this batch is the last one that was attempted."""
    note = {(ANCHOR, 0): (batch.batch_id, f"{batch.query_id}\n{batch.digest}")}
    yield from demand(CommitOffsets(sink.attempts_group, note), f"attempts at sink {sink.id} cannot be noted")
