"""How the bundled broker grows: partitions, transactional ids and connections, each ten times over.

    python -m benchmarks.scale [--partitions 1000] [--ids 10000] [--connections 2000]

For each number: seconds from the start of the process to its ready line (after a clean stop), resident
memory, and the median time of a small durable Produce and of an InitProducerId while all of it is there.

`make bench` has lines of the broker by itself from here: start, memory, recovery, and how costs grow.
"""

from __future__ import annotations

import argparse
import resource
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from benchmarks.broker import Subject, send
from benchmarks.results import AT_LEAST, FLUSHED, PAGE_CACHE, Figure, Goal, Result, Section
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import BatchHeader, iter_headers
from eoslog.protocol.frames import decode_response, encode_request
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import EmbeddedBroker
from tests.kit.kafka_nodes import ApacheKafka

if TYPE_CHECKING:
    from benchmarks.run import Context


# -- sizes -----------------------------------------------------------------------------------------

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


# -- lines of the table ----------------------------------------------------------------------------

OURS, THEIRS = "eoslog broker", "Apache Kafka"
_BATCH_RECORDS, _RECORD = 900, 1_000
_UNDER_WAY = 4
_MOST_IDLE_MB = 80  # pyarrow 25, NumPy 10: imported at the start so that nothing is while it serves
_IDLE_SECONDS = 1.0
_GROWTH_TURNS = 3
_MEASURED_RECORDS = 200_000


def _single(line: str, work: str, unit: str, bound: float, values: list[float], *more: Figure) -> Result:
    own = Figure(OURS, values, FLUSHED, AT_LEAST)
    return Result(line, work, unit, Goal("most", bound), [own, *more])


def start(context: Context) -> list[Result]:
    """Process start to ready, of an empty broker; Apache Kafka's once."""
    ready = []
    for _ in range(context.sizes.rounds):
        with EmbeddedBroker() as broker:
            ready.append(broker.ready_after)
    with ApacheKafka(context.jars) as peer:
        beside = Figure(THEIRS, [peer.ready_after], PAGE_CACHE, AT_LEAST)
    return [_single("broker-start", "broker: start to ready", "s", 0.3, ready, beside)]


def idle(context: Context) -> list[Result]:
    """Memory of an empty broker when idle; Apache Kafka's once. No load of the machine changes it."""
    memory = []
    for _ in range(context.sizes.rounds):
        with EmbeddedBroker() as broker:
            memory.append(_resident(broker.pid))
    with ApacheKafka(context.jars) as peer:
        time.sleep(_IDLE_SECONDS)
        beside = Figure(THEIRS, [_resident(peer.pid)], PAGE_CACHE, AT_LEAST)
    return [_single("broker-idle", "broker: memory when idle", "MB", _MOST_IDLE_MB, memory, beside)]


def _resident(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss / 1e6)


def large_log(context: Context) -> list[Result]:
    """10 GB through the broker, in and out; then kill -9, and until it is ready again."""
    wanted = int(10e9 * context.sizes.share)
    with EmbeddedBroker() as broker:
        client = Client(broker)
        create(client, "large", 1)
        written, records = _fill(client, wanted)
        assert _read_back(client, records) == records, "what arrived is not what was sent"
        client.close()
        memory = _resident(broker.pid)
        times = []
        for _ in range(context.sizes.rounds):
            broker.kill()
            broker.start()
            times.append(broker.ready_after)
        client = Client(broker)
        assert _end(client) == records, "the log's end is not where it was before kill -9"
        client.close()
    size = f"{written / 1e9:.1f} GB"
    return [
        _single("broker-large", f"broker: memory after {size} through it", "MB", 150, [memory]),
        _single("broker-large", f"broker: recovery after kill -9 with {size} of log", "s", 1.0, times),
    ]


