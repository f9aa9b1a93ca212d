"""A query's checkpoint is lost twice, and restored from state.topic: what it writes is what it writes when
nothing happens. The operators of docs/state.md, in both of Spark's state stores."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eoslog.checkpoint import Restored, restore_checkpoint
from eoslog.checkpoint.edit_numbers import NotRestorable
from eoslog.testing import EmbeddedBroker
from tests.connector.stock_kafka import Kafka
from tests.kit.waiting import until
from tests.spark_session import all_available
from tests.stateful.operators import BATCH, OPERATORS, RUN_AGAIN, rows, values

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
_STORE = "spark.sql.streaming.stateStore"
_NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
_PROVIDER = "org.apache.spark.sql.execution.streaming.state"
STORES = {
    "files": {f"{_STORE}.providerClass": f"{_PROVIDER}.HDFSBackedStateStoreProvider"},
    "rocksdb": {f"{_STORE}.providerClass": f"{_PROVIDER}.RocksDBStateStoreProvider"},
    "rocksdb, change log": {
        f"{_STORE}.providerClass": f"{_PROVIDER}.RocksDBStateStoreProvider",
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    },
    "rocksdb, unique ids": {
        f"{_STORE}.providerClass": f"{_PROVIDER}.RocksDBStateStoreProvider",
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STORE}.checkpointFormatVersion": "2",
    },
}


class SavedQuery:
    """A query of one operator that saves its state, and the same one undisturbed."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path, operator: str, every: int) -> None:
        self._spark, self._kafka, self._operator, self.mode = spark, kafka, operator, "append"
        self.checkpoint, self._calm = folder / "checkpoint", folder / "calm"
        self.source, self.target, self.undisturbed = kafka.topic(), kafka.topic(2), kafka.topic(2)
        self.options = {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "topic": self.target,
            "transactional.id": f"q-{self.target}",
            "state.topic": kafka.topic(cleanup_policy="compact"),
            "state.every.batches": str(every),
        }
        kafka.put(self.source, values())

    def start(self, **more: str) -> StreamingQuery:
        return self._start(self.checkpoint, self.options | {n.replace("_", "."): v for n, v in more.items()})

    def run_calmly(self) -> None:
        options = {"kafka.bootstrap.servers": self._kafka.bootstrap, "topic": self.undisturbed}
        self._start(self._calm, options).awaitTermination()

    def begin_anew(self, **more: str) -> StreamingQuery:
        """Where the sink's last batch ended."""
        reads = {"startingOffsets": "committed", "transactional.id": self.options["transactional.id"]}
        options = self.options | {name.replace("_", "."): value for name, value in more.items()}
        return self._start(self.checkpoint, options, reads)

    def _start(
        self, checkpoint: Path, options: dict[str, str], reads: dict[str, str] | None = None
    ) -> StreamingQuery:
        source = self._spark.readStream.format("eoslog").option(
            "kafka.bootstrap.servers", self._kafka.bootstrap
        )
        source = source.option("subscribe", self.source).options(**(reads or {"startingOffsets": "earliest"}))
        found = OPERATORS[self._operator](rows(source.option("maxOffsetsPerTrigger", BATCH).load()))
        value = "to_json(struct(*)) as value"
        sink = (
            found.selectExpr("cast(key as string) as key", value)
            .writeStream.format("eoslog")
            .outputMode(self.mode)
            .options(**options)
        )
        query: StreamingQuery = all_available(sink.option("checkpointLocation", str(checkpoint)))
        return query

    def run_to(self, batch: int, **more: str) -> None:
        """Until Spark has noted the batch as done."""
        query, done = self.start(**more), self.checkpoint / "commits" / str(batch)
        until(lambda: done.exists() or not query.isActive, f"batch {batch}", 300)
        query.stop()
        assert query.exception() is None, query.exception()
        assert done.exists()

    def lose(self) -> None:
        shutil.rmtree(self.checkpoint)

    def restore(self) -> Restored | None:
        return restore_checkpoint(str(self.checkpoint), self.options)

    def written(self, topic: str) -> list[tuple[bytes, bytes]]:
        return sorted((key, value) for _, _, key, value, *_ in self._kafka.rows(topic, 2))


@pytest.fixture
def kafka(broker: EmbeddedBroker) -> Kafka:
    return Kafka(broker.bootstrap)


@pytest.fixture
def store(request: pytest.FixtureRequest, spark: SparkSession) -> object:
    """Chooses a state store while the test lasts."""
    settings = STORES[request.param]
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield request.param
    for name in (*settings, _NO_DATA):
        spark.conf.unset(name)


