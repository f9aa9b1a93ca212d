"""A query in a real Spark that copies a topic, is killed in the middle of a commit, and whose checkpoint is
then edited by `eoslog checkpoint`. `eoslog audit` counts what has become of each row.

The source has aborted records and control records: offsets do not tell how many rows there are.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from eoslog.cli import main
from tests.connector.checkpoint import halting
from tests.connector.stock_kafka import Kafka
from tests.spark_session import all_available

END_SECONDS = 400
TRIES = 30
A_BATCH, KILLED = 40, 2
PARTITIONS, ROUNDS, ROWS, ABORTED = 2, 8, 12, 5
STATES = ("stopped", *halting.POINTS)
"""Where a query is when it ends: after whole batches, or killed in the commit of batch KILLED."""
NEXT = dict(zip(STATES, ("go on", "replay", "replay", "finish"), strict=True))
"""What the next start then does first, as `show` says it."""


class EditedQuery:
    """A query with a group, from one topic to another. `name`: of its topics, group, sink and checkpoint."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path) -> None:
        self.spark, self.kafka = spark, kafka
        self.source, self.target = kafka.topic(PARTITIONS), kafka.topic(PARTITIONS)
        self.checkpoint = folder / "checkpoint"
        self.group, self.sink = f"group-{self.target}", f"sink-{self.target}"
        self.topics = [self.source]
        fill(kafka, self.source)

    def rows(self) -> DataFrame:
        """What the query writes."""
        return self._read().select("key", "value")

    def _read(self) -> DataFrame:
        return (
            self.spark.readStream.format("eoslog").options(**self._cluster())
            .option("subscribe", ",".join(self.topics)).option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", A_BATCH).load()
        )  # fmt: skip

    def _cluster(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.kafka.bootstrap, "kafka.group.id": self.group}

    def start(self, sink: str = "eoslog", **halt: str) -> StreamingQuery:
        """Until all is read."""
        query: StreamingQuery = all_available(self._write(sink, **halt))
        return query

    def start_for_ever(self) -> StreamingQuery:
        """Until it is stopped."""
        return self._write("eoslog").trigger(processingTime="0 seconds").start()

    def _write(self, sink: str, **halt: str) -> DataStreamWriter:
        return (
            self.rows().writeStream.format(sink).options(**self._cluster())
            .options(**{name.replace("_", "."): text for name, text in halt.items()})
            .option("transactional.id", self.sink).option("topic", self.target)
            .option("checkpointLocation", str(self.checkpoint))
        )  # fmt: skip

    def run(self, sink: str = "eoslog", **halt: str) -> str:
        """Until the query ends; what it failed with, or "". A start that Spark itself gave up, for its new
        Python process took longer than ten seconds, is no start."""
        for _ in range(TRIES):
            try:
                assert self.start(sink, **halt).awaitTermination(END_SECONDS)
                return ""
            except StreamingQueryException as error:
                if "failed to connect back" not in str(error):
                    return str(error)
        raise AssertionError("Spark's Python processes do not start")

    def bring_to(self, state: str) -> None:
        """Run the query until it is there."""
        if state == "stopped":
            assert self.run() == ""
            fill(self.kafka, self.source, "more")
            return
        cloudpickle.register_pickle_by_value(halting)  # type: ignore[no-untyped-call]
        self.spark.dataSource.register(halting.HaltingDataSource)
        said = self.run("halting", halt_at=state, halt_batch=str(KILLED))
        assert "Python worker exited" in said or "crashed" in said or "EOF" in said, said
        assert not (self.checkpoint / "commits" / str(KILLED)).exists()

    def command(self, name: str, *more: str, fences: bool = True) -> Result:
        """`eoslog checkpoint NAME` of this checkpoint. The driver of a test lives on: what it has run is
        taken from it."""
        fence = ["--fence"] if fences and name not in ("show", "check") else []
        arguments = ["--bootstrap-server", self.kafka.bootstrap, "--timeout", "60", *fence, *more]
        return CliRunner().invoke(main, ["checkpoint", name, str(self.checkpoint), *arguments])

    def edit(self, name: str, *more: str) -> dict[str, int]:
        """Carry an edit out, and accept what it foretells: that."""
        told = json.loads(self.command(name, *more, "--dry-run", "--json").stdout)["foretold"]
        accepted = ["--accept-duplicates", str(told["twice"])]
        accepted += ["--accept-loss", str(told["never"])] if told["never"] else []
        result = self.command(name, *more, *accepted)
        assert result.exit_code == 0, result.output
        return {"doubled": told["twice"], "lost": told["never"]}

    def fork(self, new: Path) -> tuple[EditedQuery, int]:
        """A query that goes on from a copy of the checkpoint, and how many rows both write, as foretold."""
        copy_of = copy.copy(self)
        copy_of.checkpoint = new
        copy_of.group, copy_of.sink = f"forked-{self.group}", f"forked-{self.sink}"
        names = ("--transactional-id", copy_of.sink, "--group", copy_of.group)
        return copy_of, self.edit("fork", str(new), *names)["doubled"]

    def shown(self) -> Any:
        """What `show` tells."""
        result = self.command("show", "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def audited(self, source: str | None = None) -> dict[str, int]:
        """How many rows are there twice, or not at all."""
        arguments = [
            "--from",
            source or self.source,
            "--to",
            self.target,
            "--order",
            "none",
            "--allow-foreign",
        ]
        arguments += ["--bootstrap-server", self.kafka.bootstrap, "--output", "json", "--timeout", "60"]
        result = CliRunner().invoke(main, ["audit", *arguments])
        assert result.exit_code in (0, 1), result.output
        counts = json.loads(result.stdout)["counts"]
        return {"doubled": counts["doubled"], "lost": counts["lost"]}


class Stateful(EditedQuery):
    """Drops rows that it has seen: its state has all of them."""

    def rows(self) -> DataFrame:
        """Each value once."""
        return super().rows().dropDuplicates(["value"])


def fill(kafka: Kafka, topic: str, name: str = "row") -> None:
    """Rows in transactions, and aborted ones between them."""
    producer = kafka.transactional(f"fills-{topic}-{name}")
    for at in range(ROUNDS):
        for kind, count in (("aborted", ABORTED), (name, ROWS)):
            producer.begin_transaction()
            for number in range(count):
                producer.produce(topic, f"{kind} {at} {number}", partition=(at + number) % PARTITIONS)
            if kind == "aborted":
                producer.flush(60)
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
