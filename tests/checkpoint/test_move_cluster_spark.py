"""Queries that were killed in a real Spark go on on another cluster, whose mirrored topics have other
offsets. make test-checkpoint runs it."""

from __future__ import annotations

import pytest

from eoslog.testing import EmbeddedBroker
from tests.checkpoint.edited_query import PARTITIONS, STATES, EditedQuery, fill
from tests.checkpoint.plain_checkpoint import copy_topic
from tests.connector.stock_kafka import Kafka

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.parametrize("state", STATES)
def test_each_row_is_there_once(query: EditedQuery, other: EmbeddedBroker, state: str) -> None:
    """With what it had written, which is mirrored, too. On the old cluster the query does not start again."""
    query.bring_to(state)
    old, new = query.kafka, Kafka(other.bootstrap)
    then = query.shown()["partitions"]
    copy_topic(old, new, query.source, PARTITIONS, before=0)
    assert query.edit("move-cluster", "--to-bootstrap-server", other.bootstrap) == {"doubled": 0, "lost": 0}
    copy_topic(old, new, query.target, PARTITIONS, before=0)
    assert "WrongCluster" in query.run()
    query.kafka = new
    assert query.command("check").exit_code == 0
    assert all(now["to"] < was["to"] for now, was in zip(query.shown()["partitions"], then, strict=True))
    assert query.run() == ""
    assert query.audited() == {"doubled": 0, "lost": 0}
    fill(new, query.source, "later")
    assert query.run() == ""
    assert query.audited() == {"doubled": 0, "lost": 0}
