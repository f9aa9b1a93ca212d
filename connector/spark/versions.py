"""What the PySpark of this process has. Nothing else asks for a version of PySpark, or catches that it lacks
something.

PySpark 4.2 came with limits for streams that are read in Python: since then Spark says where a batch starts
when it asks for its end. PySpark 4.0 has no filters for sources in Python, and no Arrow writer for streams by
that name. What that means for users is in FEATURES, from which the options' page is made.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyspark
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

from eoslog.connector.spark.libraries import numbers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = [
    "FEATURES",
    "PLANS_EACH_SCAN",
    "PUSHES_FILTERS",
    "PYSPARK",
    "TELLS_STARTS",
    "VERSIONS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "rows_with_plan",
    "works",
]

PYSPARK = pyspark.__version__
"""The version of this process's PySpark, as 4.0.5."""

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    TELLS_STARTS = True
    """Whether Spark says where a batch starts when it asks for its end, with the limit of the batch."""
except ImportError:
    TELLS_STARTS = False

    class ReadLimit:  # type: ignore[no-redef]
        """How far a batch may read."""

    @dataclass
    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """To the end of the log."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """This number of rows at most."""

        max_rows: int

    @dataclass
    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]
        """This number of rows at least."""

        min_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A source that is asked to fix its end."""


PUSHES_FILTERS = hasattr(datasource, "Filter")
"""Whether Spark may give a source the filters of a query."""
PLANS_EACH_SCAN = hasattr(datasource.DataSourceReader, "pushLimit")
"""Whether the plan of a filtered scan stays with that scan. Up to 4.3 Spark keeps it with what load()
returned (PythonDataSourceV2.setReadInfo), and other scans of that would miss rows (SPARK-58551)."""

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    StreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class StreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """A writer of micro-batches that gets Arrow batches: PySpark 4.0 looks for an Arrow writer first
        (pyspark.sql.worker.write_into_data_source)."""


def arrow_schema(schema: "StructType") -> "pa.Schema":
    """A schema in Arrow, as Spark has its rows there: times are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema  # it imports pandas

    return to_arrow_schema(schema, timezone="UTC") if TELLS_STARTS else to_arrow_schema(schema)


def rows_with_plan() -> Any:
    """The class of readers whose rows Spark takes together with a batch's plan. It is not public; None: this
    PySpark does not have it."""
    try:
        from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as found
    except ImportError:
        return None
    return found if hasattr(found, "getCache") else None


class Feature(NamedTuple):
    """Something that works from a version of PySpark on, and what it does before."""

    name: str
    since: str
    before: str = ""


OLDEST, VERSIONS = "4.0", ("4.0", "4.1", "4.2", "4.3")
FEATURES = {
    "exact": Feature("exactly once: batch reads and writes, streams, replays, kills", OLDEST),
    "starts": Feature(
        "a log that was made again, cut or restored, or has lost records, stops a query at its start", OLDEST
    ),
    "small": Feature("small batches read with their plan", OLDEST),
    "limits": Feature("`maxOffsetsPerTrigger`, `minOffsetsPerTrigger`, `maxTriggerDelay`", OLDEST),
    "now": Feature(
        "`trigger(availableNow=True)` reads all, in batches of `maxOffsetsPerTrigger`",
        "4.2",
        "in part: one batch in a run, which that option bounds, with a warning; a batch that runs again is "
        "that one. Windows that its rows close come in the next run. With "
        "`spark.sql.streaming.triggerAvailableNowWrapper.enabled` that batch and another, without the option",
    ),
    "once": Feature(
        "`trigger(once=True)` reads all, whatever `maxOffsetsPerTrigger` says", "4.2", "no: it is bounded"
    ),
    "progress": Feature(
        "the log's end in the query's progress (`latestOffset`)", "4.2", "no: the end of the batch"
    ),
    "filters": Feature(
        "filters in a batch read (`filter.push.down`)",
        "4.1",
        "no effect: Spark applies every filter itself; `true` warns",
    ),
    "range": Feature(
        "all actions on a DataFrame of a batch read see the same records",
        "4.1",
        "no: each action looks up startingOffsets and endingOffsets; give offsets",
    ),
    "columns": Feature(
        "`INSERT INTO` that leaves out columns", "4.1", "no: Spark refuses it; give NULL for each"
    ),
    "names": Feature(
        "sources with names (`name()` of a stream's source)", "4.3", "no: Spark cannot start them again"
    ),
}
"""What the options' page says of each version. The features of OLDEST work in all."""


def works(feature: str) -> bool:
    """Whether one of FEATURES works with this PySpark."""
    return numbers(PYSPARK) >= numbers(FEATURES[feature].since)
