"""A copy of a topic that Spark's own connector begins and eoslog continues, from the same checkpoint.

Run it with `--connector kafka`, stop it when it is idle, and run it with `--connector eoslog`: it continues
where it stopped. Spark's connector is a separate jar; if it is not on the classpath yet, give its coordinates
to --packages.
"""

import argparse
import sys

from pyspark.sql import SparkSession


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--connector", choices=("kafka", "eoslog"), default="eoslog")
    parser.add_argument("--packages", help="such as org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0")
    parser.add_argument("--source", default="orders")
    parser.add_argument("--target", default="orders_copy")
    parser.add_argument("--checkpoint", default="./checkpoint")
    parser.add_argument("--once", action="store_true", help="stop when all orders are copied")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    builder = SparkSession.builder.appName("migrate")
    spark = (builder.config("spark.jars.packages", args.packages) if args.packages else builder).getOrCreate()
    orders = (
        spark.readStream.format(args.connector)
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("subscribe", args.source)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        orders.select("key", "value")
        .writeStream.format(args.connector)
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("topic", args.target)
        .option("transactional.id", "orders-copy")  # Spark's connector ignores it
        .option("checkpointLocation", args.checkpoint)
        .trigger(**{"availableNow": True} if args.once else {"processingTime": "1 second"})
        .start()
    )
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
