"""`df.write` and `writeStream` with format("eoslog") in a real Spark, checked with the stock consumer."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import eoslog
from eoslog.client.admin import transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.checkpointkit import EditedQuery, fill
from tests.connector.brokers import Kafka
from tests.docs.reader import code_of
from tests.spark_session import all_available

pytestmark = pytest.mark.spark


def write(frame: DataFrame, kafka: Kafka, **options: Any) -> None:
    given = {name.replace("__", "."): str(value) for name, value in options.items()}
    frame.write.format("eoslog").mode("append").option("kafka.bootstrap.servers", kafka.bootstrap).options(
        **given
    ).save()


def values(kafka: Kafka, topic: str, partitions: int = 1, *, committed: bool = True) -> list[bytes]:
    return sorted(row[3] for row in kafka.rows(topic, partitions, committed=committed))


def numbers(spark: SparkSession, rows: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, rows, 1, partitions).select(F.col("id").cast("string").alias("value"))


def failure(raised: pytest.ExceptionInfo[PySparkException]) -> str:
    return str(raised.value)


class Stream:
    """A query that copies a topic; `run` reads all that is there and stops."""

    def __init__(self, spark: SparkSession, kafka: Kafka, checkpoint: Path, partitions: int = 2) -> None:
        self.spark, self.kafka, self.checkpoint = spark, kafka, checkpoint
        self.source, self.target = kafka.topic(partitions), kafka.topic(2)

    def run(self, limit: int = 40, **options: Any) -> list[int]:
        frame = (
            self.spark.readStream.format("eoslog")
            .option("kafka.bootstrap.servers", self.kafka.bootstrap)
            .option("subscribe", self.source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", limit)
            .load()
            .select("key", "value")
        )
        more: dict[str, Any] = {"topic": self.target, "checkpointLocation": str(self.checkpoint)}
        more |= {name.replace("__", "."): value for name, value in options.items()}
        query = all_available(
            frame.writeStream.format("eoslog")
            .option("kafka.bootstrap.servers", self.kafka.bootstrap)
            .options(**{name: value for name, value in more.items() if value is not None})
        )
        query.awaitTermination(120)
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def put(self, first: int, last: int) -> list[bytes]:
        rows = [b"%06d" % number for number in range(first, last)]
        self.kafka.put(self.source, rows[::2], partition=0)
        self.kafka.put(self.source, rows[1::2], partition=1)
        return rows

    def copied(self) -> list[bytes]:
        return values(self.kafka, self.target, 2)


@pytest.fixture
def stream(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Iterator[Stream]:
    yield Stream(spark, kafka, tmp_path / "checkpoint")


def test_a_batch_write_with_all_columns(spark: SparkSession, kafka: Kafka) -> None:
    first, second = kafka.topic(3), kafka.topic(1)
    frame = spark.createDataFrame(
        [
            (bytearray(b"k"), "one", first, 2, [("h", bytearray(b"1")), ("h", None)]),
            (None, "two", second, None, None),
            (bytearray(b"k"), None, first, 2, []),
        ],
        "key binary, value string, topic string, partition int, "
        "headers array<struct<key:string,value:binary>>",
    )
    write(frame.coalesce(1), kafka)
    assert [(row[0], row[2], row[3], row[6]) for row in kafka.rows(first, 3)] == [
        (2, b"k", b"one", [("h", b"1"), ("h", None)]),
        (2, b"k", None, None),
    ]
    assert values(kafka, second) == [b"two"]


def test_keys_go_where_the_stock_producer_puts_them(spark: SparkSession, kafka: Kafka) -> None:
    ours, theirs = kafka.topic(7), kafka.topic(7)
    producer = kafka.producer(partitioner="murmur2_random")
    for number in range(300):
        producer.produce(theirs, b"v", key=f"key {number}")
    producer.flush(20)
    frame = spark.range(300).select(F.format_string("key %d", "id").alias("key"), F.lit("v").alias("value"))
    write(frame, kafka, topic=ours)
    placed = [{(row[0], row[2]) for row in kafka.rows(topic, 7)} for topic in (ours, theirs)]
    assert placed[0] == placed[1] and len(placed[0]) == 300


def test_a_batch_write_with_empty_tasks(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic(1)
    write(numbers(spark, 10, 5).filter("value < '4'"), kafka, topic=topic)
    write(numbers(spark, 10).filter("value = 'none'"), kafka, topic=topic)
    assert values(kafka, topic) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("slow", [False, True], ids=["one task fails", "another is killed"])
def test_a_failed_batch_write_leaves_nothing_visible_or_open(
    spark: SparkSession, kafka: Kafka, slow: bool
) -> None:
    """Also where Spark kills a task that has written: it cannot end its transaction, the driver does."""
    topic = kafka.topic(1)
    told = F.expr("if(value = '29999', raise_error('told to fail'), value)")
    frame = numbers(spark, 30_000, 2).withColumn("value", told)
    if slow:

        def slowly(value: str) -> str:
            if value == "14000":
                time.sleep(20)
            return value

        wait = F.udf(slowly)
        frame = frame.withColumn("value", wait("value"))
    with pytest.raises(PySparkException, match="told to fail"):
        write(frame, kafka, topic=topic)
    assert values(kafka, topic) == []
    write(numbers(spark, 3), kafka, topic=topic)
    assert values(kafka, topic) == [b"0", b"1", b"2"], "an open transaction holds back readers"


def test_dead_letters(spark: SparkSession, kafka: Kafka) -> None:
    topic, letters = kafka.topic(2, max_message_bytes="2000"), kafka.topic(1)
    compacted = kafka.topic(1, cleanup_policy="compact")
    rows = spark.sql(
        f"""select * from values
        ('good', 'k', '{topic}', 1, null), (repeat('x', 3000), 'k', '{topic}', 0, null),
        ('far', 'k', '{topic}', 7, null), ('nowhere', 'k', null, null, null),
        ('keyless', null, '{compacted}', null, null), ('keyed', 'k', '{compacted}', null, null),
        ('unknown', 'k', '{topic}', 1, 'no such customer')
        as rows(value, key, topic, partition, deadletter)"""
    )
    with pytest.raises(PySparkException):
        write(rows, kafka)
    assert values(kafka, topic, 2) == values(kafka, compacted) == []
    write(rows, kafka, deadletter__topic=letters)
    assert (values(kafka, topic, 2), values(kafka, compacted)) == ([b"good"], [b"keyed"])
    told = {row[3]: {name: value for name, value in row[6]} for row in kafka.rows(letters)}
    assert {value[:7]: said["deadletter.reason"] for value, said in told.items()} == {
        b"xxxxxxx": b"too large",
        b"far": b"no such partition",
        b"nowhere": b"no topic",
        b"keyless": b"no key",
        b"unknown": b"no such customer",
    }
    assert told[b"far"] == {
        "deadletter.reason": b"no such partition",
        "deadletter.detail": f"topic {topic} has 2 partitions and no number 7".encode(),
        "deadletter.topic": topic.encode(),
        "deadletter.partition": b"7",
    }


def test_a_token_writes_once(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic(2)
    for _ in range(2):
        write(numbers(spark, 50), kafka, topic=topic, write__token="monday")
    write(numbers(spark, 3), kafka, topic=topic, write__token="tuesday")
    write(numbers(spark, 50), kafka, topic=topic, write__token="monday")
    assert len(values(kafka, topic, 2)) == 53
    told = F.expr("if(value = '49', raise_error('told to fail'), value)")
    with pytest.raises(PySparkException, match="told to fail"):
        write(numbers(spark, 50).withColumn("value", told), kafka, topic=topic, write__token="wednesday")
    write(numbers(spark, 50), kafka, topic=topic, write__token="wednesday")
    assert len(values(kafka, topic, 2)) == 103, "a token whose write failed is not used up"
    write(numbers(spark, 50), kafka, topic=topic, write__token="monday", transactional__id="other")
    assert len(values(kafka, topic, 2)) == 153, "a token belongs to its transactional.id"


def test_a_record_above_the_topics_limit_fails_the_batch(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic(1, max_message_bytes="50000")
    frame = spark.range(4).select(F.expr("repeat('x', if(id = 3, 60000, 10))").alias("value"))
    with pytest.raises(PySparkException) as raised:
        write(frame.coalesce(1), kafka, topic=topic)
    said = failure(raised)
    assert f"{topic}-0" in said and "max.message.bytes" in said and "MESSAGE_TOO_LARGE" in said
    assert values(kafka, topic) == []


@pytest.mark.parametrize(
    ("frame", "options", "says"),
    [
        ("select 1 as key", {"topic": "t"}, "no column 'value'"),
        ("select 1 as value", {"topic": "t"}, "column 'value' is int: cast it to binary or string"),
        ("select 'x' as value", {}, "option topic, or a column 'topic'"),
        ("select 'x' as value, cast(null as string) as topic", {}, "null in the column 'topic'"),
        ("select 'x' as value", {"topic": "t", "kafka__group__id": "g"}, "kafka.group.id"),
        ("select 'x' as value", {"topic": "t", "processing__guarantee": "maybe"}, "exactly_once"),
        (
            "select 'x' as value",
            {"topic": "t", "processing__guarantee": "at_least_once", "write__token": "x"},
            "write.token needs",
        ),
    ],
)
def test_bad_input_is_said(
    spark: SparkSession, kafka: Kafka, frame: str, options: dict[str, str], says: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        write(spark.sql(frame), kafka, **options)
    assert says in failure(raised)


def test_compressed_writes(spark: SparkSession, kafka: Kafka) -> None:
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        topic = kafka.topic(1)
        write(numbers(spark, 2_000), kafka, topic=topic, kafka__compression__type=codec)
        assert values(kafka, topic) == sorted(b"%d" % number for number in range(2_000))


def test_a_stream_over_restarts_and_its_source_offsets(stream: Stream, kafka: Kafka) -> None:
    rows = stream.put(0, 100)
    assert sum(stream.run(kafka__group__id="dashboards")) == 100
    rows += stream.put(100, 130)
    assert sum(stream.run(kafka__group__id="dashboards")) == 30
    assert stream.copied() == rows
    asked = ConsumerGroupTopicPartitions("dashboards", [TopicPartition(stream.source, p) for p in range(2)])
    committed = kafka.admin.list_consumer_group_offsets([asked])["dashboards"].result(20)
    assert [place.offset for place in committed.topic_partitions] == [65, 65]


def test_a_batch_replayed_after_its_decision_is_not_written_again(stream: Stream) -> None:
    """Spark crashed between the sink's commit and its own commit log."""
    rows = stream.put(0, 40)
    assert stream.run() == [40]
    (stream.checkpoint / "commits" / "0").unlink()
    (stream.checkpoint / "commits" / ".0.crc").unlink()
    rows += stream.put(40, 60)
    assert stream.run() == [40, 20]
    assert stream.copied() == rows


