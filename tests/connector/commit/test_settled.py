"""When a sink's last decision is settled: see eoslog.connector.commit.settled."""

from collections.abc import Mapping
from typing import Any

import pytest

from eoslog.connector.commit.commands import (
    Command,
    Describe,
    Description,
    FetchStored,
    ListOngoing,
    Refused,
    Rules,
)
from eoslog.connector.commit.decision import Decision, Stored, encode
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.settled import settled
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Participant, ParticipantSlot, Sink
from eoslog.connector.commit.winner import Winner
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity

SINK = Sink("orders-v1")
RUN = ProducerIdentity(7, 0)
WROTE = ProducerIdentity(9, 3)


def name(parity: int, worker: str = "a") -> str:
    return SINK.participant(ParticipantSlot(RUN, parity, worker, 0))


LAST = Decision(
    5, Batch("query", 4, "digest"), RUN, (Winner(0, Participant(name(0), WROTE)),), (("totals", 0),)
)
STORED = Stored(50, encode(LAST, SINK, 50))


def run(rules: Rules[Any], answers: Mapping[type[Command[Any]], Any]) -> Any:
    """The rule's result, if each command gets the answer of its kind."""
    answer = None
    try:
        while True:
            answer = answers[type(rules.send(answer))]
    except StopIteration as end:
        return end.value


def answers(state: str = "CompleteCommit", ongoing: tuple[str, ...] = (), stored: Any = STORED) -> Any:
    described = {name(0): Description(state, WROTE, 60_000, 0)}
    return {FetchStored: stored, Describe: described, ListOngoing: ongoing}


def test_a_decision_whose_rows_can_be_read() -> None:
    assert run(settled(SINK), answers()) == LAST


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit"])
def test_its_winners_are_not_finished(state: str) -> None:
    assert run(settled(SINK), answers(state)) is None


def test_a_late_attempt_of_its_batch_is_open() -> None:
    assert run(settled(SINK), answers(ongoing=(name(0, "late"),))) is None


def test_the_next_batch_is_written_already() -> None:
    assert run(settled(SINK), answers(ongoing=(name(1), "orders-v1/else"))) == LAST


def test_no_decision_or_one_that_is_just_made() -> None:
    assert run(settled(SINK), answers(stored=Stored(50, {}))) is None
    pending = Refused(ErrorCode.UNSTABLE_OFFSET_COMMIT, "pending")
    assert run(settled(SINK), answers(stored=pending)) is None


def test_it_cannot_be_read() -> None:
    refused = Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not allowed")
    with pytest.raises(CommitFault, match="the last decision of sink orders-v1 cannot be read: not allowed"):
        run(settled(SINK), answers(stored=refused))
