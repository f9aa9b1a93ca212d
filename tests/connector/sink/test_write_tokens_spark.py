"""`foreachBatch` in a real Spark, with `write.token` and without: whose rows a token stands for, what a write
leaves behind in the cluster, and that a function which is called again writes once."""

import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from pyspark import inheritable_thread_target
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import eoslog
from eoslog.client.admin import transaction_states
from eoslog.client.wire.cluster import shared_cluster
from eoslog.connector.options.sink_options import sink_options
from tests.connector.brokers import Kafka
from tests.connector.spark_application import Application
from tests.spark_session import all_available

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


class Query:
    """A stream whose batches are written by a function, from a topic of two partitions."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.source, self.name = kafka.topic(2), f"q{uuid.uuid4().hex[:8]}"

    def put(self, first: int, last: int) -> list[bytes]:
        rows = [b"%06d" % number for number in range(first, last)]
        for partition in range(2):
            self.kafka.put(self.source, rows[partition::2], partition=partition)
        return rows

    def write(self, rows: DataFrame, topic: str, token: str | None, **more: str) -> None:
        writer = rows.write.format("eoslog").mode("append").option("topic", topic)
        writer = writer.options(**{name.replace("_", "."): value for name, value in more.items()})
        writer = writer.option("kafka.bootstrap.servers", self.kafka.bootstrap)
        (writer if token is None else writer.option("write.token", token)).save()

    def run(
        self,
        write: Callable[[DataFrame, int], None],
        *,
        checkpoint: str = "checkpoint",
        start: str = "earliest",
        limit: int = 1000,
    ) -> None:
        frame = self.spark.readStream.format("eoslog").option("subscribe", self.source)
        frame = frame.option("kafka.bootstrap.servers", self.kafka.bootstrap).option("startingOffsets", start)
        rows = frame.option("maxOffsetsPerTrigger", limit).load().select("key", "value")
        stream = rows.writeStream.foreachBatch(write)
        query = all_available(stream.option("checkpointLocation", str(self.folder / checkpoint)))
        assert query.awaitTermination(180)

    def stops(self, write: Callable[[DataFrame, int], None], error: str) -> str:
        """Run it until it stops with the error; what it says."""
        with pytest.raises(PySparkException) as raised:
            self.run(write)
        said = str(raised.value)
        assert error in said, said
        return said

    def topic_id(self, topic: str) -> str | None:
        given = {"kafka.bootstrap.servers": self.kafka.bootstrap, "topic": topic}
        return shared_cluster(sink_options(given, stream=False).client).describe(topic).topic_id

    def values(self, topic: str) -> list[bytes]:
        return sorted(row[3] for row in self.kafka.rows(topic, 1))


@pytest.fixture
def query(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Query:
    return Query(spark, kafka, tmp_path)


def test_one_token_for_two_topics_is_two_writes(query: Query, kafka: Kafka) -> None:
    rows, first, second = query.put(0, 7), kafka.topic(1), kafka.topic(1)

    def write(batch: DataFrame, number: int) -> None:
        for topic in (first, second):
            query.write(batch, topic, f"{query.name}-{number}")

    query.run(write)
    assert query.values(first) == rows
    assert query.values(second) == rows


def test_other_rows_under_a_token_that_was_written_stop_the_query(query: Query, kafka: Kafka) -> None:
    """The checkpoint is created again, so batches count from 0 again, and their tokens come again."""
    target, old = kafka.topic(1), query.put(0, 10)

    def write(batch: DataFrame, number: int) -> None:
        query.write(batch, target, f"{query.name}-{number}")

    for checkpoint in ("checkpoint", "the same rows"):
        query.run(write, checkpoint=checkpoint)
        assert query.values(target) == old
    query.put(10, 21)
    start = f'{{"{query.source}": {{"0": 5, "1": 5}}}}'
    with pytest.raises(PySparkException) as raised:
        query.run(write, checkpoint="anew", start=start)
    said = str(raised.value)
    assert "TokenReused" in said and f"{query.name}-0" in said, said
    assert "10 rows" in said and "11 rows" in said, said
    assert query.values(target) == old


def test_two_frames_under_one_token_for_one_topic_stop_the_query(query: Query, kafka: Kafka) -> None:
    query.put(0, 6)
    target = kafka.topic(1)

    def write(batch: DataFrame, number: int) -> None:
        query.write(batch.filter("value < '000003'"), target, f"{query.name}-{number}")
        query.write(batch.filter("value >= '000003'"), target, f"{query.name}-{number}")

    with pytest.raises(PySparkException, match="TokenReused"):
        query.run(write)
    assert query.values(target) == [b"000000", b"000001", b"000002"]


def test_twenty_batches_leave_no_more_names_than_five(query: Query, kafka: Kafka) -> None:
    """Groups and transactional ids come again, as those of a stream do."""
    target, limit = kafka.topic(1), 10
    rows = query.put(0, 5 * limit)
    left: list[tuple[int, int]] = []

    def write(batch: DataFrame, number: int) -> None:
        query.write(batch, target, f"{query.name}-{number}")

    for batches in (5, 20):
        query.run(write, limit=limit)
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": target}
        cluster = shared_cluster(sink_options(given, stream=False).client)
        ids = transaction_states.list_transactions(cluster, "eoslog-write", [])
        ours = [one.transactional_id for one in ids if query.name in one.transactional_id]
        groups = kafka.admin.list_consumer_groups().result(20).valid
        left.append((len(ours), sum(query.name in group.group_id for group in groups)))
        print(f"after {batches} batches: {left[-1][0]} transactional ids, {left[-1][1]} groups")
        if batches == 5:
            rows += query.put(5 * limit, 20 * limit)
    assert query.values(target) == rows
    # The tasks of a batch fall now to one Python worker, now to another: each has its names, of both halves.
    assert left[1][0] <= 2 * 1 + 2 * 2 * 3 and left[1][1] == left[0][1] <= 2, left


# -- without a token: the micro-batch stands for it --------------------------------------------------------


def test_a_function_that_raises_after_its_write_has_written_once(query: Query, kafka: Kafka) -> None:
    rows, first, second = query.put(0, 7), kafka.topic(1), kafka.topic(1)
    calls: list[int] = []

    def write(batch: DataFrame, number: int) -> None:
        calls.append(number)
        query.write(batch, first, None)
        if len(calls) < 3:
            raise RuntimeError("between the writes")
        query.write(batch, second, None)

    for _ in range(2):
        with pytest.raises(PySparkException, match="between the writes"):
            query.run(write)
    query.run(write)
    assert calls == [0, 0, 0]
    assert query.values(first) == rows and query.values(second) == rows
    more = query.put(7, 9)
    query.run(write)
    assert calls == [0, 0, 0, 1] and query.values(first) == query.values(second) == rows + more


def test_a_function_that_tries_its_writes_again_has_written_once(query: Query, kafka: Kafka) -> None:
    rows, target = query.put(0, 7), kafka.topic(1)
    tries: list[int] = []

    def write(batch: DataFrame, number: int) -> None:
        while len(tries) < 3:
            tries.append(number)
            query.write(batch, target, None)

    query.run(write)
    assert tries == [0, 0, 0] and query.values(target) == rows


def test_a_second_write_to_the_topic_is_said_and_its_own_token_is_the_way_out(
    query: Query, kafka: Kafka
) -> None:
    rows, target = query.put(0, 6), kafka.topic(1)

    def write(batch: DataFrame, number: int, token: str | None = None) -> None:
        query.write(batch.filter("value < '000003'"), target, None)
        query.write(batch.filter("value >= '000003'"), target, token)

    with pytest.raises(PySparkException) as raised:
        query.run(write)
    said = str(raised.value)
    assert "OtherRowsInBatch" in said and '.option("write.token", f"NAME-{batch_id}")' in said, said
    assert query.values(target) == rows[:3]
    query.run(lambda batch, number: write(batch, number, f"{query.name}-{number}"))
    assert query.values(target) == rows


def test_an_application_that_is_killed_after_its_write_has_written_once(
    query: Query, kafka: Kafka, tmp_path: Path
) -> None:
    rows, target, done = query.put(0, 7), kafka.topic(1), tmp_path / "done"
    place = (kafka.bootstrap, query.source, target, tmp_path / "checkpoint", done)
    application = Application(tmp_path / "probe", "tests.connector.sink.foreach_app", *place)
    try:
        application.wait_until("the write is done", done.exists)
    finally:
        application.kill()
    assert query.values(target) == rows
    query.run(lambda batch, number: query.write(batch, target, None))
    assert query.values(target) == rows


# -- options that change between two attempts at a batch ---------------------------------------------------


def test_a_token_for_both_writes_does_not_write_the_first_one_again(query: Query, kafka: Kafka) -> None:
    """The repair that comes to mind after OtherRowsInBatch; what is said then leads on."""
    rows, target = query.put(0, 6), kafka.topic(1)

    def write(batch: DataFrame, number: int, one: str | None, two: str | None) -> None:
        query.write(batch.filter("value < '000003'"), target, one and f"{one}-{number}")
        query.write(batch.filter("value >= '000003'"), target, two and f"{two}-{number}")

    a, b = f"{query.name}-a", f"{query.name}-b"
    query.stops(lambda batch, number: write(batch, number, None, None), "OtherRowsInBatch")
    said = query.stops(lambda batch, number: write(batch, number, a, b), "SinkChanged")
    assert "Leave that write without a token until batch " in said, said
    query.run(lambda batch, number: write(batch, number, None, b))
    assert query.values(target) == rows
    more = query.put(6, 12)  # the first half is empty now: what is filtered counts from the value
    query.run(lambda batch, number: write(batch, number, a, b))
    assert query.values(target) == rows + more


def test_another_name_or_topic_in_the_middle_of_a_batch(query: Query, kafka: Kafka) -> None:
    rows, old, new = query.put(0, 7), kafka.topic(1), kafka.topic(1)

    def fails(batch: DataFrame, topic: str, **more: str) -> None:
        query.write(batch, topic, None, **more)
        raise RuntimeError("after the write")

    query.stops(lambda batch, _: fails(batch, old), "after the write")
    named = {"transactional_id": query.name}
    query.stops(lambda batch, _: fails(batch, old, **named), "after the write")
    assert query.values(old) == rows, "another transactional.id is the same write"
    said = query.stops(lambda batch, _: query.write(batch, new, None, **named), "SinkChanged")
    assert f"to topic {old} before, and is to write them to topic {new} now" in said, said
    word = f"sink-changed:{old}:0"
    assert f"start.accepted={word}" in said and query.values(new) == [], said
    query.stops(lambda batch, _: fails(batch, old), "after the write")
    query.run(lambda batch, _: query.write(batch, new, None, start_accepted=word))
    assert query.values(old) == rows and query.values(new) == rows, "in both, as is accepted"
    more = query.put(7, 9)
    query.run(lambda batch, _: query.write(batch, old, None))
    assert query.values(old) == rows + more and query.values(new) == rows


def test_another_token_in_the_middle_of_a_batch(query: Query, kafka: Kafka) -> None:
    """Each way out ends: the former token, and the word."""
    rows, topic = query.put(0, 7), kafka.topic(1)

    def fails(batch: DataFrame, number: int) -> None:
        query.write(batch, topic, f"{query.name}-{number}")
        raise RuntimeError("after the write")

    def padded(batch: DataFrame, number: int, **more: str) -> None:
        query.write(batch, topic, f"{query.name}-{number:05d}", **more)

    query.stops(fails, "after the write")
    under = f"a df.write of foreachBatch with write.token={query.name}-0"
    said = query.stops(lambda batch, number: query.write(batch, topic, None), "SinkChanged")
    assert f"{under} has written 7 rows" in said and "one without write.token was given the same" in said
    said = query.stops(padded, "SinkChanged")
    assert under in said and f"one with write.token={query.name}-00000 was given the same" in said, said
    named = {"transactional_id": query.name}
    given = f"one with write.token={query.name}-0 and transactional.id={query.name} was given the same"
    said = query.stops(
        lambda batch, number: query.write(batch, topic, f"{query.name}-{number}", **named), "SinkChanged"
    )
    assert given in said and query.values(topic) == rows, said
    assert (
        f"Leave that write with write.token={query.name}-0 and no transactional.id until batch 0 is done"
        in said
    ), said
    query.run(lambda batch, number: query.write(batch, topic, f"{query.name}-{number}"))
    assert query.values(topic) == rows
    more = query.put(7, 9)
    query.run(padded)
    assert query.values(topic) == rows + more
    again = query.put(9, 12)
    query.stops(fails, "after the write")
    said = query.stops(padded, "SinkChanged")
    word = f"sink-changed:{topic}:2"
    assert f"start.accepted={word}" in said, said
    query.run(lambda batch, number: padded(batch, number, start_accepted=word))
    assert query.values(topic) == sorted(rows + more + again + again), "there twice, as is accepted"


def test_a_lost_checkpoint_of_foreach_batch_with_a_name_is_said(query: Query, kafka: Kafka) -> None:
    """It begins where the lost one ended, with the word; and two such queries stop each other."""
    rows, topic, named = query.put(0, 7), kafka.topic(1), {"transactional_id": query.name}

    def write(batch: DataFrame, number: int, **more: str) -> None:
        query.write(batch, topic, None, **named, **more)

    query.run(write)
    with pytest.raises(PySparkException, match="StartsElsewhere") as raised:
        query.run(write, checkpoint="new")
    said = str(raised.value)
    (word,) = re.findall(r"set start\.accepted=(new-checkpoint:[\w-]+:1) of", said)
    assert f"was the last to write under transactional.id={query.name}" in said, said
    assert query.values(topic) == rows
    rows += query.put(7, 9)
    start = json.dumps({query.source: {"0": 4, "1": 3}})
    accepted = {"start_accepted": word}
    query.run(lambda batch, number: write(batch, number, **accepted), checkpoint="newer", start=start)
    assert query.values(topic) == rows
    rows += query.put(9, 11)
    query.run(write, checkpoint="newer")
    assert query.values(topic) == rows
    said = query.stops(write, "StartsElsewhere")
    assert "Do both run? Give each a transactional.id of its own" in said, said


@pytest.mark.parametrize(
    "options", [{}, {"transactional.id": ""}, {"write.token": ""}], ids=["none", "named", "tokens"]
)
def test_the_code_changes_between_foreach_batch_and_a_stream_in_the_middle_of_a_batch(
    query: Query, kafka: Kafka, options: dict[str, str]
) -> None:
    """The stream has the name of the writes; where they have none, a name that they do not know."""
    rows, topic, tokens = query.put(0, 7), kafka.topic(1), "write.token" in options
    more = {"transactional.id": query.name} if "transactional.id" in options else {}

    def write(batch: DataFrame, number: int) -> None:
        query.write(batch, topic, f"{query.name}-{number}" if tokens else None, **more)

    def fails(batch: DataFrame, number: int) -> None:
        write(batch, number)
        raise RuntimeError("after the write")

    def stream(**given: str) -> str:
        given = {"transactional.id": query.name, **given} if tokens else given
        source = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": query.source}
        frame = query.spark.readStream.format("eoslog").options(**source, startingOffsets="earliest").load()
        writer = frame.select("key", "value").writeStream.format("eoslog").options(**more, **given)
        writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap).option("topic", topic)
        writer = writer.option("checkpointLocation", str(query.folder / "checkpoint"))
        try:
            writer.trigger(availableNow=True).start().awaitTermination(180)
        except PySparkException as error:
            return str(error)
        return ""

    query.stops(fails, "after the write")
    said = stream()
    assert "SinkChanged: batch 0 of query" in said and "7 rows" in said and topic in said, said
    assert "start.accepted=sink-changed:foreachBatch:0" in said and query.values(topic) == rows
    query.run(write)
    rows += query.put(7, 12)
    assert stream() == "" and query.values(topic) == rows

    (query.folder / "checkpoint" / "commits" / "1").unlink()
    (query.folder / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    said = query.stops(write, "SinkChanged")
    assert "has decided batch 1 of this query before, without foreachBatch" in said
    assert query.values(topic) == rows and stream() == ""
    rows += query.put(12, 14)
    query.run(write)
    assert query.values(topic) == rows


@pytest.mark.parametrize("tokens", [False, True], ids=["without a token", "write.token"])
def test_a_topic_that_was_made_anew_under_a_write(query: Query, kafka: Kafka, tokens: bool) -> None:
    """The write is remembered, and its rows are gone: each way out that is named ends."""
    rows, target = query.put(0, 7), kafka.topic(1)

    def write(batch: DataFrame, number: int, fails: bool = True, **more: str) -> None:
        query.write(batch, target, f"{query.name}-{number}" if tokens else None, **more)
        if fails:
            raise RuntimeError("after the write")

    query.stops(write, "after the write")
    old = query.topic_id(target)
    kafka.make_anew(target)
    said = query.stops(write, "RowsGone")
    assert f"(its id was {old} and is {query.topic_id(target)})" in said, said
    again, leave = f"write-again:{old}", f"rows-gone:{old}"
    assert f"set start.accepted={again}." in said and f"set start.accepted={leave}" in said, said
    assert query.values(target) == []
    query.stops(lambda batch, number: write(batch, number, start_accepted=leave), "after the write")
    assert query.values(target) == [], "they are not wanted any more"
    for _ in range(2):
        query.stops(lambda batch, number: write(batch, number, start_accepted=again), "after the write")
        assert query.values(target) == rows
    query.run(lambda batch, number: write(batch, number, fails=False))
    assert query.values(target) == rows


# -- threads of the function --------------------------------------------------------------------------------


def in_threads(*calls: Callable[[], None]) -> list[str]:
    """Run the calls in parallel; what those say that fail."""
    failures: list[str] = []

    def safely(call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # a thread's error would be lost: it is told to the caller
            failures.append(str(error))

    threads = [Thread(target=safely, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


class InThread:
    """Writes in a thread of the function. Spark finds the format only in a thread that has a session: the
    query's, or another one."""

    def __init__(self, query: Query, batch: DataFrame, topic: str, token: str | None = None) -> None:
        self.query, self.batch, self.given = query, batch, (topic, token)
        self.session = batch.sparkSession

    def __call__(self) -> None:
        eoslog.register(self.session)
        self.query.write(self.batch, *self.given)

    def of_another_session(self) -> None:
        """The same in a thread with the application's session."""
        self.session = self.query.spark
        self()


