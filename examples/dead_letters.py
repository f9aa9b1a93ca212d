"""Orders go to the topic of their region; those that belong nowhere go to a dead letter topic.

All of them are in the same transaction: an order is in one topic, once. An order that cannot be parsed has no
region, an unknown region has no topic, and neither stops the query. Nor does an order that the query's own
check turns down: its column `deadletter` says why. The dead letter topic has key and value unchanged; its
headers have the reason and the source position.
"""

import argparse
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

REGIONS = ("north", "south")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--source", default="orders")
    parser.add_argument("--dead", default="orders_dead", help="the dead letter topic")
    parser.add_argument("--checkpoint", default="./checkpoint")
    parser.add_argument("--once", action="store_true", help="stop when all orders are read")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    spark = SparkSession.builder.appName("dead letters").getOrCreate()
    orders = (
        spark.readStream.format("eoslog")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("subscribe", args.source)
        .option("startingOffsets", "earliest")
        .load()
    )
    text = F.col("value").cast("string")
    region = F.get_json_object(text, "$.region")
    topic = F.when(region.isin(*REGIONS), F.concat(F.lit(f"{args.source}_"), region))  # else null
    amount = F.get_json_object(text, "$.amount").cast("double")
    wrong = F.when(amount <= 0, F.concat(F.lit("amount "), amount.cast("string")))  # else null: it is right
    place = F.struct("topic", "partition", "offset")
    query = (
        orders.select(
            "key",
            "value",
            topic.alias("topic"),
            wrong.alias("deadletter"),
            place.alias("deadletter.source"),
        )
        .writeStream.format("eoslog")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("deadletter.topic", args.dead)
        .option("transactional.id", "orders-by-region")
        .option("checkpointLocation", args.checkpoint)
        .trigger(**{"availableNow": True} if args.once else {"processingTime": "1 second"})
        .start()
    )
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
