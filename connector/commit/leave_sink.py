"""Leave: what a query does with a sink that it stops using, or that another query has used until now."""

from eoslog.connector.commit.begin import acquire, is_complete, make_ready
from eoslog.connector.commit.commands import Rules
from eoslog.connector.commit.decide import decide
from eoslog.connector.commit.decision import Decision, decode
from eoslog.connector.commit.seal import TwoPhase
from eoslog.connector.commit.sink_transaction import fetch_stored
from eoslog.connector.commit.task_reports import Batch, Left, Stamp
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.protocol.producer_identity import ProducerIdentity

NO_BATCH = Batch("", -1)
"""No batch is begun."""


def leave(
    old: Sink, batch: Batch, completed: int | None, left: Left | None = None, ended: Decision | None = None
) -> Rules[ProducerIdentity]:
    """Before `batch` goes to another sink: fence the owner of the old sink, commit its last decision's
    transactions and abort the rest. Then note with that decision that the sink was left: `left`, None: it is
    not. `ended`: as the query has decided there last, for a sink that has forgotten it (ended_with); None:
    then nothing is noted. Returns the sink's identity.

    A sealed transaction that stayed open would hold readers back for ever. Without the note a checkpoint that
    does not know of the other sink would begin where this one has ended. Raises CommitFault.
    """
    owned = yield from acquire(old)
    last = decode(old, owned.stored.chunks)
    done = is_complete(last, batch.query_id, completed)
    begun = yield from make_ready(old, owned, last, batch, is_complete=done)
    known = last or ended
    if known is not None and left is not None and not _is_anothers(known, batch):
        stamp = Stamp(old.id, owned.incarnation, owned.identity, known.sequence, begun.anchors, known.batch)
        noted = known._replace(
            sequence=known.sequence + 1, incarnation=owned.incarnation, winners=(), names="", left=left
        )
        yield from decide(old, noted, stamp, None, TwoPhase.NEVER, last)
    return owned.identity


def ended_with(batch: Batch, ends: str) -> Decision:
    """What is known of a decision that is forgotten: its batch, and that one's plan."""
    return Decision(0, batch, ProducerIdentity(-1, -1), (), (), ends=ends)


def has_moved_away(last: Decision | None, sink: Sink, query_id: str) -> bool:
    """Whether a query has moved to another cluster since the sink's last decision, which was its: nobody has
    decided since."""
    left = None if last is None else last.left
    return left is not None and (left.sink, left.query_id) == (sink.id, query_id)


def _is_anothers(last: Decision, batch: Batch) -> bool:
    """Whether another query uses the sink that this one leaves: it goes on there."""
    known = last.of_query
    by_another = known is not None and known.start is not None and known.batch.query_id != batch.query_id
    return batch != NO_BATCH and by_another


def stable_decision(sink: Sink) -> Rules[Decision | None]:
    """The sink's last decision. It only reads, so the sink's owner is not fenced. Raises CommitFault."""
    stored = yield from fetch_stored(sink, None)
    return decode(sink, stored.chunks)


def taken_over(sink: Sink) -> Rules[Decision | None]:
    """Fence the sink's owner, and return what was decided last. What is to be done about that is left to the
    next begin. Raises CommitFault."""
    owned = yield from acquire(sink)
    return decode(sink, owned.stored.chunks)


def fence(sink: Sink, left: Left | None = None, ended: Decision | None = None) -> Rules[ProducerIdentity]:
    """Fence the sink's owner, so that the source offsets it has committed no longer change, and commit the
    transactions it has decided: a query that begins at these offsets does not write those rows. Returns the
    sink's identity. `left`: as in leave.

    The coordinator commits or aborts a decision that is on its way before it answers. Raises CommitFault.
    """
    return (yield from leave(sink, NO_BATCH, None, left, ended))
