"""What the sections of a run share: how much to do, and brokers and Spark, started when first asked for."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from benchmarks.broker import Subject, idempotent, subjects, transactions
from benchmarks.lines import Sizes
from benchmarks.peer_kafka import ApacheKafka, spark_kafka
from benchmarks.spark import PATIENT, Bench
from eoslog.testing import EmbeddedBroker

ROOT = Path(__file__).parents[1]
KAFKA = ROOT / ".peers" / "kafka-4.3.1"
_WARM_UP_RECORDS = 1_000_000


class Context:
    """A context manager, one for each group of sections; everything it started ends with it."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._stack = ExitStack()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    @property
    def jars(self) -> Path:
        """Apache Kafka's own."""
        return KAFKA

    @cached_property
    def spark(self) -> Bench:
        """Spark with both connectors, and brokers of its own."""
        return self._stack.enter_context(Bench(KAFKA, spark_kafka()))

    @cached_property
    def brokers(self) -> list[Subject]:
        """The bundled broker and Apache Kafka, for stock clients, warm: a JVM's speed comes with its work."""
        return [self._warmed(one) for one in self._stack.enter_context(subjects(KAFKA))]

    @cached_property
    def flushed_peer(self) -> Subject:
        """Apache Kafka as durable as the bundled broker: each append is synced before it is answered."""
        settings = {**PATIENT, "log.flush.interval.messages": "1"}
        started = self._stack.enter_context(ApacheKafka(KAFKA, settings))
        return self._warmed(Subject("Apache Kafka, flush.messages=1", started.bootstrap, started.pid))

    def _warmed(self, subject: Subject) -> Subject:
        for work in (idempotent, transactions):
            work(subject, self.sizes.records(_WARM_UP_RECORDS), 1000)
        return subject

    @cached_property
    def unflushed(self) -> Subject:
        """The bundled broker as durable as Apache Kafka's default: acknowledged when in the page cache."""
        broker = self._stack.enter_context(EmbeddedBroker(flush="os"))
        return Subject("eoslog, flush.mode=os", broker.bootstrap, broker.pid)
