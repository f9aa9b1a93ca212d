"""Repairs the sink's own transaction where a marker was lost, which leaves its offsets pending.

The driver writes its decision in a transaction of the sink's own id, on partitions of the anchor topic. A
node that is killed right after EndTxn's answer may come back with a coordinator that says CompleteCommit
although a marker there was lost (marker_proof.py does the same for participants). Then the group's offsets
stay pending for ever, and no start could read the last decision. So if they do not become stable, the
coordinator is asked first, then the partitions. The marker that matches the coordinator's state is written if
the transaction that is held open is certain to be the one that this state describes:

- transaction.version 2: every end raises the epoch by one, so each epoch has at most one transaction. So
  "Complete at (id, epoch + 1)" says how the transaction of (id, epoch) ended, even if others were opened
  since: they are at epoch + 1 or later. This fails only for the last epoch of a producer id.
- transaction.version 1: an end does not change the epoch, and "Complete at (id, epoch)" describes the last of
  possibly several transactions. So this driver must own the sink under exactly this identity: a driver raises
  the epoch before each batch, opens one transaction under it, and writes nothing more under it afterwards.
  And if another driver had acquired the sink since, the identity would differ.

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
    HeldBack,
    Refused,
    Rules,
    TransactionVersion,
    Unknown,
    WriteMarkers,
    ask,
    demand,
    look_up,
)
from eoslog.connector.commit.decision import Stored
from eoslog.connector.commit.faults import CommitFault, MarkersMissing
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity

LOOKS = 6
"""How often pending offsets, or a coordinator that has yet to write markers, are looked at. One look at
pending offsets takes kafka.default.api.timeout.ms divided by this: 10 s by default."""
TV2 = 2
"""From this level of transaction.version on, every end of a transaction raises the epoch (KIP-890)."""
_COMPLETE = {"CompleteCommit": True, "CompleteAbort": False}
_PREPARED = frozenset({"PrepareCommit", "PrepareAbort"})
_UNSURE = "that does not say how exactly this transaction ended, and a wrong marker would lose rows"


class _Left(NamedTuple):
    """Transactions that are still held open, and why they could not be closed. `sure`: the coordinator's
    state says how they ended, so a client with the right ClusterAction can close them."""

    held: tuple[HeldBack, ...] = ()
    why: str = ""
    sure: bool = False


def fetch_stored(
    sink: Sink,
    own: ProducerIdentity | None,
    fault: type[CommitFault] = CommitFault,
    *,
    everywhere: bool = False,
) -> Rules[Stored]:
    """The decision in the sink's group, when no offsets are pending. Raises `fault` or MarkersMissing.

    `own`: the identity under which this driver owns the sink, if it does and has no transaction under way.
    `everywhere`: see FetchStored.
    """
    answer = yield from ask_stored(sink, own, everywhere=everywhere)
    if isinstance(answer, (Refused, Unknown)):
        raise fault(
            f"the last decision of sink {sink.id} cannot be read: {answer}. Fix that, then start the query "
            "again"
        )
    return answer


def ask_stored(
    sink: Sink, own: ProducerIdentity | None, *, everywhere: bool = False
) -> Rules[Stored | Failure]:
    """The decision in the sink's group, or a failure. It waits for the coordinator to end the transaction and
    to write its markers, and writes markers that were lost. Raises MarkersMissing."""
    answer = yield from look_up(sink.group, everywhere)
    for _ in range(LOOKS - 1):
        if not _is_pending(answer):
            break
        states = yield from ask(Describe((sink.coordinator,)))
        if isinstance(states, (Refused, Unknown)):
            break
        state, left = states[sink.coordinator], _Left()
        if state is not None and state.state not in {"Ongoing", *_PREPARED}:
            left = yield from _close(sink, state, own)
        answer = yield from look_up(sink.group, everywhere)
        if state is not None and left.held and _is_pending(answer):
            raise MarkersMissing(_text(sink, state, left))
    return answer


def write_lost_markers(sink: Sink, own: ProducerIdentity | None = None) -> Rules[Description | None]:
    """Write lost markers of the sink's own last transaction on every partition, also for a user's group.

    Call it before the sink is acquired, and when a broker was lost. If it is unknown which marker was lost,
    that matters only while the last decision cannot be read: on other partitions a later transaction of the
    sink closes this one. If the marker is known but cannot be written, that can be done later, so
    MarkersMissing is raised before the evidence is gone. Returns what the coordinator says of the sink's own
    id. Raises CommitFault if the sink cannot be looked up.
    """
    what = f"sink {sink.id} cannot be looked up"
    state: Description | None = None
    for _ in range(LOOKS):
        states = yield from demand(Describe((sink.coordinator,)), what)
        state = states[sink.coordinator]
        if state is None or state.state not in {*_COMPLETE, *_PREPARED}:
            return state
        if state.state in _COMPLETE:
            left = yield from _close(sink, state, own)
            if left.sure or (left.held and _is_pending((yield from look_up(sink.group)))):
                raise MarkersMissing(_text(sink, state, left))
            return state
        yield from ask(FindOwn(sink.coordinator, state.identity.producer_id))  # waits for its markers
    return state


def was_used(sink: Sink, state: Description | None) -> Rules[bool]:
    """Whether the sink has decided, as far as that can be seen before it is acquired. `state`: what its
    coordinator says. A group forgets a sink's decisions when it expires or is deleted; the coordinator, whom
    each Acquire tells again, still knows then. Raises CommitFault."""
    if state is None or shows_use(state):
        return state is not None
    what = f"whether sink {sink.id} has decided cannot be read"
    return bool((yield from demand(FetchStored(sink.group, stable=False), what)).chunks)


def shows_use(state: Description) -> bool:
    """Whether the sink has decided, by what its coordinator says alone."""
    return state.used or state.state in ("PrepareCommit", "CompleteCommit")


def check_ended(sink: Sink) -> Rules[None]:
    """Raise MarkersMissing if a transaction of the sink's own is held open, on any group's partition, and its
    coordinator is done with it. Call it when offsets of a group that the sink commits stay pending."""
    what = f"whether the sink's own transaction {sink.coordinator} is held open cannot be seen"
    states = yield from demand(Describe((sink.coordinator,)), what, MarkersMissing)
    state = states[sink.coordinator]
    if state is None or state.state in {"Ongoing", *_PREPARED}:
        return
    question = FindOwn(sink.coordinator, state.identity.producer_id)
    if held := (yield from demand(question, what, MarkersMissing)):
        raise MarkersMissing(_text(sink, state, _Left(held, _UNSURE)))


def is_ended(state: Description, held: ProducerIdentity, own: ProducerIdentity | None, version: int) -> bool:
    """Whether the coordinator's state says how exactly this transaction ended (see above). `version`: the
    level of transaction.version."""
    if version >= TV2:
        return held == (state.identity.producer_id, state.identity.epoch - 1)
    return own == state.identity == held


def _is_pending(answer: object) -> bool:
    return isinstance(answer, Refused) and answer.code == ErrorCode.UNSTABLE_OFFSET_COMMIT


def _close(sink: Sink, state: Description, own: ProducerIdentity | None) -> Rules[_Left]:
    """Write the markers that are certain to be missing. The coordinator was asked before the partitions, so a
    marker that is on its way is not taken for a lost one."""
    question = FindOwn(sink.coordinator, state.identity.producer_id)
    what = f"whether the sink's own transaction {sink.coordinator} is held open cannot be seen"
    held = yield from demand(question, what, MarkersMissing)
    if not held:
        return _Left()
    version = yield from demand(TransactionVersion(), what, MarkersMissing)
    commit = _COMPLETE.get(state.state)
    sure = [h for h in held if commit is not None and is_ended(state, h.participant.identity, own, version)]
    if not sure or commit is None:
        return _Left(held, _UNSURE)
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
        "PrepareCommit or PrepareAbort, and write such a marker (WriteTxnMarkers). If it has neither, "
        "brokers have lost it: abort the transaction there (kafka-transactions.sh abort), and start the "
        "query with its checkpoint, which decides again what the log has. Do not delete the group: rows "
        "would be doubled"
    )
