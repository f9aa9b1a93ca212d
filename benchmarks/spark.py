"""One Spark session with both connectors and the brokers they work on: what the Spark benchmarks share.

Rows are made by Spark itself, with keys of up to ten bytes; what arrived is read again by Spark's own Kafka
connector, read_committed, and compared as count and checksum with what was sent.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from benchmarks.limits import CTransactions, Handed, Idle
from eoslog.client.admin.topics import list_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.doctor.rules import LIGHT, MANAGER
from eoslog.testing import EmbeddedBroker
from tests.kit.kafka_nodes import ApacheKafka

PARTITIONS = 4
OURS, THEIRS = "eoslog", "kafka"
PATIENT = {"broker.session.timeout.ms": "60000"}
"""A busy machine must not fence the only node; nothing else differs from the defaults."""
_CHECKSUM = "sum(xxhash64(key, value) % 1000000007)"


class Sum(NamedTuple):
    """What a set of rows comes to."""

    rows: int
    checksum: int


class Run:
    """One run of a work: `rows` in `seconds`."""

    def __init__(self, rows: int) -> None:
        self.rows, self.seconds = rows, 0.0

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds


class Bench:
    """The session, `peer` (Apache Kafka) and `own` (the bundled broker), each started when asked for."""

    def __init__(self, kafka: Path, spark_kafka: Path) -> None:
        self._kafka, self._spark_kafka = kafka, spark_kafka
        self._stack = ExitStack()
        self._numbers = itertools.count(1)
        self._session: SparkSession | None = None
        self._peer: str | None = None
        self._own: str | None = None
        self.warm = False
        """Whether `peer` has taken as many records as its JVM needs to reach its speed."""
        self._filled: dict[tuple[str, int, int, int], str] = {}
        self._sums: dict[tuple[int, int], Sum] = {}
        self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="eoslog-bench-")))

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    @property
    def spark(self) -> SparkSession:
        """The session: two cores, both connectors in one JVM."""
        if self._session is None:
            python = str(Path(sys.executable).with_name("eoslog-python"))  # as docs/starts.md recommends
            os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
            jars = ",".join(map(str, sorted(self._spark_kafka.glob("*.jar"))))
            self._session = (
                SparkSession.builder.master("local[2]")
                .appName("eoslog-bench")
                .config("spark.jars", jars)
                .config("spark.driver.memory", "2g")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.sql.shuffle.partitions", "2")
                .config("spark.sql.session.timeZone", "UTC")
                .getOrCreate()
            )
            self._session.sparkContext.setLogLevel("OFF")
            for source in (Idle, Handed, CTransactions):
                self._session.dataSource.register(source)
            self._stack.callback(self._session.stop)
        return self._session

    @property
    def peer(self) -> str:
        """Apache Kafka with its own defaults: acknowledged when in the page cache."""
        if self._peer is None:
            self._peer = self._stack.enter_context(ApacheKafka(self._kafka, PATIENT)).bootstrap
        return self._peer

    @property
    def own(self) -> str:
        """The bundled broker with its own defaults: acknowledged after fdatasync."""
        if self._own is None:
            self._own = self._stack.enter_context(EmbeddedBroker()).bootstrap
        return self._own

    # -- topics and rows ----------------------------------------------------------------------

    @contextmanager
    def topic(self, bootstrap: str, partitions: int = PARTITIONS) -> Iterator[str]:
        """A fresh topic, deleted at the end."""
        name = self.make_topic(bootstrap, partitions)
        yield name
        _admin(bootstrap).delete_topics([name])[name].result(60)

    def make_topic(self, bootstrap: str, partitions: int = PARTITIONS) -> str:
        """A fresh topic whose partitions all answer.

        A Java producer that meets a leader that does not know it yet may see its second batch taken and its
        first one refused for ever (OUT_OF_ORDER_SEQUENCE_NUMBER until delivery.timeout.ms).
        """
        name = f"bench-{next(self._numbers)}"
        _admin(bootstrap).create_topics([NewTopic(name, partitions, 1)])[name].result(60)
        places = [(name, number) for number in range(partitions)]
        list_offsets(
            _cluster(bootstrap), dict.fromkeys(places, -1), committed=False
        )  # asks until they answer
        return name

    def rows(self, count: int, size: int) -> DataFrame:
        """Rows with a key and a value of `size` bytes, made by Spark in four tasks."""
        filler = "x" * (size - 10)
        return self.spark.range(0, count, 1, PARTITIONS).selectExpr(
            "cast(cast(id as string) as binary) as key",
            f"cast(concat(cast(id + 1000000000 as string), '{filler}') as binary) as value",
        )

    def filled(self, bootstrap: str, count: int, size: int, partitions: int = PARTITIONS) -> str:
        """A topic with these rows, written once by Spark's own connector (a JVM producer's batches)."""
        wanted = (bootstrap, count, size, partitions)
        if wanted not in self._filled:
            name = self.make_topic(bootstrap, partitions)
            writer = self.rows(count, size).write.format(THEIRS).option("topic", name)
            writer.option("kafka.bootstrap.servers", bootstrap).mode("append").save()
            self._filled[wanted] = name
        return self._filled[wanted]

    def load(self, connector: str, bootstrap: str, topic: str) -> DataFrame:
        """A batch read of all that is committed."""
        reader = self.spark.read.format(connector).option("kafka.bootstrap.servers", bootstrap)
        return reader.option("subscribe", topic).option("kafka.isolation.level", "read_committed").load()

    # -- what arrived -------------------------------------------------------------------------

    def sum_of(self, frame: DataFrame) -> Sum:
        """Count and checksum of the rows' keys and values."""
        row = frame.selectExpr("count(*)", _CHECKSUM).collect()[0]
        return Sum(row[0], row[1] or 0)

    def expected(self, count: int, size: int) -> Sum:
        """The same of the rows that were to be sent."""
        if (count, size) not in self._sums:
            self._sums[count, size] = self.sum_of(self.rows(count, size))
        return self._sums[count, size]

    def check(self, bootstrap: str, topic: str, count: int, size: int, connector: str = THEIRS) -> None:
        """Every row is visible to read_committed readers, once and unchanged."""
        frame = self.load(connector, bootstrap, topic)
        found, wanted = self.sum_of(frame), self.expected(count, size)
        assert found == wanted, f"{topic} holds {found}, but {wanted} was sent"

    @contextmanager
    def light_checkpoints(self) -> Iterator[None]:
        """Queries that start within it have checkpoints as docs/starts.md recommends for local disks."""
        self.spark.conf.set(MANAGER, LIGHT)
        try:
            yield
        finally:
            self.spark.conf.unset(MANAGER)

    def checkpoint(self) -> str:
        """A fresh directory."""
        return str(self.directory / f"checkpoint-{next(self._numbers)}")

    @contextmanager
    def timed(self, rows: int) -> Iterator[Run]:
        """Times what is done inside."""
        run, started = Run(rows), time.perf_counter()
        yield run
        run.seconds = time.perf_counter() - started


@cache
def _cluster(bootstrap: str) -> Cluster:
    return Cluster(ClientConfig(parse_addresses(bootstrap)))


@cache
def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
