"""What a task and the driver exchange through Spark: the ids of the rows, and the task's report."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from eoslog.connector.commit.task_reports import Batch, Report
from eoslog.connector.spark.pickled_form import check_form

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
RUN = "spark.jobGroup.id"
"""Properties of a job that Spark sets in the thread that runs a micro-batch, foreachBatch included. The group
is the run's id, unless the function has set another one."""

OF_STREAM = "spark.sql.requireAllClusterKeysForDistribution"
"""A setting that Spark makes in the session of each streaming query (StreamExecution), and that tasks get. It
is also the session of the frame that foreachBatch gets, in whatever thread."""


@dataclass
class TaskMessage(WriterCommitMessage):
    """A task's report on its way through Spark. None: at_least_once, where nothing is decided."""

    form: int
    report: Report | None


def check_forms(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Raise EnvironmentUnfit unless every task has sent its report in this version's form."""
    for message in messages:
        if isinstance(message, TaskMessage):
            check_form(vars(message).get("form"))


def reports_of(messages: Sequence[WriterCommitMessage | None]) -> list[Report | None]:
    """The reports in Spark's messages; None for a task that failed."""
    return [message.report if isinstance(message, TaskMessage) else None for message in messages]


class Attempt(NamedTuple):
    """Spark's ids of a task's rows: query, batch and partition. `within`, `run`: as in Stamp."""

    query_id: str
    batch_id: int
    partition: int
    within: Batch | None = None
    run: str = ""


def micro_batch_of(context: TaskContext) -> Batch | None:
    """The micro-batch that a task works for. None: Spark does not say that it does."""
    query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    return None if query_id is None or batch_id is None else Batch(query_id, int(batch_id))


def is_of_stream(context: TaskContext) -> bool:
    """Whether a task works in the session of a streaming query, in whatever thread."""
    return context.getLocalProperty(OF_STREAM) is not None
