"""A single Apache Kafka node to run the scenarios against: the yardstick of what to expect."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import peer_kafka

JARS = Path(__file__).parents[2] / ".peers" / "kafka-4.3.1"

_FEW = {
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
}
_SMALL = ("-Xmx512m", "-XX:TieredStopAtLevel=1")


class KafkaMissing(RuntimeError):
    """Java or Kafka's jars are not there; the text says how to get them."""


def check(jars: Path = JARS) -> None:
    """Raises KafkaMissing unless Java and the jars are there."""
    if shutil.which("java") is None:
        raise KafkaMissing("no java on the path: install Java 17 or later (make setup does on Debian)")
    if not any(jars.glob("kafka-clients-*.jar")):
        raise KafkaMissing(f"no Kafka in {jars}: make .peers/{jars.name} fetches it by Maven")


class ApacheKafka(peer_kafka.ApacheKafka):
    """A small node of few partitions, from the jars that the make targets fetch."""

    def __init__(
        self,
        config: Mapping[str, str],
        formatting: Sequence[str] = (),
        jars: Path = JARS,
        zookeeper: str = "",
    ) -> None:
        """`config`: broker options on top of what a single node needs; `formatting`: arguments of
        kafka-storage format; `jars`: those of the version that is wanted; `zookeeper`: the address of one, in
        place of KRaft. Raises KafkaMissing."""
        check(jars)
        super().__init__(jars, _FEW | dict(config), _SMALL, formatting, zookeeper)
