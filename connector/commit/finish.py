"""Ends participants: commits those of a decision, aborts left-over ones.

An abort goes to an exact (name, identity) that was seen open, never to a name alone, and never to a
participant whose batch may be decided.
"""

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from eoslog.connector.commit.commands import (
    AwaitMarkers,
    Describe,
    Description,
    End,
    Failure,
    FindOpen,
    ListOngoing,
    LookAt,
    Refused,
    Rules,
    Unknown,
    ask,
    demand,
)
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.faults import (
    CommitFault,
    MarkersMissing,
    ParticipantsLost,
    SinkFenced,
    Unfinished,
)
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.places import Place, Seen, ended, why_unread
from eoslog.connector.commit.seal import abort_later, end_sealed
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Participant, ParticipantSlot, Sink
from eoslog.connector.commit.winner import Winner
from eoslog.connector.commit.write_token import sink_of_query
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity

ONGOING = "Ongoing"
COMMITTED = frozenset({"PrepareCommit", "CompleteCommit"})
"""States of a transaction that is certain to be committed: after PrepareCommit only markers are missing."""
ABORTED = frozenset({"PrepareAbort", "CompleteAbort"})
"""States of a transaction that is certain to be aborted."""
PREPARED = "PrepareCommit"
DUE = (PREPARED, "PrepareAbort")
"""States of a transaction that has ended, and of which markers are not written yet."""
LOOKS = 6
"""How often markers that are due are waited for, 10 s each time, before a begin stops the query."""
MARKERS_AGAIN = (
    "Is a broker down? Or was max.message.bytes of the topic smaller than a marker (78 bytes)? Apache Kafka "
    "does not try such a marker again: give the topic its setting back, and restart the broker that "
    "coordinates the transactional id, which writes the markers then"
)
"""What to do about markers that do not come while their coordinator says that they are due."""


def finish(decision: Decision) -> Rules[None]:
    """Commit every winner. Harmless if some or all are already committed.

    If EndTxn is refused, the transaction may have been committed earlier or lost, so its state is looked up.
    While a decision is the last one, no other batch uses its participants' names (their incarnation and
    parity are taken), so a state that is neither committed nor open means: aborted, or forgotten. What is
    not certain to be aborted is looked up in the log, at the places that the decision names. If a sealed,
    open transaction refuses the holder in the decision, a late request has sealed it once more, and it is
    taken over again. Raises Unfinished or ParticipantsLost.
    """
    if not decision.winners:
        return
    command = End(True, decision.enders)
    answers = dict((yield from demand(command, f"{decision.said} cannot be finished", Unfinished)))
    doubtful = [w for w in decision.winners if not isinstance(answers[w.participant.name], ProducerIdentity)]
    if not doubtful:
        return
    names = tuple(w.participant.name for w in doubtful)
    states = yield from demand(
        Describe(names), f"{decision.said} is decided, but its state is unknown", Unfinished
    )
    still = [w for w in doubtful if _may_be_open(states[w.participant.name], w)]
    lost = [w for w in doubtful if w not in still and not _is_committed(states[w.participant.name])]
    taken = [w.participant for w in still if _is_held_elsewhere(w, answers[w.participant.name])]
    if taken:
        answers |= yield from end_sealed(True, taken)
    unfinished = [
        w.participant for w in still if not isinstance(answers[w.participant.name], ProducerIdentity)
    ]
    if refused := [p for p in taken if p in unfinished]:
        later = yield from abort_later(refused)  # the decided ones of these names have ended
        unfinished = [p for p in unfinished if p.name not in later]
        lost += [w for w in still if w.participant.name in later]
    lost, seen = yield from _not_in_log(decision, lost, states)
    if lost:
        proven = all(seen.get(w, Seen.ABORTED) is Seen.ABORTED for w in lost)
        text = _lost_text(decision, lost, states, seen)
        raise ParticipantsLost(text, tuple(lost) if proven else (), unfinished=bool(unfinished))
    if unfinished:
        raise Unfinished(
            f"{decision.said} is decided, but {len(unfinished)} of its transactions could not be committed "
            f"yet: {unfinished[0].name}: {answers[unfinished[0].name]}. Start the query again to finish it"
        )