def test_at_least_once_writes_a_replayed_batch_again(stream: Stream) -> None:
    rows = stream.put(0, 40)
    stream.run(processing__guarantee="at_least_once")
    (stream.checkpoint / "commits" / "0").unlink()
    (stream.checkpoint / "commits" / ".0.crc").unlink()
    stream.run(mode="at_least_once")
    assert stream.copied() == sorted(rows * 2)


def test_at_most_once_drops_a_batch_that_was_tried(stream: Stream) -> None:
    stream.put(0, 40)
    with pytest.raises(PySparkException, match="INVALID_TOPIC"):
        stream.run(processing__guarantee="at_most_once", topic="no/such/topic")
    rows = stream.put(40, 60)
    stream.run(processing__guarantee="at_most_once")
    assert stream.copied() == rows


def test_a_checkpoint_that_was_set_back_is_refused(stream: Stream) -> None:
    stream.put(0, 40)
    stream.run()
    stream.put(40, 80)
    stream.run()
    for log in ("commits", "offsets"):
        for name in ("1", ".1.crc"):
            (stream.checkpoint / log / name).unlink()
    with pytest.raises(PySparkException, match="restored from an older copy"):
        stream.run(limit=30)
    assert len(stream.copied()) == 80
    (stream.checkpoint / "offsets" / "1").unlink()
    (stream.checkpoint / "offsets" / ".1.crc").unlink()
    assert stream.run() == [40], "planned again with the same offsets, the batch is a replay"
    assert len(stream.copied()) == 80