def test_a_write_in_a_thread_is_known_by_its_batch_or_stops(query: Query, kafka: Kafka) -> None:
    rows, first, second = query.put(0, 7), kafka.topic(1), kafka.topic(1)
    said: list[str] = []

    def write(batch: DataFrame, _: int) -> None:
        said.extend(in_threads(InThread(query, batch, first)))
        said.extend(in_threads(InThread(query, batch, first).of_another_session))
        for topic in (first, second):
            inherits = inheritable_thread_target(InThread(query, batch, topic))
            assert in_threads(inherits, inherits) == []
        raise RuntimeError("after the writes")

    for attempt in range(2):
        query.stops(write, "after the writes")
        assert len(said) == 2 * (attempt + 1), said
        assert all("pyspark.inheritable_thread_target" in one for one in said), said
        assert all('option("write.token", f"NAME-{batch_id}")' in one for one in said), said
        assert query.values(first) == query.values(second) == rows


def test_parallel_writes_to_several_topics_do_not_stop_each_other(query: Query, kafka: Kafka) -> None:
    rows, targets = query.put(0, 40), [kafka.topic(1) for _ in range(3)]

    def write(batch: DataFrame, _: int) -> None:
        calls = [inheritable_thread_target(InThread(query, batch, topic)) for topic in targets]
        failures = in_threads(*calls)
        if failures:
            raise RuntimeError("; ".join(failures))

    query.run(write, limit=10)
    assert [query.values(topic) for topic in targets] == [rows] * 3


