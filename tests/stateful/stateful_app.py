"""A Spark application with one stateful query from eoslog topics to an eoslog topic, until all is read.

Run as a process of its own by stateful_run.py; `--halts` makes its sink stop where it is told to
(stateful_halts.py).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from stateful_input import BATCH, DELAY, QUIET, WINDOW, WITHIN

if TYPE_CHECKING:
    import pandas as pd

_STATE = "spark.sql.streaming.stateStore"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_WATERMARK = f"{DELAY} seconds"


def read(spark: SparkSession, args: argparse.Namespace, source: str, fields: str) -> DataFrame:
    """A source topic as a stream: the record's key as `key`, the fields of its JSON value, and the first of
    them as event time `at`, with a watermark."""
    records = (
        spark.readStream.format("eoslog")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("subscribe", f"{args.topics}-{source}")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH)
        .load()
    )
    value = F.from_json(F.col("value").cast("string"), fields).alias("value")
    rows = records.select(F.col("key").cast("string").alias("key"), value).select("key", "value.*")
    time = fields.split()[0]
    return rows.withColumn("at", F.timestamp_seconds(time)).withWatermark("at", _WATERMARK)


def aggregation(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """Sums by key and window."""
    events = read(spark, args, "events", "ts long, v long")
    sums = events.groupBy("key", F.window("at", f"{WINDOW} seconds").alias("w")).agg(
        F.count("*").alias("n"), F.sum("v").alias("sum")
    )
    return sums.select("key", F.unix_seconds("w.end").alias("end"), "n", "sum")


def join(spark: SparkSession, args: argparse.Namespace, how: str) -> DataFrame:
    """Impressions with the clicks on them."""
    impressions = read(spark, args, "impressions", "ts long")
    clicks = read(spark, args, "clicks", "cts long, click long").select(
        F.col("key").alias("clicked"), "cts", "click", F.col("at").alias("clicked_at")
    )
    in_time = f"key = clicked and clicked_at between at and at + interval {WITHIN} seconds"
    return impressions.join(clicks, F.expr(in_time), how).select("key", "ts", "click", "cts")


class Sessions(StatefulProcessor):
    """Running count and sum of a key; a timer in event time ends the session of a key that is quiet."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._total = handle.getValueState("total", "n long, sum long, timer long")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        import pandas as pd

        new = pd.concat(list(rows)).sort_values("seq")
        count, total, timer = self._total.get() or (0, 0, 0)
        if timer:
            self._handle.deleteTimer(timer)
        timer = max(timer, (int(new["ts"].max()) + QUIET) * 1000)
        self._handle.registerTimer(timer)
        n, sums = range(count + 1, count + 1 + len(new)), new["v"].cumsum() + total
        self._total.update((count + len(new), int(sums.iloc[-1]), timer))
        yield pd.DataFrame({"key": key[0], "what": "row", "n": n, "sum": sums.to_numpy()})

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        import pandas as pd

        count, total, _ = self._total.get() or (0, 0, 0)
        self._total.clear()
        yield pd.DataFrame({"key": [key[0]], "what": ["end"], "n": [count], "sum": [total]})

    def close(self) -> None:
        pass


def sessions(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """Running counts and sums with timers, by transformWithState."""
    events = read(spark, args, "events", "ts long, seq long, v long")
    return events.groupBy("key").transformWithStateInPandas(
        Sessions(), "key string, what string, n long, sum long", "Append", "EventTime"
    )


def updates(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """Running counts and sums by key, without an end; for output mode update."""
    events = read(spark, args, "events", "ts long, v long")
    return events.groupBy("key").agg(F.count("*").alias("n"), F.sum("v").alias("sum"))


QUERIES: dict[str, Callable[[SparkSession, argparse.Namespace], DataFrame]] = {
    "aggregation": aggregation,
    "inner-join": lambda spark, args: join(spark, args, "inner"),
    "outer-join": lambda spark, args: join(spark, args, "leftOuter"),
    "sessions": sessions,
    "updates": updates,
}


def session(query: str) -> SparkSession:
    """State in Spark's default store for the aggregation, in RocksDB for the others."""
    builder = (
        SparkSession.builder.master("local[2,4]")  # a task may be tried four times
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "900m")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    if query != "aggregation":
        builder = builder.config(f"{_STATE}.providerClass", _ROCKSDB)
    if query == "sessions":
        builder = builder.config(f"{_STATE}.rocksdb.changelogCheckpointing.enabled", "true")
    return builder.getOrCreate()


def start(spark: SparkSession, rows: DataFrame, args: argparse.Namespace) -> StreamingQuery:
    """Mode append by the streaming sink, mode update by `foreachBatch` and a token for each batch."""
    options = {
        "kafka.bootstrap.servers": args.bootstrap,
        "topic": args.target,
        "processing.guarantee": args.guarantee,
    }
    sink = "eoslog"
    if args.halts:
        from stateful_halts import HaltingSource

        spark.dataSource.register(HaltingSource)
        sink = HaltingSource.name()
        options["halts"] = args.halts

    def write(batch_rows: DataFrame, batch: int) -> None:
        token = f"{args.target}-{batch}"
        batch_rows.write.format(sink).options(**options).option("write.token", token).mode("append").save()

    if args.query == "updates":
        writer = rows.writeStream.outputMode("update").foreachBatch(write)
    else:
        writer = rows.writeStream.outputMode("append").format(sink).options(**options)
    return writer.option("checkpointLocation", args.checkpoint).trigger(availableNow=True).start()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("query", choices=QUERIES)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topics", required=True, help="what the names of the source topics begin with")
    parser.add_argument("--target", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--guarantee", default="exactly_once")
    parser.add_argument("--halts", help="folder of the orders to stop")
    args = parser.parse_args()
    spark = session(args.query)
    spark.sparkContext.setLogLevel("ERROR")
    rows = QUERIES[args.query](spark, args)
    value = F.to_json(F.struct(*(column for column in rows.columns if column != "key"))).alias("value")
    start(spark, rows.select("key", value), args).awaitTermination()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
