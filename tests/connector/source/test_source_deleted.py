"""Topics that are deleted, made anew, or leave a query's options and come again: it goes on, or stops."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from eoslog.client.admin import groups
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.decide import SourceOffsets, commit
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.offsets import from_json, ids_from_json, position_from_json, to_json
from eoslog.connector.offsets.plan import Range, losses
from eoslog.connector.options.source_options import source_options
from eoslog.connector.run.runner import Runner, commit_known
from eoslog.connector.source.reader import StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable
from eoslog.errors import DataLoss, UnknownTopic
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.connector.brokers import Kafka, bare, skip_unless_served
from tests.connector.sink.test_round_trips import prepare
from tests.connector.source.test_source_restored import values
from tests.connector.source.test_source_stream import Sink as StreamSink
from tests.connector.source.test_source_stream import planned, reader, run, start, stored_offsets, wait_for

# -- deleted and made anew -------------------------------------------------------------------------
# Topics that are deleted, come, go, and come again under the same name: noticed by their ids, with the way
# out.


# -- deleted while a batch is planned ------------------------------------------------------------
# A source's topic is deleted while a batch is planned: what the next starts say, and the way out.

NO_LIMIT = ReadAllAvailable()
KINDS = ("subscribe", "subscribePattern", "assign")


def options_of(kind: str, kept: str, deleted: str) -> dict[str, str]:
    """Options that name both topics."""
    named = {
        "subscribe": f"{kept},{deleted}",
        "subscribePattern": f"{kept}|{deleted}",
        "assign": f'{{"{kept}":[0],"{deleted}":[0]}}',
    }
    return {kind: named[kind], "startingOffsets": "earliest", "fetchOffset__retryIntervalMs": "1"}


def of(kafka: Kafka, **options: str) -> Any:
    """A reader of several topics."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    return StreamReader(source_options({"kafka.bootstrap.servers": kafka.bootstrap, **given}, stream=True))


def delete(kafka: Kafka, topic: str) -> None:
    kafka.admin.delete_topics([topic])[topic].result(60)


def planned_on_two(kafka: Kafka, kind: str) -> tuple[dict[str, str], str, str, Any, Any, Any]:
    """Two topics; a batch is done, another one planned, and the second topic is deleted."""
    kept, deleted = kafka.topic(), kafka.topic()
    options = options_of(kind, kept, deleted)
    for topic in (kept, deleted):
        kafka.put(topic, [b"one"] * 3)
    made = of(kafka, **options)
    began = made.initialOffset()
    done = made.latestOffset(began, NO_LIMIT)
    for topic in (kept, deleted):
        kafka.put(topic, [b"two"] * 2)
    return options, kept, deleted, began, done, made.latestOffset(done, NO_LIMIT)