def test_a_stream_needs_the_checkpoint_among_the_writer_s_options(
    stream: Stream, spark: SparkSession, tmp_path: Path
) -> None:
    """One given by spark.sql.streaming.checkpointLocation is not; that it was set back would go unnoticed."""
    rows = stream.put(0, 10)
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "all"))
    try:
        every: tuple[dict[str, Any], ...]
        every = ({}, {"transactional__id": "copy-1"}, {"processing__guarantee": "at_least_once"})
        for given in every:
            with pytest.raises(PySparkException, match="Give the writer the option checkpointLocation"):
                stream.run(checkpointLocation=None, queryName="copy", **given)
        assert stream.copied() == []
        weaker: dict[str, Any] = {
            "processing__guarantee": "at_least_once",
            "start__accepted": "no-checkpoint:0",
        }
        stream.run(checkpointLocation=None, queryName="copy", **weaker)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert stream.copied() == rows


def test_mode_update_as_the_page_on_migrating_has_it(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "migrating.md").read_text()
    (block,) = (part for part in page.split("```") if "foreachBatch(write)" in part)
    source, target, place = kafka.topic(1), kafka.topic(1), tmp_path / "checkpoint"
    servers = {"kafka.bootstrap.servers": kafka.bootstrap}
    rows = spark.readStream.format("eoslog").options(**servers).option("subscribe", source)
    words = rows.option("startingOffsets", "earliest").load().selectExpr("cast(value as string) as key")
    counts = words.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
    names: dict[str, Any] = {
        "counts": counts,
        "options": {**servers, "topic": target},
        "place": str(place),
        "name": "counts",
    }

    def run() -> None:
        code = block.removeprefix("python").replace("counts.writeStream", "query = counts.writeStream")
        exec(code.replace(".start()", ".trigger(availableNow=True).start()"), names)
        assert names["query"].awaitTermination(90)

    kafka.put(source, [b"a", b"b", b"a"])
    run()
    assert values(kafka, target) == [b"1", b"2"]
    for name in ("0", ".0.crc"):
        (place / "commits" / name).unlink()  # as if the application had died before it noted the batch
    run()
    assert values(kafka, target) == [b"1", b"2"], "the batch that runs again is not written again"


