"""Commit: verify that every task's transaction is prepared, decide, finish.

THE commit point of a batch is EndTxn(commit) of the sink's own transaction, which holds the decision and the
source offsets. Only there does a batch change from "never happened" to "happened".
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from eoslog.connector.commit.commands import (
    FENCED,
    AskOngoing,
    AskOpen,
    Describe,
    Description,
    End,
    Failure,
    FindOpen,
    FindSettled,
    Offsets,
    ReadClock,
    Refused,
    Rules,
    SaveState,
    Seal,
    Staged,
    StageOffsets,
    Unknown,
    ask,
    demand,
)
from eoslog.connector.commit.decision import KEPT_PLACES, Decision, by_group, decode, encode
from eoslog.connector.commit.faults import (
    BatchRefused,
    CommitFault,
    DecisionGone,
    OutcomeUnknown,
    TokenReused,
)
from eoslog.connector.commit.finish import (
    check_owner,
    clear,
    fenced,
    finish,
    is_open,
    lost_to,
    put_back,
    try_abort,
)
from eoslog.connector.commit.lost_transaction import why_gone, why_refused
from eoslog.connector.commit.places import OpenRows, Places, open_rows_of, places_of, why_gone_from
from eoslog.connector.commit.replay import check_replay, check_same_rows, check_topics
from eoslog.connector.commit.saved_state import Saving, Written
from eoslog.connector.commit.seal import TwoPhase, seal
from eoslog.connector.commit.sink_transaction import ask_stored, fetch_stored
from eoslog.connector.commit.task_reports import Batch, Decided, Empty, Prepared, Report, Stamp
from eoslog.connector.commit.transactional_ids import Participant, Sink, parity
from eoslog.connector.commit.winner import Winner
from eoslog.connector.commit.write_token import (
    BatchWrites,
    Content,
    RememberedTokens,
    Token,
    TopicIds,
    content_of,
)
from eoslog.protocol.producer_identity import NEVER_MS, ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition

SAFETY_MS = 10_000
"""A participant must have this much of its time left when the batch is decided, or a quarter of its
time-out if that is less, so that it cannot time out before it is finished."""


T = TypeVar("T")

_AGAIN = "nothing was decided, and it is safe to start the query again"


class SourceOffsets(NamedTuple):
    """Source offsets of the batch and the user's consumer group (kafka.group.id) for them."""

    group: str
    offsets: Offsets
    epochs: Mapping[TopicPartition, int] = MappingProxyType({})


class Noting(NamedTuple):
    """What a query remembers of its batch writes, to be noted in the transaction that decides one more
    (token_write.py). `anchors`: as in Stored."""

    group: str
    anchors: int
    noted: Decision

    def staged(self, own: Participant) -> list[StageOffsets]:
        """The commands."""
        return [StageOffsets(own, *part) for part in self.parts()]

    def parts(self) -> list[tuple[str, dict[TopicPartition, tuple[int, str]]]]:
        """The offsets by group."""
        chunks = encode(self.noted, Sink(self.group), self.anchors)
        return by_group(self.group, chunks, self.anchors)


class Ballot(NamedTuple):
    """All reports of a batch, counted. `decided`: an earlier run decided it, and no rows of it are lost.
    `topics`: to which rows went, with their ids. `open_rows`: of its transactions."""

    stamp: Stamp
    winners: tuple[Winner, ...]
    written: tuple[tuple[str, int], ...]
    decided: bool
    places: Places
    rows: tuple[int, ...]
    checksums: tuple[int, ...]
    topics: TopicIds
    open_rows: tuple[OpenRows, ...]

    @property
    def content(self) -> Content:
        """Rows and checksum of the whole batch."""
        return content_of(self.rows, self.checksums)


class Namer(NamedTuple):
    """The sink that has named the tasks' transactions, if another one decides (commit_within).

    It gets the same decision in the same transaction, for whoever ends what was left open under its names.
    `stamp`: what the tasks had from it. `last`: its last decision.
    """

    sink: Sink
    stamp: Stamp
    last: Decision | None

    def copy(self, decision: Decision) -> Decision:
        """The decision as this sink has it."""
        batch, sequence = self.stamp.batch, self.stamp.sequence + 1
        mine = decision._replace(sequence=sequence, batch=batch, earlier=(), starts=())
        mine = mine._replace(tokens=RememberedTokens(), within=BatchWrites())
        # No places: each begin under this name would look there. Who reads the sink's rows finds them here.
        mine = mine._replace(places=(), older=decision.places)
        if (last := self.last) is None:
            return mine
        older = (*last.older_of_write(decision.places, decision.written), *decision.places)
        mine = last.followed_by(mine)._replace(older=older[-KEPT_PLACES:], left=last.left)
        topics = last.topics_after(decision.written, sequence)
        return mine._replace(behind=last.kept_of_query(sequence), topics=topics)

    def chunks(self, decision: Decision) -> dict[int, tuple[int, str]]:
        """Its chunks."""
        return encode(self.copy(decision), self.sink, self.stamp.anchors)


