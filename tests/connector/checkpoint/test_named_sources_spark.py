"""Queries in a real Spark whose sources have names (offset log of version 2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit, raise_error

from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.spark.versions import works
from tests.connector.brokers import Kafka

# -- the query -------------------------------------------------------------------------------------
# A query in a real Spark whose sources have names (offset log of version 2), and its checkpoint.


EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
FORMAT = "spark.sql.streaming.offsetLog.formatVersion"
TICKS = "ticks"
END_SECONDS = 120


class Union:
    """A query that copies several topics, each a source with a name, to one."""

    def __init__(self, spark: SparkSession, kafka: Kafka, *names: str, has_group: bool = True) -> None:
        self.spark, self.kafka, self.target = spark, kafka, kafka.topic()
        names_of_it = {"kafka.group.id": f"{self.target}-group", "transactional.id": self.target}
        self.group = names_of_it if has_group else {}
        self.topics = {name: kafka.topic() for name in names}
        self.made: list[bytes] = []

    def put(self, count: int) -> None:
        """So many rows more in each topic."""
        for name, topic in self.topics.items():
            rows = [f"{name} {len(self.made) + number}".encode() for number in range(count)]
            self.kafka.put(topic, rows)
            self.made += rows

    def run(
        self,
        checkpoint: Path,
        names: dict[str, str],
        starting: str | dict[str, str] = "earliest",
        fails: bool = False,
        distinct: bool = False,
        sink_name: str | None = None,
        careless: bool = False,
        **sink: str,
    ) -> None:
        """Read what is there and stop. `names`: the topics that are read, and the name of each source.
        `fails`: the first row fails its task. `distinct`: the query has a state. `careless`: sources may lose
        rows (failOnDataLoss). `sink`: more options of it.
        """

        def source(name: str) -> DataFrame:
            if name == TICKS:  # a source of another kind, whose rows are not of interest
                ticks = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2)
                return (
                    ticks.name(names[name])
                    .load()
                    .where("value < 0")
                    .selectExpr("binary(string(value)) AS value")
                )
            options = {"subscribe": self.topics[name], "maxOffsetsPerTrigger": "20", **self.group}
            options["startingOffsets"] = starting if isinstance(starting, str) else starting[name]
            if careless:
                options["failOnDataLoss"] = "false"
            reader = self.spark.readStream.format("eoslog").options(**options)
            reader = reader.name(names[name]) if names[name] else reader
            return reader.option("kafka.bootstrap.servers", self.kafka.bootstrap).load()

        first, *others = [source(name).select("value") for name in names]
        for other in others:
            first = first.union(other)
        if fails:
            first = first.select(raise_error(lit("no such row")).cast("binary").alias("value"))
        if distinct:
            first = first.dropDuplicates(["value"])
        writer = first.writeStream
        if sink_name is not None:
            writer._jwrite = writer._jwrite.name(sink_name)  # PySpark 4.3 has no method for it
        written = writer.format("eoslog").option("topic", self.target).options(**self.group)
        written = written.option("kafka.bootstrap.servers", self.kafka.bootstrap)
        written = written.options(**{name.replace("_", "."): value for name, value in sink.items()})
        query = written.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start()
        query.awaitTermination(END_SECONDS)

    def copied(self) -> list[bytes]:
        return sorted(row[3] for row in self.kafka.rows(self.target))


def newest(log: Path) -> int:
    return max(int(path.name) for path in log.iterdir() if path.name.isdecimal())


def forget(checkpoint: Path, log: str, batch: int) -> None:
    """Remove a batch from a log of Spark's. Spark refuses to write it again if its checksum is left."""
    for name in (str(batch), f".{batch}.crc"):
        (checkpoint / log / name).unlink(missing_ok=True)


# -- changes of its sources ------------------------------------------------------------------------
# Queries whose sources have names (Spark's source evolution, offset log of version 2), in a real Spark.
#
# Sources are added, removed and renamed under a checkpoint that lives on.


