"""The Spark application of the copy soaks: copies a topic with its headers to its end, some rows a batch."""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from tests.spark_session import QUICK_START, all_available


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--connector", choices=("eoslog", "kafka"), required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--batch", type=int, required=True, help="maxOffsetsPerTrigger")
    parser.add_argument(
        "--group", required=True, help="kafka.group.id; eoslog commits the source offsets to it"
    )
    parser.add_argument("--jars", default="", help="of Spark's Kafka connector")
    parser.add_argument("--java", default="", help="more options of the driver's JVM")
    options = parser.parse_args()
    builder = (
        SparkSession.builder.master("local[2,4]")  # a task may be tried four times
        .appName("copy")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "700m")
        .config("spark.driver.extraJavaOptions", f"{QUICK_START} {options.java}")
    )
    if options.jars:
        builder = builder.config("spark.jars", options.jars)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")  # says which tasks failed
    common = {"kafka.bootstrap.servers": options.bootstrap}
    rows = (
        spark.readStream.format(options.connector)
        .options(**common)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", options.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.batch)
        .option("includeHeaders", "true")
        .load()
    )
    sink = rows.select("key", "value", "headers").writeStream.format(options.connector).options(**common)
    if options.connector == "eoslog":
        sink = sink.option("kafka.group.id", options.group)
    query = all_available(
        sink.option("topic", options.target).option("checkpointLocation", options.checkpoint)
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
