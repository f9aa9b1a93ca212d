"""The rows that the source gives to Spark: decoded records as Arrow batches.

Spark requires that the Arrow schema of a data source's first batch equals its own, so Spark's own function
makes the schema.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from eoslog.connector.errors import SchemaError
from eoslog.connector.spark.columns import source_schema
from eoslog.protocol.records import DecodedRecords

MAX_ROWS = 10_000
"""Rows of one Arrow batch for Spark: the default of spark.sql.execution.arrow.maxRecordsPerBatch."""


def arrow_schema(headers: bool) -> pa.Schema:
    """The source's schema in Arrow, as Spark requires it."""
    return to_arrow_schema(source_schema(headers), timezone="UTC")


def batches(records: DecodedRecords, topic: str, partition: int, headers: bool) -> Iterator[pa.RecordBatch]:
    """Decoded records of one partition as batches of at most MAX_ROWS rows. Only the timestamps are copied,
    because Spark wants microseconds. Raises SchemaError for a timestamp that does not fit."""
    wanted = arrow_schema(headers)
    rows = len(records)
    columns = [
        records.key,
        records.value,
        pa.repeat(pa.scalar(topic, pa.string()), rows),
        pa.repeat(pa.scalar(partition, pa.int32()), rows),
        records.offset,
        _timestamps(records, topic, partition),
        records.timestamp_type,
    ]
    if headers:
        columns.append(_header_column(records.headers, wanted.field("headers").type))
    whole = pa.RecordBatch.from_arrays(columns, schema=wanted)
    for first in range(0, rows, MAX_ROWS):
        yield whole.slice(first, MAX_ROWS)


def _timestamps(records: DecodedRecords, topic: str, partition: int) -> pa.Array:
    try:
        return records.timestamp.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid as error:
        first, last = records.offset[0].as_py(), records.offset[-1].as_py()
        raise SchemaError(
            f"{topic}-{partition}: a record at offset {first} to {last} has a timestamp that Spark cannot "
            f"hold ({error}). Its producer did not write milliseconds since 1970; skip it with "
            "startingOffsets, or have it deleted"
        ) from error


def _header_column(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Headers as Spark's Kafka source returns them: null, not an empty list, for a record without headers."""
    present = pc.greater(pc.list_value_length(column), 0)
    return pc.if_else(present, column.cast(wanted), pa.scalar(None, wanted))