@pytest.mark.parametrize("kind", KINDS)
def test_with_the_option_a_planned_batch_gives_what_is_left(
    kafka: Kafka, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    options, kept, deleted, _, done, end = planned_on_two(kafka, kind)
    delete(kafka, deleted)
    for _ in range(2):
        with pytest.raises(DataLoss, match=f"{deleted}-0 does not exist any more.*failOnDataLoss"):
            of(kafka, **options).partitions(done, end)
    careless = of(kafka, failOnDataLoss="false", **options)
    with caplog.at_level(logging.WARNING):
        assert values(careless, done, end) == [b"two"] * 2
    assert f"{deleted}-0 does not exist any more" in caplog.text
    then = careless.latestOffset(end, NO_LIMIT)
    assert bare(then) == {kept: {"0": 5}}
    assert values(careless, end, then) == []
    kafka.put(kept, [b"three"] * 2)
    for one in (careless, of(kafka, failOnDataLoss="false", **options)):
        last = one.latestOffset(then, NO_LIMIT)
        assert bare(last) == {kept: {"0": 7}}
        assert values(one, then, last) == [b"three"] * 2
    kafka.topic(name=deleted)
    kafka.put(deleted, [b"anew"] * 4)
    again = careless.latestOffset(last, NO_LIMIT)
    assert values(careless, last, again) == [b"anew"] * 4, "it came again: read from its beginning"


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_batch_of_a_query(kafka: Kafka, kind: str) -> None:
    """Its beginning is not in the checkpoint, and is asked for again."""
    options, kept, deleted, _, done, _ = planned_on_two(kafka, kind)
    delete(kafka, deleted)
    made = of(kafka, **options)
    with pytest.raises(DataLoss, match=f"{deleted}-0 does not exist any more.*failOnDataLoss"):
        made.partitions(made.initialOffset(), done)
    careless = of(kafka, failOnDataLoss="false", **options)
    assert values(careless, careless.initialOffset(), done) == [b"one"] * 3
    assert bare(careless.latestOffset(done, NO_LIMIT)) == {kept: {"0": 5}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_made_anew(kafka: Kafka, kind: str) -> None:
    options, _, deleted, _, done, end = planned_on_two(kafka, kind)
    kafka.make_anew(deleted)
    kafka.put(deleted, [b"anew"] * 9)
    with pytest.raises(DataLoss, match=f"topic {deleted} was deleted and created again.*failOnDataLoss"):
        of(kafka, **options).partitions(done, end)
    careless = of(kafka, failOnDataLoss="false", **options)
    assert values(careless, done, end) == [b"two"] * 2
    then = careless.latestOffset(end, NO_LIMIT)
    assert values(careless, end, then) == [b"anew"] * 9


def test_the_only_topic_is_deleted_between_batches(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b"one"] * 3)
    options = {"subscribe": topic, "startingOffsets": "earliest", "fetchOffset__retryIntervalMs": "1"}
    made = of(kafka, **options)
    done = made.latestOffset(made.initialOffset(), NO_LIMIT)
    delete(kafka, topic)
    with pytest.raises(DataLoss, match=f"{topic}-0 does not exist any more.*failOnDataLoss"):
        of(kafka, **options).latestOffset(done, NO_LIMIT)
    careless = of(kafka, failOnDataLoss="false", **options)
    nothing = careless.latestOffset(done, NO_LIMIT)
    assert bare(nothing) == {}
    for one in (careless, of(kafka, failOnDataLoss="false", **options)):
        assert one.latestOffset(nothing, NO_LIMIT) == nothing


def test_a_wrong_name_is_an_error_though_data_may_be_lost(kafka: Kafka) -> None:
    for starting in ("earliest", "latest"):
        made = reader(kafka, f"{kafka.topic()}-no", failOnDataLoss="false", startingOffsets=starting)
        began = made.initialOffset()
        for _ in range(2):
            with pytest.raises(UnknownTopic, match="check the name"):
                made.latestOffset(began, NO_LIMIT)


def test_a_topic_deleted_while_a_task_reads_it(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b"one"] * 3)
    made = reader(kafka, topic, startingOffsets="earliest")
    began = made.initialOffset()
    (task,) = made.partitions(began, made.latestOffset(began, NO_LIMIT))
    delete(kafka, topic)
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 0 to 2 cannot be read.*failOnDataLoss"):
        list(made.read(task))
    assert list(reader(kafka, topic, failOnDataLoss="false").read(task)) == []


@pytest.mark.parametrize("tv", [2, 1], ids=["TV2", "TV1"])
def test_the_group_s_commit_leaves_out_what_no_cluster_takes(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tv: int
) -> None:
    """With the decision, which is all or nothing as ever; the other offsets keep their epochs."""
    skip_unless_served(kafka.bootstrap, tv)
    monkeypatch.setattr(Cluster, "transaction_version", lambda self: tv)
    kept, deleted, target = kafka.topic(), kafka.topic(), kafka.topic()
    delete(kafka, deleted)
    sink, group = Sink(f"left-out-{target}"), f"g-{target}"
    with Cluster(ClientConfig(parse_addresses(kafka.bootstrap))) as cluster:
        runner = Runner(cluster, 60_000)
        begun, _ = runner.run(begin(sink, Batch("q", 0, "0")))
        reports = [prepare(cluster, begun, target, 0)]
        ends = {(kept, 0): (0, "note"), (deleted, 0): (7, "note"), (kept, 5): (3, "note")}
        runner.run(commit(sink, reports, 0, SourceOffsets(group, ends, {(kept, 0): 4, (deleted, 0): 4})))
        found = groups.fetch_with_epochs(cluster, group, [(kept, 0), (deleted, 0)])
        assert found == {(kept, 0): (0, "note", 4)}
        plain = f"plain-{target}"
        commit_known(cluster, plain, ends, lambda left: groups.commit_plain(cluster, plain, left))
        assert groups.fetch_committed(cluster, plain, list(ends)) == {(kept, 0): (0, "note")}
    assert len(kafka.rows(target)) == 1
    assert (
        f"the source offsets of {', '.join(sorted([f'{kept}-5', f'{deleted}-0']))} are left out"
        in caplog.text
    )


