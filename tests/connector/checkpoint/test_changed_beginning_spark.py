"""startingOffsets that is changed while a query's first batch is planned and not done, in a real Spark.

Spark asks the source for the beginning again: the batch must be what it was planned to be."""

import re
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from tests.connector.checkpoint import halting
from tests.connector.checkpoint.test_crosscheck_spark import Copy
from tests.connector.stock_kafka import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]
LATER = [b"later-%d" % number for number in range(6)]


@pytest.mark.parametrize(
    ("starting", "changed", "wanted"), [("earliest", "latest", "all"), ("latest", "earliest", "later")]
)
def test_a_query_killed_in_its_first_batch(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, starting: str, changed: str, wanted: str
) -> None:
    cloudpickle.register_pickle_by_value(halting)  # type: ignore[no-untyped-call]
    spark.dataSource.register(halting.HaltingDataSource)
    copy = Copy(spark, kafka, tmp_path / "checkpoint")
    said = copy.run(starting, "halting", halt_at="decision and offsets staged", halt_batch="0")
    assert re.search("Python worker exited|crashed|EOF", said), said
    assert [path.name for path in (copy.checkpoint / "offsets").glob("[0-9]*")] == ["0"]
    assert not list((copy.checkpoint / "commits").glob("[0-9]*"))
    kafka.put(copy.source, LATER)
    assert copy.run(changed) == ""
    assert copy.visible() == sorted((copy.rows if wanted == "all" else []) + LATER)