def _fill(client: Client, wanted: int) -> tuple[int, int]:
    """Produces about `wanted` bytes; returns bytes and records that were acknowledged."""
    now = int(time.time() * 1000)
    batch = encode_records([(None, b"v" * _RECORD)] * _BATCH_RECORDS, now)
    requests = max(wanted // len(batch), _UNDER_WAY)
    data = [{"name": "large", "partition_data": [{"index": 0, "records": batch}]}]
    for number in range(requests + _UNDER_WAY):
        if number < requests:
            client.send(ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=data)
        if number >= _UNDER_WAY:
            (topic,) = client.receive(ApiKey.PRODUCE, 9)["responses"]
            assert topic["partition_responses"][0]["error_code"] == 0, topic
    return requests * len(batch), requests * _BATCH_RECORDS


def _read_back(client: Client, records: int) -> int:
    """How many records a reader gets, from the first to the last."""
    at = 0
    while at < records:
        wanted = {"partition": 0, "fetch_offset": at, "partition_max_bytes": 8 << 20}
        answer = client.call(
            ApiKey.FETCH, 12, replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=8 << 20,
            isolation_level=1, topics=[{"topic": "large", "partitions": [wanted]}], rack_id="",
        )  # fmt: skip
        got = answer["responses"][0]["partitions"][0]["records"]
        found = sum(header.count for header in _headers(got))
        assert found, f"nothing to read at {at} of {records}"
        at += found
    return at


def _headers(got: memoryview) -> Iterator[BatchHeader]:
    return (header for _, header in iter_headers(got))


def _end(client: Client) -> int:
    wanted = {"partition_index": 0, "timestamp": -1}
    answer = client.call(
        ApiKey.LIST_OFFSETS, 6, replica_id=-1, isolation_level=0,
        topics=[{"name": "large", "partitions": [wanted]}],
    )  # fmt: skip
    return int(answer["topics"][0]["partitions"][0]["offset"])


def growth(context: Context) -> list[Result]:
    """The cost of a record or a request while there is more and more of something."""
    share, results = context.sizes.share, []
    with EmbeddedBroker() as broker:
        subject = Subject(OURS, broker.bootstrap, broker.pid)
        values = _behind(subject, (10**5, 10**6, int(10**7 * share)))
    results.append(_flat("records", "ns of a record behind so many in the partition, 100 B", "ns", values))
    for what, numbers, measure in (
        ("partitions", (1, 10, 100, 1_000), with_partitions),
        ("transactional ids", (10, 1_000, max(int(100_000 * share), 2_000)), with_ids),
        ("open transactions", (0, 10, 100, 1_000), with_open_transactions),
    ):
        turns = [{number: measure(number) for number in numbers} for _ in range(_GROWTH_TURNS)]
        produced = {number: [turn[number].produce_ms for turn in turns] for number in numbers}
        acquired = {number: [turn[number].acquire_ms for turn in turns] for number in numbers}
        results.append(_flat(what, "ms of a durable Produce", "ms", produced))
        results.append(_flat(what, "ms of an InitProducerId", "ms", acquired))
    return results


def _behind(subject: Subject, levels: Sequence[int]) -> dict[int, list[float]]:
    """ns of a record sent to a partition that holds so many already, by an idempotent producer at work."""
    topic, producer, sent = subject.topic(), subject.producer(), 0

    def more(records: int) -> float:
        nonlocal sent
        started = time.perf_counter()
        send(producer, topic, records, b"v" * 100, lambda: None)
        assert producer.flush(60) == 0
        sent += records
        return (time.perf_counter() - started) / records * 1e9

    found = {}
    for level in levels:
        more(level - sent)
        found[level] = [more(_MEASURED_RECORDS) for _ in range(_GROWTH_TURNS)]
    subject.expect_end(topic, sent)
    return found


def _flat(what: str, cost: str, unit: str, values: dict[int, list[float]]) -> Result:
    figures = [Figure(f"{number:,} {what}", found, FLUSHED, AT_LEAST) for number, found in values.items()]
    middles = [statistics.median(found) for found in values.values()]
    note = f"the last is {middles[-1] / middles[0]:.2f} of the first"
    return Result("growth", f"growth, {what}: {cost}", unit, Goal("flat", 1.2), figures, note)


SECTIONS = [
    Section("broker-start", start),
    Section("broker-idle", idle),
    Section("broker-large", large_log),
    Section("growth", growth),
]


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