def test_mode_update_is_refused_by_spark_and_nothing_is_written(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    """Spark asks for a marker of the JVM that it does not give to Python sinks. Should it ever do so, this
    test says it, and mode update needs a look."""
    place, target = tmp_path / "checkpoint", kafka.topic(1)
    counts = spark.readStream.format("rate").load().groupBy("value").count()
    rows = counts.selectExpr("cast(value as string) as key", "cast(count as string) as value")
    writer = rows.writeStream.format("eoslog").outputMode("update").option("topic", target)
    writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap).option(
        "checkpointLocation", str(place)
    )
    with pytest.raises(PySparkException, match="eoslog does not support Update mode"):
        writer.start().awaitTermination(90)
    assert not values(kafka, target)


# -- a commit that is refused ----------------------------------------------------------------------
# A sink that is refused when a batch is decided: its sentence is what Python shows, and it starts again.


SENTENCE = "another driver owns the sink"


def test_the_sentence_of_a_refused_decision(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    kafka = Kafka(broker.bootstrap)
    source, target = kafka.topic(1), kafka.topic(1)
    kafka.put(source, [b"a", b"b"])
    bootstrap, coordinator, once = broker.bootstrap, Sink(f"sink-{target}").coordinator, tmp_path / "fenced"

    def fenced_meanwhile(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not once.exists():
            with Cluster(ClientConfig(parse_addresses(bootstrap))) as cluster:
                transactions.init_producer_id(cluster, coordinator, 60_000)
            once.touch()
        yield from batches

    def run() -> None:
        rows = spark.readStream.format("eoslog").option("subscribe", source)
        rows = rows.option("kafka.bootstrap.servers", bootstrap).option("startingOffsets", "earliest")
        frame = rows.load().select("value").mapInArrow(fenced_meanwhile, "value binary")
        writer = frame.writeStream.format("eoslog").option("kafka.bootstrap.servers", bootstrap)
        writer = writer.option("topic", target).option("transactional.id", f"sink-{target}")
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    with pytest.raises(StreamingQueryException) as refused:
        run()
    said = str(refused.value)
    assert "perform commit" in said and SENTENCE in said and "Writing job failed" not in said
    run()
    assert sorted(row[3] for row in kafka.rows(target, 1)) == [b"a", b"b"]


# -- started again in a living application ---------------------------------------------------------
# A query is started again in a living application, in a real Spark: every check of a start is made, whatever
# the application remembers of the sink, and the first start tells the truth.


class Restarted(EditedQuery):
    """A query that has run to its end, and is started again with other options."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path) -> None:
        super().__init__(spark, kafka, folder)
        assert self.run() == ""
        fill(kafka, self.source, "more")

    def is_exact(self) -> bool:
        return self.run() == "" and self.audited() == {"doubled": 0, "lost": 0}


@pytest.fixture
def query(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Restarted:
    return Restarted(spark, kafka, tmp_path)


@pytest.mark.timeout(600)
def test_another_group_is_noted(query: Restarted) -> None:
    """A query that follows this one would otherwise look into the former group."""
    query.group = f"another-{query.group}"
    assert query.is_exact()
    noted = NotedSink.read(Checkpoint.at(str(query.checkpoint)))
    assert noted is not None and noted.group == query.group


@pytest.mark.timeout(600)
def test_a_state_topic_that_would_expire_is_refused(query: Restarted) -> None:
    said = query.run(state_topic=query.kafka.topic(cleanup_policy="delete"))
    assert "its cleanup.policy is delete" in said
    assert query.is_exact()


@pytest.mark.timeout(600)
def test_saves_that_are_too_rare_for_the_source_are_refused(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("one")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": kafka.topic()}
    options |= {"transactional.id": f"sink-{tmp_path}", "checkpointLocation": str(tmp_path / "checkpoint")}

    def run(**more: str) -> None:
        given = options | {name.replace("_", "."): text for name, text in more.items()}
        writer = spark.readStream.text(str(tmp_path / "in")).writeStream.format("eoslog").options(**given)
        assert writer.trigger(availableNow=True).start().awaitTermination(400)

    run()
    (tmp_path / "in" / "2.txt").write_text("two")
    state = kafka.topic(cleanup_policy="compact")
    with pytest.raises(
        StreamingQueryException, match=r"state\.every\.batches=100: the query reads from another"
    ):
        run(state_topic=state, state_every_batches="100")
    run(state_topic=state)
    assert sorted(row[3] for row in kafka.rows(options["topic"], 1)) == [b"one", b"two"]


@pytest.mark.timeout(600)
def test_after_an_edit_the_first_start_goes_on(query: Restarted) -> None:
    foretold = query.edit("rewind", "--to-batch", "1")
    assert foretold["doubled"] > 0
    assert query.run() == ""
    assert query.audited() == foretold


@pytest.mark.timeout(600)
def test_a_copy_has_gone_on_meanwhile(query: Restarted, tmp_path: Path) -> None:
    there, elsewhere, target = query.checkpoint, tmp_path / "copy", query.target
    shutil.copytree(there, elsewhere)
    query.checkpoint, query.target = elsewhere, query.kafka.topic(2)
    assert query.run() == ""
    query.checkpoint, query.target = there, target
    said = query.run()
    assert "CheckpointCopied" in said and str(elsewhere) in said


@pytest.mark.timeout(600)
def test_the_target_was_made_anew_meanwhile(query: Restarted) -> None:
    query.kafka.make_anew(query.target, 2)
    assert "RowsGone" in query.run()


@pytest.mark.timeout(600)
def test_another_query_has_taken_the_sink_meanwhile(query: Restarted, tmp_path: Path) -> None:
    there = query.checkpoint
    query.checkpoint = tmp_path / "another"
    said = query.run()
    assert "start.accepted=" in said, "a new checkpoint under a sink's name is asked about"
    word = said.split("start.accepted=")[-1].split()[0].strip(".;,)")
    assert query.run(start_accepted=word) == ""
    query.checkpoint = there
    assert "TakenOver" in query.run()


# -- threads ---------------------------------------------------------------------------------------
# Writes from threads of a program: Spark finds no Python data source in a thread without a session.


def in_thread(spark: SparkSession, *works: Callable[[], object]) -> BaseException | None:
    """What a plain thread has raised. The JVM's thread may be that of an earlier one, and have a session."""
    raised: list[BaseException] = []

    def caught() -> None:
        assert spark._jvm is not None
        spark._jvm.SparkSession.clearActiveSession()
        try:
            for work in works:
                work()
        except Exception as error:  # Spark's error as py4j has it, too
            raised.append(error)

    thread = threading.Thread(target=caught)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(3).selectExpr("cast(id as string) as value")


def test_register_in_a_thread_lets_it_write(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    source, topic, broker = kafka.topic(), kafka.topic(), {"kafka.bootstrap.servers": kafka.bootstrap}
    made = rows(spark)
    kafka.put(source, [b"0", b"1", b"2"])

    def batch() -> None:
        made.write.format("eoslog").options(**broker, topic=topic).mode("append").save()

    def stream() -> None:
        given = {**broker, "subscribe": source, "startingOffsets": "earliest"}
        read = spark.readStream.format("eoslog").options(**given).load()
        written = read.select("value").writeStream.format("eoslog").options(**broker, topic=topic)
        stored = written.option("checkpointLocation", str(tmp_path / "c"))
        assert stored.trigger(availableNow=True).start().awaitTermination(60)

    for write in (batch, stream):
        refused = in_thread(spark, write)
        assert refused is not None and "DATA_SOURCE_NOT_FOUND" in str(refused), "Spark's own fault"
        assert in_thread(spark, lambda: eoslog.register(spark), write) is None
    assert sorted(row[3] for row in kafka.rows(topic)) == sorted(2 * [b"0", b"1", b"2"])


def test_the_pages_threads_write(spark: SparkSession, kafka: Kafka) -> None:
    topics = [kafka.topic(), kafka.topic()]
    code = code_of("errors/start.md", "def write(")
    given = {"spark": spark, "frame": rows(spark), "brokers": kafka.bootstrap, "topics": topics}
    given |= {"eoslog": eoslog, "ThreadPoolExecutor": ThreadPoolExecutor}
    exec(code, given)
    for topic in topics:
        assert sorted(row[3] for row in kafka.rows(topic)) == [b"0", b"1", b"2"]
