"""docs/fanout.md in a real Spark: the block of the page, a new checkpoint, a call outside of a stream."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.files import LocalFiles
from eoslog.fanout import delta, fanout, iceberg, marked_ends, topic
from eoslog.fanout.rules import FanoutStopped
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.checkpointkit import run as run_command
from tests.connector.brokers import Kafka
from tests.docs.reader import code_of
from tests.fanout.kit import shared_server, words
from tests.fanout.postgres_server import NEEDS_SERVER

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    old = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(old)


def test_the_page_s_block_writes_each_row_once_and_a_new_checkpoint_stops(
    spark: SparkSession, broker: EmbeddedBroker, here: Path
) -> None:
    kafka = Kafka(broker.bootstrap)
    kafka.topic(1, name="orders")
    kafka.topic(1, name="orders_clean")
    catalog = {"type": "sql", "uri": f"sqlite:///{here}/c.db", "warehouse": f"file://{here}/ice"}
    load_catalog("eoslog", **catalog).create_namespace("shop")
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    code = code_of("fanout.md", "from eoslog.fanout import delta")
    put = 0
    for checkpoint in ("./checkpoint", "./checkpoint", "./new"):
        kafka.put("orders", [b"%d" % n for n in range(put, put + 100)])
        source = spark.readStream.format("eoslog").options(**options).option("subscribe", "orders")
        source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40)
        names: dict[str, Any] = {"orders": source.load(), "catalog": catalog, "kafka": options}
        exec(code.replace("./checkpoint", str(here / checkpoint)), names)
        if checkpoint == "./new":
            with pytest.raises(PySparkException, match="another query"):
                names["query"].awaitTermination()
            break
        names["query"].awaitTermination()
        put += 100
        variables = {f"PYICEBERG_CATALOG__EOSLOG__{name.upper()}": value for name, value in catalog.items()}
        for kind in ("delta:", "iceberg:"):
            said = audited("orders", kind, broker, **variables)
            assert said == f"right: {put} records are in the table exactly once"
    tables = (
        DeltaTable(str(here / "lake" / "orders")).to_pyarrow_table(),
        load_catalog("eoslog", **catalog).load_table("shop.orders").scan().to_arrow(),
    )
    for table in tables:
        assert sorted(table.column("offset").to_pylist()) == list(range(put))
        assert pc.min(table.column("timestamp")).as_py().year > 2000
    assert sorted(int(row[3]) for row in kafka.rows("orders_clean")) == list(range(put))


def audited(topic: str, table: str, broker: EmbeddedBroker, **variables: str) -> str:
    """The last line of what the page's audit of such a table says."""
    line = next(line for line in code_of("fanout.md", "eoslog audit orders").splitlines() if table in line)
    words = [topic if word in ("orders", "customers") else word for word in line.split()]
    environment = os.environ | {"EOSLOG_BOOTSTRAP_SERVERS": broker.bootstrap} | variables
    done = subprocess.run(
        [sys.executable, "-m", *words], env=environment, capture_output=True, text=True, check=False
    )
    return (done.stdout or done.stderr).splitlines()[-1]


