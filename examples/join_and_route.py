"""Joins orders and payments, and writes the result to several topics in one transaction.

Each payment that finds its order makes two records: one in `settled` or `short`, and one in `ledger`. A
reader of committed records sees both or neither, whenever anything dies. The offsets of both sources are in
the same transaction, for lag tools to see.
"""

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

WITHIN = "1 hour"
"""The longest time between an order and its payment; state is kept for that long."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--checkpoint", default="./checkpoint")
    parser.add_argument("--once", action="store_true", help="stop when all present records are read")
    return parser.parse_args()


def read(spark: SparkSession, bootstrap: str, topic: str, amount: str) -> DataFrame:
    """A topic's rows: the order's id, the amount from the JSON value, and the time."""
    rows = (
        spark.readStream.format("eoslog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    number = F.get_json_object(F.col("value").cast("string"), "$.amount").cast("long")
    fields = rows.select(F.col("key").cast("string").alias(f"{amount}_id"), number.alias(amount), "timestamp")
    return fields.withColumnRenamed("timestamp", f"{amount}_at").withWatermark(f"{amount}_at", WITHIN)


def main() -> int:
    args = arguments()
    spark = SparkSession.builder.appName("join").config("spark.sql.shuffle.partitions", 2).getOrCreate()
    orders = read(spark, args.bootstrap, "orders", "due")
    payments = read(spark, args.bootstrap, "payments", "paid")
    same = f"due_id = paid_id and paid_at between due_at and due_at + interval {WITHIN}"
    joined = orders.join(payments, F.expr(same))
    value = F.to_json(F.struct("due", "paid"))
    records = F.array(
        F.struct(F.when(F.col("paid") >= F.col("due"), "settled").otherwise("short").alias("topic")),
        F.struct(F.lit("ledger").alias("topic")),
    )
    rows = joined.select(F.col("due_id").alias("key"), value.alias("value"), F.explode(records).alias("to"))
    query = (
        rows.select("key", "value", "to.topic")
        .writeStream.format("eoslog")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("kafka.group.id", "settlement")
        .option("transactional.id", "settlement")
        .option("checkpointLocation", args.checkpoint)
        .trigger(**{"availableNow": True} if args.once else {"processingTime": "1 second"})
        .start()
    )
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
