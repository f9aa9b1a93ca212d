"""Batch reads: for every option combination both connectors give the same rows, or both refuse."""

import os
from random import Random

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from eoslog.connector.spark.libraries import numbers
from eoslog.connector.spark.versions import PYSPARK
from tests.connector.differential.both import CONNECTORS, outcome, read
from tests.connector.differential.draws import Topic, draw
from tests.connector.stock_kafka import Kafka

pytestmark = pytest.mark.kafka

SEED = int(os.environ.get("SEED", "1"))
DRAWS = int(os.environ.get("DRAWS", "150"))
EMPTY_BEFORE = "4.1"
"""Spark's connector takes a partition whose start lies after its end for an empty one; later it refuses."""


def test_reads_are_equal(spark: SparkSession, kafka: Kafka, topics: list[Topic]) -> None:
    random = Random(SEED)
    differences, rows, refused, empty = [], 0, 0, 0
    for number in range(DRAWS):
        options = {"kafka.bootstrap.servers": kafka.bootstrap, **draw(random, topics, stream=False)}
        theirs, ours = (outcome(lambda c=c, o=options: read(spark, c, o)) for c in CONNECTORS)  # type: ignore[misc]
        refused += theirs.rows is None and ours.rows is None
        rows += len(theirs.rows or ())
        empty += theirs.rows == []
        is_empty = numbers(PYSPARK) < numbers(EMPTY_BEFORE) and " lies after " in ours.refused
        if theirs.rows != ours.rows and not is_empty:
            differences.append(_difference(number, options, theirs, ours))
    print(f"\nseed {SEED}: {DRAWS} combinations, {rows} rows each, {empty} empty, {refused} refused by both, "
          f"{len(differences)} differ")  # fmt: skip
    assert not differences, "\n\n".join(differences)
    assert rows > 20 * DRAWS, "most draws should give rows"
    assert refused < DRAWS // 3, "most draws should be legal"


def _difference(number: int, options: dict[str, str], theirs: object, ours: object) -> str:
    return f"draw {number} of seed {SEED}: {options}\n  kafka:  {_short(theirs)}\n  eoslog: {_short(ours)}"


def _short(found: object) -> str:
    rows, refused = found.rows, found.refused  # type: ignore[attr-defined]
    return f"refused: {refused[:600]}" if rows is None else f"{len(rows)} rows {rows[:1]} to {rows[-1:]}"


def test_whole_topics_are_the_same_frames(spark: SparkSession, kafka: Kafka, topics: list[Topic]) -> None:
    """Columns and their types, too."""
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "includeHeaders": "true"}
    options["kafka.isolation.level"] = "read_committed"  # eoslog's default
    for topic in topics:
        theirs, ours = (
            spark.read.format(c).options(**options, subscribe=topic.name).load() for c in CONNECTORS
        )
        assert_df_equality(ours, theirs, ignore_row_order=True)
