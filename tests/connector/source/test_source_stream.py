"""`spark.readStream.format("eoslog")`: every row once over restarts, limits kept, nothing lost in between."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eoslog.cli import main
from eoslog.client.admin.groups import commit_plain
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.offsets.group_notes import Note
from eoslog.connector.offsets.offsets import TakenFrom, position_from_json
from eoslog.connector.options.source_options import source_options
from eoslog.connector.source.reader import StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable, ReadMaxRows, works
from eoslog.errors import DataLoss, OptionError
from tests.connector.brokers import Kafka, bare
from tests.spark_session import all_available

NO_LIMIT = ReadAllAvailable()


NOW = {"availableNow": True}


class Sink:
    """Collects batches of values, and fails where told to."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.fail = False

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = frame.select("partition", "offset", "value").collect()
        if self.fail and rows:
            raise RuntimeError("told to fail")
        self.batches.append([bytes(r.value) for r in sorted(rows, key=lambda r: (r.partition, r.offset))])

    @property
    def values(self) -> list[bytes]:
        return [value for batch in self.batches for value in batch]


def start(
    spark: SparkSession, kafka: Kafka, sink: Sink, checkpoint: Path, trigger: dict[str, Any], **options: str
) -> StreamingQuery:
    given = {name.replace("__", "."): value for name, value in options.items()}
    frame = (
        spark.readStream.format("eoslog").option("kafka.bootstrap.servers", kafka.bootstrap).options(**given)
    )
    writer = frame.load().writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return all_available(writer) if trigger == NOW else writer.trigger(**trigger).start()


def run(spark: SparkSession, kafka: Kafka, sink: Sink, checkpoint: Path, **options: str) -> list[int]:
    """Read all that is there now, and stop; returns the rows of each batch."""
    query = start(spark, kafka, sink, checkpoint, NOW, **options)
    assert query.awaitTermination(60)
    return [progress["numInputRows"] for progress in query.recentProgress]


def stored_offsets(checkpoint: Path) -> Any:
    """The end of the last batch, as Spark's checkpoint has it."""
    last = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return json.loads(last.read_text().splitlines()[-1])


def wait_for(query: StreamingQuery, condition: Callable[[], bool], seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)


