"""What each customer has spent, kept in a database: for targets outside of the log's transaction.

Spark repeats a micro-batch if it has not noted its end. The database cannot be part of the log's transaction,
but it has its own: the batch's number is stored together with the batch's changes, so a repeated batch finds
its number and changes nothing.
"""

import argparse
import sqlite3
import sys
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

TABLES = """
create table if not exists spent (customer text primary key, orders integer, amount integer not null);
create table if not exists batches (query text, batch integer, primary key (query, batch));
"""
UPSERT = """
insert into spent values (?, ?, ?) on conflict (customer)
do update set orders = orders + excluded.orders, amount = amount + excluded.amount
"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--source", default="orders", help='key: the customer, values like {"amount": 12}')
    parser.add_argument("--database", default="./spent.db")
    parser.add_argument("--name", default="spent", help="the query's name; a new checkpoint needs a new one")
    parser.add_argument("--checkpoint", default="./checkpoint")
    parser.add_argument("--once", action="store_true", help="stop when all orders are read")
    return parser.parse_args()


def store(database: str, name: str, rows: DataFrame, batch: int) -> None:
    """Store the micro-batch's rows in the database, once."""
    amount = F.get_json_object(F.col("value").cast("string"), "$.amount").cast("long")
    sums = rows.groupBy(F.col("key").cast("string")).agg(F.count("*"), F.sum(amount)).collect()
    with closing(sqlite3.connect(database)) as connection, connection:  # one transaction
        new = connection.execute("insert or ignore into batches values (?, ?)", (name, batch)).rowcount
        if new:
            connection.executemany(UPSERT, sums)


def main() -> int:
    args = arguments()
    with closing(sqlite3.connect(args.database)) as connection:
        connection.executescript(TABLES)
    spark = SparkSession.builder.appName("upsert").config("spark.sql.shuffle.partitions", 2).getOrCreate()
    orders = (
        spark.readStream.format("eoslog")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("subscribe", args.source)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        orders.writeStream.foreachBatch(lambda rows, batch: store(args.database, args.name, rows, batch))
        .option("checkpointLocation", args.checkpoint)
        .trigger(**{"availableNow": True} if args.once else {"processingTime": "1 second"})
        .start()
    )
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
