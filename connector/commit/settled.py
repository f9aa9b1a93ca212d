"""Whether a sink's last decision is settled: all of its rows can be read, and no other row of its batch may
still come. Only reads: the sink belongs to another driver, which goes on meanwhile.
"""

from eoslog.connector.commit.commands import (
    Describe,
    FetchStored,
    ListOngoing,
    Refused,
    Rules,
    Unknown,
    ask,
    demand,
)
from eoslog.connector.commit.decision import Decision, decode
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.transactional_ids import Sink, parity
from eoslog.protocol.errors import ErrorCode

_UNFINISHED = frozenset({"Ongoing", "PrepareCommit"})


def last_decision(sink: Sink) -> Rules[Decision | None]:
    """The last decision. None: there is none, or the next one is just being made. Raises CommitFault."""
    answer = yield from ask(FetchStored(sink.group))
    if isinstance(answer, Refused) and answer.code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
        return None
    if isinstance(answer, (Refused, Unknown)):
        raise CommitFault(
            f"the last decision of sink {sink.id} cannot be read: {answer}. Fix that, then start again"
        )
    return decode(sink, answer.chunks)


def settled(sink: Sink) -> Rules[Decision | None]:
    """The last decision, if it is settled. None: not now. Raises CommitFault.

    A task attempt that came too late may still have its transaction open. It would hold back readers before
    the batch's rows, so that these would seem to come later. The next batch has names of the other parity.
    """
    last = yield from last_decision(sink)
    if last is None:
        return None
    what = f"transactions of sink {sink.id} cannot be looked up"
    names = tuple(winner.participant.name for winner in last.winners)
    if names:
        states = yield from demand(Describe(names), what)
        if any(state is not None and state.state in _UNFINISHED for state in states.values()):
            return None
    slots = map(sink.slot_of, (yield from demand(ListOngoing(sink.prefix), what)))
    if any(slot is not None and slot.parity == parity(last.batch.batch_id) for slot in slots):
        return None
    return last
