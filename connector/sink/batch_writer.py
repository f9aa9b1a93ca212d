"""df.write as Spark calls it: one batch with one atomic outcome, under the same rules as a micro-batch.

Spark pickles this writer for the tasks, and uses the same pickle for commit and abort.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from eoslog.connector.commit.task_reports import Batch, Begun
from eoslog.connector.options.sink_options import SinkOptions
from eoslog.connector.sink import committer
from eoslog.connector.sink.begin_on_driver import BeginsWhenPickled
from eoslog.connector.sink.task_message import (
    RUN,
    Attempt,
    check_forms,
    is_of_stream,
    micro_batch_of,
    reports_of,
)
from eoslog.connector.spark.columns import check_sink_schema
from eoslog.connector.spark.plain_errors import only_warned, plainly
from eoslog.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa


_UNKNOWN_BATCH = (
    "Spark does not say to which micro-batch this df.write of foreachBatch belongs, so it would be written "
    "again with its batch. Nothing was written. In a thread, wrap what it calls in "
    "pyspark.inheritable_thread_target for each batch. Else, as with Spark Connect, give the write a token: "
    '.option("write.token", f"NAME-{batch_id}")'
)


class BatchWriter(BeginsWhenPickled, DataSourceArrowWriter):
    """Writes a DataFrame: either all of its rows become visible together, or none."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool = False) -> None:
        if overwrite:
            raise OptionError('a log cannot be overwritten, rows are only added to it: use mode("append")')
        check_sink_schema(schema, options.topic, options.deadletter_topic)
        if options.group_id is not None:
            raise OptionError("kafka.group.id: a batch write has no source offsets to commit; leave it out")
        super().__init__(options)

    def _begin(self) -> Begun | None:
        return committer.begin_batch(self._options)

    @plainly
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Write a task's rows and report them, without making them visible; runs in the task."""
        from eoslog.connector.sink.task_writer import write_rows  # the driver's processes need no codec

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("write() runs in Spark's tasks only: there is no TaskContext here")
        batch = (self._begun and self._begun.batch) or Batch("", 0)
        within, run = micro_batch_of(context), context.getLocalProperty(RUN) or ""
        if within is None and committer.is_known_by_its_batch(self._options) and is_of_stream(context):
            raise OptionError(_UNKNOWN_BATCH)
        attempt = Attempt(batch.query_id, batch.batch_id, context.partitionId(), within, run)
        return write_rows(self._options, self._begun, attempt, iterator)

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the rows visible, once; runs on the driver when all tasks are done."""
        check_forms(messages)
        committer.commit_batch(self._options, reports_of(messages))

    @only_warned
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """End the open transactions of a failed write; runs on the driver."""
        committer.abort_write(self._options, self._begun, reports_of(messages))
