"""Moves a sink's decision to another batch of its query, as `eoslog checkpoint` does when it edits a
checkpoint.

The sink is acquired first: so its driver, if there is one, can decide nothing more, and stops at its next
batch. Then the last decision is carried out, what is not decided is aborted, and a decision without
transactions is made, in one transaction with the source offsets of the group, as for a micro-batch without
rows. So is the decision of a batch whose lost rows the user has given up.
"""

from collections.abc import Collection

from eoslog.connector.commit.begin import acquire, attempted, is_complete, make_ready, note_attempt
from eoslog.connector.commit.commands import Rules
from eoslog.connector.commit.decide import SourceOffsets, decide
from eoslog.connector.commit.decision import Decision, decode
from eoslog.connector.commit.faults import CommitFault, ParticipantsLost
from eoslog.connector.commit.finish import ROWS_LOST, abort_all, finish_late, lost_word
from eoslog.connector.commit.marker_proof import look_back
from eoslog.connector.commit.places import Places
from eoslog.connector.commit.saved_state import Saving
from eoslog.connector.commit.seal import TwoPhase
from eoslog.connector.commit.sink_transaction import fetch_stored
from eoslog.connector.commit.task_reports import Batch, Begun, Stamp, Start
from eoslog.connector.commit.transactional_ids import Sink


def move_decision(
    sink: Sink,
    seen: Decision | None,
    to: Batch,
    source: SourceOffsets | None,
    completed: int | None,
    saving: Saving | None = None,
    ends: str = "",
    start: Start | None = None,
    places: Places = (),
) -> Rules[Decision]:
    """Make `to` the last decided batch of its query. `seen`: the last decision when the edit was judged;
    `completed`: the newest batch in Spark's commit log. `saving`: writes with the decision, and has to save
    the query's state if it was saved before. `ends`, `start`: as in Decision. `places`: where rows of the
    query are known to be, beside those that `seen` knows. Raises CommitFault; then nothing was moved, except
    after OutcomeUnknown."""
    known = None if seen is None else seen.of_query
    if known is not None and known.saved is not None and saving is None:
        raise ValueError(f"sink {sink.id}: {known.batch} has its state in {known.saved.topic}: save it again")
    owned = yield from acquire(sink)
    last = decode(sink, owned.stored.chunks)
    if last != seen:
        raise CommitFault(
            f"sink {sink.id} has decided {last.batch if last else 'nothing'} since it was looked at: the "
            "query runs, or has just ended. Nothing was changed. Stop the query, then give the command again"
        )
    nothing = Batch("", -1)  # no batch is begun
    done = is_complete(last, to.query_id, completed)
    begun = yield from make_ready(sink, owned, last, nothing, is_complete=done)
    stamp = Stamp(begun.sink_id, begun.incarnation, begun.identity, begun.sequence, begun.anchors, to)
    decision = _moved(last, to, begun, places)._replace(ends=ends, start=start)
    decision = yield from decide(sink, decision, stamp, source, TwoPhase.NEVER, last, saving)
    yield from _move_attempt(sink, to)
    return decision


def _moved(last: Decision | None, to: Batch, begun: Begun, places: Places) -> Decision:
    """A decision that writes nothing, and remembers what `last` does of the sink. What `last` says of its own
    batch ends with it, but for where rows are; `saved` is written anew."""
    decision = Decision(begun.sequence + 1, to, begun.incarnation, (), (), places=places)
    if last is None:
        return decision
    decision = last.followed_by(decision)._replace(within=last.within)
    decision = decision._replace(older=last.older_after(places))
    return decision._replace(tokens=last.tokens, topics=last.topics, left=last.left)


def give_up(sink: Sink, accepted: Collection[str]) -> Rules[None]:
    """Have the sink's last decision name no transactions, if rows of it are lost and the user has accepted
    that (start.accepted): then nobody who finishes it finds them lost again. Raises CommitFault."""
    if not any(word.startswith(ROWS_LOST) for word in accepted):
        return
    last = decode(sink, (yield from fetch_stored(sink, None)).chunks)
    if last is None or not last.winners or lost_word(last.batch) not in accepted:
        return
    owned = yield from acquire(sink)
    last = decode(sink, owned.stored.chunks)
    if last is None or lost_word(last.batch) not in accepted:
        return
    try:
        yield from finish_late(last)
        yield from look_back(last)
    except ParticipantsLost as loss:
        if loss.unfinished:
            raise
        yield from abort_all([winner.ender for winner in loss.held])
        found = (sink.id, owned.incarnation, owned.identity, last.sequence, owned.stored.anchors, last.batch)
        done = last._replace(
            sequence=last.sequence + 1, incarnation=owned.incarnation, winners=(), written=(), places=()
        )
        yield from decide(sink, done, Stamp(*found), None, TwoPhase.NEVER, last)


def _move_attempt(sink: Sink, to: Batch) -> Rules[None]:
    """at_most_once: the next batch was not attempted, whatever batch had its number before. It is noted after
    the decision: an edit that ends in between leaves a checkpoint that no start accepts."""
    tried = yield from attempted(sink)
    if tried is not None and tried.query_id == to.query_id and tried.batch_id != to.batch_id:
        yield from note_attempt(sink, to)