def test_a_refusal_of_another_kind_is_one(kafka: Kafka) -> None:
    kept = kafka.topic()
    error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "news are late")

    def refuse(offsets: Any) -> None:
        raise error

    with (
        Cluster(ClientConfig(parse_addresses(kafka.bootstrap))) as cluster,
        pytest.raises(KafkaError) as caught,
    ):
        commit_known(cluster, "g", {(kept, 0): (1, "")}, refuse)
    assert caught.value is error, "the cluster has it: nothing is left out"


@pytest.mark.spark
def test_a_query_with_a_group_finds_its_way_out(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """Its batch is planned, and the sink fails; then the topic is gone."""
    kept, deleted, target = kafka.topic(), kafka.topic(), kafka.topic()
    for topic in (kept, deleted):
        kafka.put(topic, [b"one"] * 3)
    common = {"kafka.bootstrap.servers": kafka.bootstrap, "checkpointLocation": str(tmp_path / "c")}

    def run(fail_on_data_loss: str = "true", **more: str) -> None:
        frame = spark.readStream.format("eoslog").options(
            **common,
            subscribe=f"{kept},{deleted}",
            startingOffsets="earliest",
            failOnDataLoss=fail_on_data_loss,
        )
        sink = {"topic": target, "kafka.group.id": f"g-{target}", **more}
        writer = frame.load().select("value").writeStream.format("eoslog").options(**common, **sink)
        assert writer.trigger(availableNow=True).start().awaitTermination(120)

    run()
    for topic in (kept, deleted):
        kafka.put(topic, [b"two"] * 2)
    with pytest.raises(Exception, match=f"{target} is no name"):
        run(topic=f"{target} is no name")
    delete(kafka, deleted)
    with pytest.raises(Exception, match=f"{deleted}-0 does not exist any more.*failOnDataLoss"):
        run()
    run("false")
    kafka.put(kept, [b"three"])
    run("false")
    assert sorted(row[3] for row in kafka.rows(target)) == sorted([b"one"] * 6 + [b"two"] * 2 + [b"three"])


# -- made anew -----------------------------------------------------------------------------------
# Topics that come, go, and come again under the same name: noticed by their ids, over restarts, too.


def test_ids_are_beside_the_offsets_and_no_part_of_them() -> None:
    stored = json.loads(json.dumps(to_json({("t", 0): 5, ("u", 1): 7}, {"t": "A-b_", "gone": "x"})))
    assert stored == {"t": {"0": 5}, "u": {"1": 7}, "topic-id:t:A-b_": {}}
    assert from_json(stored) == {("t", 0): 5, ("u", 1): 7}
    assert ids_from_json(stored) == {"t": "A-b_"} and ids_from_json({"t": {"0": 5}}) == {}


def test_a_topic_made_anew_is_a_loss_wherever_it_ends() -> None:
    start, end = {("t", 0): 5, ("t", 1): 9}, {("t", 0): 50}
    found = losses(start, end, ({"t": "old"}, {"t": "new"}))
    assert found and str(found).startswith("topic t was deleted and created again") and "old" in str(found)
    assert (found.gone, found.back) == ((), {})
    assert not losses({("t", 0): 5}, end, ({}, {"t": "new"})), "offsets that Spark's own source stored"
    assert not losses({("t", 0): 5}, end, ({"t": "old"}, {})), "a broker that tells no ids"


def test_a_reader_stops_though_the_new_topic_is_longer(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b"old"] * 3)
    made = reader(kafka, topic, startingOffsets="earliest")
    stood = made.latestOffset(made.initialOffset(), NO_LIMIT)
    kafka.make_anew(topic)
    kafka.put(topic, [b"new"] * 8)
    with pytest.raises(DataLoss, match=f"topic {topic} was deleted and created again.*failOnDataLoss"):
        made.latestOffset(stood, NO_LIMIT)
    with pytest.raises(DataLoss, match="created again"):
        reader(kafka, topic).latestOffset(stood, NO_LIMIT)
    careless = reader(kafka, topic, failOnDataLoss="false")
    end = careless.latestOffset(stood, NO_LIMIT)
    assert bare(end) == {topic: {"0": 8}}
    assert planned(careless, stood, end) == [(0, 0, 8)], "the new topic is read from its beginning"
    with pytest.raises(DataLoss, match="created again"):
        made.partitions(stood, end)


