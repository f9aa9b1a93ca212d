"""A topic that an application copies, and the judge of the copy."""

import uuid
from pathlib import Path
from typing import Any

from tests.connector.stock_kafka import Kafka

PARTITIONS = 2


class Copy:
    """A topic of numbered rows, and the plan of an application that copies it in `batches` micro-batches."""

    def __init__(
        self, kafka: Kafka, folder: Path, master: str, rows: int = 2_000, batches: int = 4, **more: Any
    ) -> None:
        self.kafka, self.rows = kafka, list[bytes]()
        self._source = kafka.topic(PARTITIONS, f"in-{uuid.uuid4().hex[:8]}")
        self.target = kafka.topic(PARTITIONS, f"out-{uuid.uuid4().hex[:8]}")
        kafka.topic(1, f"{self.target}-batch")
        self.add(rows)
        self.settings = {"spark.master": master}
        self.plan = more | {
            "bootstrap": kafka.bootstrap,
            "source": self._source,
            "target": self.target,
            "checkpoint": str(folder / "checkpoint"),
            "limit": rows // batches,
        }

    def add(self, rows: int) -> None:
        """More rows for the source."""
        new = [b"%06d" % number for number in range(len(self.rows), len(self.rows) + rows)]
        for partition in range(PARTITIONS):
            self.kafka.put(self._source, new[partition::PARTITIONS], partition=partition)
        self.rows += new

    def check(self, result: dict[str, Any], *, origin: str, spark: str, times: int = 1) -> None:
        """Every row once, for the application itself and for a stock reader; and who has done it.
        `times`: how many applications were started that came to their end."""
        for told in result["sessions"]:
            assert (told["rows"], told["distinct"]) == (len(self.rows), len(self.rows))
            assert origin in told["eoslog"] and told["spark"].startswith(spark.rstrip("*"))
        seen = sorted(row[3] for row in self.kafka.rows(self.target, PARTITIONS))
        assert seen == self.rows, f"{len(seen)} rows, {len(set(seen))} different ones"
        assert len(self.kafka.rows(f"{self.target}-batch")) == 5 * times * len(result["sessions"])
