"""The mirror of docs/examples.md from the bundled broker to Apache Kafka and back: make test-examples.

The mirror is killed wherever it is when
the target has got more records; test_plain.py kills it at each request.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

from eoslog.cli import main
from eoslog.testing import EmbeddedBroker
from tests.examples.running import PATIENCE_S, Script, command_of, create, put
from tests.scenarios.apache_kafka import ApacheKafka

pytestmark = pytest.mark.kafka

RECORDS, PARTITIONS, KILLS = 4_000, 2, 4


def written(bootstrap: str) -> int:
    """How far the target's log goes, records of open transactions and markers included."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "looker", "isolation.level": "read_uncommitted"}
    looker = Consumer(settings)
    known = looker.list_topics(timeout=60).topics
    ends = [looker.get_watermark_offsets(TopicPartition("orders", p), 60)[1] for p in range(PARTITIONS)]
    looker.close()
    return sum(ends) if "orders" in known else 0


def mirror(source: str, target: str, place: Path) -> None:
    """Mirror `orders`, with kills, and audit the target."""
    changes = {"127.0.0.1:9092": source, "127.0.0.1:9093": target}
    command = [*command_of("mirror.py", changes), "--round", "50"]
    create(target, "orders", PARTITIONS)
    for _ in range(KILLS):
        before, script = written(target), Script(place, command)
        deadline = time.monotonic() + PATIENCE_S
        while script.process.poll() is None and written(target) < before + 200:
            assert time.monotonic() < deadline, "nothing is mirrored"
        script.kill()
    Script(place, command).ended()
    where = ["--from-bootstrap-server", source, "--to-bootstrap-server", target, "--timeout", "60"]
    done = CliRunner().invoke(main, ["audit", "--from", "orders", "--to", "orders", "--all-headers", *where])
    assert done.exit_code == 0 and f"right: {RECORDS:,} records" in done.output, done.output


@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.parametrize("way", ["to Kafka", "from Kafka"])
def test_mirror(way: str, tmp_path: Path) -> None:
    with EmbeddedBroker() as bundled, ApacheKafka({}) as kafka:
        ends = (bundled.bootstrap, kafka.bootstrap)
        source, target = ends if way == "to Kafka" else ends[::-1]
        create(source, "orders", PARTITIONS)
        put(
            source,
            "orders",
            [(f"customer {n % 7}", f"order {n}") for n in range(RECORDS)],
            headers=[("a", b"1")],
        )
        mirror(source, target, tmp_path)
