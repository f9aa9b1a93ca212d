"""A checkpoint that is lost: a query is killed in the middle of a commit, its checkpoint deleted, and one
with a new checkpoint goes on from the group's offsets. In a real Spark."""

import re
import shutil
import time
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.connector.brokers import Kafka, start_broker
from tests.connector.checkpoint import halting

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

END_SECONDS = 400
"""How long a query may take: on a busy machine Spark's Python processes alone take a minute."""
TRIES = 30
ROWS, A_BATCH, KILLED = 200, 40, 2


@pytest.fixture(scope="module")
def hasty() -> Iterator[Kafka]:
    """A broker that looks for timed-out transactions all the time."""
    interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with start_broker({interval: "100"}) as broker:
        yield Kafka(broker.bootstrap)


class Copy:
    """A query that copies a topic. It has a transactional.id, and so a group of its own for its offsets."""

    limits: tuple[int, ...] = (A_BATCH,)
    """The most offsets in a batch of each of its sources."""

    def __init__(self, spark: SparkSession, kafka: Kafka, checkpoint: Path) -> None:
        self.spark, self.kafka, self.checkpoint = spark, kafka, checkpoint
        self.source, self.target = kafka.topic(2), kafka.topic(2)
        self.given = {"kafka.bootstrap.servers": kafka.bootstrap, "transactional.id": f"sink-{self.target}"}
        self.rows = [b"%06d" % number for number in range(ROWS)]
        for partition in range(2):
            kafka.put(self.source, self.rows[partition::2], partition=partition)

    def read(self, starting: str, most: int) -> DataFrame:
        return (
            self.spark.readStream.format("eoslog").options(**self.given).option("subscribe", self.source)
            .option("startingOffsets", starting).option("maxOffsetsPerTrigger", most).load()
        )  # fmt: skip

    def start(self, starting: str, sink: str = "eoslog", **halt: str) -> StreamingQuery:
        each = starting.split("; ") if "; " in starting else [starting] * len(self.limits)
        sources = [self.read(*one) for one in zip(each, self.limits, strict=True)]
        rows = reduce(DataFrame.union, sources)
        return (
            rows.select("key", "value").writeStream.format(sink)
            .options(**self.given).option("topic", self.target)
            .options(**{name.replace("_", "."): text for name, text in halt.items()})
            .option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        )  # fmt: skip

    def run(self, starting: str, sink: str = "eoslog", **halt: str) -> str:
        """Until the query ends; returns what it failed with, or "". A start that Spark itself gave up, for
        its new Python process took longer than ten seconds, is no start."""
        for _ in range(TRIES):
            try:
                assert self.start(starting, sink, **halt).awaitTermination(END_SECONDS)
                return ""
            except StreamingQueryException as error:
                if "failed to connect back" not in str(error):
                    return str(error)
        raise AssertionError("Spark's Python processes do not start")

    def visible(self, *, committed: bool = True) -> list[bytes]:
        return sorted(row[3] for row in self.kafka.rows(self.target, 2, committed=committed))


@pytest.mark.parametrize("point", halting.POINTS)
def test_a_query_without_its_checkpoint(
    spark: SparkSession, hasty: Kafka, tmp_path: Path, point: str
) -> None:
    """No row is lost and none doubled, whether the last batch had been decided or not."""
    cloudpickle.register_pickle_by_value(halting)  # type: ignore[no-untyped-call]
    spark.dataSource.register(halting.HaltingDataSource)
    copy = Copy(spark, hasty, tmp_path / "checkpoint")
    said = copy.run("earliest", "halting", halt_at=point, halt_batch=str(KILLED))
    assert re.search("Python worker exited|crashed|EOF", said), said
    assert not (copy.checkpoint / "commits" / str(KILLED)).exists()
    assert len(copy.visible()) == A_BATCH * KILLED, "no row of the killed batch is visible yet"
    shutil.rmtree(copy.checkpoint)
    assert copy.run("committed") == ""
    assert copy.visible() == copy.rows
    again = 0 if point.startswith("decided") else A_BATCH
    assert len(copy.visible(committed=False)) == ROWS + again, "a decided batch is not written again"


