"""The sink's own transaction, proven by the partitions: offsets that stay pending, and their lost markers.

What the driver decides lies in a transaction of the sink's own id, on partitions of the anchor topic. A node
that is killed right after EndTxn's answer may come back with a coordinator that says CompleteCommit and has
lost a marker there (prove.py has the same for participants). Then the group's offsets are pending forever,
and no start could read the last decision. So if they do not become stable, first the coordinator is asked,
then the partitions, and the marker that matches the coordinator's state is written, if the transaction that
is held open is certainly the one that this state describes:

- transaction.version 2: every end raises the epoch by one, so each epoch has one transaction at most, and
  "Complete at (id, epoch + 1)" tells how that of (id, epoch) ended, whoever has opened others since: they
  are at epoch + 1 or later. Only for the last epoch of a producer id this does not work.
- transaction.version 1: an end leaves the epoch as it is, and "Complete at (id, epoch)" speaks of the last
  one of possibly several. So the sink must be ours under just this identity: a driver raises the epoch before
  each batch and opens one transaction under it, after which nothing of it is written any more. And nobody
  may have acquired the sink since, for that would be another identity.

Otherwise no marker is written, and an error says so: a wrong marker loses or duplicates rows. Acquiring the
sink destroys the evidence (its state is Empty then), so this check comes first.
"""

from typing import NamedTuple

from eoslog.connector.commit.commands import (
    Describe,
    Description,
    Failure,
    FetchStored,
    FindOwn,
    Held,
    Refused,
    Rules,
    TransactionVersion,
    Unknown,
    WriteMarkers,
    ask,
    demand,
)
from eoslog.connector.commit.decision import Stored
from eoslog.connector.commit.faults import CommitFault, MarkersMissing
from eoslog.connector.commit.names import Sink
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity

LOOKS = 6
"""How often pending offsets, or a coordinator that has yet to write markers, are looked at. One look at
pending offsets takes this part of kafka.default.api.timeout.ms: 10 s of its default."""
TV2 = 2
"""From this level of transaction.version on every end of a transaction raises the epoch (KIP-890)."""
_COMPLETE = {"CompleteCommit": True, "CompleteAbort": False}
_PREPARED = frozenset({"PrepareCommit", "PrepareAbort"})


class _Left(NamedTuple):
    """Transactions that are held open still, and why nothing could be done about it. `sure`: the coordinator
    tells how they ended, so that somebody with the right to can."""

    held: tuple[Held, ...] = ()
    why: str = ""
    sure: bool = False


def fetch_stored(
    sink: Sink, own: ProducerIdentity | None, fault: type[CommitFault] = CommitFault
) -> Rules[Stored]:
    """What the sink's group holds, nothing pending. `own`: the identity under which this driver owns the
    sink, if it does, no transaction of its own being under way. Raises `fault`, MarkersMissing."""
    answer = yield from ask_stored(sink, own)
    if isinstance(answer, (Refused, Unknown)):
        raise fault(
            f"the last decision of sink {sink.id} cannot be read: {answer}. When that is mended, start the "
            "query again"
        )
    return answer


def ask_stored(sink: Sink, own: ProducerIdentity | None) -> Rules[Stored | Failure]:
    """The same or why not. While the coordinator has yet to end the transaction, or to write its markers,
    that is waited for; what it has lost is written. Raises MarkersMissing."""
    answer = yield from ask(FetchStored(sink.group))
    for _ in range(LOOKS - 1):
        if not _is_pending(answer):
            break
        states = yield from ask(Describe((sink.coordinator,)))
        if isinstance(states, (Refused, Unknown)):
            break
        state, left = states[sink.coordinator], _Left()
        if state is not None and state.state not in {"Ongoing", *_PREPARED}:
            left = yield from _close(sink, state, own)
        answer = yield from ask(FetchStored(sink.group))
        if state is not None and left.held and _is_pending(answer):
            raise MarkersMissing(_text(sink, state, left))
    return answer


def write_lost_markers(sink: Sink, own: ProducerIdentity | None = None) -> Rules[None]:
    """Write what the cluster has lost of the sink's own last transaction, on whichever partition, that of a
    user's group too. To be called before the sink is acquired, and when a broker was lost.

    What cannot be decided here matters only if it keeps the last decision from being read: a later
    transaction of the sink closes it on the others. What can be told, and cannot be written, may be written
    later: raises MarkersMissing, before the evidence is gone.
    """
    what = f"sink {sink.id} cannot be looked up"
    for _ in range(LOOKS):
        states = yield from demand(Describe((sink.coordinator,)), what)
        state = states[sink.coordinator]
        if state is None or state.state not in {*_COMPLETE, *_PREPARED}:
            return
        if state.state in _COMPLETE:
            left = yield from _close(sink, state, own)
            if left.sure or (left.held and _is_pending((yield from ask(FetchStored(sink.group))))):
                raise MarkersMissing(_text(sink, state, left))
            return
        yield from ask(FindOwn(sink.coordinator, state.identity.producer_id))  # waits for its markers


def is_ended(state: Description, held: ProducerIdentity, own: ProducerIdentity | None, version: int) -> bool:
    """Whether the coordinator's state tells how just this transaction ended (see above). `version`: that of
    transactions."""
    if version >= TV2:
        return held == (state.identity.producer_id, state.identity.epoch - 1)
    return own == state.identity == held


def _is_pending(answer: object) -> bool:
    return isinstance(answer, Refused) and answer.code == ErrorCode.UNSTABLE_OFFSET_COMMIT


def _close(sink: Sink, state: Description, own: ProducerIdentity | None) -> Rules[_Left]:
    """Write the markers that are missing for sure. The coordinator has been asked before, so what the
    partitions say now is later: a marker on its way is not taken for a lost one."""
    question = FindOwn(sink.coordinator, state.identity.producer_id)
    what = f"whether the sink's own transaction {sink.coordinator} is held open cannot be seen"
    held = yield from demand(question, what, MarkersMissing)
    if not held:
        return _Left()
    version = yield from demand(TransactionVersion(), what, MarkersMissing)
    commit = _COMPLETE.get(state.state)
    sure = [h for h in held if commit is not None and is_ended(state, h.participant.identity, own, version)]
    if not sure or commit is None:
        why = "that does not tell how just this transaction ended, and a wrong marker would lose rows"
        return _Left(held, why)
    answer = yield from ask(WriteMarkers(tuple(sure), commit))
    if not isinstance(answer, Refused):
        held = yield from demand(question, what, MarkersMissing)
    why = f"the {'COMMIT' if commit else 'ABORT'} marker could not be written: {answer}"
    if isinstance(answer, Refused) and answer.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        why = f"this user lacks the right ClusterAction, so {why}"
    return _Left(held, why, sure=any(h in sure for h in held))


def _text(sink: Sink, state: Description, left: _Left) -> str:
    places = "; ".join(f"{h.place[0]}-{h.place[1]} by {h.participant.identity}" for h in left.held)
    return (
        f"sink {sink.id}: a broker has lost a marker of the sink's own transaction ({sink.coordinator}): it "
        f"is held open on {places}, while its coordinator says {state.state} at {state.identity}. Offsets of "
        f"group {sink.group}, or of that of kafka.group.id, stay pending. It was not repaired: "
        f"{left.why}. Start the query once with the right ClusterAction, which repairs what is sure; or have "
        "the cluster's operator look up in __transaction_state whether that transaction's last entry was "
        "PrepareCommit or PrepareAbort, and write such a marker (WriteTxnMarkers). Do not delete the group: "
        "rows would be doubled"
    )
