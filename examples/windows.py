"""Readings of devices, summed up by minute, with state.

A minute is written once, when the watermark has passed it. State, watermark and output belong together: after
a kill and a restart with its checkpoint, it writes what an undisturbed run would.
"""

import argparse
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--source", default="readings", help='values like {"at": seconds, "reading": 21}')
    parser.add_argument("--target", default="minutes")
    parser.add_argument("--checkpoint", default="./checkpoint")
    parser.add_argument("--rows-per-batch", type=int, default=100_000)
    parser.add_argument("--once", action="store_true", help="stop when all readings are read")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    spark = (
        SparkSession.builder.appName("windows")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    records = (
        spark.readStream.format("eoslog")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("subscribe", args.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", args.rows_per_batch)
        .load()
    )
    fields = F.from_json(F.col("value").cast("string"), "at long, reading long").alias("it")
    readings = (
        records.select(F.col("key").cast("string").alias("device"), fields)
        .select("device", F.timestamp_seconds("it.at").alias("at"), "it.reading")
        .withWatermark("at", "30 seconds")
    )
    minutes = readings.groupBy("device", F.window("at", "1 minute").alias("minute")).agg(
        F.count("*").alias("readings"), F.sum("reading").alias("sum"), F.max("reading").alias("highest")
    )
    value = F.to_json(F.struct(F.col("minute.start").alias("minute"), "readings", "sum", "highest"))
    query = (
        minutes.select(F.col("device").alias("key"), value.alias("value"))
        .writeStream.format("eoslog")
        .outputMode("append")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("topic", args.target)
        .option("transactional.id", args.target)
        .option("checkpointLocation", args.checkpoint)
        .trigger(**{"availableNow": True} if args.once else {"processingTime": "1 second"})
        .start()
    )
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
