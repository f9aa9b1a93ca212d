"""The streaming sink as Spark calls it: a task's write, and the driver's commit and abort. No rules here.

Spark builds a writer for every batch, pickles it for the tasks, and builds another one, in another process,
for commit or abort. So the driver does its part before the tasks when a writer is first pickled. A writer
that is never pickled does nothing until commit or abort is called.
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from eoslog.connector.commit.task_reports import Begun
from eoslog.connector.options.sink_options import SinkOptions
from eoslog.connector.progress import tell
from eoslog.connector.sink import committer
from eoslog.connector.sink.begin_on_driver import BeginsWhenPickled
from eoslog.connector.sink.shadow_sink import as_begun
from eoslog.connector.sink.task_message import (
    BATCH_ID,
    QUERY_ID,
    Attempt,
    check_forms,
    micro_batch_of,
    reports_of,
)
from eoslog.connector.spark.calls import called
from eoslog.connector.spark.columns import check_sink_schema
from eoslog.connector.spark.plain_errors import only_warned, plainly
from eoslog.connector.spark.versions import StreamArrowWriter

if TYPE_CHECKING:
    import pyarrow as pa


class StreamWriter(BeginsWhenPickled, StreamArrowWriter):
    """Writes micro-batches under the guarantee that the options ask for."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_sink_schema(schema, options.topic, options.deadletter_topic)
        super().__init__(options)

    def _begin(self) -> Begun | None:
        began = time.monotonic()
        begun = committer.begin_stream(self._options)
        if begun is not None:
            self._options = as_begun(self._options, begun)
            spent = round((time.monotonic() - began) * 1000, 1)
            tell("begun", query=begun.batch.query_id, batch=begun.batch.batch_id, ms=spent)
        return begun

    @plainly
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Write a task's rows and report them, without making them visible; runs in the task."""
        from eoslog.connector.sink.task_writer import write_rows  # the driver's processes need no codec

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("write() runs in Spark's tasks only: there is no TaskContext here")
        batch = micro_batch_of(context)
        if batch is None:
            raise RuntimeError(f"Spark did not tell the task its query and batch: {QUERY_ID}, {BATCH_ID}")
        attempt = Attempt(batch.query_id, batch.batch_id, context.partitionId())
        return write_rows(self._options, self._begun, attempt, iterator)

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Make the batch visible, once; runs on the driver when all tasks are done."""
        called()
        check_forms(messages)
        committer.commit_stream(self._options, reports_of(messages), batchId)

    @only_warned
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """End the open transactions of a failed batch; runs on the driver."""
        committer.abort_batch(self._options, reports_of(messages), batchId)
