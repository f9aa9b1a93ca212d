"""`eoslog rehearse` on Apache Kafka 4.3.1 and on one that hides its topics; the table of docs/evidence.md."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import AUTHORIZER, DECISIONS, Kafka, hide_internal_topics
from tests.docs.reader import ROOT, all_match, blocks_of, steps
from tests.rehearse.rehearsing import (
    SWEEPS,
    document,
    names_of,
    not_holding,
    printed_on,
    rehearse,
    verdicts,
)
from tests.rehearse.run_versions import BEGIN, END, KEPT, Node, rehearsed, table
from tests.rehearse.run_versions import PAGE as VERSIONS_PAGE
from tests.scenarios.apache_kafka import ApacheKafka

PAGE = ROOT / "docs" / "rehearse.md"


@pytest.fixture(scope="module", params=["1", "2"])
def kafka(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A node, and the transaction.version that it was formatted with."""
    with ApacheKafka({}, (f"--feature=transaction.version={request.param}",)) as node:
        yield node.bootstrap, request.param


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_apache_kafka_holds(kafka: tuple[str, str]) -> None:
    bootstrap, version = kafka
    found = document(bootstrap)
    assert found["status"] == 0 and not not_holding(found), found
    assert f"transaction.version {version}" in found["rows"][0]["what"]
    assert verdicts(found)["two-phase commit"] == "note"
    assert found["killed"][-1] == "after its last command" and len(found["killed"]) > 25
    assert not found["left"] and not [name for name in names_of(bootstrap) if name.startswith("eoslog-")]


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_the_page_shows_what_it_prints(kafka: tuple[str, str]) -> None:
    bootstrap, version = kafka
    if version != "2":
        pytest.skip("the page shows Kafka 4's default, transaction.version 2")
    (block,) = [
        one for one in blocks_of(PAGE) if one.mark == "run by" and one.says.endswith("test_on_kafka.py")
    ]
    ((command, wanted),) = steps(block.code)
    assert command == "eoslog rehearse"
    printed = rehearse(bootstrap).output
    assert all_match(printed.splitlines(), wanted), printed
    assert all_match(printed.splitlines(), printed_on("kafka", command)), printed


# -- --decision-topic ----------------------------------------------------------------------------
# `eoslog rehearse --decision-topic`: a cluster that hides its internal topics (option decision.topic).

# each test rehearses a whole cluster for seconds
INTERNAL = ("__consumer_offsets", "__transaction_state")


@pytest.fixture(scope="module")
def hiding() -> Iterator[EmbeddedBroker]:
    """A broker that shows no internal topic; it has them, from an earlier rehearsal."""
    with EmbeddedBroker(in_thread=True, config={**AUTHORIZER, **SWEEPS}) as broker:
        Kafka(broker.bootstrap).topic(3, DECISIONS)
        assert document(broker.bootstrap)["status"] == 0
        hide_internal_topics(broker.bootstrap)
        yield broker


@pytest.mark.long
def test_decisions_are_kept_on_the_topic_that_is_named(hiding: EmbeddedBroker) -> None:
    found = document(hiding.bootstrap, "--decision-topic", DECISIONS)
    assert found["status"] == 0 and not not_holding(found) and not found["left"], found
    assert len(found["killed"]) > 25
    for topic in INTERNAL:
        assert verdicts(found)[f"unclean.leader.election.enable of {topic}"] == "note"


@pytest.mark.long
def test_without_it_the_hidden_topic_is_named(hiding: EmbeddedBroker) -> None:
    found = document(hiding.bootstrap, "--timeout", "3")
    assert found["status"] == 1 and "__consumer_offsets" in not_holding(found)["rights of a query"]


@pytest.mark.long
def test_a_topic_that_does_not_exist_is_named(hiding: EmbeddedBroker) -> None:
    found = document(hiding.bootstrap, "--decision-topic", "absent")
    assert found["status"] == 1 and "topic absent" in not_holding(found)["rights"]
    assert not found["left"]


# -- the table of versions -----------------------------------------------------------------------
# What the table of docs/evidence.md says is what the runs printed; and what tells 4.0.0 from the others.

PROOF = "proof of a time-out"


def test_the_page_has_what_was_printed() -> None:
    printed = VERSIONS_PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert printed == table(json.loads(KEPT.read_text()))


@pytest.mark.kafka
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("level", "verdict"), [("1", "holds"), ("2", "note")])
def test_a_time_out_of_4_0_0_cannot_be_told_from_another_history(level: str, verdict: str) -> None:
    """Its transaction.version 2 raises the epoch by two."""
    found = rehearsed(Node("4.0.0", level))
    assert verdicts(found)[PROOF] == verdict and not not_holding(found), found