def count(sink: Sink, reports: Sequence[Report | None], batch_id: int) -> Ballot:
    """Count the reports of a batch. Raises CommitFault unless they belong together."""
    present = [report for report in reports if report is not None]
    if len(present) < len(reports) or not present:
        raise CommitFault(
            f"sink {sink.id}, batch {batch_id}: {len(present)} of {len(reports)} tasks sent a report; "
            f"{_AGAIN}"
        )
    stamps = {report.stamp for report in present}
    stamp = present[0].stamp
    if len(stamps) > 1 or stamp.batch.batch_id != batch_id or stamp.sink_id != sink.id:
        raise CommitFault(
            f"sink {sink.id}, batch {batch_id}: the tasks' reports do not belong together, or not to this "
            f"batch ({'; '.join(sorted(map(str, stamps)))}): {_AGAIN}"
        )
    decided = {report.partition for report in present if isinstance(report, Decided)}
    others = {report.partition for report in present if not isinstance(report, Decided)}
    if decided & set(stamp.lost) or ((decided or stamp.lost) and others - set(stamp.lost)):
        raise CommitFault(
            f"sink {sink.id}, {stamp.batch}: some tasks found it decided and others did not; {_AGAIN}"
        )
    prepared = [report for report in present if isinstance(report, Prepared)]
    if len({report.partition for report in prepared}) < len(prepared):
        raise CommitFault(f"sink {sink.id}, {stamp.batch}: two reports for one partition; {_AGAIN}")
    topics = _topics(sink, stamp.batch, prepared)
    winners = tuple(sorted(Winner(report.partition, report.participant) for report in prepared))
    written = tuple(sorted({place for report in prepared for place in report.written}))
    is_decided = bool(decided) and not stamp.lost
    contents = _contents(present)
    where = (places_of(prepared), *contents, topics, open_rows_of(prepared))
    return Ballot(stamp, winners, written, is_decided, *where)


def _topics(sink: Sink, batch: Batch, reports: Sequence[Prepared]) -> TopicIds:
    """The topics' ids. Raises BatchRefused unless each topic had the same id for all tasks."""
    ids: dict[str, str] = {}
    for report in reports:
        for topic, number in report.topic_ids:
            if ids.setdefault(topic, number) != number:
                raise BatchRefused(
                    f"sink {sink.id}, {batch}: not decided: topic {topic} was deleted and created again "
                    f"since (its id was {ids[topic]} for some tasks and {number} for others), so rows of it "
                    "are gone with the old topic. Start the query again: it writes the batch as a whole"
                )
    return tuple(sorted(ids.items()))