def survives(query: SavedQuery, every: int) -> None:
    """Lose the checkpoint twice; the target is that of the undisturbed query."""
    query.run_calmly()
    assert query.restore() is None  # nothing is decided yet: an empty folder is right
    for batch in (3, 7):
        query.run_to(batch)
        query.lose()
        restored = query.restore()
        assert restored is not None and restored.decided >= batch, restored
        assert restored.batch == restored.decided // every * every, restored
        assert query.restore() is None  # it is there
    query.start().awaitTermination()
    expected = query.written(query.undisturbed)
    assert query.written(query.target) == expected and len(expected) > 50


@pytest.mark.parametrize("store", ["files"], indirect=True)
def test_an_aggregation_loses_its_checkpoint(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, store: str
) -> None:
    survives(SavedQuery(spark, kafka, tmp_path, "aggregation", 3), 3)


@pytest.mark.parametrize("store", ["files"], indirect=True)
def test_a_query_in_mode_complete_loses_its_checkpoint(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, store: str
) -> None:
    """Each micro-batch writes all results so far: those of before the loss are there only with the state."""
    query = SavedQuery(spark, kafka, tmp_path, "aggregation", 3)
    query.mode = "complete"
    survives(query, 3)


@pytest.mark.parametrize("store", ["files"], indirect=True)
def test_a_query_does_not_begin_without_its_saved_state(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, store: str
) -> None:
    query = SavedQuery(spark, kafka, tmp_path, "aggregation", 1)
    query.run_calmly()
    query.run_to(3)
    query.lose()
    there = query.written(query.target)
    running = query.start()
    with pytest.raises(StreamingQueryException, match=r"StartsElsewhere.*eoslog checkpoint restore"):
        running.awaitTermination()
    assert query.written(query.target) == there
    query.lose()
    assert query.restore() is not None
    query.start().awaitTermination()
    assert query.written(query.target) == query.written(query.undisturbed)


@pytest.mark.parametrize("store", ["files"], indirect=True)
def test_a_query_whose_state_is_lost_begins_anew_as_it_is_told(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, store: str
) -> None:
    """The way out ends: no window is there twice, and the checkpoint can be restored again."""
    query = SavedQuery(spark, kafka, tmp_path, "aggregation", 1)
    query.run_calmly()
    query.run_to(3)
    query.lose()
    kafka.make_anew(query.options["state.topic"], cleanup_policy="compact")
    for _ in range(2):
        with pytest.raises(NotRestorable, match=r"committed and start.accepted=without-state:\d+,"):
            query.restore()
        assert not query.checkpoint.exists() or list(query.checkpoint.iterdir()) == []
    with pytest.raises(StreamingQueryException, match=r"StartsElsewhere.*without-state") as caught:
        query.begin_anew().awaitTermination()
    word = re.findall(r"start\.accepted=(without-state:\d+)", str(caught.value))[-1]
    query.lose()
    query.begin_anew(start_accepted=word).awaitTermination()
    windows = [(key, json.loads(value)["start"]) for key, value in query.written(query.target)]
    assert len(windows) == len({*windows}) > 40, "a window is there twice"
    query.lose()
    assert query.restore() is not None


@pytest.mark.long
@pytest.mark.parametrize("store", STORES, indirect=True)
@pytest.mark.parametrize("every", [1, 3])
def test_every_state_store(spark: SparkSession, kafka: Kafka, tmp_path: Path, store: str, every: int) -> None:
    survives(SavedQuery(spark, kafka, tmp_path, "aggregation", every), every)


@pytest.mark.long
@pytest.mark.parametrize("store", ["rocksdb"], indirect=True)
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("operator", OPERATORS)
def test_the_table_of_operators(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, store: str, operator: str, every: int
) -> None:
    """Every operator can be restored if each batch is saved. If not, those that cannot run batches again as
    they were are refused before anything is decided."""
    if operator.endswith("processing time"):  # Spark would run batches without data for ever
        spark.conf.set(_NO_DATA, "false")
    query = SavedQuery(spark, kafka, tmp_path, operator, every)
    if every == 1 or operator in RUN_AGAIN:
        survives(query, every)
        return
    running = query.start()
    with pytest.raises(StreamingQueryException, match=r"state.every.batches=3: the query has the operator"):
        running.awaitTermination()
    assert query.written(query.target) == []
