"""Leave: what a query does with a sink that it stops using, or that another query has used until now."""

from eoslog.connector.commit.begin import acquire, begin, make_ready
from eoslog.connector.commit.commands import Rules
from eoslog.connector.commit.decision import Decision, decode
from eoslog.connector.commit.sink_transaction import fetch_stored
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.protocol.producer_identity import ProducerIdentity


def leave(old: Sink, batch: Batch, completed: int | None) -> Rules[None]:
    """Before `batch` goes to another sink: fence the owner of the old sink, commit its last decision's
    transactions and abort the rest.

    A sealed transaction that stayed open would hold readers back for ever. Raises CommitFault.
    """
    yield from begin(old, batch, completed=completed)


def decided_by(sink: Sink, query_id: str) -> Rules[Batch | None]:
    """The last batch of a query that the sink has decided. It only reads, so the sink's owner is not fenced.
    Raises CommitFault."""
    stored = yield from fetch_stored(sink, None)
    last = decode(sink, stored.chunks)
    return last.last_of(query_id) if last else None


def taken_over(sink: Sink) -> Rules[Decision | None]:
    """Fence the sink's owner, and return what was decided last. What is to be done about that is left to the
    next begin. Raises CommitFault."""
    owned = yield from acquire(sink)
    return decode(sink, owned.stored.chunks)


def fence(sink: Sink) -> Rules[ProducerIdentity]:
    """Fence the sink's owner, so that the source offsets it has committed no longer change, and commit the
    transactions it has decided: a query that begins at these offsets does not write those rows. Returns the
    sink's identity.

    The coordinator commits or aborts a decision that is on its way before it answers. Raises CommitFault.
    """
    owned = yield from acquire(sink)
    last = decode(sink, owned.stored.chunks)
    nothing = Batch("", -1)  # no batch is begun
    yield from make_ready(sink, owned, last, nothing, is_complete=False)
    return owned.identity