def finish_late(decision: Decision) -> Rules[None]:
    """Finish the last decision of a run that is over: time has passed since it was made.

    A commit that is prepared is left to its coordinator: an EndTxn would wait as long as a marker is refused.
    Nobody could read the rows of transactions that are still open. If some were deleted meanwhile, these
    transactions stay as they are: committed, they would look as if readers had had all of them. Raises as
    finish().
    """
    states = yield from _states_of(decision, Unfinished)
    unread = yield from _find_unread(decision, states)
    going = [w for w in decision.winners if (state := states[w.participant.name]) and state.state == PREPARED]
    yield from finish(decision.without([winner.partition for winner in (*unread, *going)]))
    if unread:
        raise ParticipantsLost(_unread_text(decision, unread), held=tuple(unread))


def find_lost(decision: Decision) -> Rules[str]:
    """What finish_late() would say is lost; "": nothing. It only asks. Raises CommitFault."""
    states = yield from _states_of(decision, CommitFault)
    unread = yield from _find_unread(decision, states)
    if unread:
        return _unread_text(decision, unread)
    ended_else = [
        w
        for w in decision.winners
        if not _is_committed(states[w.participant.name]) and not _may_be_open(states[w.participant.name], w)
    ]
    lost, seen = yield from _not_in_log(decision, ended_else, states)
    return _lost_text(decision, lost, states, seen) if lost else ""


def _states_of(decision: Decision, fault: type[CommitFault]) -> Rules[Mapping[str, Description | None]]:
    names = tuple(winner.participant.name for winner in decision.winners)
    if not names:
        return {}
    what = f"{decision.said} is decided, but its state is unknown"
    return (yield from demand(Describe(names), what, fault))


def _find_unread(decision: Decision, states: Mapping[str, Description | None]) -> Rules[dict[Winner, str]]:
    """The winners that are open and of which rows were deleted, and where. Their leaders say where they
    begin; those that do not are held against the last rows, which the decision names."""
    opened = [w for w in decision.winners if _may_be_open(states[w.participant.name], w)]
    if not opened or not decision.written:
        return {}
    logs = yield from ask(FindOpen(decision.written, late=True))
    if isinstance(logs, Refused) and logs.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return {}  # then all that was written there is gone, as a start says
    if isinstance(logs, (Refused, Unknown)):
        raise Unfinished(
            f"{decision.said} is decided, but it cannot be seen whether the log has its rows: {logs}. Fix "
            "that, then start the query again"
        )
    found = {winner: why_unread(decision.places, winner.participant.identity, logs) for winner in opened}
    return {winner: why for winner, why in found.items() if why}


def _not_in_log(
    decision: Decision, ended_else: list[Winner], states: Mapping[str, Description | None]
) -> Rules[tuple[list[Winner], dict[Winner, Seen]]]:
    """Those of the winners, which are neither committed nor open, that the log does not show as committed;
    and what it shows of those of which the coordinators know no end. A coordinator that has lost its log's
    end times out what is committed: the log counts."""
    writers = {winner.participant.identity for winner in ended_else}
    decision = (yield from _with_places(decision)) if ended_else else decision
    places = tuple(place for place in decision.places if place.writer in writers)
    answer = (yield from ask(LookAt(places))) if places else {}
    how = {} if isinstance(answer, (Refused, Unknown)) else ended(answer)
    lost = [w for w in ended_else if how.get(w.participant.identity) is not Seen.COMMITTED]
    doubtful = [w for w in lost if not is_aborted(states[w.participant.name], w.participant)]
    return lost, {w: how.get(w.participant.identity, Seen.REMOVED) for w in doubtful}


