"""Orders in Avro to invoices in Avro, in Confluent's wire format, with a schema registry.

Each message has the id of the schema that it was written with. Writers may change their schema as Avro's
rules allow: `currency` was added later, and older orders get the reader's default. A message that is not an
order goes unchanged to a dead letter topic, in the transaction of the invoices; its headers have the reason
and its source position. Keys are kept. Each process asks for a schema once (eoslog.avro).
"""

import argparse
import sys
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from eoslog.avro import SchemaRegistry, encode, try_decode

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


MESSAGE = "key binary, topic string, headers array<struct<key: string, value: binary>>, value binary"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--registry", default="http://127.0.0.1:8081")
    parser.add_argument("--source", default="orders_avro")
    parser.add_argument("--target", default="invoices_avro")
    parser.add_argument("--dead", default="orders_avro_dead", help="the dead letter topic")
    parser.add_argument("--checkpoint", default="./checkpoint")
    parser.add_argument("--once", action="store_true", help="stop when all orders are read")
    return parser.parse_args()


def orders_of(registry: SchemaRegistry, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The order of each record, or why it has none, beside the rest of the record."""
    for batch in batches:
        orders, errors = try_decode(batch.column("value"), registry, ORDER)
        columns = {name: batch.column(name) for name in batch.schema.names}
        yield pa.record_batch({**columns, "order": orders, "error": errors})


def messages_of(
    registry: SchemaRegistry, subject: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each row's invoice as the message to write; rows without one keep their value."""
    for batch in batches:
        messages = encode(batch.column("invoice"), registry, subject, INVOICE)
        values = pc.coalesce(messages, batch.column("value"))
        kept = {name: batch.column(name) for name in ("key", "topic", "headers")}
        yield pa.record_batch({**kept, "value": values})


def main() -> int:
    args = arguments()
    registry = SchemaRegistry(args.registry)
    spark = SparkSession.builder.appName("avro").getOrCreate()
    records = (
        spark.readStream.format("eoslog")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("subscribe", args.source)
        .option("startingOffsets", "earliest")
        .load()
    )
    orders = records.where("value is not null").mapInArrow(
        partial(orders_of, registry),
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
        "timestampType int, order struct<id: long, price: long, pieces: int, currency: string>, error string",
    )
    rows = orders.selectExpr(
        "key",
        "value",
        "if(error is null, struct(order.id, order.price * order.pieces as total, order.currency), null) "
        "as invoice",
        f"if(error is null, '{args.target}', '{args.dead}') as topic",
        "if(error is null, null, array("
        "struct('deadletter.reason' as key, cast(error as binary) as value), "
        "struct('deadletter.source.topic' as key, cast(topic as binary) as value), "
        "struct('deadletter.source.partition' as key, "
        "cast(cast(partition as string) as binary) as value), "
        "struct('deadletter.source.offset' as key, "
        "cast(cast(offset as string) as binary) as value))) as headers",
    )
    query = (
        rows.mapInArrow(partial(messages_of, registry, f"{args.target}-value"), MESSAGE)
        .writeStream.format("eoslog")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("transactional.id", "avro-orders")
        .option("checkpointLocation", args.checkpoint)
        .trigger(**{"availableNow": True} if args.once else {"processingTime": "1 second"})
        .start()
    )
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
