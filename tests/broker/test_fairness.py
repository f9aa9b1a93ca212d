"""Limits: memory stays bounded whatever clients do, connections are counted, garbage is looked for."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import time
from collections.abc import Callable

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from eoslog.broker import fairness
from eoslog.broker.fairness import LATEST_SECONDS, SMALL, GarbageWatch, Memory
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import iter_headers
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire, create
from tests.kit.program import until

MB = 1 << 20


def rss(broker: EmbeddedBroker) -> int:
    size: int = psutil.Process(broker.pid).memory_info().rss
    return size


def fill(broker: EmbeddedBroker, megabytes: int) -> None:
    """A topic `t` with so much in it."""
    create(broker.bootstrap, "t", 1, **{"max.message.bytes": "2000000"})
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "message.max.bytes": 2_000_000}
    )
    for _ in range(megabytes):
        producer.produce("t", b"x" * 1_000_000)
        producer.poll(0)
    assert producer.flush(30) == 0


def ask(wire: Wire, *, min_bytes: int = 1, max_wait_ms: int = 1, topic: str = "t", offset: int = 0) -> None:
    """Send a fetch of everything."""
    partition = {"partition": 0, "partition_max_bytes": 1 << 30, "fetch_offset": offset}
    wire.send(
        ApiKey.FETCH, 12, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=1 << 30,
        topics=[{"topic": topic, "partitions": [partition]}],
    )  # fmt: skip


def most_rss(broker: EmbeddedBroker, seconds: float) -> int:
    """The largest size seen while so many seconds pass."""
    deadline, most = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        most = max(most, rss(broker))
        time.sleep(0.05)
    return most


def served(broker: EmbeddedBroker) -> bool:
    with Wire(broker.host, broker.port) as wire:
        return bool(wire.call(ApiKey.METADATA, 9, topics=[])["brokers"])


SMALL_MEMORY = {
    "queued.max.request.bytes": str(16 * MB),
    "queued.max.response.bytes": str(32 * MB),
    "connections.max.stalled.ms": "1500",
}


def test_clients_that_do_not_read_cost_no_more_than_the_limit() -> None:
    with EmbeddedBroker(config=SMALL_MEMORY) as broker:
        fill(broker, 30)
        before = rss(broker)
        deaf = [Wire(broker.host, broker.port) for _ in range(25)]
        for number, wire in enumerate(deaf):
            for _ in range(10):  # each answer has 30 MB: 7.5 GB are asked for
                ask(wire, min_bytes=1 if number % 2 else 1 << 30, max_wait_ms=1 if number % 2 else 600_000)
        most = most_rss(broker, 1.0)
        assert served(broker)
        assert most - before < (32 + 40) * MB, f"{(most - before) / MB:.0f} MB"
        with Wire(broker.host, broker.port) as reader:  # who reads is served all the while
            for _ in range(10):
                ask(reader)
                found = reader.receive(ApiKey.FETCH, 12)["responses"][0]["partitions"][0]["records"]
                assert len(found) > 0
        assert "Traceback" not in broker.output(), broker.output()
        assert "never awaited" not in broker.output()
        for wire in deaf:
            wire.socket.close()
        until(lambda: rss(broker) - before < 60 * MB)


def test_who_does_not_read_is_cut_off_when_memory_is_short() -> None:
    with EmbeddedBroker(config=SMALL_MEMORY | {"queued.max.response.bytes": str(8 * MB)}) as broker:
        fill(broker, 12)
        deaf = [Wire(broker.host, broker.port) for _ in range(12)]
        for wire in deaf:
            for _ in range(10):
                ask(wire)
        until(lambda: "does not read its answers" in broker.output())
        with Wire(broker.host, broker.port, timeout=20) as reader:
            ask(reader)
            assert reader.receive(ApiKey.FETCH, 12)["responses"]
        for wire in deaf:
            wire.socket.close()


def test_who_reads_does_not_wait_for_those_who_do_not() -> None:
    """Their answers take all the memory; a little is kept for those who hold none."""
    with EmbeddedBroker(config=SMALL_MEMORY | {"connections.max.stalled.ms": "60000"}) as broker:
        fill(broker, 30)
        create(broker.bootstrap, "small", 1)
        with Wire(broker.host, broker.port) as writer:
            for number in range(50):
                data = encode_records([(b"", b"%d" % number * 1000)], 1)
                parts = [{"index": 0, "records": data}]
                topic = {"name": "small", "partition_data": parts}
                writer.call(ApiKey.PRODUCE, 9, acks=-1, topic_data=[topic])
        deaf = [Wire(broker.host, broker.port) for _ in range(60)]
        for wire in deaf:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(10):
                ask(wire)
        time.sleep(1)
        with Wire(broker.host, broker.port, timeout=5) as reader:
            waits, offset = [], 0
            while offset < 50:
                begun = time.monotonic()
                ask(reader, topic="small", offset=offset)
                (part,) = reader.receive(ApiKey.FETCH, 12)["responses"][0]["partitions"]
                waits.append(time.monotonic() - begun)
                offset = [header.next_offset for _, header in iter_headers(part["records"])][-1]
        assert max(waits) < 3, waits  # without the reserve: until the others are cut off, in a minute
        for wire in deaf:
            wire.socket.close()


def test_half_frames_cost_no_more_than_the_limit() -> None:
    with EmbeddedBroker(config=SMALL_MEMORY) as broker:
        assert served(broker)
        before = rss(broker)
        halves = []
        for _ in range(60):
            client = socket.create_connection((broker.host, broker.port), 5)
            client.setblocking(False)
            head = struct.pack(">i", 90 * MB)
            # 5 MB of 90 each, 300 MB in all, as far as the broker takes it: then the buffers are full.
            with contextlib.suppress(BlockingIOError):
                client.send(head)
                for _ in range(80):
                    client.send(b"x" * 65_536)
            halves.append(client)
        most = most_rss(broker, 0.7)
        assert served(broker), "small requests are served all the while"
        assert most - before < 60 * MB, f"{(most - before) / MB:.0f} MB"
        with Wire(broker.host, broker.port, timeout=20) as wire:  # a large one once the others are cut off
            data = [{"name": "no", "partition_data": [{"index": 0, "records": b"x" * (5 * MB)}]}]
            answer = wire.call(ApiKey.PRODUCE, 9, acks=-1, topic_data=data)
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 3
        until(lambda: "makes no progress with its requests" in broker.output())
        for client in halves:
            client.close()


def test_idle_connections_are_cheap(record_property: Callable[[str, object], None]) -> None:
    count = 2_000
    with EmbeddedBroker() as broker:
        assert served(broker)
        before = rss(broker)
        begun = time.monotonic()
        clients = [socket.create_connection((broker.host, broker.port), 10) for _ in range(count)]
        assert served(broker)
        took = time.monotonic() - begun
        each = (rss(broker) - before) / count
        record_property("bytes a connection", each)
        assert each < 16 << 10, f"{each:.0f} bytes a connection"
        for client in clients[:50]:
            client.sendall(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 1, -1))
        for client in clients[:50]:
            assert client.recv(4)
        for client in clients:
            client.close()
        assert took < 20


def refused(broker: EmbeddedBroker) -> bool:
    try:
        return not served(broker)
    except ConnectionError:
        return True


def test_most_connections() -> None:
    with EmbeddedBroker(config={"max.connections": "3"}) as broker:
        held = [Wire(broker.host, broker.port) for _ in range(3)]
        for wire in held:
            assert wire.call(ApiKey.METADATA, 9, topics=[])["brokers"]
        assert refused(broker)
        assert "max.connections" in broker.output()
        held.pop().socket.close()
        until(lambda: not refused(broker))
        for wire in held:
            wire.socket.close()


@pytest.mark.parametrize(("overrides", "most"), [("", 2), ("127.0.0.1:4", 4), ("localhost:3,", 3)])
def test_most_connections_of_one_address(overrides: str, most: int) -> None:
    config = {"max.connections.per.ip": "2", "max.connections.per.ip.overrides": overrides}
    with EmbeddedBroker(config=config) as broker:
        held = [Wire(broker.host, broker.port) for _ in range(most)]
        for wire in held:
            assert wire.call(ApiKey.METADATA, 9, topics=[])["brokers"]
        assert refused(broker)
        for wire in held:
            wire.socket.close()


def test_the_limit_of_one_address_changes_while_the_broker_runs() -> None:
    """KIP-226. Names of machines stand for their addresses, and one that there is not has no effect."""
    with EmbeddedBroker() as broker, Wire(broker.host, broker.port).socket as held:
        assert served(broker)
        overrides = "no.such.machine.invalid:0,localhost:1"
        option = "max.connections.per.ip.overrides"
        entry = ConfigEntry(option, overrides, incremental_operation=AlterConfigOpType.SET)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        (done,) = admin.incremental_alter_configs(
            [ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])]
        ).values()
        done.result(30)
        until(lambda: refused(broker))
        assert held.fileno() >= 0
        assert "no.such.machine.invalid has no effect" in broker.output()


def test_new_connections_wait_their_turn() -> None:
    with EmbeddedBroker(config={"max.connection.creation.rate": "5"}) as broker:
        begun = time.monotonic()
        for _ in range(10):
            assert served(broker)
        assert time.monotonic() - begun > 0.8


def test_idle_connections_are_closed_and_waiting_ones_are_not() -> None:
    with EmbeddedBroker(config={"connections.max.idle.ms": "700"}) as broker:
        create(broker.bootstrap, "t")
        idle, waiting = Wire(broker.host, broker.port), Wire(broker.host, broker.port)
        ask(waiting, max_wait_ms=2500)
        assert idle.socket.recv(1) == b""
        assert waiting.receive(ApiKey.FETCH, 12)["responses"]
        waiting.socket.close()


# The accounts themselves


class Reader:
    def __init__(self) -> None:
        self.called = 0

    def advance(self) -> None:
        self.called += 1


def test_some_large_requests_always_get_on() -> None:
    async def judge() -> None:
        memory = Memory(request_limit=100_000, largest=80_000)
        first, second, third = Reader(), Reader(), Reader()
        memory.change_requests(150_000)
        assert memory.may_read(first, 50_000, 90_000), "one gets on, however large"
        assert not memory.may_read(second, 50_000, 60_000)
        assert memory.may_read(third, SMALL, 70_000), "small ones are never held up"
        memory.forget(first)
        await asyncio.sleep(0)
        assert second.called == 1
        assert memory.may_read(second, 50_000, 60_000)
        assert memory.may_read(first, 50_000, 20_000), "what is left fits"
        assert not memory.may_read(third, SMALL + 1, 1)
        memory.change_requests(-100_000)
        await asyncio.sleep(0)
        assert third.called == 1
        assert memory.may_read(third, SMALL + 1, 1 << 30)

    asyncio.run(judge())


def test_no_limits() -> None:
    memory = Memory(-1, -1)
    memory.change_requests(1 << 40)
    memory.change_answers(1 << 40)
    assert not memory.requests_short
    assert not memory.answers_short
    assert memory.room() > 1 << 40


# -- garbage -------------------------------------------------------------------------------------
# When the broker looks among all objects for garbage.

DUE = 10


def test_it_looks_when_python_would_have() -> None:
    watch = GarbageWatch(DUE)
    assert not watch.is_time(0, DUE - 1, busy=False)
    assert watch.is_time(1, DUE, busy=False)


def test_not_while_something_large_is_served_but_not_much_later_either() -> None:
    watch = GarbageWatch(DUE)
    assert not watch.is_time(0, DUE, busy=True)
    assert not watch.is_time(LATEST_SECONDS - 0.1, DUE, busy=True)
    assert watch.is_time(LATEST_SECONDS, DUE, busy=True)
    assert not watch.is_time(LATEST_SECONDS + 1, DUE, busy=True)  # it is due anew


def test_what_was_due_and_was_done_by_others_is_due_no_more() -> None:
    watch = GarbageWatch(DUE)
    assert not watch.is_time(0, DUE, busy=True)
    assert not watch.is_time(1, 0, busy=True)
    assert not watch.is_time(LATEST_SECONDS + 1, DUE, busy=True)


def test_python_does_not_do_it_by_itself_while_we_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_threshold()
    looks = []
    monkeypatch.setattr(fairness, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, before[2]))
    monkeypatch.setattr(gc, "collect", lambda: looks.append(gc.get_threshold()))

    async def watched() -> None:
        task = asyncio.create_task(fairness.watch_garbage(lambda: False))
        while not looks:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(watched())
    assert looks[0][:2] == before[:2] and looks[0][2] > 1_000_000
    assert gc.get_threshold() == before
