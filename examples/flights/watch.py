"""What the live view and the kill plan need to know, asked of the broker and the checkpoint."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

ASK_TIMEOUT_SECONDS = 2.0
ROUTED = ("flights_late", "flights_other")
OUTPUTS = (*ROUTED, "carrier_counts")


@dataclass
class Progress:
    """One look: records a topic (open transactions included), and how far each query's group is."""

    records: dict[str, int] = field(default_factory=dict)
    consumed: dict[str, int] = field(default_factory=dict)
    broker_answers: bool = True


@dataclass
class BatchInFlight:
    """A micro-batch that has begun and is not in the commit log yet."""

    batch: int
    rows_before: int


def newest(folder: Path) -> int:
    """The highest batch number in a folder of the checkpoint, -1 if none."""
    if not folder.is_dir():
        return -1
    return max((int(f.name) for f in folder.iterdir() if f.name.isdigit()), default=-1)


class Watch:
    """Looks at broker and checkpoint; a broker that is down makes a look incomplete, never late."""

    def __init__(self, bootstrap: str, partitions: dict[str, int], checkpoints: Path) -> None:
        quiet: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
            # librdkafka 2.16 drops the broker when all are down, and then keeps asking the dropped one
            # for the offsets of groups whose coordinator it had looked up before.
            "metadata.recovery.strategy": "none",
        }
        self.consumer = Consumer({**quiet, "group.id": "flights-watch", "enable.auto.commit": False})
        self.admin = AdminClient(quiet)
        self.partitions = partitions
        self.checkpoints = checkpoints
        self.latest = Progress()
        self._flight: BatchInFlight | None = None

    def look(self) -> Progress:
        """Asks for everything anew."""
        try:
            self.latest = Progress(
                {topic: self._records(topic) for topic in self.partitions},
                {group: self._consumed(group) for group in ("route", "count")},
            )
        except KafkaException:
            self.latest = Progress(self.latest.records, self.latest.consumed, broker_answers=False)
        self._follow_batch()
        return self.latest

    def caught_writing(self, seconds: float) -> bool:
        """Looks at nothing but query `route`, as fast as it can, until it is in mid-batch with something
        written; false if that did not happen within `seconds`."""
        deadline = time.monotonic() + seconds
        while self.written_in_flight() <= 0:
            if time.monotonic() > deadline:
                return False
            try:
                self.latest.records.update({topic: self._records(topic) for topic in ROUTED})
            except KafkaException:
                self.latest.broker_answers = False
            self._follow_batch()
        return True

    def written_in_flight(self) -> int:
        """Records that query `route` has written in a batch that is not finished yet."""
        if self._flight is None:
            return 0
        return self._routed_rows() - self._flight.rows_before

    def batch(self, query: str) -> int:
        """The query's newest batch."""
        return newest(self.checkpoints / query / "offsets")

    def rows(self, query: str) -> int:
        """Rows of the batch the query last reported."""
        path = self.checkpoints / f"{query}.progress"
        try:
            return int(json.loads(path.read_text())["rows"])
        except (FileNotFoundError, ValueError):
            return 0  # not reported yet, or just being written

    def _records(self, topic: str) -> int:
        return sum(
            self.consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=ASK_TIMEOUT_SECONDS)[1]
            for p in range(self.partitions[topic])
        )

    def _consumed(self, group: str) -> int:
        wanted = [TopicPartition("flights", p) for p in range(self.partitions["flights"])]
        future = self.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=ASK_TIMEOUT_SECONDS
        )[group]
        return sum(max(p.offset, 0) for p in future.result(ASK_TIMEOUT_SECONDS * 2).topic_partitions)

    def _routed_rows(self) -> int:
        return sum(self.latest.records.get(topic, 0) for topic in ROUTED)

    def _follow_batch(self) -> None:
        begun = self.batch("route")
        if begun <= newest(self.checkpoints / "route" / "commits"):
            self._flight = None
        elif self._flight is None or self._flight.batch != begun:
            self._flight = BatchInFlight(begun, self._routed_rows())