@NEEDS_SERVER
def test_the_page_s_block_for_postgresql_writes_each_row_once(
    spark: SparkSession, broker: EmbeddedBroker, here: Path
) -> None:
    """From two partitions; a value with what CSV has quotes for."""
    kafka, server = Kafka(broker.bootstrap), shared_server()
    source_topic = kafka.topic(2)
    server.do("CREATE SCHEMA IF NOT EXISTS shop")
    code = code_of("fanout.md", "from eoslog.fanout import fanout, postgres")
    code = code.replace(
        "host=db.example dbname=shop user=writer passfile=/etc/eoslog/pgpass", server.conninfo()
    )
    code = code.replace("./checkpoint", str(here / "checkpoint"))
    values = [b'%d "a",\r\n\\.' % n for n in range(200)]
    for first in (0, 100):
        for partition in range(2):
            kafka.put(
                source_topic,
                values[first + 50 * partition : first + 50 * partition + 50],
                partition=partition,
            )
        source = spark.readStream.format("eoslog").option("kafka.bootstrap.servers", broker.bootstrap)
        source = source.option("subscribe", source_topic).option("startingOffsets", "earliest")
        names: dict[str, Any] = {"orders": source.option("maxOffsetsPerTrigger", 40).load()}
        exec(code, names)
        names["query"].awaitTermination()
    found = server.rows("SELECT body, id IS NULL, extract(year FROM timestamp) > 2000 FROM shop.orders")
    assert sorted(found) == sorted((value.decode(), True, True) for value in values)
    login = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGPASSFILE": str(server.passwords)}
    login |= {"PGUSER": "writer", "PGDATABASE": "shop"}
    said = audited(source_topic, "postgres:", broker, **login)
    assert said == "right: 200 records are in the table exactly once"
    server.do("DELETE FROM shop.orders WHERE body LIKE '7 %'")
    assert audited(source_topic, "postgres:", broker, **login) == "WRONG: 1 lost"
    assert server.rows("SELECT rows, batch FROM eoslog.marks WHERE fanout = 'orders_in_shop'") == [(20, 5)]


def test_the_page_s_merge_keeps_the_newest_row_of_each_key(
    spark: SparkSession, broker: EmbeddedBroker, here: Path
) -> None:
    """Debezium's envelope with its schema and without; a tombstone; the last batch once more."""
    kafka = Kafka(broker.bootstrap)
    customers = kafka.topic(1)
    catalog = {"type": "sql", "uri": f"sqlite:///{here}/c.db", "warehouse": f"file://{here}/ice"}
    load_catalog("eoslog", **catalog).create_namespace("shop")
    code = code_of("fanout.md", "from eoslog.fanout import Merge")

    def put(op: str, key: int, name: str | None = None, *, has_schema: bool = False) -> None:
        row = {"id": key, "name": name}
        said = {"before": row if op == "d" else None, "after": None if op == "d" else row, "op": op}
        text = json.dumps({"schema": {}, "payload": said} if has_schema else said)
        kafka.put(customers, [None if op == "tombstone" else text.encode()], key=json.dumps({"id": key}))

    def run() -> None:
        source = spark.readStream.format("eoslog").option("kafka.bootstrap.servers", broker.bootstrap)
        source = source.option("subscribe", customers).option("startingOffsets", "earliest")
        names: dict[str, Any] = {
            "customers": source.option("maxOffsetsPerTrigger", 3).load(),
            "catalog": catalog,
        }
        exec(code.replace("./checkpoint", str(here / "checkpoint")), names)
        names["query"].awaitTermination()

    def tables() -> list[list[tuple[Any, ...]]]:
        found = (
            DeltaTable(str(here / "lake" / "customers")).to_pyarrow_table(),
            load_catalog("eoslog", **catalog).load_table("shop.customers").scan().to_arrow(),
        )
        return [sorted(tuple(row.values()) for row in one.to_pylist()) for one in found]

    put("r", 1, "a")
    put("c", 2, "b")
    put("u", 1, "aa", has_schema=True)
    run()
    assert tables() == [[(1, "aa", 0, 2), (2, "b", 0, 1)]] * 2
    put("d", 2)
    put("tombstone", 2)
    put("c", 3, "c")
    put("u", 3, "cc")
    put("u", 1)
    run()
    Checkpoint.at(str(here / "checkpoint")).change("commits", 2, None)
    run()
    assert tables() == [[(1, None, 0, 7), (3, "cc", 0, 6)]] * 2
    assert audited(customers, "customers", broker) == "right: 2 records are in the table exactly once"
    lake = DeltaTable(str(here / "lake" / "customers"))
    lake.update(updates={"offset": "5"}, predicate="id = 3")
    assert audited(customers, "customers", broker) == "WRONG: 1 lost, 1 older"
    lake.restore(lake.version() - 1)
    kafka.put(customers, [b"no JSON"])
    with pytest.raises(PySparkException):
        run()
    assert tables() == [[(1, None, 0, 7), (3, "cc", 0, 6)]] * 2


