"""`format("c-transactions")`: a Python sink that makes librdkafka's transactions, and nothing else: a limit.

Each task writes its rows in a transaction of confluent-kafka's producer and commits it itself; `commit` makes
one of the driver's, with an offset in it. So a batch has as many transactions as one of eoslog's, but no
common outcome: a crash leaves a part of it. What the Python processes keep between batches are the producers,
which have got their producer ids once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from eoslog.connector.spark.calls import called
from eoslog.connector.spark.sockets import acknowledging
from eoslog.connector.spark.versions import StreamArrowWriter

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