def _with_places(decision: Decision) -> Rules[Decision]:
    """The decision as it is where its places are: a write of foreachBatch is decided by its query's sink, and
    the one that has named its transactions has a copy without them (Namer)."""
    if decision.places or not decision.write_of:
        return decision
    original = yield from observed_decision(sink_of_query(decision.write_of))
    if original is None or original.participants != decision.participants:
        return decision
    return original


def await_readable(decision: Decision) -> Rules[str | None]:
    """Wait until readers of committed data see the decision's rows. Returns why they may not see them yet, or
    None. Apache Kafka answers EndTxn when the commit is certain, and writes the markers afterwards."""
    names = tuple(winner.participant.name for winner in decision.winners)
    if not names:
        return None
    answer = yield from ask(AwaitMarkers(names))
    if isinstance(answer, (Refused, Unknown)):
        return str(answer)
    return f"markers of {len(answer)} of its transactions are on their way: {answer[0]}" if answer else None


def is_open(
    state: Description | None, participant: Participant, holder: ProducerIdentity | None = None
) -> bool:
    """Whether the transaction is open under exactly this identity, or that of its holder.

    For a sealed transaction, coordinators report the identity that wrote it.
    """
    return state is not None and state.state == ONGOING and state.identity in (participant.identity, holder)


def _may_be_open(state: Description | None, winner: Winner) -> bool:
    """Whether the decided transaction may be open. If it is sealed, any open transaction of its name counts.

    A later holder may have it, and coordinators do not have to report holders. Taking the transaction over
    shows which identity wrote it.
    """
    held = winner.holder is not None and state is not None and state.state == ONGOING
    return held or is_open(state, winner.participant, winner.holder)


def _is_held_elsewhere(winner: Winner, answer: ProducerIdentity | Failure) -> bool:
    return winner.holder is not None and isinstance(answer, Refused)


def _is_committed(state: Description | None) -> bool:
    return state is not None and state.state in COMMITTED


def is_aborted(state: Description | None, participant: Participant) -> bool:
    """Whether it is certain that exactly this transaction was aborted: its rows will never be visible.

    A time-out raises the epoch by one. One epoch further, the abort may be that of a later, empty transaction
    after a commit (transaction.version 2). A transactional id that is unknown or has a new producer id proves
    nothing.
    """
    if state is None or state.state not in ABORTED:
        return False
    producer_id, epoch = participant.identity
    return state.identity.producer_id == producer_id and epoch <= state.identity.epoch <= epoch + 1


def _lost_text(
    decision: Decision,
    lost: list[Winner],
    states: Mapping[str, Description | None],
    seen: Mapping[Winner, Seen],
) -> str:
    def described(winner: Winner) -> str:
        name, identity = winner.participant
        state, rows = states[name], decision.rows_of(winner.partition)
        rows_text = "" if rows is None else f"{rows} rows of "
        state_text = f"{state.state} at {state.identity}" if state else "unknown to the broker"
        log_text = f", {seen[winner].value}" if winner in seen else ""
        return f"{rows_text}partition {winner.partition}: {name} ({identity}): {state_text}{log_text}"

    of_them = f"{_rows_of(decision, lost)} of its partitions {[w.partition for w in lost]}"
    said = f"({'; '.join(map(described, lost))}). The other rows of the batch were committed, none is doubled"
    accept = f"start.accepted={lost_word(decision.batch)}: the query goes on behind this batch"
    if any(seen.get(w, Seen.ABORTED) is not Seen.ABORTED for w in lost):
        older = ""
        if Seen.GONE in seen.values():  # a leader was elected without the log's end
            older = "Brokers that have lost these rows may lack some of earlier batches: compare the topic "
            older += "with its source (eoslog audit), and publish those as well. "
        return (
            f"{decision.said} is decided, and nobody can tell whether {of_them} are visible: the brokers "
            f"have forgotten their transactions, and the log does not show how these ended {said}. Look for "
            f"these rows in the topic with a reader of committed data, and publish those that are missing. "
            f"{older}Then set {accept}"
        )
    replay = (
        "Start the query again with on.lost.transaction=replay, if its processing.guarantee is exactly_once "
        "and its partitions replay equally: that writes just these partitions of the batch again. Or publish"
    )
    return (
        f"{decision.said} is decided, but {of_them} are lost: their transactions timed out or were aborted "
        f"before they could be committed {said}. {replay if _replays(decision) else 'Publish'} the missing "
        f"rows yourself, then set {accept}. And raise kafka.transaction.timeout.ms"
    )


