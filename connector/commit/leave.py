"""Leave: what a query does with a sink that is no longer its own, or that was another query's until now."""

from eoslog.connector.commit.begin import acquire, begin, make_ready
from eoslog.connector.commit.commands import Rules
from eoslog.connector.commit.decision import decode
from eoslog.connector.commit.messages import Batch
from eoslog.connector.commit.names import Sink
from eoslog.connector.commit.own import fetch_stored
from eoslog.protocol.producer_identity import ProducerIdentity


def leave(old: Sink, batch: Batch, completed: int | None) -> Rules[None]:
    """Before `batch` goes elsewhere: fence who holds the old sink, carry out its last decision, clear the
    rest.

    What was open would hold readers back for ever where it was sealed. Raises CommitFault.
    """
    yield from begin(old, batch, completed=completed)


def decided_by(sink: Sink, query_id: str) -> Rules[Batch | None]:
    """The last batch of a query that the sink has decided. A look: it disturbs nobody who holds the sink.
    Raises CommitFault."""
    stored = yield from fetch_stored(sink, None)
    last = decode(sink, stored.chunks)
    return last.last_of(query_id) if last else None


def fence(sink: Sink) -> Rules[ProducerIdentity]:
    """Stop who holds the sink, so that the source offsets it has committed stay where they are, and carry out
    what it has decided: whoever begins at these offsets leaves those rows to it. Returns the sink's identity.

    A decision on its way is carried out or withdrawn by the coordinator before it answers. Raises
    CommitFault.
    """
    owned = yield from acquire(sink)
    last = decode(sink, owned.stored.chunks)
    nothing = Batch("", -1)  # no batch of the sink's is begun
    yield from make_ready(sink, owned, last, nothing, is_complete=False)
    return owned.identity
