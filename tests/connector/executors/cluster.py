"""A Spark cluster that a test can hurt, and one copy of a topic that runs on it, read by a stock client."""

import json
import time
import uuid
from pathlib import Path
from typing import Any

import psutil

from eoslog.client.admin import transaction_states
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from tests.connector.brokers import Kafka
from tests.connector.spark_application import PATIENCE_SECONDS, Application

LOCAL_CLUSTER = "local-cluster[2,1,1024]"
"""Two executors of one core, each a JVM of its own."""


class SparkCluster(Application):
    """An application with executors of its own, which runs one query after another."""

    def __init__(
        self, folder: Path, master: str = LOCAL_CLUSTER, home: Path | None = None, /, **settings: str
    ) -> None:
        named = {name.replace("__", "."): value for name, value in settings.items()}
        self._answered = 0
        module = "tests.connector.executors.cluster_app"
        super().__init__(folder, module, master, json.dumps(named), home=home)

    def answer(self) -> dict[str, Any]:
        """How the query ended that was started last."""
        path = self.folder / "answers.jsonl"

        def lines() -> list[str]:
            return path.read_text().splitlines() if path.exists() else []

        self.wait_until("an answer", lambda: len(lines()) > self._answered)
        answer: dict[str, Any] = json.loads(lines()[self._answered])
        self._answered += 1
        return answer

    def stage_attempts(self, stages: set[int]) -> list[int]:
        """The newest attempt of each stage, from 0; stages that Spark has forgotten are left out."""
        self.tell({"stages": sorted(stages)})
        return list(self.answer()["attempts"].values())

    def kill_executor(self, jvm: int) -> None:
        """SIGKILL to an executor's JVM; its Python workers end by themselves."""
        executor = psutil.Process(jvm)
        assert "CoarseGrainedExecutorBackend" in " ".join(executor.cmdline())
        executor.kill()
        executor.wait(PATIENCE_SECONDS)


class Copy:
    """A topic of numbered rows, and a query that copies it. `late_copies`: with speculative tasks."""

    def __init__(
        self, kafka: Kafka, folder: Path, rows: int = 6_000, partitions: int = 2, late_copies: bool = False
    ) -> None:
        self.late_copies = late_copies
        self.kafka, self.checkpoint = kafka, folder / f"checkpoint-{uuid.uuid4().hex[:8]}"
        self.source, self.target = kafka.topic(partitions), kafka.topic(2)
        self.rows = [b"%06d" % number for number in range(rows)]
        self.sink = f"sink-{self.target}"
        for partition in range(partitions):
            kafka.put(self.source, self.rows[partition::partitions], partition=partition)

    def stream(self, batches: int = 2, **more: Any) -> dict[str, Any]:
        """The command for a stream of about so many batches."""
        limit = str(-(-len(self.rows) // batches))
        return self._command(checkpoint=str(self.checkpoint), read={"maxOffsetsPerTrigger": limit}, **more)

    def write(self, **more: Any) -> dict[str, Any]:
        """The command for one batch write."""
        return self._command(**more)

    def _command(self, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap": self.kafka.bootstrap,
            "source": self.source,
            "target": self.target,
            "write": {"transactional.id": self.sink} | more.pop("options", {}),
            **more,
        }

    def visible(self, *, committed: bool = True) -> list[bytes]:
        """What a stock reader sees: read_committed, or everything ever written."""
        return sorted(row[3] for row in self.kafka.rows(self.target, 2, committed=committed))

    def open(self) -> list[str]:
        """Transactions of the sink that hold back readers."""
        with Cluster(ClientConfig(parse_addresses(self.kafka.bootstrap))) as cluster:
            found = transaction_states.list_transactions(cluster, self.sink, ["Ongoing"])
            return [listing.transactional_id for listing in found]

    def check(self) -> None:
        """Every row once; nothing is left open, or not for longer than its time-out. A copy of a task that
        came too late may hold readers back for that long."""
        left, deadline = self.open(), time.monotonic() + PATIENCE_SECONDS
        while self.open():
            assert time.monotonic() < deadline, f"still open: {self.open()}"
            time.sleep(0.1)
        rows = self.visible()
        assert rows == self.rows, f"{len(rows)} rows, {len(set(rows))} different ones; were open: {left}"
        assert not left or self.late_copies, f"left open: {left}"
