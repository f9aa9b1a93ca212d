"""Small micro-batches are read by the stream's own process and given to Spark with its plan."""

import json
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession, datasource_internal
from pyspark.sql.streaming import python_streaming_source_runner as runner

from eoslog.client.records import fetch_small
from eoslog.client.wire import cluster as client_shared
from eoslog.connector.offsets import plan
from eoslog.connector.source import small_batches
from eoslog.connector.source.reader import StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable, ReadMaxRows
from tests.connector.brokers import Kafka
from tests.connector.source.test_source_stream import reader
from tests.kit.program import until

NO_LIMIT = ReadAllAvailable()
SMALL = {"small__batch__max__offsets": "100", "startingOffsets": "earliest"}


def small(kafka: Kafka, topic: str, **more: str) -> StreamReader:
    return reader(kafka, topic, **{**SMALL, **more})


def batch(made: StreamReader) -> tuple[list[Any], pa.Table | None]:
    """As Spark plans it: its partitions, and its rows if they come with them."""
    start = made.initialOffset()
    end = made.latestOffset(start, NO_LIMIT)
    parts = list(made.partitions(start, end))
    if not isinstance(made, datasource_internal._SimpleStreamReaderWrapper):
        return parts, None
    assert len(parts) == 1, "PySpark wants one partition for rows that come with the plan"
    rows = list(made.getCache(start, end) or ())
    assert type(made) is StreamReader, "it is what it was"
    return parts, pa.Table.from_batches(rows) if rows else pa.table({})


def read(made: StreamReader, parts: list[Any]) -> pa.Table:
    return pa.Table.from_batches([rows for part in parts for rows in made.read(part)])


def values(table: pa.Table | None) -> list[bytes]:
    assert table is not None
    return sorted(table.column("value").to_pylist()) if table.num_columns else []


@pytest.fixture
def topic(kafka: Kafka) -> str:
    name = kafka.topic(3)
    for number in range(3):
        kafka.put(name, [b"%d-%d" % (number, at) for at in range(5 * number)], partition=number)
    return name


ALL = sorted(b"%d-%d" % (number, at) for number in range(3) for at in range(5 * number))


def test_the_rows_are_those_that_tasks_read(kafka: Kafka, topic: str) -> None:
    made = small(kafka, topic, includeHeaders="true")
    parts, rows = batch(made)
    assert isinstance(parts[0], plan.TaskRanges) and values(rows) == ALL
    tasks, none = batch(small(kafka, topic, includeHeaders="true", small__batch__max__offsets="0"))
    assert none is None and len(tasks) == 2
    assert read(made, tasks).equals(rows) and read(made, parts).equals(rows)


def test_a_batch_that_is_planned_again_is_the_same(kafka: Kafka, topic: str) -> None:
    first, again = small(kafka, topic), small(kafka, topic)
    start = first.initialOffset()
    end = first.latestOffset(start, NO_LIMIT)
    first.partitions(start, end)
    rows = list(first.getCache(start, end))  # type: ignore[attr-defined]
    kafka.put(topic, [b"later"] * 4)
    again.partitions(start, json.loads(json.dumps(end)))
    assert pa.Table.from_batches(list(again.getCache(start, end))).equals(pa.Table.from_batches(rows))  # type: ignore[attr-defined]


def test_a_micro_batch_may_begin_and_end_within_a_record_batch(kafka: Kafka) -> None:
    """The rows around it belong to others."""
    one = kafka.topic()
    kafka.put(one, [b"%d" % number for number in range(10)])  # in one record batch
    made = small(kafka, one)
    stood, found = made.initialOffset(), list[bytes]()
    for _ in range(3):
        end = made.latestOffset(stood, ReadMaxRows(4))
        made.partitions(stood, end)
        rows = values(pa.Table.from_batches(list(made.getCache(stood, end))))  # type: ignore[attr-defined]
        assert len(rows) <= 4
        found, stood = [*found, *rows], end
    assert found == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"small.batch.max.offsets": "14"}, id="more offsets"),
        pytest.param({"small.batch.max.bytes": "60"}, id="more bytes"),
        pytest.param({"minPartitions": "1"}, id="minPartitions"),
        pytest.param({"maxRecordsPerPartition": "100"}, id="maxRecordsPerPartition"),
        pytest.param({"kafka.client.rack": "r1"}, id="a rack"),
    ],
)
def test_else_tasks_read(kafka: Kafka, topic: str, options: dict[str, str]) -> None:
    made = small(kafka, topic, **{name.replace(".", "__"): text for name, text in options.items()})
    parts, rows = batch(made)
    assert rows is None and all(isinstance(part, plan.Range) for part in parts)
    assert values(read(made, parts)) == ALL