def _replays(decision: Decision) -> bool:
    """Whether on.lost.transaction=replay can write lost rows again: a write in foreachBatch needs a token."""
    return bool(decision.rows) and not decision.names


def _unread_text(decision: Decision, unread: Mapping[Winner, str]) -> str:
    places = "; ".join(unread.values())
    return (
        f"{decision.said} is decided, but {_rows_of(decision, unread)} of its partitions "
        f"{[winner.partition for winner in unread]} are lost: before they could be committed and read, "
        f"records were deleted ({places}), as kafka-delete-records.sh and retention do. What is left of "
        "these partitions is held back. The other rows of the batch were committed, none is doubled. Publish "
        f"the missing rows yourself, then set start.accepted={lost_word(decision.batch)}: the query goes on "
        "behind this batch"
    )


def _rows_of(decision: Decision, winners: Iterable[Winner]) -> str:
    counts = [decision.rows_of(winner.partition) for winner in winners]
    return f"{sum(c or 0 for c in counts)} rows" if None not in counts else "the rows"


def aborted_text(decision: Decision, lost: Sequence[Winner], ended: Sequence[Place], *, proven: bool) -> str:
    """What to say of winners that are committed, and were aborted at places in the log. `proven`: at all."""
    where = ", ".join(f"{place.topic}-{place.partition} (up to offset {place.offset})" for place in ended)
    of_them = f"partitions {[winner.partition for winner in lost]}"
    replay = (
        "Start the query again with on.lost.transaction=replay, if its processing.guarantee is exactly_once "
        "and its partitions replay equally: that writes these partitions of the batch again. Or publish"
    )
    return (
        f"{decision.said} is decided, but rows of its {of_them} are lost: before they could be committed, "
        f"somebody aborted their transactions on {where}, as kafka-transactions.sh abort does. The other "
        "rows of the batch were committed, none is doubled. "
        f"{replay if proven and _replays(decision) else 'Publish'} the missing rows yourself, then set "
        f"start.accepted={lost_word(decision.batch)}: the query goes on behind this batch"
    )


ROWS_LOST = "rows-lost:"


def lost_word(batch: Batch) -> str:
    """The word of start.accepted for a decided batch that lacks rows."""
    return f"{ROWS_LOST}{quote(batch.query_id, safe='')}:{batch.batch_id}"


def clear(
    sink: Sink,
    keep: Iterable[Participant],
    *,
    owner: ProducerIdentity | None = None,
    only: tuple[ProducerIdentity, int] | None = None,
    asked: bool = False,
) -> Rules[tuple[str, ...]]:
    """Abort this sink's open participants except `keep`. Returns which of `keep` are open.

    `only` limits this to one run's names of one parity (incarnation, parity). Otherwise pass `owner`, this
    driver's identity of the sink. It is compared after the list was made: if the sink is still ours then, no
    newer driver had begun before, so no name in the list can be a newer driver's. `asked`: the list was
    requested earlier (AskOngoing); transactions that were opened since are left to the next begin.

    For an owner markers are waited for, too, that are due of transactions that have ended.

    Raises SinkFenced, MarkersMissing, or CommitFault if a transaction stays open.
    """
    kept = {participant.name for participant in keep}
    listed = yield from demand(
        ListOngoing(sink.prefix, asked), f"left-over transactions of sink {sink.id} cannot be listed"
    )
    names = [name for name in listed.ongoing if name not in kept and _within(sink.slot_of(name), only)]
    if names:
        described = tuple(names) if owner is None else (*names, sink.coordinator)
        states = yield from demand(
            Describe(described), f"left-over transactions of sink {sink.id} cannot be looked up"
        )
        if owner is not None:
            check_owner(sink, owner, states[sink.coordinator])
        found = [Participant(name, state.identity) for name in names if (state := states[name]) is not None]
        yield from abort_all([p for p in found if is_open(states[p.name], p)])
    if owner is not None and listed.due:
        yield from _await_due(sink, listed.due)
    return tuple(name for name in listed.ongoing if name in kept)


