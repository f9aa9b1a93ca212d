"""The broker as a process: ready soon, one line, clear refusals, clean ends, no imports while it serves."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, ResourceType

import eoslog
from eoslog.cli import main
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import encode_request
from eoslog.testing import BrokerFailed, EmbeddedBroker
from tests.broker.broker_clients import Wire, create, document, numbers, ok, read_all
from tests.broker.log.logkit import sequenced
from tests.kit.program import until


def eoslog_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eoslog", *arguments], capture_output=True, text=True, timeout=30, check=False
    )


def test_version() -> None:
    assert eoslog_command("--version").stdout.strip().endswith(eoslog.__version__)


def test_ready_soon() -> None:
    """The promise is 0.5 s. Of the processor's time: what else the machine does is not the broker's."""
    times = []
    for _ in range(3):
        with EmbeddedBroker() as broker:
            used = psutil.Process(broker.pid).cpu_times()
            times.append(used.user + used.system)
    print(f"ready on an empty directory after {', '.join(f'{t:.2f}' for t in times)} s of the processor")
    assert min(times) < 1.5


def test_the_brokers_path_imports_no_heavy_library(tmp_path: Path) -> None:
    code = "import sys, eoslog.cli, eoslog.broker.main, eoslog.broker.handlers; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pyspark", "pandas", "numpy", "pyarrow", "cryptography", "eoslog.connector", "eoslog.client"}
    assert not heavy & set(done.stdout.split())


def test_one_line_when_ready(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "eoslog", "broker", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
    command += ["--log-level", "warning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        wanted = rf"eoslog broker ready at 127\.0\.0\.1:\d+ \(data {tmp_path}, flush fsync\)\n"
        assert re.fullmatch(wanted, line)
        process.terminate()
        assert (process.stdout.read(), process.stderr.read(), process.wait(10)) == ("", "", 0)


def refusal(**how: object) -> str:
    with pytest.raises(BrokerFailed) as caught:
        EmbeddedBroker(**how).start()  # type: ignore[arg-type]
    text = str(caught.value)
    assert "exit status 1" in text
    assert len(text.strip().splitlines()) == 1, text
    return text


def test_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port} is in use" in refusal(data=tmp_path / "d", port=port)


def test_directory_locked(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        assert "another broker is running on it" in refusal(data=tmp_path)
        broker.kill()  # a killed broker leaves no lock behind
        broker.start()


def test_directory_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "give another --data?" in refusal(data=tmp_path / "file" / "data")
    if os.getuid():  # root may write anywhere
        tmp_path.chmod(0o500)
        assert "give another --data?" in refusal(data=tmp_path / "data")


def test_directory_of_another_node(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path):
        pass
    assert "belongs to node.id=1" in refusal(data=tmp_path, config={"node.id": "7"})


def test_damaged_data_is_named(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        producer.produce("t", b"x")
        assert producer.flush(10) == 0
    (tmp_path / "producer-ids").write_text("garbage")
    assert "producer-ids" in refusal(data=tmp_path)


@pytest.mark.parametrize(
    ("config", "said"),
    [({"no.such.option": "1"}, "no.such.option"), ({"num.partitions": "many"}, "num.partitions=many")],
)
def test_config_refused(tmp_path: Path, config: dict[str, str], said: str) -> None:
    assert said in refusal(data=tmp_path, config=config)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_clean_end_with_clients_connected(tmp_path: Path, number: signal.Signals) -> None:
    with EmbeddedBroker(tmp_path) as broker, Wire(broker.host, broker.port) as wire:
        create(broker.bootstrap, "t")
        wire.send(
            ApiKey.FETCH, 12, max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20,
            topics=[{"topic": "t", "partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]}],
        )  # fmt: skip
        assert broker.stop(number) == 0
        assert broker.output() == ""
        broker.start()


def timeless(answer: dict[str, Any]) -> dict[str, Any]:
    """Metadata but for the leaders' epochs: each life of a broker has one of its own."""
    for topic in answer["topics"]:
        for partition in topic["partitions"]:
            partition["leader_epoch"] = 0
    return answer


