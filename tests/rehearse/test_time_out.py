"""What a rehearsal says of time-outs that did not come, or that cannot be told from another history."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog.client.admin.transaction_states import TransactionDescription
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.rehearse import time_out
from eoslog.rehearse.rows import DoesNotHold
from eoslog.rehearse.time_out import PROOF, ROW, TimeOut

WHO = Participant("dead", ProducerIdentity(7, 0))


class Told:
    """A Work whose cluster tells this after a time-out. `written`: how often the row is in the log."""

    patience_s = 0.0
    timeout_ms = 60_000
    place = ("decisions", 0)

    def __init__(self, state: str = "CompleteAbort", epoch: int = 1, written: int = 1) -> None:
        self.state, self.epoch, self.written = state, epoch, written
        self.names = self

    def name(self, word: str) -> str:
        return word

    def describe(self, name: str) -> TransactionDescription | None:
        return TransactionDescription(self.state, ProducerIdentity(7, self.epoch), 3_000, 0, [])

    def check_readable(self, topic: str, when: str) -> None: ...

    def check_rows(self, topic: str, expected: list[str], when: str) -> None: ...

    def rows(self, topic: str, *, committed: bool = True) -> dict[str, int]:
        return {ROW: self.written}

    def offset(self, group: str, place: Any) -> None: ...

    def end(self, who: Participant, *, commit: bool) -> None:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)


def rows(told: Told, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Row -> verdict."""
    monkeypatch.setattr(time_out, "SWEEP_S", 0.0)
    work: Any = told
    looked = TimeOut(work, who=WHO, longer=WHO)
    return {row.name: row.verdict.value for row in looked.rows()}


def test_a_time_out_that_was_seen_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rows(Told(), monkeypatch)
    assert found["time-outs"] == found[PROOF] == "holds"


def test_a_time_out_that_another_history_could_be_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka 4.0.0 with transaction.version 2 raises the epoch by two."""
    found = rows(Told(epoch=2), monkeypatch)
    assert found["time-outs"] == "holds" and found[PROOF] == "note"


@pytest.mark.parametrize("told", [Told("Ongoing"), Told(written=0)])
def test_a_time_out_that_did_not_happen_does_not_hold(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is said of transactions that would have had to outlast it."""
    assert rows(told, monkeypatch) == {"time-outs": "fails"}


class OneLeft(Told):
    """The transaction that should have had time is over, too, and the sealed one is open: a slow machine."""

    sealed = "Ongoing"

    def describe(self, name: str) -> TransactionDescription | None:
        state = self.sealed if name == "sealed" else self.state
        return TransactionDescription(state, ProducerIdentity(7, self.epoch), 3_000, 0, [])

    def check_rows(self, topic: str, expected: list[str], when: str) -> None:
        there = [ROW] if topic == time_out.LASTS else []
        if expected != there:
            raise DoesNotHold(f"{expected} instead of {there}")

    def end(self, who: Participant, *, commit: bool) -> None:
        if who.name != "sealed":
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)


@pytest.mark.parametrize(("state", "verdict"), [("Ongoing", "holds"), ("CompleteAbort", "fails")])
def test_too_much_time_has_passed(state: str, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is not known then; but the sealed transaction holds, and its row alone is there. One that is not
    open any more does not hold, whatever its end is answered with."""
    monkeypatch.setattr(OneLeft, "sealed", state)
    monkeypatch.setattr(time_out, "SWEEP_S", 0.0)
    work: Any = OneLeft()
    sealed = Participant("sealed", ProducerIdentity(8, 0)), ProducerIdentity(8, 1)
    looked = TimeOut(work, who=WHO, longer=WHO, sealed=sealed, begun_s=-1e9)
    found = {row.name: row.verdict.value for row in looked.rows()}
    assert (found["transactions that have time"], found["sealed transactions"]) == ("unknown", verdict)