@pytest.mark.spark
def test_available_now_in_limited_batches_and_again_after_a_restart(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.topic(2)
    kafka.put(topic, [b"0-%d" % i for i in range(60)], 0)
    kafka.put(topic, [b"1-%d" % i for i in range(30)], 1)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    sink = Sink()
    run(spark, kafka, sink, tmp_path, **options)
    assert [len(batch) for batch in sink.batches] == [30, 30, 30]
    assert sorted(sink.values) == sorted([b"0-%d" % i for i in range(60)] + [b"1-%d" % i for i in range(30)])
    assert sink.batches[0] == [b"0-%d" % i for i in range(20)] + [b"1-%d" % i for i in range(10)]

    kafka.put(topic, [b"new"] * 5, 1)
    again = Sink()
    run(spark, kafka, again, tmp_path, **options)
    assert again.values == [b"new"] * 5


@pytest.mark.spark
def test_once_takes_all_at_once_whatever_the_limit(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """As Spark has it for this trigger; the next run goes on behind it."""
    topic, sink = kafka.topic(), Sink()
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1"}
    for rows in ([b"1", b"2", b"3"], [b"4"]):
        kafka.put(topic, rows)
        assert start(spark, kafka, sink, tmp_path, {"once": True}, **options).awaitTermination(60)
    assert sink.batches == ([[b"1", b"2", b"3"], [b"4"]] if works("once") else [[b"1"], [b"2"]])


@pytest.mark.spark
def test_a_continuous_query_sees_new_rows_and_new_topics(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    first = kafka.topic()
    kafka.put(first, [b"before"] * 3)
    sink = Sink()
    options = {"subscribePattern": f"{first}.*", "startingOffsets": "earliest", "includeHeaders": "true"}
    query = start(spark, kafka, sink, tmp_path, {"processingTime": "100 milliseconds"}, **options)
    try:
        wait_for(query, lambda: len(sink.values) == 3)
        kafka.put(first, [b"after"] * 2, headers=[("a", b"b")])
        wait_for(query, lambda: len(sink.values) == 5)
        second = kafka.topic(2, name=f"{first}-second")
        kafka.put(second, [b"second"] * 4, 1)
        wait_for(query, lambda: len(sink.values) == 9)
    finally:
        query.stop()
    assert sink.values == [b"before"] * 3 + [b"after"] * 2 + [b"second"] * 4
    assert bare(stored_offsets(tmp_path)) == {first: {"0": 5}, second: {"0": 0, "1": 4}}


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_a_topic_that_grows_while_its_tasks_run(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """The tasks' processes know the topic as it was. (A small batch would be read in another process.)"""
    topic, sink = kafka.topic(1), Sink()
    options = {"subscribe": topic, "startingOffsets": "earliest", "small__batch__max__offsets": "0"}
    kafka.put(topic, [b"a"])
    query = start(spark, kafka, sink, tmp_path, {"processingTime": "100 milliseconds"}, **options)
    try:
        wait_for(query, lambda: sink.values == [b"a"])
        kafka.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(10)
        for partition, value in enumerate([b"b", b"c", b"d"]):
            kafka.put(topic, [value], partition=partition)
        wait_for(query, lambda: sorted(sink.values) == [b"a", b"b", b"c", b"d"])
    finally:
        query.stop()


@pytest.mark.spark
def test_committed_rows_only_and_batches_that_end_in_aborted_ones(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.topic()
    producer = kafka.transactional(topic)
    wanted = []
    for number, commit in enumerate((True, False, False, True, False)):
        producer.begin_transaction()
        for i in range(20):
            producer.produce(topic, b"%d-%d" % (number, i), partition=0)
        assert producer.flush(20) == 0  # abort would drop what has not been sent
        (producer.commit_transaction if commit else producer.abort_transaction)(20)
        wanted += [b"%d-%d" % (number, i) for i in range(20)] if commit else []
    sink = Sink()
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "7"}
    sizes = run(spark, kafka, sink, tmp_path, **options)
    assert sink.values == wanted
    assert len(sizes) >= 15 and sizes.count(0) >= 6, "some batches held only aborted records and markers"


@pytest.mark.spark
def test_a_failed_batch_is_read_again(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b"%d" % i for i in range(10)])
    sink = Sink()
    sink.fail = True
    with pytest.raises(Exception, match="told to fail"):
        run(spark, kafka, sink, tmp_path, subscribe=topic, startingOffsets="earliest")
    kafka.put(topic, [b"later"])
    sink.fail = False
    run(spark, kafka, sink, tmp_path, subscribe=topic, startingOffsets="earliest")
    assert sink.batches == [[b"%d" % i for i in range(10)], [b"later"]]


@pytest.mark.spark
def test_bad_options_of_a_stream(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    for options, said in (
        ({"subscribe": "t", "endingOffsets": "latest"}, "endingOffsets is not valid in streaming"),
        ({"subscribe": "no-such-topic"}, "topic 'no-such-topic' does not exist"),
    ):
        with pytest.raises(Exception, match=said):
            run(spark, kafka, Sink(), tmp_path / said[:5], **options)


# -- the reader alone, as Spark calls it ------------------------------------------------------


@pytest.fixture
def topic(kafka: Kafka) -> Iterator[str]:
    yield kafka.topic(2)


def reader(kafka: Kafka, topic: str, **options: str) -> StreamReader:
    """Tasks read its batches, also those that are small."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    given = {"small.batch.max.offsets": "0", **given}
    return StreamReader(
        source_options({"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, **given}, stream=True)
    )


def planned(made: StreamReader, start: Any, end: Any) -> list[tuple[int, int, int]]:
    return [(r.partition, r.start, r.end) for r in made.partitions(start, end)]  # type: ignore[attr-defined]


def test_where_a_query_began_is_stored_before_anything_is_read(kafka: Kafka, topic: str) -> None:
    """Spark stores ends only: a first batch with rows, replayed, would begin at a later `latest`."""
    kafka.put(topic, [b"old"] * 3)
    first = reader(kafka, topic)
    began = first.initialOffset()
    assert bare(began) == {topic: {"0": 3, "1": 0}}
    kafka.put(topic, [b"between"] * 4)
    stored = first.latestOffset(began, NO_LIMIT)
    assert bare(stored) == bare(began), "the first batch is empty and stores the beginning"
    assert planned(first, began, stored) == []
    assert bare(first.latestOffset(stored, NO_LIMIT)) == {topic: {"0": 7, "1": 0}}

    again = reader(kafka, topic)  # after a crash in the first batch
    later = again.initialOffset()
    assert bare(later) == {topic: {"0": 7, "1": 0}}
    assert planned(again, later, stored) == []
    end = again.latestOffset(stored, NO_LIMIT)
    assert planned(again, stored, end) == [(0, 3, 7)]


def test_a_query_that_takes_over_reads_at_once(kafka: Kafka, topic: str) -> None:
    """Nobody who reads the rows waits for an empty batch. Replayed, it is read as it was planned."""
    kafka.put(topic, [b"old"] * 9)
    sink, group = f"sink-{topic}", f"group-{topic}"
    with Cluster(ClientConfig(parse_addresses(kafka.bootstrap))) as cluster:
        commit_plain(cluster, group, {(topic, 0): (3, Note(sink, "old", 7).text()), (topic, 1): (0, "")})
    options = {"startingOffsets": "committed", "kafka__group__id": group, "transactional__id": sink}
    first = reader(kafka, topic, **options)
    began = first.initialOffset()
    assert bare(began) == {topic: {"0": 3, "1": 0}}
    end = first.latestOffset(began, NO_LIMIT)
    assert planned(first, began, end) == [(0, 3, 9)]
    position = position_from_json(end)
    assert position.taken == {TakenFrom(sink, group)}
    assert position.began == {(topic, 0): 3, (topic, 1): 0}

    kafka.put(topic, [b"new"] * 2)
    with Cluster(ClientConfig(parse_addresses(kafka.bootstrap))) as cluster:
        commit_plain(cluster, group, {(topic, 0): (5, "")})
    again = reader(kafka, topic, **options)
    assert planned(again, again.initialOffset(), end) == [(0, 3, 9)]
    later = again.latestOffset(end, NO_LIMIT)
    assert planned(again, end, later) == [(0, 9, 11)]
    assert not position_from_json(later).taken
    del options["transactional__id"]
    other = reader(kafka, topic, **options)
    assert planned(other, other.initialOffset(), other.latestOffset(other.initialOffset(), NO_LIMIT)) == []


@pytest.mark.parametrize("later", [0, 4])
def test_a_first_batch_that_spark_s_kafka_source_has_planned(kafka: Kafka, topic: str, later: int) -> None:
    """It does not say where it began, and `latest` is past its rows now: they are not left out silently."""
    kafka.put(topic, [b"of the batch"] * 3)
    planned_end = {topic: {"0": 3, "1": 0}}
    kafka.put(topic, [b"between"] * later)
    moved = reader(kafka, topic)
    with pytest.raises(DataLoss, match=rf"{topic}-0 at 3, .*give its last line as startingOffsets"):
        moved.partitions(moved.initialOffset(), planned_end)
    noted = reader(kafka, topic, startingOffsets=json.dumps({topic: {"0": 0, "1": 0}}))
    assert planned(noted, noted.initialOffset(), planned_end) == [(0, 0, 3)]
    careless = reader(kafka, topic, failOnDataLoss="false")
    assert planned(careless, careless.initialOffset(), planned_end) == []


def test_a_query_that_died_in_its_first_batch_goes_on_at_once(kafka: Kafka, topic: str) -> None:
    """Its beginning is stored: no second empty batch, with which Trigger.AvailableNow would end."""
    kafka.put(topic, [b"old"] * 3)
    first = reader(kafka, topic)
    stored = first.latestOffset(first.initialOffset(), NO_LIMIT)
    again = reader(kafka, topic)
    assert bare(again.initialOffset()) == bare(stored)
    kafka.put(topic, [b"between"] * 4)
    assert planned(again, again.initialOffset(), stored) == []
    assert bare(again.latestOffset(stored, NO_LIMIT)) == {topic: {"0": 7, "1": 0}}


@pytest.mark.spark
def test_a_query_from_a_place_that_moves_reads_all_that_is_available_now(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    """Spark asks for the beginning twice; the first batch alone is to be empty, not the whole query."""
    topic = kafka.topic()
    for step in range(3):
        kafka.put(topic, [b"%d" % step] * 10, timestamp=1_700_000_000_000 + step)
    sink = Sink()
    options = {"startingTimestamp": "1700000000001", "startingOffsetsByTimestampStrategy": "latest"}
    run(spark, kafka, sink, tmp_path, subscribe=topic, maxOffsetsPerTrigger="15", **options)
    first = [[]] if works("now") else list[list[bytes]]()  # without an end for the whole run: none
    assert sink.batches == [*first, [b"1"] * 10 + [b"2"] * 5, [b"2"] * 5]


def test_the_beginning_is_looked_for_once(kafka: Kafka, topic: str) -> None:
    made = reader(kafka, topic)
    began = made.initialOffset()
    kafka.put(topic, [b"x"] * 3)
    stored = made.latestOffset(began, NO_LIMIT)
    assert bare(stored) == bare(began) and made.initialOffset() == began
    assert bare(made.latestOffset(stored, NO_LIMIT)) == {topic: {"0": 3, "1": 0}}


def test_a_query_from_a_fixed_place_reads_in_its_first_batch(kafka: Kafka, topic: str) -> None:
    kafka.put(topic, [b"old"] * 3)
    for starting in ("earliest", f'{{"{topic}":{{"0":1,"1":-2}}}}'):
        made = reader(kafka, topic, startingOffsets=starting)
        end = made.latestOffset(made.initialOffset(), NO_LIMIT)
        assert bare(end) == {topic: {"0": 3, "1": 0}}


def test_the_limit_is_shared_and_available_now_is_not_passed(kafka: Kafka, topic: str) -> None:
    kafka.put(topic, [b"x"] * 90, 0)
    kafka.put(topic, [b"x"] * 10, 1)
    made = reader(kafka, topic, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    assert made.getDefaultReadLimit() == ReadMaxRows(20)
    began = made.initialOffset()
    made.prepareForTriggerAvailableNow()
    kafka.put(topic, [b"late"] * 10, 0)
    assert bare(made.latestOffset(began, ReadMaxRows(20))) == {topic: {"0": 18, "1": 2}}
    assert bare(made.latestOffset(began, NO_LIMIT)) == {topic: {"0": 90, "1": 10}}
    assert made.reportLatestOffset() == {topic: {"0": 90, "1": 10}}
    assert reader(kafka, topic).getDefaultReadLimit() == NO_LIMIT


def test_a_query_that_began_after_its_target_was_fixed_has_nothing_to_read(kafka: Kafka, topic: str) -> None:
    made = reader(kafka, topic)
    made.prepareForTriggerAvailableNow()
    kafka.put(topic, [b"x"] * 3, 0)
    began = made.initialOffset()
    assert bare(began) == {topic: {"0": 3, "1": 0}}
    end = made.latestOffset(began, NO_LIMIT)
    assert bare(end) == bare(began) and made.latestOffset(end, NO_LIMIT) == end
    assert planned(made, began, end) == []


def test_an_open_transaction_holds_back_the_end_of_a_batch(kafka: Kafka, topic: str) -> None:
    kafka.put(topic, [b"before"] * 3)
    producer = kafka.transactional(topic)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(20) == 0
    kafka.put(topic, [b"after"] * 2)
    plain = reader(kafka, topic, kafka__isolation__level="read_uncommitted")
    made = reader(kafka, topic)
    assert bare(plain.latestOffset({topic: {"0": 0, "1": 0}}, NO_LIMIT)) == {topic: {"0": 6, "1": 0}}
    assert bare(made.latestOffset({topic: {"0": 0, "1": 0}}, NO_LIMIT)) == {topic: {"0": 3, "1": 0}}
    producer.commit_transaction(20)
    began = time.monotonic()
    while bare(made.latestOffset({topic: {"0": 0, "1": 0}}, NO_LIMIT)) != {topic: {"0": 7, "1": 0}}:
        assert time.monotonic() - began < 60, "the marker follows the answer"


def test_new_partitions_are_read_from_their_beginning(kafka: Kafka, topic: str) -> None:
    kafka.put(topic, [b"x"] * 5, 1)
    made = reader(kafka, topic)
    assert planned(made, {topic: {"0": 0}}, {topic: {"0": 0, "1": 5}}) == [(1, 0, 5)]
    assert bare(made.latestOffset({topic: {"0": 0}}, ReadMaxRows(2))) == {topic: {"0": 0, "1": 2}}


def test_what_a_new_partition_has_lost_already_is_told(kafka: Kafka, topic: str) -> None:
    kafka.put(topic, [b"x"] * 5, 1)
    kafka.admin.delete_records([TopicPartition(topic, 1, 2)])[TopicPartition(topic, 1)].result(30)
    begin, end = {topic: {"0": 0}}, {topic: {"0": 0, "1": 5}}
    with pytest.raises(DataLoss, match=f"new partitions do not begin at 0: {topic}-1 begins at 2"):
        reader(kafka, topic).partitions(begin, end)
    assert planned(reader(kafka, topic, failOnDataLoss="false"), begin, end) == [(1, 2, 5)]


def test_where_to_begin_names_the_partitions_that_are_read(kafka: Kafka, topic: str) -> None:
    for given, says in (("0", "leaves out .*-1: name every"), ("012", "names .*-2, which is not among")):
        starting = json.dumps({topic: dict.fromkeys(given, 0)})
        with pytest.raises(OptionError, match=says):
            reader(kafka, topic, startingOffsets=starting).initialOffset()


def test_where_to_begin_lies_in_the_log(kafka: Kafka, topic: str) -> None:
    """Rows between there and the log's end would be left out when they come."""
    kafka.put(topic, [b"x"] * 5, 0)
    beyond = {"startingOffsets": json.dumps({topic: {"0": 9, "1": 0}})}
    with pytest.raises(DataLoss, match=rf"startingOffsets lies outside .*{topic}-0 has 0 to 5, not 9"):
        reader(kafka, topic, **beyond).initialOffset()
    careless = reader(kafka, topic, failOnDataLoss="false", **beyond)
    assert bare(careless.initialOffset()) == {topic: {"0": 5, "1": 0}}


def test_an_end_that_lies_behind_is_asked_for_again(
    kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader may not know yet how far the log goes."""
    made = reader(kafka, topic, fetchOffset__retryIntervalMs="1")
    ends = [{(topic, 0): 3, (topic, 1): at} for at in (2, 4, 5)]
    monkeypatch.setattr(made._log, "ends", lambda *_: ends.pop(0))
    assert bare(made.latestOffset({topic: {"0": 0, "1": 5}}, NO_LIMIT)) == {topic: {"0": 3, "1": 5}}
    ends = [{(topic, 0): 3, (topic, 1): 4}]
    once = reader(kafka, topic, fetchOffset__numRetries="1")
    monkeypatch.setattr(once._log, "ends", lambda *_: ends.pop(0))
    with pytest.raises(DataLoss, match="ends at 4, before 5"):
        once.latestOffset({topic: {"0": 0, "1": 5}}, NO_LIMIT)


def test_going_back_and_going_away_is_data_loss(kafka: Kafka, topic: str) -> None:
    kafka.put(topic, [b"x"] * 5, 1)
    made = reader(kafka, topic, fetchOffset__retryIntervalMs="1")
    with pytest.raises(DataLoss, match=rf"{topic}-1 ends at 5, before 9.*failOnDataLoss"):
        made.latestOffset({topic: {"0": 0, "1": 9}}, NO_LIMIT)
    with pytest.raises(DataLoss, match=r"gone-0 was read before, and subscribe.* no longer names it"):
        made.latestOffset({topic: {"0": 0, "1": 0}, "gone": {"0": 1}}, NO_LIMIT)
    with pytest.raises(DataLoss, match="ends at 5, before 9"):
        made.partitions({topic: {"0": 0, "1": 9}}, {topic: {"0": 0, "1": 5}})
    careless = reader(kafka, topic, failOnDataLoss="false", fetchOffset__retryIntervalMs="1")
    end = careless.latestOffset({topic: {"0": 0, "1": 9}, "gone": {"0": 1}}, NO_LIMIT)
    assert bare(end) == {topic: {"0": 0, "1": 5}}
    assert planned(careless, {topic: {"0": 0, "1": 9}}, end) == []


def test_a_topic_that_leaves_in_the_middle_of_a_batch_has_to_be_named(kafka: Kafka, topic: str) -> None:
    """Spark notes the batch as read as far as it was planned: its rows would be left out. What is gone from
    the cluster, or was made anew, nobody can read."""
    other = kafka.topic()
    for name in (topic, other):
        kafka.put(name, [b"x"] * 5, 0)
    both = reader(kafka, f"{topic},{other}", startingOffsets="earliest")
    start = both.initialOffset()
    end = both.latestOffset(start, NO_LIMIT)
    for fails in ("true", "false"):
        left = reader(kafka, topic, failOnDataLoss=fails)
        with pytest.raises(DataLoss, match=rf"^{other}-0: an earlier run has planned a batch"):
            left.partitions(start, end)
    assert len(reader(kafka, topic, failOnDataLoss="false").partitions(end, end)) == 0, "it has no rows of it"
    assert len(planned(reader(kafka, f"{topic},{other}"), start, end)) == 2
    kafka.make_anew(other)
    careless = reader(kafka, topic, failOnDataLoss="false")
    assert len(planned(careless, start, end)) == 1


def test_records_gone_while_reading(kafka: Kafka, topic: str) -> None:
    """A range beyond the log: an error, or a warning and what is left."""
    kafka.put(topic, [b"x"] * 5, 0)
    made, careless = reader(kafka, topic), reader(kafka, topic, failOnDataLoss="false")
    task = made.partitions({topic: {"0": 0}}, {topic: {"0": 5}})[0]
    assert sum(batch.num_rows for batch in made.read(task)) == 5
    task.start, task.end = 7, 9  # type: ignore[attr-defined]
    with pytest.raises(DataLoss, match=rf"offset 7 of {topic}-0 is not in the log"):
        list(made.read(task))
    assert list(careless.read(task)) == []


@pytest.mark.spark
@pytest.mark.parametrize("small", ["0", "1000"], ids=["by a task", "by the stream's process"])
def test_a_row_whose_time_spark_cannot_hold_is_named_and_passed_as_the_error_says(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, small: str
) -> None:
    """A query of eoslog's sink by eoslog checkpoint skip-to, another one by deleting the record."""
    topic, target = kafka.topic(message_timestamp_after_max_ms=str(2**63 - 1)), kafka.topic()
    options = {"subscribe": topic, "startingOffsets": "earliest", "small__batch__max__offsets": small}
    kafka.put(topic, [b"before"] * 2)
    mine, other, sink = tmp_path / "mine", tmp_path / "other", Sink()
    run(spark, kafka, sink, other, **options)
    copy(spark, kafka, mine, target, **options)
    for value, at in ((b"in front", 1), (b"wrong", 2**60), (b"behind", 2)):
        kafka.put(topic, [value], timestamp=at)
    says = rf"{topic}-0: the record at offset 3 has the timestamp {2**60}, .*eoslog checkpoint skip-to"
    with pytest.raises(StreamingQueryException, match=says):
        run(spark, kafka, sink, other, **options)
    with pytest.raises(StreamingQueryException, match=says):
        copy(spark, kafka, mine, target, **options)

    command = ["checkpoint", "skip-to", str(mine), "--bootstrap-server", kafka.bootstrap, "--fence"]
    to = json.dumps({topic: {"0": 4}})
    skipped = CliRunner().invoke(main, [*command, "--to", to, "--accept-loss", "2"])
    assert skipped.exit_code == 0, skipped.output
    copy(spark, kafka, mine, target, **options)
    assert [row[3] for row in kafka.rows(target)] == [b"before"] * 2 + [b"behind"]

    kafka.admin.delete_records([TopicPartition(topic, 0, 4)])[TopicPartition(topic, 0)].result(30)
    run(spark, kafka, sink, other, failOnDataLoss="false", **options)
    assert sink.values == [b"before"] * 2 + [b"behind"]


def copy(spark: SparkSession, kafka: Kafka, checkpoint: Path, target: str, **options: str) -> None:
    """Write what is there now with eoslog, and stop."""
    broker = {"kafka.bootstrap.servers": kafka.bootstrap}
    given = {name.replace("__", "."): value for name, value in options.items()}
    read = spark.readStream.format("eoslog").options(**broker, **given).load()
    written = read.select("value").writeStream.format("eoslog").options(**broker, topic=target)
    stored = written.option("checkpointLocation", str(checkpoint))
    assert stored.trigger(availableNow=True).start().awaitTermination(60)


@pytest.mark.spark
def test_a_batch_skips_a_row_whose_time_spark_cannot_hold(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic(message_timestamp_after_max_ms=str(2**63 - 1))
    for value, at in ((b"in front", 1), (b"wrong", 2**60), (b"behind", 2)):
        kafka.put(topic, [value], timestamp=at)
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic}
    with pytest.raises(Exception, match=r"the record at offset 1 has .*give startingOffsets"):
        spark.read.format("eoslog").options(**given).load().collect()
    after = {"startingOffsets": json.dumps({topic: {"0": 2}})}
    rows = spark.read.format("eoslog").options(**given, **after).load().collect()
    assert [bytes(row.value) for row in rows] == [b"behind"]