@pytest.mark.parametrize("flush", ["fsync", "os"])
def test_a_restart_keeps_topics_records_and_offsets(tmp_path: Path, flush: str) -> None:
    with EmbeddedBroker(tmp_path, flush=flush) as broker:
        create(broker.bootstrap, "t", 2, **{"max.message.bytes": "5000"})
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(100):
            producer.produce("t", str(number).encode(), partition=number % 2)
        assert producer.flush(10) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("t", 0, 30, "a word")], asynchronous=False)
        with Wire(broker.host, broker.port) as wire:
            before = timeless(wire.call(ApiKey.METADATA, 12, topics=None))
        for end in (broker.stop, broker.kill):
            end()
            broker.start()
            with Wire(broker.host, broker.port) as wire:
                assert timeless(wire.call(ApiKey.METADATA, 12, topics=None)) == before
            assert numbers(read_all(broker.bootstrap, "t")) == {p: list(range(p, 100, 2)) for p in range(2)}
            (found,) = consumer.committed([TopicPartition("t", 0)], 10)
            assert (found.offset, found.metadata) == (30, "a word")
        consumer.close()


def test_a_wildcard_address_is_told_as_the_client_reached_it() -> None:
    with EmbeddedBroker() as broker:
        broker.stop()
        broker.host = "0.0.0.0"
        broker.start()
        with Wire("127.0.0.1", broker.port) as wire:
            (node,) = wire.call(ApiKey.METADATA, 9, topics=[])["brokers"]
        assert (node["host"], node["port"]) == ("127.0.0.1", broker.port)


# -- the end -------------------------------------------------------------------------------------
# An orderly end within its bound, whatever clients are doing; a second signal does not wait for it.

GRACE_S = 1.5
MINUTE_MS = 60_000


