"""Requests of many parts: nobody waits for what another asks, and each part is told once, in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from eoslog.broker.fairness import Turns
from eoslog.broker.network.dispatch import serve
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import encode_request
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire, create

MANY = 20_000
NAMES = [f"n{number}" for number in range(MANY)]
TOPICS = [f"t{number}" for number in range(300)]

ASKED: dict[str, tuple[ApiKey, int, dict[str, Any], str, str]] = {
    "metadata": (
        ApiKey.METADATA, 9,
        {"topics": [{"name": name} for name in NAMES], "allow_auto_topic_creation": False}, "topics", "name",
    ),
    "offsets": (
        ApiKey.LIST_OFFSETS, 5,
        {"topics": [
            {"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]} for name in NAMES
        ]}, "topics", "name",
    ),
    "fetched partitions": (
        ApiKey.FETCH, 12,
        {"session_epoch": -1, "topics": [
            {"topic": name, "partitions": [{"partition": 0, "fetch_offset": 0}]} for name in NAMES
        ]}, "responses", "topic",
    ),
    "configs": (
        ApiKey.DESCRIBE_CONFIGS, 4,
        {"resources": [{"resource_type": 2, "resource_name": name} for name in TOPICS]},
        "results", "resource_name",
    ),
    "groups": (ApiKey.DESCRIBE_GROUPS, 5, {"groups": NAMES}, "groups", "group_id"),
    "deleted groups": (ApiKey.DELETE_GROUPS, 2, {"groups_names": NAMES}, "results", "group_id"),
    "group offsets": (
        ApiKey.OFFSET_FETCH, 8,
        {"groups": [{"group_id": name, "topics": None} for name in NAMES], "require_stable": False},
        "groups", "group_id",
    ),
    "coordinators": (
        ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": NAMES, "key_type": 0}, "coordinators", "key",
    ),
    "transactions": (
        ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": NAMES}, "transaction_states",
        "transactional_id",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap})
        for done in admin.create_topics([NewTopic(name, 1) for name in TOPICS]).values():
            done.result(30)
        yield started


class Other(threading.Thread):
    """Asks something small again and again; `answered`: how often it was."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        super().__init__(daemon=True)
        self._wire = Wire(broker.host, broker.port)
        self._frame = b"".join(encode_request(ApiKey.METADATA, 9, 1, "other", {"topics": []}))
        self.answered, self.on = 0, True

    def run(self) -> None:
        while self.on:
            self._wire.socket.sendall(self._frame)
            self._wire.receive(ApiKey.METADATA, 9)
            self.answered += 1


@pytest.mark.parametrize("what", ASKED)
def test_another_is_served_in_between(broker: EmbeddedBroker, what: str) -> None:
    """Counted, not timed: a machine with other work is slower in both."""
    key, version, body, told, name = ASKED[what]
    frame = b"".join(encode_request(key, version, 1, "many", body))
    with Wire(broker.host, broker.port) as wire:
        counts = []
        for _ in range(3):
            other = Other(broker)
            other.start()
            wire.socket.sendall(frame[:-1])
            time.sleep(0.2)  # it has all been read
            before = other.answered
            wire.socket.sendall(frame[-1:])
            size = int.from_bytes(wire.exactly(4), "big")
            counts.append(other.answered - before)
            other.on = False
            assert wire.exactly(size)
            other.join()
        assert sorted(counts)[1] > 5, counts
        wire.send(key, version, **body)
        found = wire.receive(key, version)[told]
        names = TOPICS if what == "configs" else NAMES
        assert [one[name] for one in found] == names


def test_the_next_request_begins_after_it(broker: EmbeddedBroker) -> None:
    key, version, body, told, _ = ASKED["groups"]
    with Wire(broker.host, broker.port) as wire:
        wire.send(key, version, **body)
        wire.send(ApiKey.METADATA, 9, topics=[])
        assert len(wire.receive(key, version)[told]) == MANY
        assert wire.receive(ApiKey.METADATA, 9)["brokers"]


def test_a_large_request_that_makes_no_sense_closes_the_connection(broker: EmbeddedBroker) -> None:
    frame = b"".join(encode_request(ApiKey.DESCRIBE_GROUPS, 5, 1, "many", {"groups": NAMES}))
    with Wire(broker.host, broker.port) as wire:
        wire.socket.sendall(frame[:100] + b"\xff" * (len(frame) - 100))
        with pytest.raises(ConnectionError):
            wire.exactly(4)
    with Wire(broker.host, broker.port) as wire:
        assert wire.call(ApiKey.METADATA, 9, topics=[])["brokers"]
    assert "Traceback" not in broker.output()


def test_a_resource_named_twice_is_told_once(broker: EmbeddedBroker) -> None:
    with Wire(broker.host, broker.port) as wire:
        resources = [{"resource_type": 2, "resource_name": "t1"}] * 300
        assert len(wire.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=resources)["results"]) == 1


def test_partitions_of_one_topic_are_told_together(broker: EmbeddedBroker) -> None:
    """In their order, whatever the step they were served in."""
    wanted = [{"partition_index": index, "timestamp": -1} for index in range(3000)]
    topics = [{"name": "t1", "partitions": wanted}, {"name": "t2", "partitions": wanted[:2]}]
    with Wire(broker.host, broker.port) as wire:
        first, second = wire.call(ApiKey.LIST_OFFSETS, 5, topics=topics)["topics"]
    assert [part["partition_index"] for part in first["partitions"]] == list(range(3000))
    assert [part["error_code"] for part in first["partitions"]] == [0] + [3] * 2999
    assert (second["name"], len(second["partitions"])) == ("t2", 2)


