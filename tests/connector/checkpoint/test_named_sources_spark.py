"""Queries whose sources have names (Spark's source evolution, offset log of version 2), in a real Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.connector.stock_kafka import Kafka

pytestmark = pytest.mark.spark
EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
END_SECONDS = 120


@pytest.fixture
def evolving(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get(EVOLUTION)
    spark.conf.set(EVOLUTION, "true")
    yield spark
    spark.conf.set(EVOLUTION, before or "false")


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
        self, checkpoint: Path, names: dict[str, str], starting: str | dict[str, str] = "earliest"
    ) -> None:
        """Read what is there and stop. `names`: under which each topic is read."""

        def source(name: str) -> DataFrame:
            options = {"subscribe": self.topics[name], "maxOffsetsPerTrigger": "20", **self.group}
            options["startingOffsets"] = starting if isinstance(starting, str) else starting[name]
            reader = self.spark.readStream.name(names[name]).format("eoslog").options(**options)
            return reader.option("kafka.bootstrap.servers", self.kafka.bootstrap).load()

        first, *others = [source(name).select("value") for name in names]
        for other in others:
            first = first.union(other)
        written = first.writeStream.format("eoslog").option("topic", self.target).options(**self.group)
        written = written.option("kafka.bootstrap.servers", self.kafka.bootstrap)
        query = written.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start()
        query.awaitTermination(END_SECONDS)

    def copied(self) -> list[bytes]:
        return sorted(row[3] for row in self.kafka.rows(self.target))


def newest(log: Path) -> int:
    return max(int(path.name) for path in log.iterdir() if path.name.isdecimal())


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


@pytest.mark.parametrize("has_group", [True, False])
def test_a_source_with_another_name_stops_loudly_and_the_error_leads_on(
    evolving: SparkSession, kafka: Kafka, tmp_path: Path, has_group: bool
) -> None:
    union, old = Union(evolving, kafka, "orders", "returns", has_group=has_group), tmp_path / "old"
    union.put(30)
    union.run(old, {"orders": "orders", "returns": "returns"})
    union.put(30)
    with pytest.raises(
        StreamingQueryException, match=r"SourcesChanged.*Start with a new checkpoint"
    ) as caught:
        union.run(old, {"orders": "orders", "returns": "sent_back"})
    assert len(union.copied()) == 60, "nothing was written"
    last = newest(old / "offsets") - 1
    assert f"line of offsets/{last} as its startingOffsets" in str(caught.value)
    lines = (old / "offsets" / str(last)).read_text().splitlines()[2:]
    begins = "committed" if has_group else {line.split(":")[0]: line for line in lines}
    union.run(tmp_path / "new", {"orders": "orders", "returns": "sent_back"}, begins)
    assert union.copied() == sorted(union.made)
