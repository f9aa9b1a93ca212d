"""Garbage on the port: a short turn of `make fuzz`, and random bytes on a socket."""

import asyncio
import logging
import random
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import encode_request
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire, bodies, create, numbers, read_all
from tests.broker.fuzz.fuzzed_broker import ROUNDS, TOO_LONG, FuzzedBroker, inputs, one_round

# -- damaged requests ----------------------------------------------------------------------------
# A short turn of the fuzz that `make fuzz` does at length.

INPUTS = 6_000


@pytest.fixture
def quiet() -> Iterator[None]:
    """Only errors are of interest, and those the fuzz collects by itself."""
    logger = logging.getLogger("eoslog")
    before = logger.level, logger.propagate
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    yield
    logger.setLevel(before[0])
    logger.propagate = before[1]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", ROUNDS)
def test_hurt_requests_do_no_harm(name: str) -> None:
    result = asyncio.run(one_round(name, 20_261_121, INPUTS))
    assert result.inputs == INPUTS
    assert not result.faults, result.faults
    assert result.slowest < TOO_LONG, result.slowest_input.hex()
    assert result.lively >= INPUTS // 500
    assert result.answered > 50  # before authentication three APIs are: of these inputs some 100


@pytest.mark.usefixtures("quiet")
def test_the_judge_sees_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that fails on a name that it does not like."""
    from eoslog.broker.network import dispatch
    from eoslog.protocol.apis import ApiKey

    def fails(context: object, request: dict[str, object]) -> None:
        raise ZeroDivisionError("of the test")

    table = dict(dispatch.handlers()) | {ApiKey.CREATE_PARTITIONS: fails}
    monkeypatch.setattr("eoslog.broker.network.connection.handlers", lambda: table)

    async def run() -> dict[str, int]:
        with tempfile.TemporaryDirectory() as directory:
            fuzzed = FuzzedBroker(Path(directory))
            try:
                return (await fuzzed.run(islice(inputs(3), 2000))).faults
            finally:
                await fuzzed.close()

    assert any("ZeroDivisionError: of the test" in fault for fault in asyncio.run(run()))


# -- on a socket ---------------------------------------------------------------------------------
# Garbage on the port: random bytes, cut frames, flipped bits. The broker lives, serves and stays small.

SOCKET_ROUNDS = 400
GROWTH = 64 << 20


def least(body: dict[str, Any]) -> dict[str, Any]:
    """Nothing but what makes sure of an answer."""
    return {name: body[name] for name in ("acks",) if name in body}


def flipped(frame: bytes, chance: random.Random) -> bytes:
    """The frame with a few bits turned, its size left right so that the inside is reached."""
    broken = bytearray(frame)
    for _ in range(chance.randint(1, 6)):
        broken[chance.randrange(4, len(broken))] ^= 1 << chance.randrange(8)
    return bytes(broken)


def poke(broker: EmbeddedBroker, data: bytes) -> None:
    """Send and hang up, having read what comes within a moment."""
    with socket.create_connection((broker.host, broker.port), 5) as client:
        client.settimeout(0.02)
        try:
            client.sendall(data)
            client.recv(1 << 16)
        except (TimeoutError, ConnectionError):
            return


def test_garbage_does_no_harm() -> None:
    chance = random.Random(11)
    with EmbeddedBroker(config={"auto.create.topics.enable": "false"}, log_level="error") as broker:
        create(broker.bootstrap, "fuzz")
        create(broker.bootstrap, "kept")
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        valid = bodies()
        frames = [b"".join(encode_request(api.key, version, 1, "fuzz", body)) for api, version, body in valid]
        before = psutil.Process(broker.pid).memory_info().rss
        for number in range(SOCKET_ROUNDS):
            frame = chance.choice(frames)
            match number % 4:
                case 0:
                    data = chance.randbytes(chance.randint(1, 2000))
                case 1:
                    data = struct.pack(">i", chance.randint(1, 300)) + chance.randbytes(300)
                case 2:
                    data = frame[: chance.randrange(len(frame))]
                case _:
                    data = flipped(frame, chance)
            poke(broker, data)
            if number % 20 == 0:
                producer.produce("kept", str(number).encode())
        assert producer.flush(10) == 0
        assert numbers(read_all(broker.bootstrap, "kept")) == {0: list(range(0, SOCKET_ROUNDS, 20))}
        assert psutil.Process(broker.pid).memory_info().rss - before < GROWTH
        assert "Traceback" not in broker.output(), broker.output()
        broker.restart()
        assert numbers(read_all(broker.bootstrap, "kept")) == {0: list(range(0, SOCKET_ROUNDS, 20))}


@pytest.mark.parametrize("empty", [False, True], ids=["filled", "empty"])
def test_every_api_and_version_answers(empty: bool) -> None:
    """Whatever a handler thinks of the content: there is an answer, it fits its schema, and no traceback."""
    with EmbeddedBroker(log_level="error") as broker:
        create(broker.bootstrap, "fuzz")
        unanswered = []
        for api, version, body in bodies():
            with Wire(broker.host, broker.port) as wire:
                try:
                    wire.call(api.key, version, **(least(body) if empty else body))
                except (ConnectionError, TimeoutError) as error:
                    unanswered.append((api.name, version, error))
        assert not unanswered, broker.output()
        assert "Traceback" not in broker.output(), broker.output()


def test_memory_is_bounded_for_slow_readers_and_large_claims() -> None:
    with EmbeddedBroker() as broker:
        create(broker.bootstrap, "t", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
        for _ in range(40):
            producer.produce("t", b"x" * 900_000)
            producer.poll(0)
        assert producer.flush(20) == 0
        before = psutil.Process(broker.pid).memory_info().rss
        clients = [Wire(broker.host, broker.port) for _ in range(8)]
        for wire in clients[:4]:
            for _ in range(50):  # 50 answers of 36 MB each, none of them read
                wire.send(
                    ApiKey.FETCH, 12, max_wait_ms=1, min_bytes=1, max_bytes=1 << 30,
                    topics=[{"topic": "t", "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 30}]}],
                )  # fmt: skip
        for wire in clients[4:]:
            wire.socket.sendall(struct.pack(">i", 100 << 20) + b"x" * 1000)
        time.sleep(1.5)
        grown = psutil.Process(broker.pid).memory_info().rss - before
        assert grown < 450 << 20, f"{grown >> 20} MB"
        with Wire(broker.host, broker.port) as other:
            assert other.call(ApiKey.METADATA, 9, topics=[])["brokers"]
        for wire in clients:
            wire.socket.close()