def test_partitions_that_are_asked_for_twice_are_refused_in_whatever_step(broker: EmbeddedBroker) -> None:
    wanted = [{"partition_index": index % 2999, "timestamp": -1} for index in range(3000)]
    with Wire(broker.host, broker.port) as wire:
        topics = [{"name": "t1", "partitions": wanted}]
        (told,) = wire.call(ApiKey.LIST_OFFSETS, 5, topics=topics)["topics"]
    codes = sorted((part["partition_index"], part["error_code"]) for part in told["partitions"])
    assert codes == [(0, 42), (0, 42), *((index, 3) for index in range(1, 2999))]


@pytest.mark.parametrize(("key", "most"), [(ApiKey.METADATA, 100_000), (ApiKey.DELETE_TOPICS, 20_000)])
def test_who_names_too_many_things_is_told_so_in_the_log(
    broker: EmbeddedBroker, key: ApiKey, most: int
) -> None:
    """They would hold everybody up, or take the memory."""
    version = 5 if key == ApiKey.DELETE_TOPICS else 9

    def body(count: int) -> dict[str, Any]:
        if key == ApiKey.DELETE_TOPICS:
            return {"topic_names": ["no-topic"] * count, "timeout_ms": 1000}
        return {"topics": [{"name": "no-topic"}] * count, "allow_auto_topic_creation": False}

    with Wire(broker.host, broker.port) as wire:
        assert wire.call(key, version, **body(most))
        wire.send(key, version, **body(most + 1))
        with pytest.raises(ConnectionError):
            wire.exactly(4)
    assert "more items than are read in one message" in broker.output()


def test_fetches_of_much_are_read_in_rounds_of_their_own() -> None:
    """Of the event loop: sixty at once would hold up all others."""

    async def read() -> list[bool]:
        turns = Turns()
        told = [turns.has_read_enough]
        turns.has_read(3 << 20)
        told.append(turns.has_read_enough)
        turns.has_read(2 << 20)
        told.append(turns.has_read_enough)
        await asyncio.sleep(0)
        return [*told, turns.has_read_enough]

    assert asyncio.run(read()) == [False, False, True, False]


def test_who_comes_when_much_was_read_waits_for_the_next_round() -> None:
    async def read() -> list[int]:
        turns, rounds, loop = Turns(), [0], asyncio.get_running_loop()

        def next_round() -> None:
            rounds[0] += 1
            loop.call_soon(next_round)

        async def one() -> int:
            while turns.has_read_enough:
                await turns.next()
            turns.has_read(5 << 20)
            return rounds[0]

        loop.call_soon(next_round)
        return await asyncio.gather(*(one() for _ in range(5)))

    assert len(set(asyncio.run(read()))) == 5


def test_another_is_served_between_fetches_of_much(broker: EmbeddedBroker) -> None:
    """The broker stands still until all have asked, so that it finds their requests in one round."""
    create(broker.bootstrap, "large", 1)
    with Wire(broker.host, broker.port) as wire:
        for _ in range(8):
            part = {"index": 0, "records": encode_records([(b"", bytes(1_000_000))], 1)}
            wire.call(ApiKey.PRODUCE, 9, acks=-1, topic_data=[{"name": "large", "partition_data": [part]}])
    partition = {"partition": 0, "partition_max_bytes": 1 << 30}
    counts = []
    for _ in range(3):
        with contextlib.ExitStack() as stack:
            many = [stack.enter_context(Wire(broker.host, broker.port)) for _ in range(30)]
            for wire in many:
                wire.call(ApiKey.METADATA, 9, topics=[])
            other = Other(broker)
            os.kill(broker.pid, signal.SIGSTOP)
            for wire in many:
                wire.send(
                    ApiKey.FETCH, 12, max_bytes=1 << 30, max_wait_ms=1, session_epoch=-1,
                    topics=[{"topic": "large", "partitions": [partition]}],
                )  # fmt: skip
            other.start()
            os.kill(broker.pid, signal.SIGCONT)
            for wire in many:
                assert int.from_bytes(wire.exactly(4), "big") > 1 << 20
            counts.append(other.answered)
            other.on = False
            other.join()
    assert max(counts) >= 5, counts  # none, if all are read in one round


def test_what_is_served_in_a_round_is_bounded() -> None:
    """Many things are not handed to their handler at once, and not twice in a round of the event loop."""
    handed: list[tuple[int, int]] = []

    async def served() -> list[str]:
        rounds, loop = [0], asyncio.get_running_loop()

        def next_round() -> None:
            rounds[0] += 1
            loop.call_soon(next_round)

        def handler(context: object, request: dict[str, Any]) -> dict[str, Any]:
            handed.append((rounds[0], len(request["groups"])))
            return {"groups": [{"group_id": name} for name in request["groups"]]}

        loop.call_soon(next_round)
        header = SimpleNamespace(api_key=ApiKey.DESCRIBE_GROUPS)
        context: Any = SimpleNamespace(header=header, broker=SimpleNamespace(turns=Turns()))
        answer = await serve(handler, context, {"groups": NAMES})
        assert answer is not None
        return [group["group_id"] for group in answer["groups"]]

    assert asyncio.run(served()) == NAMES
    assert max(size for _, size in handed) <= 500
    assert len({number for number, _ in handed}) == len(handed)