def test_outside_of_a_query_it_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FanoutStopped, match="outside of a streaming query"):
        fanout("a", [delta(str(tmp_path / "t"))])(spark.range(3), 0)


def test_a_power_cut_that_took_a_plan_stops_and_the_plan_of_the_table_s_mark_goes_on_exactly(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's disk has lost offsets/1 and commits/1 although the fan-out has synced the plan, and more
    rows have come."""
    synced, sync = list[str](), LocalFiles.sync

    def seen(files: LocalFiles, names: Iterable[str]) -> None:
        synced.extend(names := list(names))
        sync(files, names)

    monkeypatch.setattr(LocalFiles, "sync", seen)
    kafka, checkpoint = Kafka(broker.bootstrap), Checkpoint.at(str(tmp_path / "checkpoint"))
    orders, copy = kafka.topic(1), kafka.topic(1)
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/ice"}
    load_catalog("eoslog", **catalog).create_namespace("shop")
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    lake, ice = delta(str(tmp_path / "lake")), iceberg("shop.orders", catalog)
    places: list[Any] = [lake, ice, topic(copy, options, transform=lambda rows: rows.select("key", "value"))]

    def put(first: int) -> None:
        kafka.put(orders, [b"%d" % n for n in range(first, first + 10)])

    def run() -> None:
        source = spark.readStream.format("eoslog").options(**options).option("subscribe", orders)
        stream = source.option("startingOffsets", "earliest").load().writeStream
        writer = stream.foreachBatch(fanout("orders", places)).trigger(availableNow=True)
        writer.option("checkpointLocation", checkpoint.location).start().awaitTermination()

    for number in range(2):
        put(10 * number)
        run()
    assert {"offsets/0", "offsets/1"} <= set(synced)
    for log in ("offsets", "commits"):
        checkpoint.change(log, 1, None)
    put(20)
    with pytest.raises(
        PySparkException, match=rf"checkpoint rebuild.*10 offsets \({orders}-0 from 20 to 29\)"
    ):
        run()
    assert marked_ends(lake, "orders", checkpoint.query_id()) == marked_ends(
        ice, "orders", checkpoint.query_id()
    )
    rebuilt = run_command(
        broker, "rebuild", checkpoint.location, "--fanout", "orders", "--table", f"delta:{tmp_path}/lake"
    )
    assert rebuilt.exit_code == 0, rebuilt.output
    put(30)
    run()
    found = [
        DeltaTable(str(tmp_path / "lake")).to_pyarrow_table(),
        load_catalog("eoslog", **catalog).load_table("shop.orders").scan().to_arrow(),
    ]
    for table in found:
        assert sorted(table.column("offset").to_pylist()) == list(range(40))
    assert sorted(int(row[3]) for row in kafka.rows(copy)) == list(range(40))


def test_a_topic_gets_a_batch_once_when_its_options_or_the_code_change_in_mid_batch(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Under another transactional.id, and from a stream of its own, the rows would be written again."""
    kafka, checkpoint = Kafka(broker.bootstrap), Checkpoint.at(str(tmp_path / "checkpoint"))
    orders, copy = kafka.topic(1), kafka.topic(1)
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    kafka.put(orders, [b"%d" % n for n in range(10)])
    source = spark.readStream.format("eoslog").options(**options).option("subscribe", orders)
    source = source.option("startingOffsets", "earliest")

    def start(writer: Any) -> None:
        writer = writer.trigger(availableNow=True).option("checkpointLocation", checkpoint.location)
        writer.start().awaitTermination()

    def fan_out(**more: str) -> None:
        given = options | {name.replace("_", "."): value for name, value in more.items()}
        to = topic(copy, given, transform=lambda rows: rows.select("key", "value"))
        start(source.load().writeStream.foreachBatch(fanout("orders", [delta(str(tmp_path / "lake")), to])))

    fan_out()
    checkpoint.change("commits", 0, None)
    with pytest.raises(PySparkException, match=r"SinkChanged.*write\.token=orders-0 has written 10 rows"):
        fan_out(transactional_id=copy)
    stream = source.load().select("key", "value").writeStream.format("eoslog").options(**options)
    with pytest.raises(PySparkException, match=r"SinkChanged.*and the query has no foreachBatch now"):
        start(stream.option("topic", copy))
    fan_out()
    kafka.put(orders, [b"%d" % n for n in range(10, 20)])
    fan_out(transactional_id=copy)
    assert sorted(int(row[3]) for row in kafka.rows(copy)) == list(range(20))


@pytest.mark.parametrize("is_done", [False, True])
def test_files_of_a_lost_plan_are_known_by_the_table_s_mark(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, is_done: bool
) -> None:
    """A file source's end is a number alone: without their names the batch would read new files as well. If
    the batch is done, and the source's own log alone has lost it, Spark does not start."""
    checkpoint = Checkpoint.at(str(tmp_path / "checkpoint"))
    (tmp_path / "in").mkdir()

    def run(*names: str) -> None:
        for name in names:
            (tmp_path / "in" / name).write_text(f"{name}\n")
        stream = spark.readStream.text(str(tmp_path / "in")).writeStream.trigger(availableNow=True)
        writer = stream.foreachBatch(fanout("lines", [delta(str(tmp_path / "lake"))]))
        writer.option("checkpointLocation", checkpoint.location).start().awaitTermination()

    run("a")
    run("b")
    for log in ("sources/0",) if is_done else ("offsets", "commits", "sources/0"):
        checkpoint.change(log, 1, None)
    said = "batch 1 doesn't exist" if is_done else r"checkpoint rebuild.*1 files \(.*/c\) are missing"
    with pytest.raises(PySparkException, match=said):
        run("c")
    table = ["--fanout", "lines", "--table", f"delta:{tmp_path / 'lake'}"]
    rebuilt = run_command(broker, "rebuild", checkpoint.location, *table)
    assert rebuilt.exit_code == 0, rebuilt.output
    run("d")
    found = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table()
    assert sorted(found.column("value").to_pylist()) == ["a", "b", "c", "d"]


def test_a_topic_is_looked_at_before_a_table_is_written(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Who begins anew drops the tables: the topic's tokens are all that is left of the former checkpoint."""
    kafka = Kafka(broker.bootstrap)
    orders, copy = kafka.topic(1), kafka.topic(1)
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    kafka.put(orders, [b"%d" % n for n in range(10)])

    def run(name: str, checkpoint: str, table: str, **more: Any) -> None:
        source = spark.readStream.format("eoslog").options(**options).option("subscribe", orders)
        to = topic(copy, options, transform=lambda rows: rows.select("key", "value"))
        write = fanout(name, [delta(str(tmp_path / table)), to], **more)
        stream = source.option("startingOffsets", "earliest").load().writeStream.foreachBatch(write)
        stream = stream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / checkpoint))
        stream.start().awaitTermination()

    def rows_of(table: str) -> list[int]:
        return sorted(DeltaTable(str(tmp_path / table)).to_pyarrow_table().column("offset").to_pylist())

    run("orders", "first", "lake")
    with pytest.raises(
        PySparkException, match=rf"topic {copy}: another query .* give the fan-out a new name"
    ):
        run("orders", "anew", "dropped")
    assert rows_of("dropped") == []
    run("again", "anew", "dropped")
    assert rows_of("dropped") == list(range(10)) and len(kafka.rows(copy)) == 20
    Checkpoint.at(str(tmp_path / "anew")).change("commits", 0, None)
    Checkpoint.at(str(tmp_path / "anew")).change("offsets", 0, None)
    kafka.put(orders, [b"10"])
    with pytest.raises(
        PySparkException, match=r"has other rows of this batch .*accept_other_rows"
    ) as stopped:
        run("again", "anew", "copied")
    assert rows_of("copied") == [] and len(kafka.rows(copy)) == 20
    run("again", "anew", "copied", accept_other_rows=words(stopped, "accept_other_rows")[0])
    assert rows_of("copied") == list(range(11)) and len(kafka.rows(copy)) == 20
