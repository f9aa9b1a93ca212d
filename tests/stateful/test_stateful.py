"""State and output together: kills, a lost checkpoint that is restored, and docs/state.md as typed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from eoslog.checkpoint import Restored, restore_checkpoint
from eoslog.checkpoint.edit_numbers import NotRestorable
from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.docs.reader import ROOT, blocks_of
from tests.kit.program import until
from tests.spark_session import all_available
from tests.stateful.operators import BATCH, OPERATORS, RUN_AGAIN, rows, values
from tests.stateful.stateful_halts import EVERYWHERE, MIDDLE
from tests.stateful.stateful_input import CASES, PARTITIONS, Row, Seen, aggregation, judge, publish
from tests.stateful.stateful_run import RANDOM, WEAPONS, Application, Ordeal, Strike, strikes

# -- kills -----------------------------------------------------------------------------------------
# State and output together: a query with state is killed where it hurts, and its output is what a plain
# computation says. One query and two kills here; all of them, at random, by `make soak-stateful`.


BATCHES = 6
DECIDED = "decided, no winner finished"


@pytest.mark.spark
@pytest.mark.timeout(900)  # a JVM is started twice; a loaded machine needs its time
def test_an_aggregation_is_killed_after_the_decision_and_in_the_middle_of_its_rows(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """A decided batch runs again for its state alone, and its rows stay as they were decided; a task that has
    lost its worker begins again with the state of the batch before."""
    kafka, topics, case = Kafka(broker.bootstrap), f"t-{uuid.uuid4().hex[:8]}", aggregation(BATCHES, seed=1)
    publish(kafka, f"{topics}-aggregation", case)
    target = kafka.topic(PARTITIONS, name=f"{topics}-aggregation-killed")
    application = Application(["aggregation"], broker.bootstrap, topics, "killed", tmp_path).watched()
    plan = [Strike("application", 1, DECIDED), Strike("workers", 2, MIDDLE)]
    hits = Ordeal(application, broker, plan, BATCHES, Random(1)).run()
    assert all(hit.killed > 0 for hit in hits) and application.starts >= 2
    seen = Seen.of(kafka, target)
    verdict = judge(seen, case.expected, ordered=case.ordered)
    assert verdict.holds, verdict
    assert len(case.expected) > 100


@pytest.mark.parametrize("name", CASES)
def test_the_judge_takes_what_is_expected_and_nothing_else(name: str) -> None:
    case = CASES[name](9, 5)
    rows = case.expected
    assert judge(Seen(rows, 0, []), rows, ordered=case.ordered).holds
    assert judge(Seen(rows[1:], 0, []), rows, ordered=case.ordered).lost == 1
    assert judge(Seen([*rows, rows[3]], 0, []), rows, ordered=case.ordered).doubled == 1
    changed = [Row(rows[0].key, "{}"), *rows[1:]]
    verdict = judge(Seen(changed, 0, []), rows, ordered=case.ordered)
    assert (verdict.lost, verdict.strange) == (1, 1)
    assert not judge(Seen(rows, 0, ["t-0: 1 of 2"]), rows, ordered=case.ordered).holds


@pytest.mark.parametrize("name", ["aggregation", "sessions"])
def test_the_judge_sees_rows_of_a_key_out_of_order(name: str) -> None:
    rows = CASES[name](9, 5).expected
    verdict = judge(Seen(rows[::-1], 0, []), rows, ordered=True)
    assert verdict.disordered and not verdict.lost and not verdict.doubled


@pytest.mark.parametrize("kills", [1, 5, 6, 20])
def test_a_plan_goes_forward_and_has_all_weapons(kills: int) -> None:
    plan = strikes(kills, 24, Random(kills))
    assert [strike.after for strike in plan] == sorted(strike.after for strike in plan)
    assert len(plan) == kills and {strike.weapon for strike in plan} == set(WEAPONS[:kills])
    assert all(2 <= strike.after < 22 for strike in plan)
    plain = strikes(kills, 24, Random(kills), "at_least_once")
    assert {strike.place for strike in plain} <= {*EVERYWHERE, RANDOM}


# -- a lost checkpoint -----------------------------------------------------------------------------
# A query's checkpoint is lost twice, and restored from state.topic: what it writes is what it writes when
# nothing happens. The operators of docs/state.md, in both of Spark's state stores.


A_WEEK = 8 * 24 * 3600
"""Seconds: longer than a cluster keeps what nobody uses."""
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


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["files"], indirect=True)
def test_an_aggregation_loses_its_checkpoint(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, store: str
) -> None:
    survives(SavedQuery(spark, kafka, tmp_path, "aggregation", 3), 3)


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["files"], indirect=True)
def test_a_query_in_mode_complete_loses_its_checkpoint(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, store: str
) -> None:
    """Each micro-batch writes all results so far: those of before the loss are there only with the state."""
    query = SavedQuery(spark, kafka, tmp_path, "aggregation", 3)
    query.mode = "complete"
    survives(query, 3)


@pytest.mark.spark
@pytest.mark.timeout(900)
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


@pytest.mark.spark
@pytest.mark.timeout(900)
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
        with pytest.raises(NotRestorable, match=r"committed and start.accepted=without-state:[\w-]+:\d+,"):
            query.restore()
        assert not query.checkpoint.exists() or list(query.checkpoint.iterdir()) == []
    with pytest.raises(StreamingQueryException, match=r"StartsElsewhere.*without-state") as caught:
        query.begin_anew().awaitTermination()
    word = re.findall(r"start\.accepted=(without-state:[\w-]+:\d+)", str(caught.value))[-1]
    query.lose()
    query.begin_anew(start_accepted=word).awaitTermination()
    windows = [(key, json.loads(value)["start"]) for key, value in query.written(query.target)]
    assert len(windows) == len({*windows}) > 40, "a window is there twice"
    query.lose()
    assert query.restore() is not None


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["files"], indirect=True)
@pytest.mark.parametrize(("every", "batch"), [(1, 7), (3, 6), (3, 7)])
def test_a_restored_checkpoint_is_started_when_the_cluster_has_forgotten_its_decision(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, store: str, every: int, batch: int
) -> None:
    """Its rows are visible, and are not written again."""
    query = SavedQuery(spark, kafka, tmp_path, "aggregation", every)
    query.run_calmly()
    query.run_to(batch)
    query.lose()
    restored = query.restore()
    assert restored is not None
    for path in query.checkpoint.rglob("*"):
        os.utime(path, (time.time() - A_WEEK, time.time() - A_WEEK))
    groups = [query.options["transactional.id"], f"{query.options['transactional.id']}/offsets"]
    for future in kafka.admin.delete_consumer_groups(groups).values():
        future.result(30)
    there = query.written(query.target)
    if restored.batch < restored.decided:
        with pytest.raises(StreamingQueryException, match=r"DecisionGone.*runs batches \d to \d again"):
            query.start().awaitTermination()
        assert query.written(query.target) == there
        return
    query.start().awaitTermination()
    assert query.written(query.target) == query.written(query.undisturbed)


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.long
@pytest.mark.parametrize("store", STORES, indirect=True)
@pytest.mark.parametrize("every", [1, 3])
def test_every_state_store(spark: SparkSession, kafka: Kafka, tmp_path: Path, store: str, every: int) -> None:
    survives(SavedQuery(spark, kafka, tmp_path, "aggregation", every), every)


@pytest.mark.spark
@pytest.mark.timeout(900)
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


# -- the page --------------------------------------------------------------------------------------
# docs/state.md as its reader types it: the checkpoint is lost while the query does not run, and restored, by
# the program and by the command.


@pytest.fixture
def kafka_of_the_page() -> Iterator[Kafka]:
    with EmbeddedBroker() as broker:
        yield Kafka(broker.bootstrap)


def eoslog(kafka_of_the_page: Kafka, *command: str) -> str:
    called = [sys.executable, "-m", "eoslog", *command, "--bootstrap-server", kafka_of_the_page.bootstrap]
    done = subprocess.run(called, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_page(spark: SparkSession, kafka_of_the_page: Kafka, tmp_path: Path) -> None:
    blocks = blocks_of(ROOT / "docs" / "state.md")
    shell = next(block.code for block in blocks if block.language == "bash")
    (code,) = [block.code for block in blocks if block.language == "python"]
    eoslog(kafka_of_the_page, *shlex.split(shell)[1:])
    for name in ("orders", "totals"):
        kafka_of_the_page.topic(name=name)
    given = {"kafka.bootstrap.servers": kafka_of_the_page.bootstrap}
    checkpoint = tmp_path / "checkpoint"
    put = 0

    def totals() -> DataFrame:
        read = spark.readStream.format("eoslog").options(**given, subscribe="orders")
        rows = read.option("startingOffsets", "earliest").load()
        at = F.timestamp_seconds(F.col("value").cast("string").cast("long"))
        counted = rows.withColumn("at", at).withWatermark("at", "1 second")
        found = counted.groupBy(F.window("at", "10 seconds")).count()
        return found.select(
            F.to_json(F.struct(F.unix_seconds("window.start").alias("s"), "count")).alias("value")
        )

    def typed_and_run(batches: int) -> None:
        nonlocal put
        names: dict[str, Any] = {"kafka": given, "totals": totals()}
        exec(code.replace("./", f"{tmp_path}/"), names)
        query = names["query"]
        for _ in range(batches):
            kafka_of_the_page.put("orders", [b"%d" % (1000 + n) for n in range(put, put + 7)])
            put += 7
            query.processAllAvailable()
        query.stop()

    typed_and_run(3)
    shutil.rmtree(checkpoint)
    typed_and_run(3)
    shutil.rmtree(checkpoint)
    named = ["--transactional-id", "totals", "--topic", "totals"]
    said = eoslog(kafka_of_the_page, "checkpoint", "restore", str(checkpoint), *named)
    assert "is restored" in said and "for the state alone" in said
    typed_and_run(3)
    until(lambda: len(kafka_of_the_page.rows("totals")) >= 5, "the windows", 60)
    found = [json.loads(value) for _, _, _, value, *_ in kafka_of_the_page.rows("totals")]
    closed = [start for start in range(1000, 1070, 10) if start + 10 <= 1000 + put - 2]
    assert sorted(found, key=lambda one: one["s"]) == [{"s": start, "count": 10} for start in closed]
