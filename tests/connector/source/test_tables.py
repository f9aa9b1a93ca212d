"""CREATE TABLE ... USING eoslog in a plain session: what works, and Spark's words for what does not.

docs/sql.md says the same; its statements are run here.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eoslog.connector.spark.versions import works
from tests.connector.stock_kafka import Kafka

pytestmark = pytest.mark.spark
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
