"""A Spark application with stateful queries from eoslog topics to eoslog topics, until all is read.

Run as a process of its own by stateful_run.py; `--halts` makes its sink stop where it is told to
(stateful_halts.py).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from eoslog.checkpoint import restore_checkpoint
from tests.stateful.stateful_halts import HaltingSource
from tests.stateful.stateful_input import BATCH, DELAY, LOSABLE, QUIET, WINDOW, WITHIN

if TYPE_CHECKING:
    import pandas as pd

_STATE = "spark.sql.streaming.stateStore"
_DEFAULT = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
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
    events = read(spark, args, "aggregation-events", "ts long, v long")
    sums = events.groupBy("key", F.window("at", f"{WINDOW} seconds").alias("w")).agg(
        F.count("*").alias("n"), F.sum("v").alias("sum")
    )
    return sums.select("key", F.unix_seconds("w.end").alias("end"), "n", "sum")


def join(spark: SparkSession, args: argparse.Namespace, how: str) -> DataFrame:
    """Impressions with the clicks on them; `how`: inner, or outer on the side of the impressions."""
    impressions = read(spark, args, f"{how}-join-impressions", "ts long")
    clicks = read(spark, args, f"{how}-join-clicks", "cts long, click long").select(
        F.col("key").alias("clicked"), "cts", "click", F.col("at").alias("clicked_at")
    )
    in_time = f"key = clicked and clicked_at between at and at + interval {WITHIN} seconds"
    joined = impressions.join(clicks, F.expr(in_time), "leftOuter" if how == "outer" else how)
    return joined.select("key", "ts", "click", "cts")


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
    events = read(spark, args, "sessions-events", "ts long, seq long, v long")
    return events.groupBy("key").transformWithStateInPandas(
        Sessions(), "key string, what string, n long, sum long", "Append", "EventTime"
    )


def updates(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """Running counts and sums by key, without an end; for output mode update."""
    events = read(spark, args, "updates-events", "ts long, v long")
    return events.groupBy("key").agg(F.count("*").alias("n"), F.sum("v").alias("sum"))


QUERIES: dict[str, Callable[[SparkSession, argparse.Namespace], DataFrame]] = {
    "aggregation": aggregation,
    "inner-join": lambda spark, args: join(spark, args, "inner"),
    "outer-join": lambda spark, args: join(spark, args, "outer"),
    "sessions": sessions,
    "updates": updates,
}


RUN_AGAIN = ("aggregation", "sessions")
"""Those whose batches may be run again after a restore: they have one watermark, and no processing time."""


def session() -> SparkSession:
    """A small one; its tasks may be tried four times."""
    return (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1200m")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


def choose_store(spark: SparkSession, query: str) -> None:
    """State in Spark's default store for the aggregations, in RocksDB for the others, by changelog or not."""
    spark.conf.set(f"{_STATE}.providerClass", _DEFAULT if query in ("aggregation", "updates") else _ROCKSDB)
    spark.conf.set(f"{_STATE}.rocksdb.changelogCheckpointing.enabled", query == "sessions")


def start(spark: SparkSession, query: str, args: argparse.Namespace) -> StreamingQuery:
    """Mode append by the streaming sink, mode update by `foreachBatch` and a token for each batch."""
    target = f"{args.topics}-{query}-{args.run}"
    options = {
        "kafka.bootstrap.servers": args.bootstrap,
        "topic": target,
        "processing.guarantee": args.guarantee,
    }
    sink = "eoslog"
    place = str(args.checkpoints / query)
    if args.state_topic and query in LOSABLE:
        every = args.every if query in RUN_AGAIN else 1
        named = {"transactional.id": target, "state.topic": args.state_topic, "state.every.batches": every}
        options |= {name: str(value) for name, value in named.items()}
        print(f"{query}: {restore_checkpoint(place, options)}", flush=True)
    if args.halts:
        sink, options["halts"] = HaltingSource.name(), str(args.halts / query)

    def write(batch_rows: DataFrame, batch: int) -> None:
        token = f"{target}-{batch}"
        batch_rows.write.format(sink).options(**options).option("write.token", token).mode("append").save()

    choose_store(spark, query)
    rows = QUERIES[query](spark, args)
    value = F.to_json(F.struct(*(column for column in rows.columns if column != "key"))).alias("value")
    writer = rows.select("key", value).writeStream
    if query == "updates":
        writer = writer.outputMode("update").foreachBatch(write)
    else:
        writer = writer.outputMode("append").format(sink).options(**options)
    return writer.option("checkpointLocation", place).trigger(availableNow=True).start()


def main() -> int:
    """All queries to their ends; a query that fails ends the application with its error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queries", nargs="+", choices=QUERIES)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topics", required=True, help="what all names of topics begin with")
    parser.add_argument("--run", required=True, help="what the names of the target topics end with")
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--guarantee", default="exactly_once")
    parser.add_argument("--state-topic", help="save the queries' state here; lost checkpoints are restored")
    parser.add_argument("--every", type=int, default=1, help="so many batches between two saves")
    parser.add_argument("--halts", type=Path, help="folder of the orders to stop, one below it for a query")
    args = parser.parse_args()
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    if args.halts:
        spark.dataSource.register(HaltingSource)
    started = []
    for query in args.queries:  # one by one: Spark gives a Python process 10 s to come up, whatever else runs
        started.append(start(spark, query, args))
        planned = args.checkpoints / query / "offsets"
        while started[-1].isActive and not any(planned.glob("[0-9]*")):
            time.sleep(0.1)
    while any(query.isActive for query in started):
        spark.streams.awaitAnyTermination()
        spark.streams.resetTerminated()
    for query in started:
        query.awaitTermination()  # raises its error, if it has one
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