def _await_due(sink: Sink, names: tuple[str, ...]) -> Rules[None]:
    """Wait for the markers of transactions that have ended, as long as partitions hold these open. Raises
    MarkersMissing if they have not come after LOOKS times 10 s."""
    what = f"sink {sink.id}: whether markers of its transactions are written cannot be seen"
    for look in range(LOOKS + 1):
        states = yield from demand(Describe(names), what, MarkersMissing)
        due = {n: state for n, state in states.items() if state is not None and state.state in DUE}
        held = yield from _held_by(due, what)
        if not held:
            return
        if look < LOOKS:
            yield from ask(AwaitMarkers(tuple(due)))
    raise MarkersMissing(_due_text(sink, held))


def _held_by(due: Mapping[str, Description], what: str) -> Rules[list[str]]:
    """Where transactions are held open of which markers are due, a text for each. Where leaders do not tell
    it, the coordinators are believed."""
    places = tuple(sorted({place for state in due.values() for place in state.places}))
    if not places:
        return []
    logs = yield from ask(FindOpen(places, late=True))
    if isinstance(logs, Refused) and logs.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return []  # nobody reads there
    if isinstance(logs, (Refused, Unknown)):
        raise MarkersMissing(f"{what}: {logs}. Fix that, then start the query again")
    return [
        f"{place[0]}-{place[1]} by {name} ({state.identity} {state.state})"
        for name, state in due.items()
        for place in state.places
        if (opened := logs[place].opened) is None
        or any(writer.producer_id == state.identity.producer_id for writer in opened)
    ]


def _due_text(sink: Sink, held: Sequence[str]) -> str:
    some = "; ".join(held[:5]) + (f"; and {len(held) - 5} more" if len(held) > 5 else "")
    return (
        f"sink {sink.id}: transactions have ended, and the brokers have not written their markers for a "
        f"minute: they are held open on {some}. Readers of committed data are blocked there. Nothing is "
        f"lost, and nothing more was written. {MARKERS_AGAIN}, then start the query again"
    )


def clear_run(
    sink: Sink, incarnation: ProducerIdentity, decided: Iterable[Participant]
) -> Rules[tuple[tuple[str, ...], dict[str, Failure]]]:
    """Abort the open transactions, except `decided`, of a run that can no longer decide anything.

    Returns which transactions were aborted, and which may still be open and why.
    """
    kept = {participant.name for participant in decided}
    listed = yield from ask(ListOngoing(sink.prefix))
    if isinstance(listed, (Refused, Unknown)):
        return (), {f"transactions {sink.prefix}...": listed}
    names = tuple(n for n in listed.ongoing if n not in kept and is_of(sink, n, incarnation))
    if not names:
        return (), {}
    states = yield from ask(Describe(names))
    if isinstance(states, (Refused, Unknown)):
        return (), dict.fromkeys(names, states)
    found = [Participant(name, state.identity) for name in names if (state := states[name]) is not None]
    seen = [participant for participant in found if is_open(states[participant.name], participant)]
    left = yield from try_abort(seen)
    return tuple(p.name for p in seen if p not in left), {p.name: why for p, why in left.items()}


def is_of(sink: Sink, name: str, incarnation: ProducerIdentity) -> bool:
    """Whether the transactional id belongs to a task of this run."""
    slot = sink.slot_of(name)
    return slot is not None and slot.incarnation == incarnation


