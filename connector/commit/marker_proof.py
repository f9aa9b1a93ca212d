"""Checks on the partitions that transactions are closed: the coordinator's CompleteCommit is not enough.

A node that is killed right after EndTxn's answer may come back with a coordinator that says CompleteCommit
although markers were lost. Those partitions then keep the transaction open for ever, and readers of committed
data wait there. So after a recovery, and whenever a broker was lost, the partitions are asked
(DescribeProducers, KIP-664).
"""

from collections.abc import Collection, Iterable

from eoslog.connector.commit.commands import (
    Describe,
    FindHeld,
    HeldBack,
    LookAt,
    Refused,
    Rules,
    Unknown,
    WriteMarkers,
    ask,
    demand,
)
from eoslog.connector.commit.decision import Decision, decode
from eoslog.connector.commit.faults import MarkersMissing, ParticipantsLost, Unfinished
from eoslog.connector.commit.finish import MARKERS_AGAIN, aborted_text
from eoslog.connector.commit.places import Place, Places, Seen
from eoslog.connector.commit.sink_transaction import fetch_stored, write_lost_markers
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.protocol.producer_identity import ProducerIdentity

LOOKS = 10
"""How often a coordinator that has yet to write markers is asked. FindHeld waits in between."""


def prove(decision: Decision) -> Rules[None]:
    """Ensure that every winner is closed on every partition it may have written; write missing markers.

    Call it when all winners are committed. Raises MarkersMissing.
    """
    if not decision.participants:
        return
    question = FindHeld(decision.written, decision.participants)
    what = f"{decision.said} is committed, but it cannot be seen whether all of its partitions are readable"
    held = yield from demand(question, what, MarkersMissing)
    if held:
        held = yield from _look_again(question, held, what)
    if not held:
        return
    answer = yield from ask(WriteMarkers(held))
    if not isinstance(answer, (Refused, Unknown)):
        held = yield from demand(question, what, MarkersMissing)
    if held:
        raise MarkersMissing(_text(decision, held, answer))


def look_back(decision: Decision) -> Rules[None]:
    """Do the same after a recovery, and look in the log at the decision's places for aborts: until somebody
    finished the winners, an operator may have ended them there. Raises MarkersMissing, Unfinished or
    ParticipantsLost."""
    yield from prove(decision)
    winners = {winner.participant.identity: winner for winner in decision.winners}
    places = tuple(place for place in decision.places if place.writer in winners)
    if not places:
        return
    what = f"{decision.said} is committed, but it cannot be seen whether the log has its rows"
    seen = yield from demand(LookAt(places), what, Unfinished)
    ended = [place for place in places if seen[place] is Seen.ABORTED]
    if ended:
        lost = sorted({winners[place.writer] for place in ended})
        everywhere = [w for w in lost if _is_aborted_everywhere(decision, w.participant.identity, ended)]
        proven = tuple(lost) if everywhere == lost else ()
        raise ParticipantsLost(aborted_text(decision, lost, ended, proven=bool(proven)), proven)


def _is_aborted_everywhere(decision: Decision, writer: ProducerIdentity, ended: Iterable[Place]) -> bool:
    """Whether no row of a transaction can be visible. Of the partitions that it has written, a decision knows
    those where it was the last, so it has to be the last in all."""
    where = {(place.topic, place.partition) for place in ended if place.writer == writer}
    return where == set(decision.written)


def prove_last(sink: Sink, own: ProducerIdentity | None, lost: Collection[int] = ()) -> Rules[None]:
    """Do the same for the sink's last decision, whose winners are committed, and for the sink's own
    transaction that holds it. `own`: the identity under which this driver owns the sink. `lost`: Spark
    partitions whose winners were aborted, and are written again: what is open of these must not become
    visible, and is aborted. Raises MarkersMissing."""
    yield from write_lost_markers(sink, own)
    stored = yield from fetch_stored(sink, own, MarkersMissing)
    last = decode(sink, stored.chunks)
    if last is None:
        return
    yield from prove(last.without(lost))
    aborted = tuple(w.participant for w in last.winners if w.partition in lost)
    if not aborted:
        return
    question = FindHeld(last.written, aborted)
    what = f"{last.said} is written again, but it cannot be seen whether its aborted rows are closed"
    if held := (yield from demand(question, what, MarkersMissing)):
        answer = yield from ask(WriteMarkers(held, commit=False))
        if isinstance(answer, (Refused, Unknown)):
            raise MarkersMissing(_forgotten_text(sink, held, answer, commit=False))


