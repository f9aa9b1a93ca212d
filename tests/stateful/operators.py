"""A query for each stateful operator of Spark, over the same rows: number n has the time 1000 + n / 10."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

if TYPE_CHECKING:
    import pandas as pd

ROWS, BATCH = 1200, 100
_SCHEMA = "key long, v long, at timestamp"


def values() -> list[bytes]:
    """The rows, each number twice, some far apart."""
    numbers = [n if n % 2 else n // 2 for n in range(ROWS)]
    return [json.dumps({"n": n}).encode() for n in numbers]


def rows(source: DataFrame) -> DataFrame:
    """The source's rows as key, v and event time, with a watermark."""
    number = F.from_json(F.col("value").cast("string"), "n long").getField("n")
    found = source.select((number % 7).alias("key"), number.alias("v"))
    at = F.timestamp_seconds(F.col("v") / 10 + 1000)
    return found.withColumn("at", at).withWatermark("at", "30 seconds")


def _window(rows: DataFrame, window: Column) -> DataFrame:
    counted = rows.groupBy("key", window.alias("w")).agg(F.count("*").alias("n"), F.sum("v").alias("s"))
    return counted.select("key", F.unix_seconds("w.start").alias("start"), "n", "s")


def _join(rows: DataFrame, how: str) -> DataFrame:
    other = rows.where("v % 3 = 0").select(F.col("v").alias("w"), F.col("at").alias("then"))
    close = F.expr("v = w and then >= at and then <= at + interval 1 seconds")
    return rows.join(other, close, how).select("key", "v", "w")


class Count(StatefulProcessor):
    """How many rows a key has had; and its end, when it was silent for five seconds."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        import pandas as pd

        new = sum(map(len, rows))
        (before,) = self._count.get() or (0,)
        self._count.update((before + new,))
        yield pd.DataFrame({"key": [key[0]], "n": [before + new]})

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        return iter(())

    def close(self) -> None:
        pass


def _counted(key: Any, rows: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    import pandas as pd

    (before,) = state.get if state.exists else (0,)
    now = before + sum(map(len, rows))
    state.update((now,))
    yield pd.DataFrame({"key": [key[0]], "n": [now]})


def _with_state(rows: DataFrame, mode: str) -> DataFrame:
    return rows.groupBy("key").transformWithStateInPandas(Count(), "key long, n long", "Append", mode)


def _in_pandas(rows: DataFrame) -> DataFrame:
    grouped = rows.groupBy("key")
    timeout = GroupStateTimeout.NoTimeout
    return grouped.applyInPandasWithState(_counted, "key long, n long", "n long", "append", timeout)


OPERATORS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "none": lambda rows: rows.select("key", "v"),
    "aggregation": lambda rows: _window(rows, F.window("at", "10 seconds")),
    "session window": lambda rows: _window(rows, F.session_window("at", "500 milliseconds")),
    "dropDuplicates": lambda rows: rows.dropDuplicates(["v", "at"]).select("key", "v"),
    "dropDuplicatesWithinWatermark": lambda rows: rows.dropDuplicatesWithinWatermark(["v"]).select(
        "key", "v"
    ),
    "inner join": lambda rows: _join(rows, "inner"),
    "outer join": lambda rows: _join(rows, "leftOuter"),
    "transformWithState": lambda rows: _with_state(rows, "EventTime"),
    "transformWithState, processing time": lambda rows: _with_state(rows, "ProcessingTime"),
    "applyInPandasWithState": _in_pandas,
}
RUN_AGAIN = {
    "none",
    "aggregation",
    "session window",
    "dropDuplicates",
    "dropDuplicatesWithinWatermark",
    "transformWithState",
}
"""Those whose batches may be run again after a restore, so that not each has to be saved."""
