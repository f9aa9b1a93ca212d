"""The same question to both connectors: what each answers, rows or a refusal, in one form."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

CONNECTORS = ("kafka", "eoslog")
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Outcome:
    """What came of a query: rows, or the text of the error that refused it."""

    rows: list[Row] | None
    refused: str = ""


def outcome(ask: Callable[[], list[Row]]) -> Outcome:
    """Run it. Whatever Spark raises is an outcome, too: the caller says which errors are right."""
    try:
        return Outcome(ask())
    except Exception as error:
        return Outcome(None, str(error))


def read(spark: SparkSession, connector: str, options: dict[str, str]) -> list[Row]:
    """Rows of a batch read, by topic, partition and offset."""
    return rows_of(spark.read.format(connector).options(**options).load())


def rows_of(frame: DataFrame) -> list[Row]:
    """Every column of every row, sorted by place."""
    rows = [tuple(map(_plain, row)) for row in frame.collect()]
    return sorted(rows, key=lambda row: row[2:5])


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [tuple(map(_plain, one)) for one in value]
    return value
