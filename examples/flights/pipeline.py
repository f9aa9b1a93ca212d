"""The Spark application of the demo: two streaming queries from topic `flights`.

`route` adds the airline's name and sends late flights and all others to two topics, in one transaction
a micro-batch. `count` keeps a running count a carrier, with state. Both resume from their checkpoints.
"""

import argparse
import json
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from examples.flights.data import LATE_MINUTES, airlines

FLIGHT = (
    "id long, carrier string, flight string, tailnum string, origin string, dest string, "
    "time_hour string, dep_delay int"
)


def read_flights(spark: SparkSession, bootstrap: str, rows_per_batch: int) -> DataFrame:
    """The flights as a stream: the record's key and the parsed value."""
    records = (
        spark.readStream.format("eoslog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows_per_batch)
        .load()
    )
    return records.select("key", F.from_json(F.col("value").cast("string"), FLIGHT).alias("f"))


def routed(spark: SparkSession, flights: DataFrame) -> DataFrame:
    """Flights with the airline's name, each with the topic it belongs to."""
    names = spark.createDataFrame(list(airlines().items()), "carrier string, airline string")
    joined = flights.select("key", "f.*").join(F.broadcast(names), "carrier", "left")
    late = F.coalesce(F.col("dep_delay") > LATE_MINUTES, F.lit(False))
    return joined.select(
        "key",
        F.to_json(F.struct("id", "carrier", "airline", "flight", "tailnum", "dep_delay")).alias("value"),
        F.when(late, "flights_late").otherwise("flights_other").alias("topic"),
    )


def counted(flights: DataFrame) -> DataFrame:
    """The running number of flights a carrier, for all carriers at each micro-batch."""
    counts = flights.groupBy(F.col("f.carrier").alias("carrier")).count()
    return counts.select(
        F.col("carrier").alias("key"),
        F.to_json(F.struct("carrier", "count")).alias("value"),
        F.lit("carrier_counts").alias("topic"),
    )


def start(rows: DataFrame, name: str, mode: str, args: argparse.Namespace) -> StreamingQuery:
    """Starts one query that writes to the broker, its source offsets committed to group `name`."""
    return (
        rows.writeStream.format("eoslog")
        .queryName(name)
        .outputMode(mode)
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("kafka.group.id", name)
        .option("transactional.id", name)
        .option("processing.guarantee", args.guarantee)
        .option("checkpointLocation", str(args.checkpoints / name))
        .trigger(processingTime="1 second")
        .start()
    )


def report(query: StreamingQuery, path: Path) -> None:
    """Leaves the query's latest progress where the live view finds it."""
    progress = query.lastProgress
    if progress is not None:
        line = {"batch": progress["batchId"], "rows": progress["numInputRows"]}
        path.write_text(json.dumps(line))


def main() -> int:
    """Runs both queries until SIGTERM; a failed query ends the application with its error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--guarantee", default="exactly_once")
    parser.add_argument("--rows-per-batch", type=int, default=30_000)
    args = parser.parse_args()
    stopping = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopping.set()

    # Four tries a task: one lost Python worker must not cost the query.
    spark = SparkSession.builder.master("local[2,4]").appName("flights").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    signal.signal(signal.SIGTERM, stop)

    def flights() -> DataFrame:
        # One for each query: two that start at once on a shared plan can fail in Spark's serialisation.
        return read_flights(spark, args.bootstrap, args.rows_per_batch)

    queries = [
        start(routed(spark, flights()), "route", "append", args),
        start(counted(flights()), "count", "complete", args),
    ]
    while not stopping.wait(0.5):
        for query in queries:
            report(query, args.checkpoints / f"{query.name}.progress")
            if not query.isActive:
                query.awaitTermination()  # raises the query's error
                return 1
    for query in queries:
        query.stop()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
