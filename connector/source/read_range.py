"""The task's side of the source: the rows of one range of offsets."""

from collections.abc import Iterator

import pyarrow as pa

from eoslog.client.admin.list_offsets import list_offsets
from eoslog.client.records.fetch import fetch
from eoslog.client.wire.cluster import shared_cluster
from eoslog.connector.offsets import plan
from eoslog.connector.offsets.offsets import EARLIEST
from eoslog.connector.options.source_options import SourceOptions
from eoslog.connector.source import rows
from eoslog.connector.spark.calls import called
from eoslog.errors import OffsetsGone, TopicRecreated, UnknownTopic, report_loss


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
                yield from rows.batches(records, task.topic, task.partition, options.headers)
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
