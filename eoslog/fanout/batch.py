"""`fanout`: a function for `foreachBatch`, and what it does with a batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.errors import OptionError
from eoslog.fanout.delta import DeltaTarget, delta, is_word
from eoslog.fanout.iceberg import IcebergTarget, of_known_catalog
from eoslog.fanout.postgres import PostgresTarget, postgres
from eoslog.fanout.rows import Rows, SparkRows
from eoslog.fanout.rules import Batch, FanoutStopped, Step, number_of, other_rows_word
from eoslog.fanout.table import Table, Transform, check, step_of, write
from eoslog.fanout.topic import TopicTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_QUERY_ID = "sql.streaming.queryId"


class Topic(Protocol):
    """A topic: it knows by itself, by the write's token, whether it has a batch."""

    transform: Transform | None

    def has(self, batch: Batch) -> bool:
        """Whether it has the batch, with whatever rows. Raises FanoutStopped if another query wrote it."""

    def write(self, rows: Any, batch: Batch, *, other_rows: bool) -> None:
        """Write the batch, or see that it has the same rows already (unless `other_rows`)."""


Through = Callable[[Transform | None], Rows]
"""The rows of the batch, as a transform makes them."""


def carry_out(
    batch: Batch,
    through: Through,
    tables: Sequence[Table],
    topics: Sequence[Topic],
    *,
    other_rows: bool = False,
) -> None:
    """Bring a batch to all places that do not have it: tables in their order, then topics.

    All are looked at before the first is written to. A place that has the batch proves that it has the same
    rows (`other_rows`: need not). Raises FanoutStopped, and SchemaError.
    """
    steps = []
    for table in tables:
        rows = through(table.transform)
        mark = table.prepare(rows, batch)
        steps.append((table, rows, mark, step_of(table, mark, batch)))
    for table, rows, mark, what in steps:
        if what is Step.CHECK and mark is not None and not other_rows:
            check(table, mark, rows, batch)
    having = [topic for topic in topics if topic.has(batch)]
    for topic in having:  # nothing is written: the token compares the rows
        topic.write(through(topic.transform), batch, other_rows=other_rows)
    for table, rows, _, what in steps:
        if what is Step.WRITE:
            write(table, rows, batch)
    for topic in (one for one in topics if one not in having):
        topic.write(through(topic.transform), batch, other_rows=other_rows)


def fanout(
    name: str,
    to: Sequence[DeltaTarget | IcebergTarget | PostgresTarget | TopicTarget],
    *,
    accept_other_rows: int | str | None = None,
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that brings each micro-batch to all places of `to`, in each once.

    `name` stands in the tables' marks and the topics' tokens: one name, one checkpoint. `accept_other_rows`:
    the word of the message for a batch that may have other rows than at its first try; places that have it
    keep it. Raises OptionError.
    """
    tables = [one for one in to if isinstance(one, DeltaTarget | IcebergTarget | PostgresTarget)]
    topics = [one for one in to if isinstance(one, TopicTarget)]
    _check(name, to, tables, topics, accept_other_rows)

    def write_batch(frame: DataFrame, number: int) -> None:
        query_id = _query_id(frame, name)
        batch = Batch(name, number_of(query_id), number, *_ends(frame, query_id, number))
        several = len(to) > 1
        if several:
            frame.persist()  # all places see the same rows, and the source is read once
        try:
            rows = SparkRows(frame)
            carry_out(
                batch, rows.through, tables, topics, other_rows=accept_other_rows == other_rows_word(batch)
            )
        finally:
            if several:
                frame.unpersist()

    return write_batch


def table_at(text: str) -> Table:
    """A table by its name on the command line: delta:PATH, iceberg:CATALOG.NAMESPACE.TABLE,
    postgres:SCHEMA.TABLE (libpq's environment variables name the database). Raises OptionError.
    """
    kind, _, name = text.partition(":")
    if kind == "delta":
        return delta(name)
    if kind == "iceberg":
        return of_known_catalog(name)
    if kind == "postgres":
        return postgres(name, "")
    raise OptionError(
        f"{text!r} names no table: give delta:PATH, iceberg:CATALOG.NAMESPACE.TABLE or postgres:SCHEMA.TABLE"
    )


def _check(
    name: str,
    to: Sequence[object],
    tables: Sequence[Table],
    topics: Sequence[TopicTarget],
    word: int | str | None,
) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionError(f"fanout name={name!r}: 1 to 100 letters, digits, '.', '_' and '-' are a name")
    if len(tables) + len(topics) != len(to):
        raise OptionError(
            f"fanout {name}: to has things that are not delta(...), iceberg(...), postgres(...) or topic(...)"
        )
    if not tables:
        raise OptionError(
            f"fanout {name}: to has no table, whose mark says which batches are done. For topics alone use "
            "writeStream.format('eoslog'), which is exact by itself"
        )
    places = [*(one.place for one in tables), *(one.place for one in topics)]
    twice = sorted({place for place in places if places.count(place) > 1})
    if twice:
        raise OptionError(
            f"fanout {name}: {', '.join(twice)} twice in to: give it one transform with all rows"
        )
    if not is_word(word):
        raise OptionError(f"fanout {name}: accept_other_rows={word!r} is no word of a message, as 3:0f1e2d3c")


def _query_id(frame: DataFrame, name: str) -> str:
    """The id of the query whose thread this is."""
    if not hasattr(frame, "_jdf"):
        raise FanoutStopped(
            f"fanout {name}: Spark Connect does not tell foreachBatch which query it runs for, and "
            f"without it a "
            "new checkpoint could not be told from the old one. Nothing was written. Run it in a classic "
            "session (spark-submit, or SparkSession.builder.master)"
        )
    found = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if not found:
        raise FanoutStopped(
            f"fanout {name}: called outside of a streaming query. Give it to writeStream.foreachBatch"
        )
    return str(found)


def _ends(frame: DataFrame, query_id: str, number: int) -> tuple[str, str]:
    """The batch's plan, of which the running query's offset log knows, and which is on the disk from now on;
    and that of the batch before. Empty: this Spark does not show it. Raises CheckpointUnreadable if a local
    disk does not take it."""
    from py4j.protocol import Py4JError

    session, jvm = frame.sparkSession._jsparkSession, frame.sparkSession._jvm
    assert jvm is not None, "a classic session has a JVM"
    try:
        queries = session.sharedState().activeStreamingQueries()
        query = queries.get(jvm.java.util.UUID.fromString(query_id))

        def planned_in_log(at: int) -> Planned:
            stream, log = jvm.java.io.ByteArrayOutputStream(), query.offsetLog()
            log.serialize(log.get(at).get(), stream)
            return Planned.parse(at, stream.toString("UTF-8"))

        planned = planned_in_log(number)
        location = str(query.resolvedCheckpointRoot())
    except Py4JError:
        return "", ""  # Spark's inside may be a vendor's; marks do without
    try:
        begins = planned_in_log(number - 1).ends if number else ""
    except Py4JError:  # it is cleaned away
        begins = ""
    try:
        checkpoint = Checkpoint.at(location)
        ends = checkpoint.planned(number).ends if planned.file_logs() else planned.ends  # with files' names
    except CheckpointUnreadable:
        return "" if planned.file_logs() else planned.ends, begins  # a place that Python cannot read
    checkpoint.sync_planned(number)
    return ends, begins
