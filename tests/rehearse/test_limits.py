"""What a cluster keeps for too short a time, compared with the query: the rows, without a cluster."""

from __future__ import annotations

import pytest

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
from eoslog.rehearse.rows import Verdict

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