def test_a_line_of_a_checkpoint_whose_topic_was_made_anew(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b"old"] * 3)
    line = json.dumps(reader(kafka, topic, startingOffsets="latest").initialOffset())
    kafka.make_anew(topic)
    kafka.put(topic, [b"new"] * 8)
    with pytest.raises(DataLoss, match=f"startingOffsets: topic {topic} was deleted and created again"):
        reader(kafka, topic, startingOffsets=line).initialOffset()
    careless = reader(kafka, topic, startingOffsets=line, failOnDataLoss="false")
    assert bare(careless.initialOffset()) == {topic: {"0": 0}}


def test_a_planned_range_gives_no_row_of_another_topic(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b"old"] * 3)
    made = reader(kafka, topic, startingOffsets="earliest")
    began = made.initialOffset()
    (task,) = made.partitions(began, made.latestOffset(began, NO_LIMIT))
    assert isinstance(task, Range) and task.topic_id
    kafka.make_anew(topic)
    kafka.put(topic, [b"new"] * 3)
    with pytest.raises(DataLoss, match="created again"):
        list(made.read(task))
    assert list(reader(kafka, topic, failOnDataLoss="false").read(task)) == []


@pytest.mark.spark
def test_a_restarted_query_stops(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b"old"] * 3)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    sink = StreamSink()
    run(spark, kafka, sink, tmp_path, **options)
    assert bare(stored_offsets(tmp_path)) == {topic: {"0": 3}}
    kafka.make_anew(topic)
    kafka.put(topic, [b"new"] * 9)
    with pytest.raises(Exception, match=f"topic {topic} was deleted and created again"):
        run(spark, kafka, sink, tmp_path, **options)
    assert sink.values == [b"old"] * 3
    run(spark, kafka, sink, tmp_path, failOnDataLoss="false", **options)
    assert sink.values == [b"old"] * 3 + [b"new"] * 9