class Raw:
    """A connection that sends requests and reads answers only when told to."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.socket = socket.create_connection((broker.host, broker.port), timeout=20)

    def send(self, api: ApiKey, version: int, body: dict[str, object]) -> None:
        self.socket.sendall(b"".join(encode_request(api, version, 1, "test", body)))

    def answer(self) -> bytes:
        (size,) = struct.unpack(">i", self.socket.recv(4, socket.MSG_WAITALL))
        return self.socket.recv(size, socket.MSG_WAITALL)


def parked_fetch(broker: EmbeddedBroker, topic: str) -> Raw:
    """Waits a minute for a megabyte that does not come."""
    client, size = Raw(broker), 1 << 20
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": size}
    topics = [{"topic": topic, "partitions": [part]}]
    waiting = {"replica_id": -1, "max_wait_ms": MINUTE_MS, "min_bytes": size, "max_bytes": size}
    client.send(ApiKey.FETCH, 11, {**waiting, "topics": topics})
    return client


def join(broker: EmbeddedBroker, group: str) -> Raw:
    client = Raw(broker)
    protocols = [{"name": "range", "metadata": b""}]
    body = {"group_id": group, "member_id": "", "protocol_type": "consumer", "protocols": protocols}
    limits = {"session_timeout_ms": MINUTE_MS, "rebalance_timeout_ms": MINUTE_MS}
    client.send(ApiKey.JOIN_GROUP, 2, {**body, **limits})
    return client


def parked_join(broker: EmbeddedBroker, group: str) -> list[Raw]:
    """The second one waits for the first one, which does not come back for the rebalance."""
    first = join(broker, group)
    first.answer()
    return [first, join(broker, group)]


def deaf(broker: EmbeddedBroker) -> Raw:
    """Asks for eight megabytes of answers and reads none, so that they cannot be sent."""
    client = Raw(broker)
    topics = [{"name": "quiet", "partition_indexes": list(range(10_000))}]
    for _ in range(40):
        client.send(ApiKey.OFFSET_FETCH, 5, {"group_id": "deaf", "topics": topics})
    return client


def deaf_reader(broker: EmbeddedBroker, topic: str) -> Raw:
    """Forty fetches wait for a record of 0.9 MB; it comes, and none of their answers is read."""
    client, size = Raw(broker), 1 << 20
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": size}
    limits = {"replica_id": -1, "max_wait_ms": MINUTE_MS, "min_bytes": 1, "max_bytes": size}
    body = {**limits, "topics": [{"topic": topic, "partitions": [part]}]}
    client.socket.sendall(b"".join(encode_request(ApiKey.FETCH, 11, 1, "test", body)) * 40)
    time.sleep(0.2)  # if some have not begun by then they find the record, which is all the same
    ok(broker, "produce", topic, input="x" * 900_000 + "\n")
    before, since = 0, time.monotonic()
    while time.monotonic() - since < 0.5 or not before:  # until no more can be sent
        come = int.from_bytes(fcntl.ioctl(client.socket, termios.FIONREAD, bytes(4)), sys.byteorder)
        if come != before:
            before, since = come, time.monotonic()
        time.sleep(0.02)
    return client


def open_transaction(broker: EmbeddedBroker, topic: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(20)
    return producer


def spoil_first_batch(data: Path, partition: str) -> None:
    """Change a byte that only a scan looks at."""
    path = data / partition / ("0" * 20 + ".log")
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)


def test_it_ends_within_its_bound_and_the_next_start_scans_nothing(tmp_path: Path) -> None:
    config = {"shutdown.grace.ms": str(int(GRACE_S * 1000))}
    with EmbeddedBroker(tmp_path / "data", config=config, log_level="info") as broker:
        ok(broker, "topics", "create", "busy", "quiet")
        ok(broker, "produce", "busy", input="a\nb\n")
        clients = [parked_fetch(broker, "quiet") for _ in range(20)]
        clients += [client for number in range(5) for client in parked_join(broker, f"group-{number}")]
        clients += [deaf(broker) for _ in range(3)]
        clients += [Raw(broker) for _ in range(67)]
        producers = [open_transaction(broker, "busy", f"t-{number}") for number in range(3)]
        begun = time.monotonic()
        status = broker.stop()
        took = time.monotonic() - begun
        print(f"ended after {took:.2f} s with {len(clients)} connections and {len(producers)} transactions")
        assert status == 0
        assert "ended in order" in broker.output()
        assert took < GRACE_S + 20, broker.output()

        spoil_first_batch(broker.data, "busy-0")
        broker.start()
        assert "0 findings of the recovery" in broker.output()
        (row,) = document(broker, "topics", "describe", "busy")
        assert (row["end"], row["stable"]) == (5, 2)
        assert len(document(broker, "transactions", "list", "--state", "Ongoing")) == 3
        broker.stop()
    assert "wrong CRC" in CliRunner().invoke(main, ["log", "verify", str(tmp_path / "data")]).output


def test_parked_requests_do_not_use_up_the_grace(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data", config={"shutdown.grace.ms": "60000"}) as broker:
        ok(broker, "topics", "create", "quiet")
        clients = [parked_fetch(broker, "quiet"), *parked_join(broker, "group")]
        begun = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - begun < 30
        assert all(client.socket.fileno() > 0 for client in clients)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(tmp_path: Path, number: signal.Signals) -> None:
    config = {"shutdown.grace.ms": "60000"}
    with EmbeddedBroker(tmp_path / "data", config=config, log_level="info") as broker:
        ok(broker, "topics", "create", "kept", "quiet")
        ok(broker, "produce", "kept", input="a\nb\n")
        client = deaf_reader(broker, "quiet")
        os.kill(broker.pid, number)
        until(lambda: "a second signal ends at once" in broker.output(), "it is told", 10)
        begun = time.monotonic()
        assert broker.stop(number) == 128 + number
        assert time.monotonic() - begun < 30
        client.socket.close()
        broker.start()
        assert ok(broker, "consume", "kept", "--from-beginning", "--to-end") == "a\nb\n"


# -- imports -------------------------------------------------------------------------------------
# Nothing is imported while the broker serves: an import stops all clients, for up to half a second.

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
