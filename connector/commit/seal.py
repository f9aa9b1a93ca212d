"""Seal: keep prepared participants from timing out, where the cluster offers it (KIP-939).

A participant is opened with a time-out, which limits how long undecided rows hold readers back. Right before
the decision the driver takes over the open transaction: from then on only the new holder can end it, and it
does not time out. It is sealed only before the decision: after it, its state must stay readable, and sealing
a transaction that has ended starts a new one.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from eoslog.connector.commit.commands import (
    End,
    Failure,
    NotOffered,
    Refused,
    Rules,
    Seal,
    Sealed,
    Unknown,
    ask,
    demand,
)
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.connector.commit.winner import Winner
from eoslog.protocol.producer_identity import ProducerIdentity

Answer = Sealed | NotOffered | Failure


class TwoPhase(Enum):
    """Whether participants are sealed (option two.phase.commit)."""

    AUTO = "auto"
    NEVER = "false"
    REQUIRE = "require"


def of_write(policy: TwoPhase, *, named: bool) -> TwoPhase:
    """The policy of a batch write. One without a name never seals: it cannot be started again, so
    transactions that it sealed and did not decide would stay open for ever."""
    return policy if named else TwoPhase.NEVER


def check_offered(sink: Sink) -> Rules[None]:
    """Raise CommitFault unless the cluster offers two-phase commit. It asks with an id that is not in use."""
    probe = Participant(sink.probe, ProducerIdentity(-1, -1))
    what = f"whether the cluster keeps transactions of sink {sink.id} cannot be found out"
    answer = (yield from demand(Seal((probe,)), what))[probe.name]
    if isinstance(answer, NotOffered):
        raise CommitFault(
            f"sink {sink.id}: two.phase.commit=require, but the cluster does not offer it: {answer}. Set "
            "two.phase.commit=auto to do without it: transactions then time out after "
            "kafka.transaction.timeout.ms"
        )
    if isinstance(answer, (Refused, Unknown)):
        raise CommitFault(f"{what}: {answer}. Fix that, then start the query again")


def seal(decision: Decision, answers: Mapping[str, Answer], policy: TwoPhase) -> tuple[Decision, list[str]]:
    """The decision with its holders, and a text for each winner that is not fit."""
    winners, wrong = [], []
    for winner in decision.winners:
        answer = answers[winner.participant.name]
        winners.append(winner._replace(holder=_holder_of(winner.participant, answer)))
        why = _unfit(winner, answer, policy)
        if why:
            wrong.append(f"partition {winner.partition}: {why}")
    return decision._replace(winners=tuple(winners)), wrong


def _unfit(winner: Winner, answer: Answer, policy: TwoPhase) -> str | None:
    name, identity = winner.participant
    if isinstance(answer, NotOffered):
        return f"{name}: {answer} (two.phase.commit=require)" if policy is TwoPhase.REQUIRE else None
    if isinstance(answer, (Refused, Unknown)):
        return f"{name} could not be kept open: {answer}"
    if answer.wrote is None:
        return f"{name} ({identity}) is no longer open"
    return None if answer.wrote == identity else f"{name} is open as {answer.wrote}, not as {identity}"


def _holder_of(participant: Participant, answer: Answer) -> ProducerIdentity | None:
    """The holder, if exactly this transaction is sealed."""
    return answer.holder if isinstance(answer, Sealed) and answer.wrote == participant.identity else None


def end_sealed(
    commit: bool, participants: Iterable[Participant]
) -> Rules[Mapping[str, ProducerIdentity | Failure]]:
    """End transactions that were seen open under these identities and have an unknown holder.

    The holder is a driver that died after sealing, or a late request that sealed once more. Seal each again,
    and end it if it is still the transaction that was seen. Returns the answers by name; raises nothing.
    """
    wanted = tuple(participants)
    held = yield from ask(Seal(wanted))
    if isinstance(held, (Refused, Unknown)):
        return {p.name: held for p in wanted}
    ends: dict[str, ProducerIdentity | Failure] = {p.name: _not_held(held[p.name]) for p in wanted}
    ours = [Participant(p.name, h) for p in wanted if (h := _holder_of(p, held[p.name])) is not None]
    if ours:
        answers = yield from ask(End(commit, tuple(ours)))
        if isinstance(answers, (Refused, Unknown)):
            answers = {p.name: answers for p in ours}
        ends |= answers
    return ends


def abort_later(participants: Sequence[Participant]) -> Rules[frozenset[str]]:
    """Abort transactions that are open under these names, and that others wrote: they are of later batches,
    whose decisions the cluster has lost. Returns their names."""
    held = yield from ask(Seal(tuple(participants)))
    if isinstance(held, (Refused, Unknown)):
        return frozenset()
    answers = [(p, held[p.name]) for p in participants]
    later = tuple(
        Participant(p.name, answer.holder)
        for p, answer in answers
        if isinstance(answer, Sealed) and answer.wrote not in (None, p.identity)
    )
    if later:
        yield from ask(End(False, later))
    return frozenset(p.name for p in later)


def _not_held(answer: Answer) -> Failure:
    if isinstance(answer, (Refused, Unknown)):
        return answer
    return Unknown(f"not taken over: {answer}")