def end_forgotten(sink: Sink, places: Places, *, commit: bool) -> Rules[bool]:
    """End what the sink has open at these places, whatever its coordinators say. `commit`: the places are of
    decided batches; else of others, and begin has ended what coordinators have open. Returns whether there
    was any.

    Brokers that lose the end of a partition, or that of `__transaction_state`, leave a transaction open that
    no coordinator comes back to: nobody else would end it, and readers of committed data would wait there for
    ever. Raises MarkersMissing.
    """
    if not places:
        return False
    writers = sorted({place.writer for place in places})
    where = tuple(sorted({(place.topic, place.partition) for place in places}))
    question = FindHeld(where, tuple(Participant(sink.prefix, writer) for writer in writers))
    what = f"sink {sink.id}: whether rows of its batches are held open in the log cannot be seen"
    found = held = yield from demand(question, what, MarkersMissing)
    if not held:
        return False
    answer = yield from ask(WriteMarkers(held, commit=commit))
    if not isinstance(answer, (Refused, Unknown)):
        held = yield from demand(question, what, MarkersMissing)
    if held:
        raise MarkersMissing(_forgotten_text(sink, held, answer, commit=commit))
    return bool(found)


def _look_again(question: FindHeld, held: tuple[HeldBack, ...], what: str) -> Rules[tuple[HeldBack, ...]]:
    """The transactions that are still held open when the coordinators say that all markers are written.

    If a coordinator's node has died, its successor has yet to write markers and says PrepareCommit until
    then. The coordinators are asked before the partitions, so that their answers apply to what is seen there.
    """
    for _ in range(LOOKS):
        names = tuple(sorted({h.participant.name for h in held}))
        states = yield from demand(Describe(names), what, MarkersMissing)
        held = yield from demand(question, what, MarkersMissing)
        if not held or not any(state and state.state == "PrepareCommit" for state in states.values()):
            break
    return held


def _text(decision: Decision, held: tuple[HeldBack, ...], answer: object) -> str:
    places, why = _where(held), _why(answer)
    return (
        f"{decision.said} is committed, but a broker has lost commit markers: transactions are held open on "
        f"{places}. Readers of committed data are blocked there. Writing the markers needs the right "
        f"ClusterAction and did not succeed{why}. {MARKERS_AGAIN}. Or restart with that right, or have the "
        "cluster's operator write COMMIT markers (WriteTxnMarkers); aborting these transactions would lose "
        "rows"
    )


def _forgotten_text(sink: Sink, held: tuple[HeldBack, ...], answer: object, *, commit: bool) -> str:
    kind, ending = ("decided", "Committing") if commit else ("not decided", "Aborting")
    by_hand = "write COMMIT markers there (WriteTxnMarkers); an abort would lose rows"
    if not commit:
        by_hand = "abort them on these partitions (kafka-transactions.sh find-hanging and abort)"
    return (
        f"sink {sink.id}: rows of a batch that is {kind} are held open, and no coordinator ends their "
        "transactions: brokers have lost the end of a log, or a right on these transactional ids was taken "
        f"away from this user (then give it back). They are on {_where(held)}. "
        f"Readers of committed data are blocked there. {ending} them needs the right ClusterAction and did "
        f"not succeed{_why(answer)}. Restart with that right, or have the cluster's operator {by_hand}; "
        "then start the query again"
    )


def _where(held: Iterable[HeldBack]) -> str:
    return "; ".join(
        f"{h.place[0]}-{h.place[1]} by {h.participant.name} ({h.participant.identity})" for h in held
    )


def _why(answer: object) -> str:
    return f" ({answer})" if isinstance(answer, (Refused, Unknown)) else ""
