"""`eoslog rehearse --decision-topic`: a cluster that hides its internal topics (option decision.topic)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import AUTHORIZER, DECISIONS, hide_internal_topics
from tests.connector.stock_kafka import Kafka
from tests.rehearse.broken_brokers import SWEEPS
from tests.rehearse.rehearsing import document, not_holding, verdicts

pytestmark = pytest.mark.long  # each test rehearses a whole cluster for seconds
INTERNAL = ("__consumer_offsets", "__transaction_state")


@pytest.fixture(scope="module")
def hiding() -> Iterator[EmbeddedBroker]:
    """A broker that shows no internal topic; it has them, from an earlier rehearsal."""
    with EmbeddedBroker(in_thread=True, config={**AUTHORIZER, **SWEEPS}) as broker:
        Kafka(broker.bootstrap).topic(3, DECISIONS)
        assert document(broker.bootstrap)["status"] == 0
        hide_internal_topics(broker.bootstrap)
        yield broker


def test_decisions_are_kept_on_the_topic_that_is_named(hiding: EmbeddedBroker) -> None:
    found = document(hiding.bootstrap, "--decision-topic", DECISIONS)
    assert found["status"] == 0 and not not_holding(found) and not found["left"], found
    assert len(found["killed"]) > 25
    for topic in INTERNAL:
        assert verdicts(found)[f"unclean.leader.election.enable of {topic}"] == "note"


def test_without_it_the_hidden_topic_is_named(hiding: EmbeddedBroker) -> None:
    found = document(hiding.bootstrap, "--timeout", "3")
    assert found["status"] == 1 and "__consumer_offsets" in not_holding(found)["rights of a query"]


def test_a_topic_that_does_not_exist_is_named(hiding: EmbeddedBroker) -> None:
    found = document(hiding.bootstrap, "--decision-topic", "absent")
    assert found["status"] == 1 and "topic absent" in not_holding(found)["rights"]
    assert not found["left"]