@pytest.fixture
def evolving(spark: SparkSession) -> Iterator[SparkSession]:
    before = {name: spark.conf.get(name) for name in (EVOLUTION, FORMAT)}
    spark.conf.set(EVOLUTION, "true")
    spark.conf.set(FORMAT, "2")  # Spark 4.3 does so by itself, 4.2 would keep names out of the checkpoint
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value or "false")


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
def test_sources_with_names_are_copied_exactly_once(
    evolving: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    """Two sources, several batches; the last one is replayed, as after a kill before Spark had noted it; then
    the query goes on."""
    union, names = Union(evolving, kafka, "orders", "returns"), {"orders": "orders", "returns": "returns"}
    union.put(50)
    union.run(tmp_path, names)
    assert union.copied() == sorted(union.made)
    last = newest(tmp_path / "offsets")
    assert last >= 2 and (tmp_path / "offsets" / str(last)).read_text().startswith("v2\n")
    for path in (tmp_path / "commits").glob(f"*{last}*"):
        path.unlink()
    union.put(10)
    union.run(tmp_path, dict(reversed(names.items())))
    assert union.copied() == sorted(union.made)


@pytest.fixture
def union(evolving: SparkSession, kafka: Kafka, tmp_path: Path) -> Union:
    """Two sources, whose 30 rows each are copied."""
    made = Union(evolving, kafka, "orders", "returns")
    made.put(30)
    made.run(tmp_path, BOTH)
    assert made.copied() == sorted(made.made)
    return made


BOTH = {"orders": "orders", "returns": "returns"}
RENAMED = {"orders": "orders", "returns": "sent_back"}


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
@pytest.mark.parametrize("names", [BOTH, dict.fromkeys(BOTH, "")], ids=["named", "by their order"])
def test_sources_that_are_exchanged_stop_the_query(
    evolving: SparkSession, kafka: Kafka, tmp_path: Path, names: dict[str, str]
) -> None:
    """With failOnDataLoss=false, too. The error leads on."""
    if names != BOTH:
        evolving.conf.set(EVOLUTION, "false")
        evolving.conf.set(FORMAT, "1")
    union = Union(evolving, kafka, "orders", "returns")
    union.put(30)
    union.run(tmp_path, names)
    union.put(10)
    turned = dict(reversed(names.items()))  # by their order
    if names == BOTH:
        turned = dict(zip(BOTH, reversed(BOTH.values()), strict=True))
    with pytest.raises(StreamingQueryException, match=r"SourcesChanged.*were sources exchanged"):
        union.run(tmp_path, turned, careless=True)
    assert len(union.copied()) == 60, "nothing was written"
    forget(tmp_path, "offsets", newest(tmp_path / "offsets"))
    union.run(tmp_path, names, careless=True)
    assert union.copied() == sorted(union.made)


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
def test_a_renamed_source_continues_at_the_groups_offsets(union: Union, tmp_path: Path) -> None:
    union.put(30)
    union.run(tmp_path, RENAMED, "committed")
    assert union.copied() == sorted(union.made)
    union.put(10)
    union.run(tmp_path, RENAMED)
    assert union.copied() == sorted(union.made)


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
def test_a_renamed_source_continues_at_the_line_of_the_former(
    evolving: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    union = Union(evolving, kafka, "orders", "returns", has_group=False)
    union.put(30)
    union.run(tmp_path, BOTH)
    union.put(30)
    line = Checkpoint.at(str(tmp_path)).planned(newest(tmp_path / "offsets")).by_name["returns"]
    union.run(tmp_path, RENAMED, {"orders": "earliest", "returns": f"returns:{line}"})
    assert union.copied() == sorted(union.made)


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
@pytest.mark.parametrize("starting", ["earliest", "latest"])
@pytest.mark.parametrize("has_group", [True, False])
def test_a_renamed_source_that_begins_elsewhere_stops_the_query(
    evolving: SparkSession, kafka: Kafka, tmp_path: Path, has_group: bool, starting: str
) -> None:
    """Rows would be there twice, or left out. The error leads on."""
    union = Union(evolving, kafka, "orders", "returns", has_group=has_group)
    union.put(30)
    union.run(tmp_path, BOTH)
    last = newest(tmp_path / "offsets")
    union.put(30)
    with pytest.raises(
        StreamingQueryException, match=r"SourcesChanged.*Remove offsets/\d+ from the checkpoint"
    ) as caught:
        union.run(tmp_path, RENAMED, starting)
    assert len(union.copied()) == 60, "nothing was written"
    assert f"start.accepted=new-source:sent_back:{newest(tmp_path / 'offsets')}" in str(caught.value)
    forget(tmp_path, "offsets", newest(tmp_path / "offsets"))
    line = Checkpoint.at(str(tmp_path)).planned(last).by_name["returns"]
    union.run(tmp_path, RENAMED, "committed" if has_group else {"orders": "earliest", "returns": line})
    assert union.copied() == sorted(union.made)


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
@pytest.mark.long
def test_a_renamed_source_that_is_read_again_to_where_the_former_ended_stops_the_query(
    evolving: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    """Its first batch ends there, but it began before."""
    union = Union(evolving, kafka, "orders", "returns", has_group=False)
    union.put(10)
    union.run(tmp_path, BOTH)
    with pytest.raises(StreamingQueryException, match=r"-0 begins at 0, a former source ended at 10"):
        union.run(tmp_path, RENAMED)
    assert union.copied() == sorted(union.made), "nothing was written"


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
@pytest.mark.long
def test_a_source_that_comes_back_after_one_batch_stops_the_query(
    evolving: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    """Spark continues it behind its own last batch, and does not know what the other name has read. If the
    batch runs again, Spark begins the source at its startingOffsets."""
    union = Union(evolving, kafka, "orders", "returns", has_group=False)
    union.put(10)
    union.run(tmp_path, BOTH)
    union.put(10)
    stood = {"orders": "earliest", "returns": f'{{"{union.topics["returns"]}":{{"0":10}}}}'}
    union.run(tmp_path, RENAMED, stood)
    assert newest(tmp_path / "offsets") == 1 and union.copied() == sorted(union.made)
    with pytest.raises(StreamingQueryException, match=r"SourcesChanged.*two batches before.*another name"):
        union.run(tmp_path, BOTH, stood)
    assert union.copied() == sorted(union.made), "nothing was written"
    forget(tmp_path, "offsets", 2)
    stood["returns"] = stood["returns"].replace("10", "20")
    union.put(10)
    union.run(tmp_path, {"orders": "orders", "returns": "third"}, stood)
    assert union.copied() == sorted(union.made)


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
def test_a_beginning_elsewhere_can_be_accepted(union: Union, tmp_path: Path) -> None:
    with pytest.raises(StreamingQueryException, match="SourcesChanged"):
        union.run(tmp_path, RENAMED)
    union.run(tmp_path, RENAMED, start_accepted=f"new-source:sent_back:{newest(tmp_path / 'offsets')}")
    assert len(union.copied()) == 90, "what was accepted: the rows of returns again"


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
def test_a_source_of_another_topic_is_added_and_one_removed(union: Union, tmp_path: Path) -> None:
    """Its beginning is a matter of its own: the query has read none of its topic."""
    union.topics["refunds"] = union.kafka.topic()
    three = {**BOTH, "refunds": "refunds"}
    union.put(30)
    union.run(tmp_path, three)
    assert union.copied() == sorted(union.made)
    union.put(10)
    two = {name: three[name] for name in ("refunds", "orders")}
    union.run(tmp_path, two)
    left = sorted(row for row in union.made if not row.startswith(b"returns"))
    assert [row for row in union.copied() if not row.startswith(b"returns")] == left
    assert sum(row.startswith(b"returns") for row in union.copied()) == 60


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
def test_a_removed_source_that_comes_back_is_compared_with_where_it_was(union: Union, tmp_path: Path) -> None:
    """Spark forgets it after two batches and begins it anew: with `earliest`, all of its rows again."""
    for _ in range(3):
        union.put(5)
        union.run(tmp_path, {"orders": "orders"})
    with pytest.raises(StreamingQueryException, match=r"SourcesChanged.*first with the source returns"):
        union.run(tmp_path, BOTH)
    forget(tmp_path, "offsets", newest(tmp_path / "offsets"))
    union.run(tmp_path, BOTH, "committed")
    assert union.copied() == sorted(union.made)


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
def test_a_second_source_of_a_topic_has_to_be_accepted(union: Union, tmp_path: Path) -> None:
    union.topics["again"] = union.topics["orders"]
    with pytest.raises(StreamingQueryException, match=r"also read by the source orders"):
        union.run(tmp_path, {**BOTH, "again": "again"})


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
@pytest.mark.parametrize("others", [{"orders": "orders"}, RENAMED])
def test_a_batch_that_runs_again_without_one_of_its_sources_stops(
    union: Union, tmp_path: Path, others: dict[str, str]
) -> None:
    """Spark would leave out the source's rows of that batch, and note them as read."""
    union.put(5)
    with pytest.raises(StreamingQueryException, match="no such row"):
        union.run(tmp_path, BOTH, fails=True)
    with pytest.raises(StreamingQueryException, match=r"SourcesChanged.*runs again without returns: "):
        union.run(tmp_path, others, "committed")
    assert len(union.copied()) == 60, "nothing was written"
    union.run(tmp_path, BOTH)
    assert union.copied() == sorted(union.made)


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
def test_sources_of_other_kinds_may_be_among_them(
    evolving: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    """They come, are replayed and go."""
    union = Union(evolving, kafka, "orders", "returns")
    for names in (BOTH | {TICKS: "ticks"}, BOTH | {TICKS: "ticks"}, BOTH | {TICKS: "tocks"}, BOTH):
        union.put(5)
        union.run(tmp_path, names)
        assert union.copied() == sorted(union.made)
        if "ticks" in names.values():
            forget(tmp_path, "commits", newest(tmp_path / "commits"))


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
def test_a_decided_batch_needs_its_sources_no_more(union: Union, tmp_path: Path) -> None:
    """Its rows are written: only Spark has not noted it."""
    forget(tmp_path, "commits", newest(tmp_path / "commits"))
    union.put(5)
    union.run(tmp_path, RENAMED, "committed")
    assert union.copied() == sorted(union.made)


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
def test_a_batch_that_is_planned_again_may_have_other_sources(union: Union, tmp_path: Path) -> None:
    """What the error says: without the planned batch Spark plans one with the sources that there are."""
    union.put(5)
    with pytest.raises(StreamingQueryException, match="no such row"):
        union.run(tmp_path, BOTH, fails=True)
    forget(tmp_path, "offsets", newest(tmp_path / "offsets"))
    union.run(tmp_path, RENAMED, "committed")
    assert union.copied() == sorted(union.made)


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
def test_spark_never_continues_version_1_as_version_2(
    evolving: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    """A checkpoint keeps the version that it began with. Without names it continues, with names Spark
    refuses."""
    union = Union(evolving, kafka, "orders")
    union.put(5)
    evolving.conf.set(EVOLUTION, "false")
    evolving.conf.set(FORMAT, "1")
    try:
        union.run(tmp_path, {"orders": ""})
        union.put(5)
        evolving.conf.set(FORMAT, "2")
        union.run(tmp_path, {"orders": ""})
        union.put(5)
        evolving.conf.set(EVOLUTION, "true")
        with pytest.raises(StreamingQueryException, match="CANNOT_ENABLE_ON_EXISTING_CHECKPOINT"):
            union.run(tmp_path, {"orders": "orders"})
        evolving.conf.set(EVOLUTION, "false")
        union.run(tmp_path, {"orders": ""})
        union.run(tmp_path / "new", {"orders": ""}, "committed")
    finally:
        evolving.conf.set(FORMAT, "2")
    assert union.copied() == sorted(union.made)
    assert (tmp_path / "offsets" / "2").read_text().startswith("v1\n")
    text = (tmp_path / "new" / "offsets" / "0").read_text()
    assert text.startswith("v2\n") and "\n0:{" in text, "a source without name has its number"


SINKS = "spark.sql.streaming.queryEvolution.enableSinkEvolution"
STATES = {
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "RocksDBStateStoreProvider",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.mark.spark
@pytest.mark.skipif(
    not works("names"),
    reason="Spark 4.2 cannot start a query with offset log v2 again (test_offset_log_of_spark_4_2.py)",
)
@pytest.mark.parametrize(
    ("version", "settings", "sinks", "distinct"),
    [("v2", STATES, (None, None), True), ("v3", {SINKS: "true"}, ("first", "renamed"), False)],
)
def test_later_versions_of_the_commit_log(
    evolving: SparkSession,
    kafka: Kafka,
    tmp_path: Path,
    version: str,
    settings: dict[str, str],
    sinks: tuple[str | None, str | None],
    distinct: bool,
) -> None:
    """With the files of a state store, and with names of sinks, also if they change. A batch is replayed."""
    union = Union(evolving, kafka, "orders")
    before = {name: evolving.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            evolving.conf.set(name, value)
        for sink in sinks:
            union.put(30)
            union.run(tmp_path, {"orders": "orders"}, distinct=distinct, sink_name=sink)
            assert union.copied() == sorted(union.made)
            last = newest(tmp_path / "commits")
            assert (tmp_path / "commits" / str(last)).read_text().startswith(f"{version}\n")
            forget(tmp_path, "commits", last)
    finally:
        for name, old in before.items():
            evolving.conf.unset(name) if old is None else evolving.conf.set(name, old)
