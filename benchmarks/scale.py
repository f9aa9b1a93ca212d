"""How the bundled broker grows: partitions, transactional ids and connections, each ten times over.

    python -m benchmarks.scale [--partitions 1000] [--ids 10000] [--connections 2000]

For each number: seconds from the start of the process to its ready line (after a clean stop), resident
memory, and the median time of a small durable Produce and of an InitProducerId while all of it is there.
"""

from __future__ import annotations

import argparse
import resource
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import psutil

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import decode_response, encode_request
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import EmbeddedBroker

PIPELINED = 32
SAMPLES = 300


class Client:
    """One blocking connection."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._socket = socket.create_connection((broker.host, broker.port), 60)
        self._file = self._socket.makefile("rb")

    def send(self, key: ApiKey, version: int, **body: Any) -> None:
        self._socket.sendall(b"".join(encode_request(key, version, 1, "scale", body)))

    def receive(self, key: ApiKey, version: int) -> dict[str, Any]:
        (size,) = struct.unpack(">i", self._file.read(4))
        message: dict[str, Any] = decode_response(key, version, self._file.read(size))[1]
        return message

    def call(self, key: ApiKey, version: int, **body: Any) -> dict[str, Any]:
        self.send(key, version, **body)
        return self.receive(key, version)

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def create(client: Client, topic: str, partitions: int) -> None:
    wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
    (made,) = client.call(ApiKey.CREATE_TOPICS, 7, topics=[wanted])["topics"]
    assert made["error_code"] == 0, made


def acquire(client: Client, names: Iterator[str]) -> None:
    """InitProducerId for every name, some of them on their way at a time."""
    waiting: list[str] = []
    for name in names:
        client.send(
            ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout_ms=60_000,
            producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        waiting.append(name)
        if len(waiting) == PIPELINED:
            take(client, len(waiting))
            waiting.clear()
    take(client, len(waiting))


def take(client: Client, answers: int) -> None:
    for _ in range(answers):
        assert client.receive(ApiKey.INIT_PRODUCER_ID, 4)["error_code"] == 0


def median_ms(action: Callable[[], object]) -> float:
    action()
    times = []
    for _ in range(SAMPLES):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


class Found(NamedTuple):
    """Resident MB; ms of a durable Produce; ms of an InitProducerId of a known id; seconds to ready."""

    resident: float
    produce_ms: float
    acquire_ms: float
    ready: float | None = None


def measure(broker: EmbeddedBroker, topic: str) -> Found:
    client = Client(broker)

    def produce() -> None:
        records = encode_records([(None, b"v")], int(time.time() * 1000))
        data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        (answer,) = client.call(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=5000, topic_data=data)["responses"]
        assert answer["partition_responses"][0]["error_code"] == 0

    produced = median_ms(produce)
    acquired = median_ms(lambda: acquire(client, iter(["known"])))
    client.close()
    return Found(psutil.Process(broker.pid).memory_info().rss / 1e6, produced, acquired)


def row(what: str, number: int, found: Found) -> None:
    start = f"{found.ready:6.2f}" if found.ready is not None else "     -"
    print(
        f"| {what} | {number:6,} | {start} | {found[0]:6.1f} | {found[1]:6.2f} | {found[2]:6.2f} |",
        flush=True,
    )


def restarted(broker: EmbeddedBroker) -> float:
    """Seconds to ready of the better of three starts, each after a clean stop."""
    times = []
    for _ in range(3):
        broker.stop()
        broker.start()
        times.append(broker.ready_after)
    return min(times)


def grown_by(limit: int) -> Iterator[int]:
    yield from (max(1, limit // 100), max(1, limit // 10), limit)


def with_partitions(number: int) -> Found:
    with EmbeddedBroker() as broker:
        client = Client(broker)
        create(client, "many", number)
        client.close()
        ready = restarted(broker)
        return measure(broker, "many")._replace(ready=ready)


def with_ids(number: int) -> Found:
    with EmbeddedBroker() as broker:
        client = Client(broker)
        create(client, "one", 1)
        acquire(client, (f"id-{n}" for n in range(number)))
        client.close()
        ready = restarted(broker)
        return measure(broker, "one")._replace(ready=ready)


def with_connections(number: int) -> Found:
    with EmbeddedBroker() as broker, ExitStack() as stack:
        first = Client(broker)
        create(first, "one", 1)
        first.close()
        for _ in range(number):
            client = Client(broker)
            stack.callback(client.close)
            client.call(ApiKey.API_VERSIONS, 3, client_software_name="scale", client_software_version="1")
        return measure(broker, "one")


def with_open_transactions(number: int) -> Found:
    """Each open one has a record in another topic, so that it is begun for the log too."""
    with EmbeddedBroker() as broker:
        client = Client(broker)
        create(client, "one", 1)
        create(client, "held", 8)
        for at in range(number):
            begin(client, f"open-{at}", "held", at % 8)
        client.close()
        return measure(broker, "one")


def begin(client: Client, name: str, topic: str, partition: int) -> None:
    """A transaction with one record, left open."""
    made = client.call(
        ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout_ms=900_000,
        producer_id=-1, producer_epoch=-1,
    )  # fmt: skip
    assert made["error_code"] == 0, made
    batch = encode_records(
        [(None, b"v")], int(time.time() * 1000), producer_id=made["producer_id"],
        producer_epoch=made["producer_epoch"], base_sequence=0, transactional=True,
    )  # fmt: skip
    data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
    answer = client.call(ApiKey.PRODUCE, 12, transactional_id=name, acks=-1, timeout_ms=5000, topic_data=data)
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--ids", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=2_000)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print("| what | number | start to ready, s | resident, MB | durable Produce, ms | InitProducerId, ms |")
    print("|---|---|---|---|---|---|")
    for what, measured, limit in (
        ("partitions", with_partitions, options.partitions),
        ("transactional ids", with_ids, options.ids),
        ("connections", with_connections, options.connections),
    ):
        for number in grown_by(limit):
            row(what, number, measured(number))


if __name__ == "__main__":
    main()
