"""What a rehearsal says of limits, load, time-outs and rights: the rows, without a cluster."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from eoslog.client.admin.group_offsets import StillPending
from eoslog.client.admin.transaction_states import TransactionDescription
from eoslog.client.wire.config import ClientConfig
from eoslog.client.wire.security_settings import KerberosSettings, SaslSettings, Security
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.rehearse import time_out
from eoslog.rehearse.command import _principal
from eoslog.rehearse.crash import Load
from eoslog.rehearse.limits import (
    BROKER_CONFIGS,
    UNCLEAN,
    Configs,
    Query,
    broker_rows,
    topic_rows,
    unclean_by_default,
    unclean_row,
)
from eoslog.rehearse.rows import DoesNotHold, Verdict
from eoslog.rehearse.time_out import PROOF, ROW, TimeOut

# -- limits --------------------------------------------------------------------------------------
# What a cluster keeps for too short a time, compared with the query: the rows, without a cluster.

KAFKAS: dict[str, str] = {
    "transaction.max.timeout.ms": "900000",
    "transactional.id.expiration.ms": "604800000",
    "producer.id.expiration.ms": "86400000",
    "offsets.retention.minutes": "10080",
    "offset.metadata.max.bytes": "4096",
    UNCLEAN: "false",
}
"""The defaults of Apache Kafka 4.3.1."""
QUERY = Query(60_000, 600_000)
TIMES = [name for name in BROKER_CONFIGS if name.endswith((".ms", ".minutes"))]


def verdicts(query: Query, *brokers: Configs) -> dict[str, Verdict]:
    return {row.name: row.verdict for row in broker_rows(dict(enumerate(brokers, 1)), query)}


def test_kafkas_defaults_hold() -> None:
    assert set(verdicts(QUERY, KAFKAS).values()) == {Verdict.HOLDS}


@pytest.mark.parametrize("name", TIMES)
def test_what_one_broker_forgets_too_early_is_named(name: str) -> None:
    short = KAFKAS | {name: "10" if name.endswith("minutes") else "600000"}
    found = {row.name: row for row in broker_rows({1: KAFKAS, 2: short, 3: KAFKAS}, QUERY)}
    assert {name for name, row in found.items() if row.verdict is Verdict.FAILS} == {name}
    assert "on broker 2" in found[name].what and f"set {name}=" in found[name].do[0]


def test_late_rows_are_refused_by_leaders_that_ask_the_coordinator() -> None:
    """Then the epochs that leaders forget are not needed."""
    short = KAFKAS | {"producer.id.expiration.ms": "600000"}
    (name,) = [name for name, one in verdicts(QUERY, short).items() if one is Verdict.FAILS]
    assert verdicts(QUERY._replace(verified=True), short)[name] is Verdict.NOTE


def test_old_brokers_forget_producers_with_their_transactional_ids() -> None:
    """Kafka 3.3.2 has no config of its own. That another broker without it does so is not seen."""
    old = {name: value for name, value in KAFKAS.items() if name != "producer.id.expiration.ms"}
    assert verdicts(QUERY, old)["producer.id.expiration.ms"] is Verdict.NOTE
    short = old | {"transactional.id.expiration.ms": "600000"}
    assert verdicts(QUERY, short)["producer.id.expiration.ms"] is Verdict.FAILS


def test_what_no_broker_tells_is_unknown() -> None:
    assert set(verdicts(QUERY, {}).values()) == {Verdict.UNKNOWN}


@pytest.mark.parametrize(
    ("value", "verdict"), [("false", Verdict.HOLDS), ("true", Verdict.FAILS), ("", Verdict.UNKNOWN)]
)
def test_unclean_elections(value: str, verdict: Verdict) -> None:
    assert unclean_row("topic orders", "orders", value).verdict is verdict
    rows = topic_rows("orders", "topic orders", {UNCLEAN: value}, 3, QUERY)
    assert {row.verdict for row in rows if row.name.startswith(UNCLEAN)} == {verdict}
    hidden = unclean_by_default("__consumer_offsets", {value, "false"} if value else {value})
    assert hidden.verdict is (Verdict.NOTE if value == "false" else verdict)


def test_what_to_do_about_unclean_elections() -> None:
    assert unclean_row("topic orders", "orders", "true").do == (
        "eoslog topics configs orders --set unclean.leader.election.enable=false",
    )
    assert unclean_row("new topics", "", "true").do == (
        "set unclean.leader.election.enable=false on brokers",
    )


# -- load ----------------------------------------------------------------------------------------
# What a rehearsal says of the load that a crash has cut off.


def offset(*_: Any) -> None:
    raise StillPending("UNSTABLE_OFFSET_COMMIT, for 2.0 s")


def test_an_offset_that_stays_pending_is_named() -> None:
    """It ended the rehearsal, as if that itself were broken."""
    load: Any = SimpleNamespace(work=SimpleNamespace(offset=offset, place=("decisions", 0)))
    writer: Any = SimpleNamespace(done=0, group="g", row=str)
    with pytest.raises(DoesNotHold, match="an offset stays pending although brokers have crashed under load"):
        Load._check(load, writer, Counter())


# -- time-outs -----------------------------------------------------------------------------------
# What a rehearsal says of time-outs that did not come, or that cannot be told from another history.

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


# -- rights --------------------------------------------------------------------------------------
# Whom a rehearsal's printed rights are for, by the client's settings alone.


@pytest.mark.parametrize(("sasl", "user"), [
    (None, "User:ANONYMOUS"),
    (SaslSettings("PLAIN", "alice@example.org", "word"), "User:alice@example.org"),
    (SaslSettings("GSSAPI", kerberos=KerberosSettings("kafka", "alice@REALM", "/k")), "User:alice"),
    (SaslSettings("GSSAPI", kerberos=KerberosSettings("kafka", "spark/host@REALM", "/k")), "User:spark"),
    (SaslSettings("GSSAPI", kerberos=KerberosSettings("kafka", "alice", "/k")), "User:alice"),
    (SaslSettings("GSSAPI", kerberos=KerberosSettings("kafka", ticket_cache="/none")), "User:ANONYMOUS"),
])  # fmt: skip
def test_whom_brokers_take_a_client_for(sasl: SaslSettings | None, user: str) -> None:
    assert _principal(ClientConfig((("b", 1),), security=Security(sasl=sasl))) == user
