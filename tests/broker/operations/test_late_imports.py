"""Nothing is imported while the broker serves: an import stops all clients, for up to half a second."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, ResourceType

from eoslog.protocol.apis import ApiKey
from tests.broker.broker_clients import Wire, create, read_all
from tests.broker.log.logkit import sequenced

PROGRAM = """
import json, sys
from pathlib import Path
from eoslog.broker.config import BrokerConfig
from eoslog.broker.main import run

out, at_start = Path(sys.argv[1]), set()

def ready(line):
    at_start.update(sys.modules)
    print(line.split()[4], flush=True)

options = {"log.dirs": str(out / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
options["log.cleaner.backoff.ms"] = "100"
run(BrokerConfig.from_options(options), ready)
(out / "late.json").write_text(json.dumps(sorted(set(sys.modules) - at_start)))
"""


class Watched:
    """A broker whose process says in the end which modules it has imported while it served."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        broken = directory / "path"
        broken.mkdir()
        (broken / "pandas.py").write_text("raise RuntimeError('a broken pandas')\n")
        code = f"import sys; sys.path.insert(0, {str(broken)!r})\n{PROGRAM}"
        command = [sys.executable, "-c", code, str(directory)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.bootstrap = self._process.stdout.readline().strip()

    def late(self) -> list[str]:
        """End the broker in order, and read what it has imported since its start."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(60) == 0
        found: list[str] = json.loads((self._directory / "late.json").read_text())
        return found

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    broker = Watched(tmp_path)
    yield broker
    broker.end()


def _produce(bootstrap: str, topic: str, codec: str, values: list[bytes], **settings: str) -> None:
    config = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50} | settings
    producer = Producer(config)
    if settings:
        producer.init_transactions(30)
        producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value, key=b"%d" % (number % 3), headers={"h": b"x"} if number % 2 else {})
    if settings:
        producer.commit_transaction(30)
    assert producer.flush(30) == 0


def _consume(bootstrap: str, topic: str, protocol: str, group: str) -> None:
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol,
        "auto.offset.reset": "earliest",
    })  # fmt: skip
    consumer.subscribe([topic])
    deadline = time.monotonic() + 60
    while (message := consumer.poll(0.5)) is None or message.error():
        assert time.monotonic() < deadline
    consumer.commit(asynchronous=False)
    consumer.close()


def _compacted(data: Path) -> bool:
    checkpoint = data / "cleaner-offset-checkpoint"
    return checkpoint.exists() and "compacted" in checkpoint.read_text()


def test_nothing_is_imported_while_serving(watched: Watched, tmp_path: Path) -> None:
    bootstrap = watched.bootstrap
    create(bootstrap, "compacted", **{
        "cleanup.policy": "compact", "segment.bytes": "10000", "min.cleanable.dirty.ratio": "0.01",
    })  # fmt: skip
    create(bootstrap, "plain", 2)
    for topic in ("compacted", "plain"):
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            _produce(bootstrap, topic, codec, [b"v%d" % size * size for size in range(1, 60)])
            _produce(bootstrap, topic, codec, [bytes(100_000)] * 3)
    _produce(bootstrap, "plain", "zstd", [b"in a transaction"] * 5, **{"transactional.id": "t"})
    deadline = time.monotonic() + 60
    while not _compacted(tmp_path / "data"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert read_all(bootstrap, "plain") and read_all(bootstrap, "compacted")
    for protocol in ("classic", "consumer"):
        _consume(bootstrap, "plain", protocol, protocol)
    _consume(bootstrap, "^pla.*", "consumer", "by-regex")
    _administer(bootstrap)
    host, _, port = bootstrap.rpartition(":")
    with Wire(host, int(port)) as wire:  # what no client library sends
        for data in (b"", b"garbage", sequenced(1, 5)[:-3], sequenced(1, 5)):
            parts = [{"index": 0, "records": data}]
            wire.call(ApiKey.PRODUCE, 9, acks=-1, topic_data=[{"name": "plain", "partition_data": parts}])
    late = watched.late()
    assert not late, " ".join(late)


def _administer(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = ConfigResource(ResourceType.TOPIC, "plain")
    admin.describe_configs([topic])[topic].result(30)
    admin.create_partitions([NewPartitions("plain", 3)])["plain"].result(30)
    admin.list_consumer_groups().result(30)
    for group in ("classic", "consumer"):
        admin.describe_consumer_groups([group])[group].result(30)
        asked = [ConsumerGroupTopicPartitions(group)]
        admin.list_consumer_group_offsets(asked)[group].result(30)
    admin.delete_records([TopicPartition("plain", 0, 1)])
    admin.delete_topics(["compacted"])["compacted"].result(30)
