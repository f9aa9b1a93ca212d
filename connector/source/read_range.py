"""Reads a range of a partition in a task, as Arrow batches of rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from eoslog.client.admin.topics import list_offsets
from eoslog.client.records.fetch import fetch
from eoslog.client.wire.cluster import shared_cluster
from eoslog.connector.offsets import plan
from eoslog.connector.offsets.offsets import EARLIEST
from eoslog.connector.options.source_options import SourceOptions
from eoslog.connector.spark import versions
from eoslog.connector.spark.calls import called
from eoslog.connector.spark.columns import source_schema
from eoslog.errors import OffsetsGone, SchemaError, TopicRecreated, UnknownTopic, report_loss
from eoslog.protocol.decode import DecodedRecords

# -- rows ------------------------------------------------------------------------------------------
# The rows that the source gives to Spark: decoded records as Arrow batches.
#
# Spark requires that the Arrow schema of a data source's first batch equals its own, so Spark's own function
# makes the schema.


MAX_ROWS = 10_000
"""Rows of one Arrow batch for Spark: the default of spark.sql.execution.arrow.maxRecordsPerBatch."""


def arrow_schema(headers: bool) -> pa.Schema:
    """The source's schema in Arrow, as Spark requires it."""
    return versions.arrow_schema(source_schema(headers))


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


_LONGEST_MS = (2**63 - 1) // 1000


def _timestamps(records: DecodedRecords, topic: str, partition: int) -> pa.Array:
    try:
        return records.timestamp.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        times = records.timestamp
        wrong = pc.or_(pc.greater(times, _LONGEST_MS), pc.less(times, -_LONGEST_MS))
        first = pc.index(wrong, True).as_py()
        raise SchemaError(
            f"{topic}-{partition}: the record at offset {records.offset[first]} has the timestamp "
            f"{times[first]}, which is not in the range of Spark's: its producer did not write milliseconds "
            "since 1970. Go on behind this record: give startingOffsets to a batch or a new query, or type "
            "eoslog checkpoint skip-to for a query that writes with eoslog. For another query delete the "
            "records up to this one (kafka-delete-records), and give failOnDataLoss=false for one start"
        ) from None


def _header_column(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Headers as Spark's Kafka source returns them: null, not an empty list, for a record without headers."""
    present = pc.greater(pc.list_value_length(column), 0)
    return pc.if_else(present, column.cast(wanted), pa.scalar(None, wanted))


# -- ranges ----------------------------------------------------------------------------------------
# The task's side of the source: the rows of one range of offsets.


def read_range(options: SourceOptions, task: plan.Range) -> Iterator[pa.RecordBatch]:
    """The rows of one task. If offsets are gone, it raises or warns, depending on failOnDataLoss."""
    called()
    cluster, position = shared_cluster(options.client), task.start
    while position < task.end:
        try:
            for records in fetch(
                cluster,
                task.topic,
                task.partition,
                position,
                task.end,
                committed=options.committed,
                topic_id=task.topic_id,
                headers=options.headers,
            ):
                position = records.offset[-1].as_py() + 1
                yield from batches(records, task.topic, task.partition, options.headers)
            return
        except OffsetsGone as error:
            report_loss(options.fail_on_data_loss, str(error))
            position = _next_in_log(options, task, position) if error.behind < 0 else error.behind
        except TopicRecreated as error:
            report_loss(options.fail_on_data_loss, str(error))
            return
        except UnknownTopic as error:
            rest = (
                f"{task.topic}-{task.partition}: offsets {position} to {task.end - 1} cannot be read: {error}"
            )
            report_loss(options.fail_on_data_loss, rest)
            return


def _next_in_log(options: SourceOptions, task: plan.Range, position: int) -> int:
    """Where to continue after `position` was found gone: the log's start, or else the end of the task."""
    where = (task.topic, task.partition)
    first = list_offsets(shared_cluster(options.client), {where: EARLIEST}, committed=options.committed)[
        where
    ]
    return first if first > position else task.end