def _contents(reports: Sequence[Report]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Rows and checksums by Spark partition; empty unless every task has reported its own."""
    by_partition = {report.partition: report for report in reports}
    in_order = [by_partition[partition] for partition in range(len(reports)) if partition in by_partition]
    if len(in_order) < len(reports):
        return (), ()
    rows = tuple(0 if isinstance(report, Empty) else report.rows for report in in_order)
    checksums = [0 if isinstance(report, Empty) else report.checksum for report in in_order]
    known = tuple(checksum for checksum in checksums if checksum is not None)
    return rows, known if len(known) == len(checksums) else ()


class Terms(NamedTuple):
    """What else a batch is committed with.

    `token`: of a batch write (token_write.py). `saving`: saves the query's state with the batch. `ends`: as
    in Decision. `accept_other`: the option that accepts other rows of a decided batch, if rows are what says
    whether it is the same. `dead_letters`: the topic of deadletter.topic. `accept`: the option that accepts a
    finding, by its word; None: it is accepted, or nothing is compared. `write_of`: as in Decision, "" for a
    batch write that is of no micro-batch. `noting`: what is noted with a batch write of foreachBatch.
    """

    token: str | None = None
    saving: Saving | None = None
    ends: str = ""
    accept_other: str | None = None
    dead_letters: str | None = None
    accept: Callable[[str], str | None] | None = None
    write_of: str | None = None
    noting: Noting | None = None


_PLAIN = Terms()


def commit(
    sink: Sink,
    reports: Sequence[Report | None],
    batch_id: int,
    source: SourceOffsets | None = None,
    two_phase: TwoPhase = TwoPhase.AUTO,
    terms: Terms = _PLAIN,
) -> Rules[Decision | None]:
    """Make the batch visible, all of it, once. May be called again: a decided batch is only finished.

    Returns the sink's last decision, with all of its transactions committed. None: there is no decision, or
    another driver has made a later one.

    Never acquires the sink: it acts under the identity that begin got, so a driver that has been replaced
    cannot decide. Raises CommitFault or a subclass: after Unfinished and ParticipantsLost the batch is
    decided, after OutcomeUnknown it may be, after all others it is not.
    """
    ballot = count(sink, reports, batch_id)
    stamp, token = ballot.stamp, terms.token
    stored = yield from fetch_stored(sink, stamp.identity)
    last = decode(sink, stored.chunks)
    decision = _decision(ballot, last, terms)
    if token is not None and ballot.decided and last is not None and last.last_of(token) is not None:
        _check_content(sink, token, last.content_of(token), decision.content)
        return last if last.sequence == stamp.sequence else None
    by_query = None if last is None else last.of_query
    if ballot.decided and by_query is not None and terms.accept_other is not None:
        check_same_rows(by_query, decision, terms.accept_other)
    if ballot.decided and by_query is not None and terms.accept is not None:
        named = {topic for report in reports if isinstance(report, Decided) for topic in report.topics}
        check_topics(sink, by_query, stamp, named, terms.accept)
    if _replays(last, stamp) or not _covers(last, stamp.batch):
        _check_undecided(sink, ballot, decision, last)
        written = [place for place in decision.written if place[0] != terms.dead_letters]
        topics = (last or decision).topics_after(written, decision.sequence) if token is None else ()
        decision = decision._replace(ends=terms.ends, places=ballot.places, topics=topics)
        if last is not None and decision.is_write and terms.saving is None:
            decision = decision._replace(behind=last.kept_of_query(decision.sequence))
            older = last.older_of_write(ballot.places, decision.written)
            decision = decision._replace(older=older)
        elif last is not None:
            older = last.older_after(ballot.places, decision.written)
            decision = decision._replace(older=older)
        more = (terms.saving, None, terms.noting, ballot.open_rows)
        last = yield from decide(sink, decision, stamp, source, two_phase, last, *more)
    elif last is not None and not ballot.decided and last.unsealed != decision:
        raise fenced(sink, f"it has decided {last.said} since")
    if last is not None:
        yield from _end(sink, last, stamp)
    return last


def _replays(last: Decision | None, stamp: Stamp) -> bool:
    """Whether the batch is the last decided one, and is written again as some of its rows are lost."""
    if last is None or not stamp.lost:
        return False
    return last.sequence == stamp.sequence and stamp.batch.repeats(last.batch)


def _check_undecided(sink: Sink, ballot: Ballot, decision: Decision, last: Decision | None) -> None:
    """Raise CommitFault unless the batch may be decided now, as the successor of what its begin found."""
    stamp = ballot.stamp
    if ballot.decided or (stamp.lost and not _replays(last, stamp)):
        raise DecisionGone(
            f"{stamp.batch}: tasks found it decided, but its decision is gone from group {sink.group}. "
            "Was the group deleted? Do not start the query again: it would write the batch again. "
            f"{DecisionGone.advice}"
        )
    known = last.sequence if last else 0
    if known < stamp.sequence:
        raise put_back(sink, f"this driver began behind its decision {stamp.sequence}, and it knows {known}")
    if last is not None and known > stamp.sequence:
        raise fenced(sink, f"it has decided {last.said} since")
    if last is not None and stamp.lost:
        check_replay(last, decision, stamp.lost)


def _end(sink: Sink, last: Decision, stamp: Stamp) -> Rules[None]:
    """Commit the decision's transactions, unless a later batch's begin has, and abort what else is open of
    this one."""
    # An attempt that opens its transaction after the decision aborts it itself (prepare.py).
    yield from ask(AskOngoing(sink.prefix))
    if not last.is_after(stamp.batch):
        yield from finish(last)
    mine = (stamp.incarnation, parity(stamp.batch.batch_id))
    yield from clear(sink, last.participants, only=mine, asked=True)


def _decision(ballot: Ballot, last: Decision | None, terms: Terms) -> Decision:
    """The decision that the reports make, with what `last` remembers of earlier batches."""
    stamp = ballot.stamp
    decision = Decision(
        stamp.sequence + 1,
        stamp.batch,
        stamp.incarnation,
        ballot.winners,
        ballot.written,
        ballot.rows,
        ballot.checksums,
        start=stamp.start,
        write_of=terms.write_of,
    )
    if last is not None and decision.is_write:  # which leaves the sink to its query
        decision = decision._replace(left=last.left)
    if last is not None and terms.write_of == "":
        decision = decision._replace(write_of=last.used_by)
    if terms.token is not None:
        tokens = last.tokens if last is not None else RememberedTokens()
        return decision._replace(tokens=tokens.after(Token.of(terms.token), decision.content, ballot.topics))
    return decision if last is None else last.followed_by(decision)


def _check_content(sink: Sink, token: str, then: Content, now: Content) -> None:
    """Raise TokenReused unless a token that is already written was given the same rows again."""
    if then.differs(now):
        raise TokenReused(
            f"sink {sink.id}: write.token={token} has written {then} before, and was given {now} now, which "
            f"are not the same. They were not written. {TokenReused.advice}"
        )


def _covers(last: Decision | None, batch: Batch) -> bool:
    decided = last.last_of(batch.query_id) if last is not None else None
    return decided is not None and decided.batch_id >= batch.batch_id


def decide(
    sink: Sink,
    decision: Decision,
    stamp: Stamp,
    source: SourceOffsets | None,
    two_phase: TwoPhase,
    last: Decision | None,
    saving: Saving | None = None,
    namer: Namer | None = None,
    noting: Noting | None = None,
    open_rows: Sequence[OpenRows] = (),
) -> Rules[Decision]:
    """Take the batch from "prepared" to "decided". If that fails, nothing is left that could still decide it,
    except after OutcomeUnknown."""
    own = Participant(sink.coordinator, stamp.identity)
    if decision.winners and two_phase is not TwoPhase.NEVER:
        decision = yield from _seal(sink, own, decision, two_phase)
    began_ms = yield from demand(ReadClock(), "the clock cannot be read")
    if saving is not None:
        written = yield from _save(sink, own, decision, began_ms, last, saving)
        places = (*decision.places, *written.places)
        decision = decision._replace(saved=written.saved, places=places)
        open_rows = (*open_rows, *written.rows)
    chunks = encode(decision, sink, stamp.anchors)
    staged = [StageOffsets(own, *part) for part in by_group(sink.group, chunks, stamp.anchors)]
    if namer is not None:
        copied = by_group(namer.sink.group, namer.chunks(decision), namer.stamp.anchors)
        staged += [StageOffsets(own, *part) for part in copied]
    if noting is not None:
        staged += noting.staged(own)
    if source is not None and source.offsets:
        staged.append(StageOffsets(own, source.group, source.offsets, source.epochs, of_source=True))
    for command in staged:
        answer = yield from ask(command)
        if isinstance(answer, (Refused, Unknown)):
            fault = _refusal(sink, decision, f"offsets for group {command.group} could not be added", answer)
            fault = yield from why_refused(sink, own, decision.batch, began_ms, fault)
            yield from _withdraw(own, decision)
            raise fault
    pending = tuple((command.group, tuple(command.offsets)) for command in staged)
    yield from _verify(sink, own, decision, began_ms, last, namer, (open_rows, pending))
    answers = yield from ask(End(True, (own,)))
    outcome = answers if isinstance(answers, (Refused, Unknown)) else answers[own.name]
    if isinstance(outcome, ProducerIdentity):
        return decision
    return (yield from _find_out(sink, own, decision, began_ms, outcome))


def _save(
    sink: Sink, own: Participant, decision: Decision, began_ms: int, last: Decision | None, saving: Saving
) -> Rules[Written]:
    """Write the query's state in the decision's transaction."""
    known = None if last is None else last.of_query
    same = known is not None and known.batch.query_id == decision.batch.query_id
    before = known.saved if same and known is not None else None
    contents = (decision.rows, decision.checksums)
    written = yield from ask(SaveState(own, saving, before, contents))
    if isinstance(written, (Refused, Unknown)):
        fault = _refusal(sink, decision, f"its state could not be saved to {saving.topic}", written)
        fault = yield from why_refused(sink, own, decision.batch, began_ms, fault)
        yield from _withdraw(own, decision)
        raise fault
    return written


def _seal(sink: Sink, own: Participant, decision: Decision, policy: TwoPhase) -> Rules[Decision]:
    """The decision with a holder for each winner, if the cluster offers two-phase commit."""
    answers = yield from ask(Seal(decision.participants))
    if isinstance(answers, (Refused, Unknown)):
        yield from _withdraw(own, decision)
        raise _refusal(sink, decision, "its transactions could not be kept open", answers)
    sealed, wrong = seal(decision, answers, policy)
    if wrong:
        state = yield from ask(Describe((own.name,)))  # first, because the withdrawal changes it
        yield from _withdraw(own, sealed)
        if not isinstance(state, (Refused, Unknown)):
            check_owner(sink, own.identity, state[own.name])  # a new driver's begin ends our transactions
        raise _unprepared(decision, wrong)
    return sealed


def _unprepared(decision: Decision, wrong: Sequence[str]) -> BatchRefused:
    return BatchRefused(
        f"{decision.said} was not decided, because transactions of its tasks are no longer open or "
        f"about to time out: {'; '.join(wrong)}. Start the query again; if this comes back, raise "
        "kafka.transaction.timeout.ms or make batches smaller (maxOffsetsPerTrigger)"
    )


def _refusal(sink: Sink, decision: Decision, what: str, answer: Failure) -> CommitFault:
    if isinstance(answer, Refused) and answer.code in FENCED:
        return fenced(sink, answer)
    return BatchRefused(
        f"{decision.said} was not decided: {what}: {answer}. It is safe to start the query again"
    )


def _verify(
    sink: Sink,
    own: Participant,
    decision: Decision,
    began_ms: int,
    last: Decision | None,
    namer: Namer | None,
    written_in: tuple[Sequence[OpenRows], Staged],
) -> Rules[None]:
    """Check that every winner is open under the identity it reported, with time left, and that no winner of
    the last decision is open again: this batch's decision would forget it, and the next begin would abort it.

    Coordinators do not learn what is done to a partition alone: markers of an operator's, deleted records.
    So the partitions' leaders are asked at the same time, and the groups whether their offsets are pending.
    `written_in`: the rows, and the groups.

    The check runs while the sink's own transaction is open: that is closest to the commit point, and the
    start of that transaction is a time by the brokers' clocks, whatever this machine's clock shows. This
    machine's clock only shows how long ago that was at most: `began_ms` was read before the transaction was
    opened. So if the driver was suspended since then, that time counts.

    Who ends a run raises the epoch of the sink that named its transactions, then reads that sink's decision,
    then aborts. If the epoch is not raised now, the decision is pending there when it is read.
    """
    lasts = [one for one in (last, None if namer is None else namer.last) if one is not None]
    before = [(one, winner) for one in lasts for winner in one.winners]
    names = (own.name, *(w.participant.name for w in (*decision.winners, *(w for _, w in before))))
    if namer is not None:
        names = (*names, namer.sink.coordinator)
    open_rows, staged = written_in
    written = tuple(sorted({rows.where for rows in open_rows}))
    yield from ask(AskOpen(written, staged))
    described = yield from ask(Describe(names))
    looked_at = (yield from ask(FindOpen(written))) if written else {}
    found = yield from ask(FindSettled(staged))
    states = yield from _told(sink, own, decision, "transactions", described)
    state = yield from _check_open(sink, own, decision, began_ms, states[own.name])
    now_ms = state.start_ms + (yield from demand(ReadClock(), "the clock cannot be read")) - began_ms
    if (fault := _unready(decision, before, namer, states, now_ms)) is not None:
        yield from _withdraw(own, decision)
        raise fault
    logs = yield from _told(sink, own, decision, "partitions", looked_at)
    settled = yield from _told(sink, own, decision, "groups", found)
    gone = [why for rows in open_rows if (why := why_gone_from(rows, logs[rows.where]))]
    gone += [f"no offsets of group {group} are about to be committed" for group in settled]
    if gone:  # a new driver's begin ends our transactions, too
        later = yield from ask(Describe((own.name,)))
        if not isinstance(later, (Refused, Unknown)):
            yield from _check_open(sink, own, decision, began_ms, later[own.name])
        yield from _withdraw(own, decision)
        raise _ended_in_part(decision, gone)


def _told(sink: Sink, own: Participant, decision: Decision, what: str, answer: T | Failure) -> Rules[T]:
    """The answer, which has to be none of a failure."""
    if isinstance(answer, (Refused, Unknown)):
        yield from _withdraw(own, decision)
        raise _refusal(sink, decision, f"its {what} could not be looked up", answer)
    return answer


def _check_open(
    sink: Sink, own: Participant, decision: Decision, began_ms: int, state: Description | None
) -> Rules[Description]:
    """The state of the sink's own transaction, which has to be open."""
    if state is None or not is_open(state, own):
        yield from _withdraw(own, decision)
        raise (yield from why_gone(sink, own, decision.batch, began_ms, state))
    return state


def _unready(
    decision: Decision,
    before: Sequence[tuple[Decision, Winner]],
    namer: Namer | None,
    states: Mapping[str, Description | None],
    now_ms: int,
) -> CommitFault | None:
    """What the coordinators' answers say against the decision. `before`: winners of the last ones."""
    again = [(d, w) for d, w in before if is_open(states[w.participant.name], w.participant, w.holder)]
    if again:
        return _reopened(again[0][0], [winner for _, winner in again])
    ending = None if namer is None else states[namer.sink.coordinator]
    if namer is not None and (ending is None or ending.identity != namer.stamp.identity):
        return lost_to(namer.sink, namer.stamp.identity, ending)
    wrong = [
        f"partition {winner.partition}: {why}"
        for winner in decision.winners
        if (why := _unfit(states[winner.participant.name], winner, now_ms))
    ]
    return _unprepared(decision, wrong) if wrong else None


def _ended_in_part(decision: Decision, gone: Sequence[str]) -> BatchRefused:
    return BatchRefused(
        f"{decision.said} was not decided, because rows or offsets of it are gone, and its coordinators "
        f"do not know that: {'; '.join(gone)}. Somebody has ended transactions on their partitions alone "
        "(kafka-transactions.sh abort), or records were deleted before they could be read "
        "(kafka-delete-records.sh, or retention.ms is shorter than a batch takes), or a leader was elected "
        "that lacked them (unclean.leader.election.enable). Start the query again: it "
        "writes the batch as a whole"
    )


def _reopened(last: Decision, winners: Sequence[Winner]) -> BatchRefused:
    return BatchRefused(
        f"{last.said} is decided and was committed, and {len(winners)} of its transactions are open again "
        f"({winners[0].participant.name}): the brokers have lost what they acknowledged, or were put back to "
        "an older copy. Nothing more was decided. Start the query again: it commits them first"
    )


def _unfit(state: Description | None, winner: Winner, now_ms: int) -> str | None:
    participant = winner.participant
    if state is None or not is_open(state, participant, winner.holder):
        return f"{participant.name} is {state.state + ' at ' + str(state.identity) if state else 'unknown'}"
    if winner.holder is not None:
        return None
    if state.timeout_ms == NEVER_MS:  # sealed, and its holder is not known: nobody could commit it
        return f"{participant.name} is kept open by a request whose answer was lost"
    left = state.start_ms + state.timeout_ms - now_ms
    if left < min(SAFETY_MS, state.timeout_ms // 4):
        return f"{participant.name} has {left} of its {state.timeout_ms} ms left"
    return None


def _withdraw(own: Participant, decision: Decision) -> Rules[None]:
    """Give the batch up: its commit has not been sent, so nothing is decided, whatever the answers are.

    A transaction that cannot be aborted now is ended by the next begin, or by the brokers' time-out.
    """
    yield from ask(End(False, (own,)))
    yield from try_abort(decision.enders)


def _find_out(
    sink: Sink, own: Participant, decision: Decision, began_ms: int, answer: Failure
) -> Rules[Decision]:
    """The commit was sent and not confirmed. The group shows the outcome once it has no pending offsets.

    Returns the decision if it was made. Nothing is aborted until that is known. Raises OutcomeUnknown,
    SinkFenced, BatchRefused or MarkersMissing.
    """
    stored = yield from ask_stored(sink, own.identity)
    if isinstance(stored, (Refused, Unknown)):
        raise OutcomeUnknown(
            f"{decision.said}: its decision was sent and the outcome is unknown ({answer}; {stored}). Start "
            "the query again: it finds out, and continues without losing or doubling a row"
        )
    last = decode(sink, stored.chunks)
    if last is not None and last.unsealed == decision.unsealed:
        return last
    if last is not None and last.sequence > decision.sequence:
        raise fenced(sink, f"it has decided {last.said} since")
    fault = _refusal(sink, decision, "the coordinator did not commit", answer)
    fault = yield from why_refused(sink, own, decision.batch, began_ms, fault)
    yield from try_abort(decision.enders)
    raise fault