def test_another_pyspark_reads_by_tasks(kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(datasource_internal, "_SimpleStreamReaderWrapper")
    small_batches._simple.cache_clear()
    try:
        start = (made := small(kafka, topic)).initialOffset()
        parts = made.partitions(start, made.latestOffset(start, NO_LIMIT))
        assert [type(part) for part in parts] == [plan.Range] * 2
    finally:
        small_batches._simple.cache_clear()


def test_this_pyspark_asks_for_rows_as_we_expect() -> None:
    """What goes when PySpark moves the name or the call: small batches are slower then, and right."""
    assert small_batches.is_offered()
    source = runner.partitions_func.__code__.co_names
    assert {"_SimpleStreamReaderWrapper", "getCache", "partitions"} <= set(source)


def test_rows_that_nobody_has_asked_for_are_forgotten(kafka: Kafka, topic: str) -> None:
    made = small(kafka, topic)
    start = made.initialOffset()
    end = made.latestOffset(start, NO_LIMIT)
    made.partitions(start, end)
    assert isinstance(made, datasource_internal._SimpleStreamReaderWrapper)
    assert list(made.partitions(end, end)) == []
    assert type(made) is StreamReader


@pytest.fixture
def transactions(kafka: Kafka, topic: str) -> Iterator[Producer]:
    made = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    made.init_transactions()
    yield made


@pytest.mark.parametrize("commit", [True, False])
def test_aborted_rows_are_passed_over_and_open_ones_waited_for(
    kafka: Kafka, topic: str, transactions: Producer, commit: bool
) -> None:
    transactions.begin_transaction()
    transactions.produce(topic, b"in a transaction", partition=0)
    transactions.flush()
    assert values(batch(small(kafka, topic))[1]) == ALL
    if commit:
        transactions.commit_transaction()
    else:
        transactions.abort_transaction()
    wanted = ALL + ([b"in a transaction"] if commit else [])  # Kafka says "committed" before its markers are
    until(lambda: values(batch(small(kafka, topic))[1]) == wanted)
    assert values(batch(small(kafka, topic))[1]) == wanted


def test_a_batch_of_nothing_but_aborted_rows(kafka: Kafka, transactions: Producer) -> None:
    empty = kafka.topic()
    transactions.begin_transaction()
    transactions.produce(empty, b"never")
    transactions.flush()
    transactions.abort_transaction()
    until(lambda: batch(small(kafka, empty))[1] is not None, "the marker is there")
    _, rows = batch(small(kafka, empty))
    assert values(rows) == []


def test_who_has_read_in_vain_does_not_try_at_once_again(
    kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    fetch = fetch_small.fetch_small

    def counted(*given: Any, **more: Any) -> Any:
        tried.append(1)
        return fetch(*given, **more)

    monkeypatch.setattr(fetch_small, "fetch_small", counted)
    made = small(kafka, topic, small__batch__max__bytes="60")
    for _ in range(40):
        assert batch(made)[1] is None
    assert 4 < len(tried) < 8


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, int]]]:
    """Starts and ends of the ranges that were fetched as a small batch, each time."""
    seen: list[list[tuple[int, int]]] = []
    fetch = fetch_small.fetch_small

    def noted(cluster: Any, ranges: Any, **more: Any) -> Any:
        found = fetch(cluster, ranges, **more)
        seen.append([(one.start, one.end) for one in ranges])
        return found

    monkeypatch.setattr(fetch_small, "fetch_small", noted)
    return seen


def test_they_are_read_while_spark_writes_where_they_end(
    kafka: Kafka, topic: str, fetched: list[list[tuple[int, int]]]
) -> None:
    made = small(kafka, topic)
    start = made.initialOffset()
    end = made.latestOffset(start, NO_LIMIT)
    deadline = time.monotonic() + 10
    while fetched != [[(0, 5), (0, 10)]]:
        assert time.monotonic() < deadline, fetched
        time.sleep(0.01)
    made.partitions(start, end)
    rows = list(made.getCache(start, end))  # type: ignore[attr-defined]
    assert values(pa.Table.from_batches(rows)) == ALL and len(fetched) == 1, "once"
    made.partitions(start, end)  # as after a failure
    assert list(made.getCache(start, end)) == rows and len(fetched) == 2  # type: ignore[attr-defined]
    made.stop()