def _within(slot: ParticipantSlot | None, only: tuple[ProducerIdentity, int] | None) -> bool:
    return slot is not None and (only is None or only == (slot.incarnation, slot.parity))


def check_owner(sink: Sink, owner: ProducerIdentity, state: Description | None) -> None:
    """Raise SinkFenced unless the sink's own transactional id still has this identity."""
    if state is None or state.identity != owner:
        raise lost_to(sink, owner, state)


def lost_to(sink: Sink, owner: ProducerIdentity, state: Description | None) -> SinkFenced:
    """The error for `owner`, whose sink is in this state. An epoch never goes down, unless brokers forget."""
    why = f"it is at {state.identity if state else 'no identity'}, this driver at {owner}"
    forgotten = state is None or (
        state.identity.producer_id == owner.producer_id and state.identity.epoch < owner.epoch
    )
    return put_back(sink, why) if forgotten else fenced(sink, why)


_COMPARED = (
    "start the query again: it compares its checkpoint with the sink's last decision and the log, and goes "
    "on or says what is gone"
)


def fenced(sink: Sink, why: object) -> SinkFenced:
    """The error for a driver that has lost the sink, most likely to another one."""
    return SinkFenced(
        f"another driver owns the sink {sink.id}, or brokers were put back to an older copy ({why}). If two "
        "queries share this transactional.id, give each its own. If this query was started elsewhere, that "
        f"driver continues and this one has to stop. Otherwise {_COMPARED}"
    )


def put_back(sink: Sink, why: object) -> SinkFenced:
    """The error for a driver whose sink has forgotten what it has done: no other driver can cause that."""
    return SinkFenced(
        f"sink {sink.id}: brokers were put back to an older copy, or have lost the end of a log ({why}). The "
        f"batch was not decided. To go on, {_COMPARED}"
    )


def abort_all(participants: list[Participant]) -> Rules[None]:
    """Abort open transactions. Raises CommitFault if one is open afterwards."""
    left = yield from try_abort(participants)
    for participant, why in left.items():
        raise CommitFault(
            f"left-over transaction {participant.name} holds back readers and cannot be aborted: {why}. "
            "Start the query again; if it stays, end it by `eoslog transactions abort --force` or Kafka's "
            "kafka-transactions.sh"
        )


def try_abort(participants: Iterable[Participant]) -> Rules[dict[Participant, Failure]]:
    """Abort open transactions of a batch that is not decided. Returns which may still be open, and why.

    A transaction that refuses the abort and is open under this identity was sealed by a driver that did not
    reach its decision: it is taken over and aborted.
    """
    wanted = tuple(participants)
    if not wanted:
        return {}
    answers = yield from ask(End(False, wanted))
    if isinstance(answers, (Refused, Unknown)):
        return dict.fromkeys(wanted, answers)
    left = _failed(wanted, answers)
    if not left:
        return {}
    left = yield from _still_open(left)
    sealed = [p for p, why in left.items() if isinstance(why, Refused)]
    if not sealed:
        return left
    answers = yield from end_sealed(False, sealed)
    again = yield from _still_open(_failed(sealed, answers))
    return {p: why for p, why in left.items() if p not in sealed} | again


def _failed(
    participants: Iterable[Participant], answers: Mapping[str, ProducerIdentity | Failure]
) -> dict[Participant, Failure]:
    asked = [(p, answers[p.name]) for p in participants]
    return {p: answer for p, answer in asked if isinstance(answer, (Refused, Unknown))}


def _still_open(doubtful: dict[Participant, Failure]) -> Rules[dict[Participant, Failure]]:
    """The doubtful transactions that are open under this identity, or all if that cannot be looked up."""
    if not doubtful:
        return {}
    states = yield from ask(Describe(tuple(p.name for p in doubtful)))
    if isinstance(states, (Refused, Unknown)):
        return doubtful
    return {p: why for p, why in doubtful.items() if is_open(states[p.name], p)}
