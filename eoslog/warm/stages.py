"""What a warm process imports, in the order in which a query's first processes need it."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from eoslog.warm.request import SOURCE_RUNNER

_SINKS = "eoslog.connector.sink.stream_writer", "eoslog.connector.sink.batch_writer"


class Stage(NamedTuple):
    """Modules to import. `workers`: whose processes need only these and the earlier stages'; None: all
    processes'.
    """

    modules: tuple[str, ...]
    workers: Set[str] | None


STAGES = (
    Stage(
        ("pyspark.daemon", "pyspark.sql.worker.lookup_data_sources", "pyspark_eoslog"),
        {"pyspark.sql.worker.lookup_data_sources"},
    ),
    Stage(
        (
            "pyspark.sql.worker.create_data_source",
            "eoslog.connector.spark.columns",
            "eoslog.connector.source.reader",
            "eoslog.client.records.fetch_small",
            "eoslog.connector.source.rows",
            "eoslog.connector.sink.task_writer",
            "encodings.idna",
            SOURCE_RUNNER,
            *_SINKS,
            "pyspark.sql.worker.write_into_data_source",
            "pyspark.sql.worker.commit_data_source_write",
            "pyspark.sql.worker.python_streaming_sink_runner",
        ),
        {
            "pyspark.sql.worker.create_data_source",
            "pyspark.sql.worker.write_into_data_source",
            "pyspark.sql.worker.commit_data_source_write",
            "pyspark.sql.worker.python_streaming_sink_runner",
            SOURCE_RUNNER,
        },
    ),
    Stage(
        (
            "pandas",
            "pyspark.sql.worker.plan_data_source_read",
            "pyspark.sql.classic.dataframe",
            "pyspark.worker",
        ),
        None,
    ),
)
