"""The Spark application of the fan-out soak: a topic to Delta, Iceberg and PostgreSQL tables, its rows and
as changes by key, and to a topic, to its end.

It dies by its own hand before or after a step if it is told so; `--plain` writes as people do without eoslog.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from deltalake import write_deltalake
from psycopg.conninfo import conninfo_to_dict
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession

from eoslog.fanout import Merge, delta, fanout, iceberg, postgres, topic
from eoslog.fanout import batch as fanout_batch
from eoslog.fanout.rules import Batch
from tests.fanout.kit import Calls, Dying, Killed

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
Write = Callable[[DataFrame, int], None]
KEYS = 499
"""Of changes, in each partition."""
CHANGES = Merge(keys=["id"], order=["offset"], operation="op")
DELETES_AT = 3
"""A change deletes if this is the last digit of its offset."""


def catalog_in(folder: str) -> dict[str, str]:
    """A catalog in a folder."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/ice"}


def exact(options: argparse.Namespace, calls: Calls) -> Write:
    """With eoslog.fanout."""
    carry_out = fanout_batch.carry_out

    def dying(batch: Batch, through: Any, tables: Sequence[Any], topics: Sequence[Any], **more: bool) -> None:
        carry_out(
            batch, through, [Dying(x, calls) for x in tables], [Dying(x, calls) for x in topics], **more
        )

    fanout_batch.carry_out = dying
    catalog = catalog_in(options.folder)
    return fanout("orders", [
        delta(f"{options.folder}/delta"),
        iceberg("db.rows", catalog),
        postgres("rows", options.database),
        delta(f"{options.folder}/delta-changes", merge=CHANGES, transform=changes),
        iceberg("db.changes", catalog, merge=CHANGES, transform=changes),
        postgres("changes", options.database, merge=CHANGES, transform=changes),
        topic(options.target, {"kafka.bootstrap.servers": options.bootstrap}, transform=values),
    ])  # fmt: skip


def values(rows: DataFrame) -> DataFrame:
    """As a topic has them."""
    return rows.selectExpr("cast(concat(partition, ':', offset) as binary) as value")


def changes(rows: DataFrame) -> DataFrame:
    """As changes by key, a tenth of them deletes."""
    return rows.selectExpr(
        f"partition * {KEYS} + offset % {KEYS} as id", "partition", "offset",
        f"if(offset % 10 = {DELETES_AT}, 'd', 'u') as op",
    )  # fmt: skip


def plain(options: argparse.Namespace, calls: Calls) -> Write:
    """Appends, one after the other. PostgreSQL's by Spark's JDBC writer."""
    server = conninfo_to_dict(options.database)
    url = f"jdbc:postgresql://127.0.0.1:{server['port']}/{server['dbname']}"
    password = Path(str(server["passfile"])).read_text().partition(f"{server['user']}:")[2].splitlines()[0]
    login = {"user": server["user"], "password": password, "driver": "org.postgresql.Driver"}

    def write(rows: DataFrame, _: int) -> None:
        data = rows.toArrow()
        calls.counted(write_deltalake)(f"{options.folder}/delta", data, mode="append")
        catalog = load_catalog("eoslog", **catalog_in(options.folder))
        table = catalog.create_table_if_not_exists("db.rows", data.schema)
        calls.counted(table.append)(data)
        calls.counted(rows.write.jdbc)(url, "rows", "append", login)
        writer = values(rows).write.format("eoslog").mode("append").option("topic", options.target)
        calls.counted(writer.option("kafka.bootstrap.servers", options.bootstrap).save)()

    return write


def told(write: Write, rows: DataFrame, number: int) -> None:
    """The batch, announced; death is that of the whole application."""
    print(f"batch {number}", flush=True)
    try:
        write(rows, number)
    except Killed:
        os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run to the end of the source."""
    parser = argparse.ArgumentParser()
    for name in ("folder", "bootstrap", "source", "target", "database"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--dies-at", type=int)
    parser.add_argument("--plain", metavar="JDBC", help="without eoslog; the jar of PostgreSQL's JDBC driver")
    options = parser.parse_args()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "700m").config("spark.jars", options.plain or "")
    spark = builder.config("spark.driver.extraJavaOptions", QUICK_START).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    source = spark.readStream.format("eoslog").option("kafka.bootstrap.servers", options.bootstrap)
    source = source.option("subscribe", options.source).option("startingOffsets", "earliest")
    rows = source.option("maxOffsetsPerTrigger", options.batch).load().select("partition", "offset", "value")
    write = (plain if options.plain else exact)(options, Calls(options.dies_at))
    stream = rows.writeStream.foreachBatch(partial(told, write)).trigger(availableNow=True)
    query = stream.option("checkpointLocation", f"{options.folder}/checkpoint").start()
    query.awaitTermination()
    print(f"the driver's Python: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