@pytest.mark.spark
def test_a_query_goes_on_from_offsets_without_ids(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """As Spark's own source stored them."""
    topic = kafka.topic()
    kafka.put(topic, [b"one"] * 3)
    sink = StreamSink()
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    run(spark, kafka, sink, tmp_path, **options)
    for stored in (tmp_path / "offsets").glob("[0-9]*"):
        lines = stored.read_text().splitlines()
        stored.write_text("\n".join([*lines[:-1], json.dumps(bare(json.loads(lines[-1])))]))
    for crc in (tmp_path / "offsets").glob(".*.crc"):
        crc.unlink()
    kafka.put(topic, [b"two"] * 2)
    run(spark, kafka, sink, tmp_path, **options)
    assert sink.values == [b"one"] * 3 + [b"two"] * 2
    assert len(ids_from_json(stored_offsets(tmp_path))) == 1


@pytest.mark.spark
def test_a_pattern_may_match_nothing_yet(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    sink = StreamSink()
    prefix = kafka.topic()
    options = {"subscribePattern": f"{prefix}-later.*"}
    query = start(spark, kafka, sink, tmp_path, {"processingTime": "100 milliseconds"}, **options)
    try:
        wait_for(query, lambda: query.lastProgress is not None or bool(query.recentProgress))
        kafka.put(kafka.topic(name=f"{prefix}-later-1"), [b"x"] * 4)
        wait_for(query, lambda: len(sink.values) == 4)
    finally:
        query.stop()


# -- left out of the options -----------------------------------------------------------------------
# A topic leaves the query's options and is named again later: the query goes on where it was, or stops.


class Story:
    """Two topics are read; then the second one is not named any more."""

    def __init__(self, kafka: Kafka, kind: str) -> None:
        self.kafka, self.kept, self.left = kafka, kafka.topic(), kafka.topic()
        self.both = options_of(kind, self.kept, self.left)
        self.one = self.both | {kind: {"assign": f'{{"{self.kept}":[0]}}'}.get(kind, self.kept)}
        self.put(5)
        made = of(kafka, **self.both)
        self.end: Any = made.latestOffset(made.initialOffset(), NO_LIMIT)

    def put(self, count: int, word: str = "row") -> None:
        for topic in (self.kept, self.left):
            self.kafka.put(topic, [word.encode()] * count)

    def go_on(self, options: dict[str, str], **more: str) -> list[bytes]:
        """A batch of a new run, as Spark stores its end; its rows."""
        made, start = of(self.kafka, **options, **more), self.end
        self.end = json.loads(json.dumps(made.latestOffset(start, NO_LIMIT)))
        return values(of(self.kafka, **options, **more), start, self.end)

    def leave(self) -> None:
        with pytest.raises(DataLoss, match=f"{self.left}-0 was read before, and subscribe"):
            self.go_on(self.one)
        self.go_on(self.one, failOnDataLoss="false")


@pytest.fixture(params=KINDS)
def story(kafka: Kafka, request: pytest.FixtureRequest) -> Story:
    return Story(kafka, request.param)


def test_it_goes_on_where_it_was(story: Story) -> None:
    story.leave()
    for _ in range(2):  # its position stays over batches and runs
        story.kafka.put(story.kept, [b"alone"])
        assert story.go_on(story.one) == [b"alone"]
    story.put(2, "back")
    assert sorted(story.go_on(story.both)) == [b"back"] * 4
    assert bare(story.end)[story.left] == {"0": 7} and not position_from_json(story.end).left.offsets


def test_a_planned_batch_with_it_runs_again_alike(story: Story) -> None:
    story.leave()
    start = story.end
    story.put(2, "back")
    assert sorted(story.go_on(story.both)) == [b"back"] * 4
    assert sorted(values(of(story.kafka, **story.both), start, story.end)) == [b"back"] * 4


def test_available_now(story: Story) -> None:
    story.leave()
    story.put(2, "back")
    for options, rows in ((story.one, [b"back"] * 2), (story.both, [b"back"] * 2)):
        made = of(story.kafka, **options)
        made.prepareForTriggerAvailableNow()
        start, story.end = story.end, made.latestOffset(story.end, NO_LIMIT)
        assert values(of(story.kafka, **options), start, story.end) == rows


def made_anew(story: Story) -> str:
    story.kafka.make_anew(story.left)
    story.kafka.put(story.left, [b"anew"] * 9)
    return f"topic {story.left} was deleted and created again"


def emptied(story: Story) -> str:
    story.put(3, "unread")
    for future in story.kafka.admin.delete_records([TopicPartition(story.left, 0, 7)]).values():
        future.result(60)
    return f"{story.left}-0 begins at 7 and ends at 8, and the query is at 5"


@pytest.mark.parametrize("happens", [made_anew, emptied])
def test_it_stops_if_its_place_is_not_there(story: Story, happens: Callable[[Story], str]) -> None:
    story.leave()
    said = happens(story)
    with pytest.raises(DataLoss, match=said):
        story.go_on(story.both)
    rows = story.go_on(story.both, failOnDataLoss="false")
    assert rows.count(b"anew") in (0, 9) and rows.count(b"row") == 0
    assert story.go_on(story.both) == [], "the way out was needed once"


def test_a_topic_that_was_deleted_is_another_one_when_it_comes_back(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    """That it was gone was said when it left."""
    story.kafka.admin.delete_topics([story.left])[story.left].result(60)
    with pytest.raises(DataLoss, match=f"{story.left}-0 does not exist any more"):
        story.go_on(story.both)
    story.go_on(story.both, failOnDataLoss="false")
    story.kafka.topic(name=story.left)
    story.kafka.put(story.left, [b"anew"] * 9)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert story.go_on(story.both) == [b"anew"] * 9
    assert not caplog.text


def test_a_topic_that_could_not_be_seen_for_a_while_goes_on(story: Story) -> None:
    """Its id is the one that it had, as when a right to see it was taken away and given back."""
    position = position_from_json(story.end)
    place = (story.left, 0)
    gone = position.leaving([place], gone={story.left})
    rest = {tp: at for tp, at in position.offsets.items() if tp != place}
    story.end = to_json(*position._replace(offsets=rest, left=gone))
    story.put(2, "back")
    assert sorted(story.go_on(story.both)) == [b"back"] * 4


def test_a_line_of_the_checkpoint_as_startingoffsets(kafka: Kafka) -> None:
    """subscribe and assign refuse a line that does not name their topics."""
    story = Story(kafka, "subscribePattern")
    story.leave()
    story.put(2, "back")
    given = {**story.both, "startingOffsets": json.dumps(story.end)}
    made = of(story.kafka, **given)
    start = made.latestOffset(made.initialOffset(), NO_LIMIT)  # the first batch is empty
    assert sorted(values(made, start, made.latestOffset(start, NO_LIMIT))) == [b"back"] * 4
    alone = of(story.kafka, **{**story.one, "startingOffsets": json.dumps(story.end)})
    assert position_from_json(alone.initialOffset()).left.offsets == {(story.left, 0): 5}
