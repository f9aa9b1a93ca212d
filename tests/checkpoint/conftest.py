"""A query whose checkpoint is edited, on a broker of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.checkpoint.edited_query import EditedQuery
from tests.connector.brokers import start_broker
from tests.connector.stock_kafka import Kafka


@pytest.fixture(scope="module")
def hasty() -> Iterator[Kafka]:
    """A broker that looks for timed-out transactions all the time."""
    with start_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}) as broker:
        yield Kafka(broker.bootstrap)


@pytest.fixture
def query(spark: SparkSession, hasty: Kafka, tmp_path: Path) -> EditedQuery:
    return EditedQuery(spark, hasty, tmp_path)
