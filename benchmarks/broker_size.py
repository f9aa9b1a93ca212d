"""The bundled broker by itself: start, memory, recovery, and how costs grow."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence

import psutil

from benchmarks import scale
from benchmarks.broker import Subject, send
from benchmarks.context import Context
from benchmarks.lines import AT_LEAST, FLUSHED, PAGE_CACHE, Figure, Goal, Result, Section
from benchmarks.peer_kafka import ApacheKafka
from benchmarks.scale import Client
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import BatchHeader, iter_headers
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import EmbeddedBroker

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
        scale.create(client, "large", 1)
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
        ("partitions", (1, 10, 100, 1_000), scale.with_partitions),
        ("transactional ids", (10, 1_000, max(int(100_000 * share), 2_000)), scale.with_ids),
        ("open transactions", (0, 10, 100, 1_000), scale.with_open_transactions),
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
