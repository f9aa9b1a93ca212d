"""`spark.read.format("eoslog")` and CREATE TABLE ... USING eoslog against a real broker."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from eoslog.connector.spark.versions import works
from tests.connector.brokers import Kafka

# -- spark.read ----------------------------------------------------------------------------------
# `spark.read.format("eoslog")` against a real broker: the rows are those a stock consumer reads.

pytestmark = pytest.mark.spark


def load(spark: SparkSession, kafka: Kafka, **options: Any) -> DataFrame:
    return (
        spark.read.format("eoslog")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .options(**{name.replace("__", "."): value for name, value in options.items()})
        .load()
    )


def as_frame(spark: SparkSession, topic: str, rows: list[tuple[Any, ...]]) -> DataFrame:
    """Rows of a stock consumer in the columns that Spark's Kafka connector has, too."""
    columns = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
        "timestampType int, headers array<struct<key: string, value: binary>>"
    )
    found = [
        (key, value, topic, partition, offset, datetime.fromtimestamp(ms / 1000), kind, headers)
        for partition, offset, key, value, kind, ms, headers in rows
    ]
    return spark.createDataFrame(found, columns)


def collected(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Rows in the shape of `Kafka.rows`."""
    return sorted(
        (
            r.partition,
            r.offset,
            None if r.key is None else bytes(r.key),
            None if r.value is None else bytes(r.value),
            r.timestampType,
            round(r.timestamp.timestamp() * 1000),
            None
            if r.headers is None
            else [(h.key, None if h.value is None else bytes(h.value)) for h in r.headers],
        )
        for r in frame.collect()
    )


def test_rows_equal_the_stock_consumers(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic(3)
    producer = kafka.producer(enable_idempotence=True, compression_type="lz4", linger_ms=5)
    for i in range(3_000):
        producer.produce(
            topic,
            None if i % 11 == 0 else b"value %d" % i * (i % 7),
            None if i % 5 == 0 else b"key %d" % (i % 97),
            partition=i % 3,
            timestamp=1_700_000_000_000 + i,
            headers=[("h", b"%d" % i), ("n", None), ("h", b"again")] if i % 4 == 0 else None,
        )
    assert producer.flush(20) == 0
    frame = load(spark, kafka, subscribe=topic, includeHeaders="true")
    rows = kafka.rows(topic, 3)
    assert len(rows) == 3_000
    assert_df_equality(frame, as_frame(spark, topic, rows), ignore_row_order=True)
    split = load(spark, kafka, subscribe=topic, includeHeaders="true", minPartitions="7")
    assert_df_equality(split, frame, ignore_row_order=True)


def test_ranges_by_offset_and_by_assignment(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic(2)
    for partition in (0, 1):
        kafka.put(topic, [b"%d-%d" % (partition, i) for i in range(50)], partition)
    start, end = {topic: {"0": 10, "1": -2}}, {topic: {"0": 12, "1": -1}}
    frame = load(
        spark, kafka, subscribe=topic, startingOffsets=json.dumps(start), endingOffsets=json.dumps(end),
        minPartitions="6",
    )  # fmt: skip
    assert frame.rdd.getNumPartitions() >= 5
    found = sorted((r.partition, bytes(r.value)) for r in frame.collect())
    assert found == sorted([(0, b"0-10"), (0, b"0-11"), *((1, b"1-%d" % i) for i in range(50))])
    assigned = load(spark, kafka, assign=json.dumps({topic: [1]}))
    assert {r.partition for r in assigned.collect()} == {1}
    assert load(spark, kafka, subscribePattern=f"{topic[:-3]}.*").count() == 100


def test_committed_rows_only_and_ends_without_rows(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic()
    producer = kafka.transactional(topic)
    for number, commit in enumerate((True, False, True, False)):
        producer.begin_transaction()
        for i in range(100):
            producer.produce(topic, b"%d %d" % (number, i), partition=0)
        assert producer.flush(20) == 0  # abort would drop what has not been sent
        (producer.commit_transaction if commit else producer.abort_transaction)(20)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(20) == 0
    both = load(spark, kafka, subscribe=topic, kafka__isolation__level="read_uncommitted")
    assert len(both.collect()) == 401
    committed = collected(load(spark, kafka, subscribe=topic, includeHeaders="true"))
    assert [row[3] for row in committed] == [b"%d %d" % (n, i) for n in (0, 2) for i in range(100)]
    assert committed == kafka.rows(topic)
    # only a marker, only aborted records, only both
    for start, end in ((100, 101), (101, 150), (101, 202), (303, 404)):
        bounds = {"startingOffsets": {topic: {"0": start}}, "endingOffsets": {topic: {"0": end}}}
        frame = load(spark, kafka, subscribe=topic, **{k: json.dumps(v) for k, v in bounds.items()})
        assert frame.collect() == [], (start, end)
    producer.abort_transaction(20)


def test_an_empty_topic_and_a_count(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic(2)
    frame = load(spark, kafka, subscribe=topic)
    assert frame.collect() == []
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    with_headers = load(spark, kafka, subscribe=topic, includeHeaders="true").schema["headers"]
    assert with_headers.dataType.simpleString() == "array<struct<key:string,value:binary>>"
    kafka.put(topic, [b"x"] * 10)
    assert load(spark, kafka, subscribe=topic).count() == 10
    assert frame.count() == (0 if works("range") else 10), "a DataFrame keeps the range that Spark planned"


BAD: list[tuple[dict[str, str], str]] = [
    ({"subscribe": "a", "assign": '{"a":[0]}'}, "subscribe and assign are both given"),
    ({}, "nothing to read"),
    ({"subscribe": "a", "startingOffsets": '{"a":'}, "give startingOffsets as"),
    ({"subscribe": "no-such-topic"}, "topic 'no-such-topic' does not exist"),
    ({"subscribe": "a", "kafka.bootstrap.servers": "127.0.0.1:1", "kafka.request.timeout.ms": "500"},
     "127.0.0.1:1: Connection refused; check kafka.bootstrap.servers"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "said"), BAD)
def test_bad_input_says_what_to_do(
    spark: SparkSession, kafka: Kafka, options: dict[str, str], said: str
) -> None:
    reader = spark.read.format("eoslog").options(**{"kafka.bootstrap.servers": kafka.bootstrap, **options})
    with pytest.raises(Exception, match=re.escape(said)):
        reader.load().collect()


def test_a_schema_of_ones_own_is_refused(spark: SparkSession, kafka: Kafka) -> None:
    reader = spark.read.format("eoslog").schema("value string")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "t"}
    with pytest.raises(Exception, match="fixed schema"):
        reader.options(**options).load().collect()


def test_offsets_outside_of_the_log(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b"x"] * 10)
    beyond = {"subscribe": topic, "endingOffsets": json.dumps({topic: {"0": 15}})}
    with pytest.raises(Exception, match=r"has 0 to 10, not 15.*failOnDataLoss"):
        load(spark, kafka, **beyond).collect()
    assert load(spark, kafka, **beyond, failOnDataLoss="false").count() == 10


# -- tables --------------------------------------------------------------------------------------
# CREATE TABLE ... USING eoslog in a plain session: what works, and Spark's words for what does not.
#
# docs/sql.md says the same; its statements are run here.

names_columns = pytest.mark.skipif(not works("columns"), reason="PySpark 4.0 wants every column in an INSERT")

PAGE = (Path(__file__).parents[3] / "docs" / "sql.md").read_text()


class Sql:
    """A session, a topic with three rows in two partitions, and an empty one."""

    def __init__(self, spark: SparkSession, kafka: Kafka) -> None:
        self.spark, self.kafka = spark, kafka
        self.orders, self.copies = kafka.topic(2), kafka.topic(1)
        kafka.put(self.orders, [b"a", b"b"], 0)
        kafka.put(self.orders, [b"c"], 1)
        self.servers = f"'kafka.bootstrap.servers' = '{kafka.bootstrap}'"
        self.read = f"WITH ({self.servers}, subscribe = '{self.orders}')"
        self.write = f"WITH ({self.servers}, topic = '{self.copies}')"
        self.options = f"OPTIONS ({self.servers}, subscribe = '{self.orders}')"
        self.both = f"OPTIONS ({self.servers}, subscribe = '{self.copies}', topic = '{self.copies}')"

    def run(self, statement: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in self.spark.sql(statement).collect()]

    def refused(self, statement: str) -> str:
        with pytest.raises(Exception, match=r".") as raised:
            self.run(statement)
        return str(raised.value)

    def copied(self) -> list[bytes]:
        return sorted(row[3] for row in self.kafka.rows(self.copies))


@pytest.fixture
def sql(spark: SparkSession, kafka: Kafka) -> Iterator[Sql]:
    """Without tables before and after."""
    made = Sql(spark, kafka)
    yield made
    for name in ("orders", "copies", "plain", "made"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    for view in ("orders_view", "copies_view"):
        spark.catalog.dropTempView(view)


COLUMNS = [
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
]
VALUES = "SELECT partition, CAST(value AS STRING) FROM"
THREE = [(0, "a"), (0, "b"), (1, "c")]


def test_a_table_has_the_source_s_columns_and_its_rows_are_read_with_options(sql: Sql) -> None:
    sql.run(f"CREATE TABLE orders USING eoslog {sql.options}")
    assert [row[:2] for row in sql.run("DESCRIBE orders")] == COLUMNS
    assert sorted(sql.run(f"{VALUES} orders {sql.read}")) == THREE
    sql.kafka.put(sql.orders, [b"d"], 1)
    assert len(sql.run(f"{VALUES} orders {sql.read}")) == 4, "each statement looks the ends up again"
    joined = (
        f"SELECT count(*) FROM orders {sql.read} AS l JOIN orders {sql.read} AS r USING (partition, offset)"
    )
    assert sql.run(joined) == [(4,)]


def test_the_options_of_a_table_do_not_reach_a_statement(sql: Sql) -> None:
    sql.run(f"CREATE TABLE orders USING eoslog {sql.options}")
    said = sql.refused("SELECT * FROM orders")
    assert "option kafka.bootstrap.servers is missing" in said
    assert "Spark passes on no OPTIONS of a table in its catalog" in said
    assert "kafka.bootstrap.servers is missing" in sql.refused("INSERT INTO orders SELECT * FROM orders")


IN_AN_ENVIRONMENT = """
import sys
from pyspark.sql import SparkSession
import eoslog

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
eoslog.register(spark)
spark.sql("CREATE TEMPORARY VIEW orders USING eoslog OPTIONS (subscribe = '{orders}')")
rows = spark.sql("SELECT key, value FROM orders")
rows.write.format("eoslog").option("topic", "{copies}").mode("append").save()
"""


def test_the_environment_of_the_driver_names_the_brokers(kafka: Kafka, tmp_path: Path) -> None:
    orders, copies = kafka.topic(2), kafka.topic(1)
    kafka.put(orders, [b"a"], 0)
    kafka.put(orders, [b"b"], 1)
    named = os.environ | {"EOSLOG_BOOTSTRAP_SERVERS": kafka.bootstrap}
    program = IN_AN_ENVIRONMENT.format(orders=orders, copies=copies)
    done = subprocess.run(
        [sys.executable, "-c", program], env=named, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert sorted(row[3] for row in kafka.rows(copies)) == [b"a", b"b"]


@names_columns
def test_rows_are_inserted_with_options(sql: Sql) -> None:
    sql.run(f"CREATE TABLE orders USING eoslog {sql.options}")
    sql.run(f"CREATE TABLE copies USING eoslog {sql.both}")
    sql.run(f"INSERT INTO copies {sql.write} (key, value) SELECT key, value FROM orders {sql.read}")
    sql.run(f"INSERT INTO copies {sql.write} BY NAME SELECT value FROM orders {sql.read}")
    sql.run("CREATE TABLE plain (key BINARY, value BINARY) USING eoslog")
    sql.run(f"INSERT INTO plain {sql.write} VALUES (null, CAST('z' AS BINARY))")
    assert sql.copied() == [b"a", b"a", b"b", b"b", b"c", b"c", b"z"]
    assert "a log cannot be overwritten" in sql.refused(
        f"INSERT OVERWRITE copies {sql.write} SELECT * FROM orders {sql.read}"
    )
    assert len(sql.copied()) == 7


def test_a_create_table_as_select_fails_and_leaves_nothing(sql: Sql) -> None:
    said = sql.refused(f"CREATE TABLE made USING eoslog {sql.both} AS SELECT CAST('a' AS BINARY) AS value")
    assert "option kafka.bootstrap.servers is missing" in said
    assert "made" not in [row[1] for row in sql.run("SHOW TABLES")]
    assert sql.copied() == []


@names_columns
def test_a_temporary_view_keeps_its_options(sql: Sql) -> None:
    sql.run(f"CREATE TEMPORARY VIEW orders_view USING eoslog {sql.options}")
    sql.run(f"CREATE TEMPORARY VIEW copies_view USING eoslog {sql.both}")
    assert sorted(sql.run(f"{VALUES} orders_view")) == THREE
    sql.run("INSERT INTO copies_view (key, value) SELECT key, value FROM orders_view")
    assert sql.copied() == [b"a", b"b", b"c"]
    sql.kafka.put(sql.orders, [b"d"], 1)
    assert len(sql.run(f"{VALUES} orders_view")) == 3, "a view keeps the range that was planned first"
    sql.run("REFRESH TABLE orders_view")
    assert len(sql.run(f"{VALUES} orders_view")) == 3
    sql.run(f"CREATE OR REPLACE TEMPORARY VIEW orders_view USING eoslog {sql.options}")
    assert len(sql.run(f"{VALUES} orders_view")) == 4


def test_dataframes_write_to_a_table_with_options(sql: Sql) -> None:
    sql.run("CREATE TABLE plain (key BINARY, value BINARY) USING eoslog")
    rows = sql.spark.sql("SELECT CAST('k' AS BINARY) AS key, CAST('v' AS BINARY) AS value")
    given = {"kafka.bootstrap.servers": sql.kafka.bootstrap, "topic": sql.copies}
    rows.writeTo("plain").options(**given).append()
    rows.write.format("eoslog").mode("append").options(**given).saveAsTable("plain")
    assert sql.copied() == [b"v", b"v"]
    with pytest.raises(Exception, match=r"kafka\.bootstrap\.servers is missing"):
        rows.write.options(**given).insertInto("plain")
    assert sql.copied() == [b"v", b"v"]


REFUSED = {
    "DELETE FROM orders WHERE offset = 1": "Table does not support deletes: eoslog.",
    "UPDATE orders SET partition = 1": "does not support UPDATE TABLE",
    "TRUNCATE TABLE orders": "Table does not support truncates: eoslog.",
    "ANALYZE TABLE orders COMPUTE STATISTICS": "ANALYZE TABLE is not supported for v2 tables.",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_what_spark_refuses_in_its_own_words(sql: Sql, statement: str) -> None:
    sql.run(f"CREATE TABLE orders USING eoslog {sql.options}")
    assert REFUSED[statement] in PAGE
    words = REFUSED[statement] if works("columns") else REFUSED[statement].removeprefix("does not support ")
    assert words in sql.refused(statement)


def test_a_column_that_was_added_is_refused_by_the_next_read(sql: Sql) -> None:
    sql.run(f"CREATE TABLE orders USING eoslog {sql.options}")
    sql.run("ALTER TABLE orders ADD COLUMN price INT")
    assert "the source has a fixed schema" in sql.refused(f"SELECT * FROM orders {sql.read}")


@names_columns
def test_the_statements_of_the_page(sql: Sql) -> None:
    (block,) = (
        part for part in PAGE.split("```") if "CREATE TABLE copies" in part and part.startswith("python")
    )
    text = block.removeprefix("python").replace("localhost:9092", sql.kafka.bootstrap)
    for name, topic in (("'orders'", sql.orders), ("'copies'", sql.copies)):
        text = text.replace(name, f"'{topic}'")
    exec(text, {"spark": sql.spark})
    assert sql.copied() == [b"a", b"a", b"b", b"b", b"c", b"c"]