def test_a_checkpoint_that_was_copied_without_its_notes(
    spark: SparkSession, hasty: Kafka, tmp_path: Path
) -> None:
    """A batch is decided, and its sink renamed. The former name ends it; then the new one goes on."""
    cloudpickle.register_pickle_by_value(halting)  # type: ignore[no-untyped-call]
    spark.dataSource.register(halting.HaltingDataSource)
    copy = Copy(spark, hasty, tmp_path / "checkpoint")
    copy.run("earliest", "halting", halt_at="decided, no winner finished", halt_batch=str(KILLED))
    shutil.rmtree(copy.checkpoint / "eoslog")
    for _ in range(2):
        said = copy.run("earliest", transactional_id=f"new-{copy.target}", commit_source_offsets="false")
        assert "SinkChanged" in said and f"start.accepted=sink-unknown:{KILLED}" in said, said
    assert copy.run("earliest") == ""
    assert copy.run("earliest", transactional_id=f"new-{copy.target}") == ""
    assert copy.visible() == copy.rows


def test_a_query_of_another_sink_goes_on_with_this_one(
    spark: SparkSession, hasty: Kafka, tmp_path: Path
) -> None:
    """Between two batches: the first one here is planned by this run, so no other sink has decided it."""
    copy = Copy(spark, hasty, tmp_path / "checkpoint")
    assert copy.run("earliest", "noop") == ""
    more = [b"%06d" % number for number in range(ROWS, ROWS + A_BATCH)]
    hasty.put(copy.source, more)
    assert copy.run("earliest") == ""
    assert copy.visible() == more


def test_a_backfill_under_a_query_s_name_changes_nothing_for_it(
    spark: SparkSession, hasty: Kafka, tmp_path: Path
) -> None:
    """The query has a group. It goes on with its checkpoint, and without it, where it has ended."""
    copy = Copy(spark, hasty, tmp_path / "checkpoint")
    copy.given["kafka.group.id"] = f"group-{copy.target}"
    rows = list(copy.rows)

    def backfill(text: bytes) -> None:
        rows.append(text)
        (
            spark.createDataFrame([(text,)], "value binary").write.format("eoslog").mode("append")
            .option("kafka.bootstrap.servers", hasty.bootstrap).option("topic", copy.target)
            .option("transactional.id", copy.given["transactional.id"]).save()
        )  # fmt: skip

    def more(text: bytes) -> None:
        rows.append(text)
        hasty.put(copy.source, [text])

    assert copy.run("earliest") == ""
    backfill(b"filled-1")
    more(b"more-1")
    assert copy.run("earliest") == ""
    backfill(b"filled-2")
    backfill(b"filled-3")
    more(b"more-2")
    shutil.rmtree(copy.checkpoint)
    assert copy.run("committed") == ""
    assert copy.visible() == sorted(rows)


def test_sources_of_files_whose_folders_are_exchanged_stop_the_query(
    spark: SparkSession, hasty: Kafka, tmp_path: Path
) -> None:
    """Each would read the other's files again. The error leads on. (Without patterns Spark itself may say
    "Wrong basePath": if the last batch had files.)"""
    topic, checkpoint, made = hasty.topic(), tmp_path / "checkpoint", list[bytes]()

    def put(folder: str, name: str) -> None:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(f"{folder}{name}\n")
        made.append(f"{folder}{name}".encode())

    def copy(*folders: str) -> None:
        first, second = [spark.readStream.text(str(tmp_path / folder / "*")) for folder in folders]
        given = {"kafka.bootstrap.servers": hasty.bootstrap, "topic": topic}
        (
            first.union(second).writeStream.format("eoslog").options(**given)
            .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
            .awaitTermination(END_SECONDS)
        )  # fmt: skip

    for name in "12":
        put("a", name)
        put("b", name)
        copy("a", "b")
    put("a", "3")
    with pytest.raises(StreamingQueryException, match=r"SourcesChanged.*were sources exchanged") as caught:
        copy("b", "a")
    told = re.search(r"Remove (.*) from the checkpoint", str(caught.value))
    assert told is not None
    for name in told.group(1).split(", "):
        folder, _, number = name.rpartition("/")
        (checkpoint / name).unlink()
        (checkpoint / folder / f".{number}.crc").unlink(missing_ok=True)
    copy("a", "b")
    assert sorted(row[3] for row in hasty.rows(topic)) == sorted(made)


