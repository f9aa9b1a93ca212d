"""An orderly end within its bound, whatever clients are doing; a second signal does not wait for it."""

import fcntl
import os
import signal
import socket
import struct
import sys
import termios
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from eoslog.cli import main
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import encode_request
from eoslog.testing import EmbeddedBroker
from tests.broker.operations.run_command import document, ok
from tests.kit.waiting import until

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
