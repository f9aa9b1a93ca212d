"""A query in a real Spark whose sources have names (offset log of version 2), and its checkpoint."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit, raise_error

from tests.connector.stock_kafka import Kafka

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