class Union(Copy):
    """One that reads the topic twice, the second time faster: its sources stand at different offsets."""

    limits = (A_BATCH // 4, A_BATCH)


def test_a_union_without_its_checkpoint_goes_on_at_each_source_s_own_end(
    spark: SparkSession, hasty: Kafka, tmp_path: Path
) -> None:
    """Which of its sources one is, it cannot tell from the group: each is told where it goes on."""
    cloudpickle.register_pickle_by_value(halting)  # type: ignore[no-untyped-call]
    spark.dataSource.register(halting.HaltingDataSource)
    union = Union(spark, hasty, tmp_path / "checkpoint")
    union.run("earliest", "halting", halt_at="decided, no winner finished", halt_batch=str(KILLED))
    shutil.rmtree(union.checkpoint)
    said = union.run("committed")
    assert "StartsElsewhere" in said and "this source cannot tell which of them it is" in said, said
    lines = re.findall(r"startingOffsets=(\{[^}]*\}\}) for source (\d)", said)
    assert [number for _, number in lines[:2]] == ["0", "1"], said
    shutil.rmtree(union.checkpoint)
    assert "StartsElsewhere" in union.run("; ".join(line for line, _ in reversed(lines[:2]))), "exchanged"
    shutil.rmtree(union.checkpoint)
    assert union.run("; ".join(line for line, _ in lines[:2])) == ""
    assert union.visible() == sorted(union.rows * 2)


def test_a_source_alone_does_not_begin_where_another_query_stands(
    spark: SparkSession, hasty: Kafka, tmp_path: Path
) -> None:
    """Its sink has no group: what the other one has read is not left out without a word."""
    copy = Copy(spark, hasty, tmp_path / "one")
    assert copy.run("earliest") == ""
    given = {"kafka.bootstrap.servers": hasty.bootstrap}
    rows = (
        spark.readStream.format("eoslog").options(**given).option("subscribe", copy.source)
        .option("kafka.group.id", f"sink-{copy.target}/offsets").option("startingOffsets", "committed").load()
    )  # fmt: skip

    def start(**more: str) -> StreamingQuery:
        return (
            rows.select("value").writeStream.format("eoslog").options(**given, **more)
            .option("topic", hasty.topic(2)).option("checkpointLocation", str(tmp_path / "two"))
            .trigger(availableNow=True).start()
        )  # fmt: skip

    sink = f"sink-{copy.target}"
    says = f"StartsElsewhere.*offsets of group sink-{copy.target}/offsets that the sink {sink} has committed"
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=says) as caught:
            start().awaitTermination(END_SECONDS)
    told = re.search(rf"start\.accepted=(offsets-of:{sink}:[0-9a-f]{{8}})", str(caught.value))
    assert told is not None, caught.value
    query = start(**{"start.accepted": told.group(1)})
    assert query.awaitTermination(END_SECONDS)
    assert [progress.batchId for progress in query.recentProgress] == [0], "nothing is new: no other batch"


class HandOver(Copy):
    """A query that copies a topic which grows, and another one that takes its place while it lives."""

    def begin(self, checkpoint: str, starting: str, **source: str) -> StreamingQuery:
        """In small micro-batches, one after another, until it is stopped."""
        given = {"kafka.bootstrap.servers": self.kafka.bootstrap, "kafka.group.id": f"group-{self.target}"}
        more = {name.replace("_", "."): text for name, text in source.items()}
        rows = (
            self.spark.readStream.format("eoslog").options(**given, **more).option("subscribe", self.source)
            .option("startingOffsets", starting).option("maxOffsetsPerTrigger", 4).load()
        )  # fmt: skip
        return (
            rows.select("key", "value").writeStream.format("eoslog").options(**given)
            .option("transactional.id", f"sink-{self.target}").option("topic", self.target)
            .option("checkpointLocation", str(self.checkpoint / checkpoint)).start()
        )  # fmt: skip

    def wait(self, query: StreamingQuery, rows: int) -> None:
        deadline = time.monotonic() + END_SECONDS
        while len(self.visible()) < rows:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, len(self.visible())
            time.sleep(0.1)


def test_a_query_takes_another_one_s_place_while_that_lives(
    spark: SparkSession, hasty: Kafka, tmp_path: Path
) -> None:
    """Blue and green: the new one stops the old one first and begins exactly where it has stopped; and the
    old one, started again by whoever restarts what has failed, does not write those rows again."""
    copy = HandOver(spark, hasty, tmp_path)
    blue = copy.begin("blue", "earliest")
    copy.wait(blue, 20)
    green = copy.begin("green", "committed", transactional_id=f"sink-{copy.target}")
    with pytest.raises(StreamingQueryException, match="another driver owns the sink"):
        blue.awaitTermination(END_SECONDS)
    copy.wait(green, len(copy.visible()) + 8)
    with pytest.raises(StreamingQueryException, match=r"TakenOver.* has taken the place of query"):
        copy.begin("blue", "earliest").awaitTermination(END_SECONDS)
    copy.wait(green, ROWS)
    green.stop()
    assert copy.visible() == copy.rows
