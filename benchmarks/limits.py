"""Data sources that are limits: what Spark itself takes for a Python source and sink, and what transactions
take.

`format("idle")` does nothing. Its source makes rows from memory, in as many tasks as the benchmark's topics
have partitions; its sink drops what it gets. With the option `lean` it keeps out of Spark's way as eoslog
does: sockets are acknowledged at once and what a process keeps is not collected again. `Handed` hands its
rows over with the plan, by PySpark's own class for that. Whatever a Python source or sink does, it cannot
be faster than these.

`format("c-transactions")` is a Python sink that makes librdkafka's transactions, and nothing else. Each
task writes its rows in a transaction of confluent-kafka's producer and commits it itself; `commit` makes
one of the driver's, with an offset in it. So a batch has as many transactions as one of eoslog's, but no
common outcome: a crash leaves a part of it. What the Python processes keep between batches are the
producers, which have got their producer ids once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StructField, StructType

from eoslog.connector.spark.calls import called
from eoslog.connector.spark.sockets import acknowledging
from eoslog.connector.spark.versions import StreamArrowWriter

# -- nothing ---------------------------------------------------------------------------------------

SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
_BATCH = 10_000
_TASKS = 4


class Rows(InputPartition):
    """How many rows a task makes, and how large their values are."""

    def __init__(self, rows: int, size: int) -> None:
        self.rows, self.size = rows, size


def made(rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Rows with keys of ten bytes, as the reader of a log gives them: key, value."""
    whole = min(rows, _BATCH)
    keys = pa.array([b"k" * 10], pa.binary()).take(pa.array([0] * whole))
    values = pa.array([b"v" * size], pa.binary()).take(pa.array([0] * whole))
    batch = pa.RecordBatch.from_arrays([keys, values], names=["key", "value"])
    for at in range(0, rows, _BATCH):
        yield batch.slice(0, min(_BATCH, rows - at))


class Idle(DataSource):
    """`format("idle")`; options rows (of a task and batch), size and lean."""

    @classmethod
    def name(cls) -> str:
        return "idle"

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return IdleStreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return IdleWriter(self.options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamArrowWriter:
        return IdleStreamWriter(self.options)


class Handed(DataSource):
    """`format("idle-handed")`: a stream whose rows come with the plan, no task reads them."""

    @classmethod
    def name(cls) -> str:
        return "idle-handed"

    def schema(self) -> StructType:
        return SCHEMA

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return HandedReader(self.options)


class _Lean:
    """What Spark calls, out of its way if `lean` says so."""

    lean = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._called()

    def _called(self) -> None:
        if self.lean:
            called()


class _Reads(_Lean):
    def __init__(self, options: Any) -> None:
        self.rows, self.size = int(options.get("rows", "0")), int(options.get("size", "100"))
        self.lean = options.get("lean") == "true"


class IdleStreamReader(_Reads, DataSourceStreamReader):
    """A batch at every trigger."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.at = 0

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        self._called()
        self.at += 1
        return {"at": self.at}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [Rows(self.rows, self.size) for _ in range(_TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows)
        rows = made(partition.rows, partition.size)
        return acknowledging(rows) if self.lean else rows

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to forget."""

    def stop(self) -> None:
        """Nothing to close."""


class HandedReader(_Reads, SimpleDataSourceStreamReader):
    """A batch at every trigger."""

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[pa.RecordBatch], dict[str, int]]:
        self._called()
        rows = list(made(self.rows * _TASKS, self.size))  # PySpark copies what iterates over them
        return iter(rows), {"at": start["at"] + 1}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[pa.RecordBatch]:
        return made(self.rows * _TASKS, self.size)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to forget."""


class _Drops(_Lean):
    def __init__(self, options: Any) -> None:
        self.lean = options.get("lean") == "true"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in acknowledging(iterator) if self.lean else iterator:
            continue
        return WriterCommitMessage()

    def commit(self, *messages: Any) -> None:
        """Nothing to do."""

    def abort(self, *messages: Any) -> None:
        """Nothing to do."""


class IdleWriter(_Drops, DataSourceArrowWriter):
    """df.write"""


class IdleStreamWriter(_Drops, StreamArrowWriter):
    """df.writeStream"""


# -- librdkafka's transactions ---------------------------------------------------------------------

_WAIT_SECONDS = 30
_kept: dict[tuple[int, str], Any] = {}


class CTransactions(DataSource):
    """Options kafka.bootstrap.servers and topic; columns value, and key if there is one."""

    @classmethod
    def name(cls) -> str:
        return "c-transactions"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamArrowWriter:
        return CWriter(self.options["kafka.bootstrap.servers"], self.options["topic"])

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return CBatchWriter(self.streamWriter(schema, overwrite))


class CBatchWriter(DataSourceArrowWriter):
    """The same for `df.write`."""

    def __init__(self, stream: StreamArrowWriter) -> None:
        self._stream = stream

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._stream.write(iterator)

    def commit(self, messages: Any) -> None:
        self._stream.commit(messages, 0)

    def abort(self, messages: Any) -> None:
        """What is open times out."""


class CWriter(StreamArrowWriter):
    """One transaction a task, one a batch."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        called()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        producer = None
        for batch in acknowledging(iterator):
            columns = batch.to_pydict()
            keys = columns.get("key", [None] * len(batch))
            if producer is None:
                producer = self._producer()
                producer.begin_transaction()
            for key, value in zip(keys, columns["value"], strict=True):
                producer.produce(self.topic, value, key=key)
        if producer is not None:
            producer.commit_transaction(_WAIT_SECONDS)
        return WriterCommitMessage()

    def commit(self, messages: Any, batchId: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        producer = self._producer()
        group = _kept.get((os.getpid(), "group"))
        if group is None:
            group = Consumer({"bootstrap.servers": self.bootstrap, "group.id": f"of-{self.topic}"})
            _kept[os.getpid(), "group"] = group
        producer.begin_transaction()
        at = [TopicPartition(self.topic, 0, batchId)]
        producer.send_offsets_to_transaction(at, group.consumer_group_metadata(), _WAIT_SECONDS)
        producer.commit_transaction(_WAIT_SECONDS)

    def abort(self, messages: Any, batchId: int) -> None:
        """What is open times out."""

    def _producer(self) -> Any:
        from confluent_kafka import Producer

        key = (os.getpid(), self.bootstrap)
        if key not in _kept:
            name = f"c-{self.topic}-{os.getpid()}"
            given = {"bootstrap.servers": self.bootstrap, "transactional.id": name, "linger.ms": 0}
            _kept[key] = Producer(given)
            _kept[key].init_transactions(_WAIT_SECONDS)
        return _kept[key]