def test_what_was_read_ahead_counts_for_its_own_ranges_alone(
    kafka: Kafka, topic: str, fetched: list[list[tuple[int, int]]]
) -> None:
    """Spark may plan another batch than the one that was asked for last: one of its checkpoint."""
    made = small(kafka, topic)
    start = made.initialOffset()
    first = made.latestOffset(start, NO_LIMIT)
    kafka.put(topic, [b"later"], partition=0)
    later = made.latestOffset(start, NO_LIMIT)
    made.partitions(start, first)
    assert values(pa.Table.from_batches(list(made.getCache(start, first)))) == ALL  # type: ignore[attr-defined]
    made.partitions(first, later)
    rows = pa.Table.from_batches(list(made.getCache(first, later)))  # type: ignore[attr-defined]
    assert values(rows) == [b"later"]
    made.stop()


def test_a_reader_that_reads_ahead_is_copied_without(kafka: Kafka, topic: str) -> None:
    made = small(kafka, topic)
    start = made.initialOffset()
    end = made.latestOffset(start, NO_LIMIT)
    copy = pickle.loads(cloudpickle.dumps(made))  # type: ignore[no-untyped-call]
    copy.partitions(start, end)
    assert values(pa.Table.from_batches(list(copy.getCache(start, end)))) == ALL
    for one in (made, copy):
        one.stop()


def test_a_stopped_reader_leaves_no_thread_and_no_connection(kafka: Kafka, topic: str) -> None:
    before = set(threading.enumerate())
    made = small(kafka, topic)
    made.latestOffset(made.initialOffset(), NO_LIMIT)
    (thread,) = set(threading.enumerate()) - before
    clusters = len(client_shared._clusters)
    made.stop()
    thread.join(10)
    assert not thread.is_alive() and len(client_shared._clusters) < clusters - 1


def test_nobody_reads_ahead_what_tasks_read(
    kafka: Kafka, topic: str, fetched: list[list[tuple[int, int]]]
) -> None:
    before = set(threading.enumerate())
    made = small(kafka, topic, small__batch__max__offsets="14")
    made.latestOffset(made.initialOffset(), NO_LIMIT)
    assert set(threading.enumerate()) == before and fetched == []


@pytest.mark.parametrize("what", ["error_code", "records", "partition_index"])
def test_whatever_is_not_as_expected_is_left_to_tasks(
    kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    parts_of = fetch_small._parts

    def odd(answer: Any) -> Iterator[Any]:
        for topic_id, part in parts_of(answer):
            torn = bytes(part["records"] or b"")[:-1] + b"?"
            wrong = {"error_code": 6, "records": torn, "partition_index": 77}
            yield topic_id, {**part, what: wrong[what]}

    monkeypatch.setattr(fetch_small, "_parts", odd)
    made = small(kafka, topic)
    parts, rows = batch(made)
    assert rows is None and values(read(made, parts)) == ALL


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark_takes_them(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """One task a batch, the rows and progress of always; larger batches are read by tasks, and a restart
    goes on where it stood."""
    source, target = kafka.topic(3), kafka.topic()
    to, tasks = {"kafka.bootstrap.servers": kafka.bootstrap}, list[int]()

    def write(rows: DataFrame, number: int) -> None:
        tasks.append(rows.rdd.getNumPartitions())
        writer = rows.select("value").write.format("eoslog").options(**to).option("topic", target)
        writer.option("write.token", f"small-{number}").mode("append").save()

    sent: list[bytes] = []
    for rows in (9, 6, 60):
        more = [b"%03d" % (len(sent) + number) for number in range(rows)]
        for number in range(3):
            kafka.put(source, more[number::3], partition=number)
        sent += more
        read = (
            spark.readStream.format("eoslog").options(**to).option("subscribe", source)
            .option("startingOffsets", "earliest").option("small.batch.max.offsets", 20).load()
        )  # fmt: skip
        query = (
            read.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(300)
        (progress,) = [one for one in query.recentProgress if one["numInputRows"]]
        assert progress["numInputRows"] % rows == 0 and json.loads(progress["sources"][0]["latestOffset"])
        assert sorted(row[3] for row in kafka.rows(target)) == sent
    assert tasks == [1, 1, 3]