def test_a_thread_with_a_token_needs_no_batch(query: Query, kafka: Kafka) -> None:
    rows, target = query.put(0, 7), kafka.topic(1)

    def write(batch: DataFrame, number: int) -> None:
        assert in_threads(InThread(query, batch, target, f"{query.name}-{number}")) == []
        raise RuntimeError("after the write")

    for _ in range(2):
        query.stops(write, "after the write")
    assert query.values(target) == rows


def test_a_thread_that_outlives_its_batch_is_said(query: Query, kafka: Kafka) -> None:
    query.put(0, 20)
    target, other = kafka.topic(1), kafka.topic(1)
    late: list[Callable[[], None]] = []

    def write(batch: DataFrame, number: int) -> None:
        late.append(inheritable_thread_target(InThread(query, batch, other)))
        query.write(batch, target, None)
        if number == 1:
            (said,) = in_threads(late[0])
            assert "is of batch 0, and its query has written batch 1 since" in said, said

    query.run(write, limit=10)
    assert query.values(other) == []


def test_a_thread_that_outlives_its_batch_may_have_a_token(query: Query, kafka: Kafka) -> None:
    """The later batch of the same run says nothing of it."""
    rows, target = query.put(0, 20), kafka.topic(1)
    late: list[Callable[[], None]] = []

    def write(batch: DataFrame, number: int) -> None:
        token = f"{query.name}-{number}"
        late.append(inheritable_thread_target(InThread(query, batch, target, token)))
        if number == 1:
            query.write(batch, target, token)
            assert in_threads(late[0]) == []

    query.run(write, limit=10)
    assert query.values(target) == rows
