"""Orders in Avro to invoices in Avro, in Confluent's wire format, with a schema registry.

Each message tells the id of the schema that it was written with. Writers may change theirs as Avro's
rules allow: `currency` came later, and older orders get the reader's default. Schemas are asked for once
by each process (eoslog.avro).
"""

import argparse
import sys
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from eoslog.avro import Registry, decode, encode

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": "long"},
        {"name": "pieces", "type": "int"},
        {"name": "currency", "type": "string", "default": "EUR"},
    ],
}
INVOICE = {
    "type": "record",
    "name": "Invoice",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": "long"},
        {"name": "currency", "type": "string"},
    ],
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--registry", default="http://127.0.0.1:8081")
    parser.add_argument("--source", default="orders_avro")
    parser.add_argument("--target", default="invoices_avro")
    parser.add_argument("--checkpoint", default="./checkpoint")
    parser.add_argument("--once", action="store_true", help="end when all orders are read")
    return parser.parse_args()


def orders_of(registry: Registry, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_struct_array(decode(batch.column("value"), registry, ORDER))


def messages_of(
    registry: Registry, subject: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        values = encode(batch.to_struct_array(), registry, subject, INVOICE)
        yield pa.record_batch({"value": values})


def main() -> int:
    args = arguments()
    registry = Registry(args.registry)
    spark = SparkSession.builder.appName("avro").getOrCreate()
    records = (
        spark.readStream.format("eoslog")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("subscribe", args.source)
        .option("startingOffsets", "earliest")
        .load()
    )
    orders = records.select("value").mapInArrow(
        partial(orders_of, registry), "id long, price long, pieces int, currency string"
    )
    invoices = orders.selectExpr("id", "price * pieces as total", "currency")
    query = (
        invoices.mapInArrow(partial(messages_of, registry, f"{args.target}-value"), "value binary")
        .writeStream.format("eoslog")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("topic", args.target)
        .option("checkpointLocation", args.checkpoint)
        .trigger(**{"availableNow": True} if args.once else {"processingTime": "1 second"})
        .start()
    )
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
