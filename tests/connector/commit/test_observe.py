"""A sink's last decision, as others see it."""

from typing import Any

import pytest

from eoslog.connector.commit.commands import FetchStored, Refused
from eoslog.connector.commit.decision import Decision, Stored, encode
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity

SINK = Sink("orders-v1")
LAST = Decision(5, Batch("query", 4, "digest"), ProducerIdentity(7, 0), (), ())


def observed(answer: Any) -> Decision | None:
    """What the rule makes of the answer to its one question."""
    rule = observed_decision(SINK)
    assert next(rule) == FetchStored(SINK.group)
    with pytest.raises(StopIteration) as end:
        rule.send(answer)
    found: Decision | None = end.value.value
    return found


def test_the_last_decision() -> None:
    assert observed(Stored(50, encode(LAST, SINK, 50))) == LAST
    assert observed(Stored(50, {})) is None


def test_the_next_one_is_just_being_made() -> None:
    assert observed(Refused(ErrorCode.UNSTABLE_OFFSET_COMMIT, "pending")) is None


def test_it_cannot_be_read() -> None:
    with pytest.raises(CommitFault, match=r"the last decision of sink orders-v1 cannot be read: not allowed"):
        observed(Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not allowed"))
