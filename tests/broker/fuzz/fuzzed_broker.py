"""A broker in this process that is fed with damaged requests of every API and version."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import resource
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.options import AUTHORIZER
from eoslog.broker.core.broker import Broker
from eoslog.broker.network.connection import Connection
from eoslog.broker.network.server import Server
from eoslog.broker.security.listeners import Listener
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.fields import Array, Blob, Field, Fixed, Struct, Text, Type
from eoslog.protocol.frames import decode_response, encode_request
from eoslog.protocol.plain_records import encode_records
from eoslog.protocol.schema import ProtocolError
from tests.broker.broker_clients import RECORDS, bodies

# -- inputs --------------------------------------------------------------------------------------
# Inputs for the fuzz: requests of every API and version, and what becomes of them when they are hurt.

NAMES = [
    "fuzz",
    "fuzz",
    "fuzz",
    "",
    "other",
    "a" * 300,
    "..",
    "__consumer_offsets",
    "n\u00e4me",
    "*",
    "User:x",
]
TEXTS = [
    *NAMES,
    "f.*",
    "(",
    "range",
    "Stable",
    "cleanup.policy",
    "retention.ms",
    "-1",
    "1",
    "compact",
    "consumer",
]
MOST_DEEP = 3


class Maker:
    """Makes requests at random from their schemas; the same seed makes the same."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.lines = [
            (api, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)
        ]

    def request(self) -> bytes:
        """A request whose values are drawn at random, whole frame."""
        while True:
            api, version = self.chance.choice(self.lines)
            body = self._struct(api.request.struct, version)
            try:
                return b"".join(encode_request(api.key, version, self.chance.getrandbits(31), "fuzz", body))
            except ProtocolError:  # a value where this version has none
                continue

    def _struct(self, struct: Struct, version: int, deep: int = 0) -> dict[str, Any]:
        return {
            field.name: self._field(field, version, deep)
            for field in struct.fields
            if version in field.versions
        }

    def _field(self, field: Field, version: int, deep: int) -> Any:
        if version in field.nullable and self.chance.random() < 0.15:
            return None
        return self._value(field.type, version, deep)

    def _value(self, kind: Type, version: int, deep: int) -> Any:
        chance = self.chance
        match kind:
            case Struct():
                return self._struct(kind, version, deep)
            case Array():
                count = chance.choice((0, 1, 1, 1, 2, 5)) if deep < MOST_DEEP else 0
                return [self._value(kind.of, version, deep + 1) for _ in range(count)]
            case Text():
                return chance.choice(TEXTS)
            case Blob():
                if kind.is_records:
                    return RECORDS if chance.random() < 0.6 else chance.randbytes(chance.randint(0, 200))
                return chance.randbytes(chance.choice((0, 1, 16, 40)))
            case Fixed():
                return self._number(kind)
        raise TypeError(f"{kind}")

    def _number(self, kind: Fixed) -> Any:
        chance = self.chance
        if kind.name == "bool":
            return chance.random() < 0.5
        if kind.name == "uuid":
            return chance.choice((bytes(16), chance.randbytes(16)))
        bits = kind.size * 8
        low, high = (
            (0, 2**bits - 1) if kind.name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        drawn = chance.choice((0, 0, 1, 1, 2, 3, -1, -1, -2, low, high, chance.randint(low, high)))
        return max(low, drawn)


def filled() -> list[bytes]:
    """Every API and version once, with something sensible in every field."""
    return [b"".join(encode_request(api.key, version, 1, "fuzz", body)) for api, version, body in bodies()]


# How an input is hurt: each gets a pool of whole frames.

Hurt = Callable[[random.Random, list[bytes]], bytes]


def resized(frame: bytes) -> bytes:
    """The frame with its size put right, so that its inside is reached."""
    return struct.pack(">i", len(frame) - 4) + frame[4:]


def whole(chance: random.Random, pool: list[bytes]) -> bytes:
    return chance.choice(pool)


def noise(chance: random.Random, pool: list[bytes]) -> bytes:
    return chance.randbytes(chance.randint(1, 400))


def sized_noise(chance: random.Random, pool: list[bytes]) -> bytes:
    return resized(bytes(4) + chance.randbytes(chance.randint(1, 300)))


def headed_noise(chance: random.Random, pool: list[bytes]) -> bytes:
    return resized(chance.choice(pool)[:12] + chance.randbytes(chance.randint(0, 200)))


def oversized(chance: random.Random, pool: list[bytes]) -> bytes:
    return struct.pack(">i", chance.choice((2**31 - 1, 104_857_601, -1, -(2**31)))) + chance.choice(pool)[4:]


def cut(chance: random.Random, pool: list[bytes]) -> bytes:
    frame = chance.choice(pool)
    return frame[: chance.randrange(len(frame))]


def truncated(chance: random.Random, pool: list[bytes]) -> bytes:
    frame = chance.choice(pool)
    return resized(frame[: chance.randrange(5, len(frame))])


def padded(chance: random.Random, pool: list[bytes]) -> bytes:
    return resized(chance.choice(pool) + chance.randbytes(chance.randint(1, 30)))


def flipped(chance: random.Random, pool: list[bytes]) -> bytes:
    broken = bytearray(chance.choice(pool))
    for _ in range(chance.randint(1, 6)):
        broken[chance.randrange(4, len(broken))] ^= 1 << chance.randrange(8)
    return bytes(broken)


def overwritten(chance: random.Random, pool: list[bytes]) -> bytes:
    broken = bytearray(chance.choice(pool))
    at = chance.randrange(8, len(broken))
    broken[at : at + 4] = chance.choice(
        (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", chance.randbytes(4))
    )
    return resized(bytes(broken))


def spliced(chance: random.Random, pool: list[bytes]) -> bytes:
    one, other = chance.choice(pool), chance.choice(pool)
    return resized(one[: chance.randrange(12, len(one))] + other[chance.randrange(len(other)) :])


def other_version(chance: random.Random, pool: list[bytes]) -> bytes:
    frame = chance.choice(pool)
    return frame[:6] + struct.pack(">h", chance.randint(-2, 20)) + frame[8:]


HURTS: tuple[Hurt, ...] = (
    whole, whole, whole, noise, sized_noise, headed_noise, oversized, cut, truncated, padded, flipped,
    flipped, flipped, overwritten, overwritten, spliced, other_version,
)  # fmt: skip


def inputs(seed: int) -> Iterator[bytes]:
    """Inputs without end; the same seed gives the same."""
    chance = random.Random(seed)
    maker = Maker(chance)
    sensible = filled()
    while True:
        pool = sensible + [maker.request() for _ in range(2 * len(sensible))]
        for _ in range(10 * len(pool)):
            yield chance.choice(HURTS)(chance, pool)


# -- the broker ----------------------------------------------------------------------------------
# A broker in this process that is fed through connections whose transport is made for the test.

KEPT = "kept"
OPTIONS = {
    "flush.mode": "os",
    "auto.create.topics.enable": "false",
    "log.segment.bytes": str(1 << 20),
    "connection.failed.authentication.delay.ms": "0",
}
LIVELY = 500
"""Inputs between two looks at whether a good client is served."""
PATIENCE = 0.2
"""Seconds that a request may keep a connection before it is left alone."""
TOO_LONG = 5.0
"""Seconds in which one input may hold up all others, at most."""


class Pipe(asyncio.Transport):
    """A transport whose other end is the test: it keeps what was written, up to a bound."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 9092)})
        self.written = bytearray()
        self.answers = 0
        self.closed = False
        self.reading = True
        self.protocol: Connection

    def write(self, data: Any) -> None:
        if len(self.written) < 1 << 20:
            self.written += data
        self.answers += 1

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close


@dataclass
class Result:
    """What came of it."""

    inputs: int = 0
    answered: int = 0
    closed: int = 0
    left: int = 0
    """Connections that were left alone with a request that waits."""
    lively: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    slowest_input: bytes = b""

    def add(self, other: Result) -> None:
        for name in ("inputs", "answered", "closed", "left", "lively"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults += other.faults
        if other.slowest > self.slowest:
            self.slowest, self.slowest_input = other.slowest, other.slowest_input


class Watch(logging.Handler):
    """Counts what the broker logs as an error, by where it came from."""

    def __init__(self, faults: Counter[str]) -> None:
        super().__init__(logging.ERROR)
        self.faults = faults

    def emit(self, record: logging.LogRecord) -> None:
        where = record.getMessage()[:160]
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{last.filename.split('/eoslog/')[-1]}:{last.lineno}"
            where = f"{type(error).__name__}: {error!s:.200} at {place}"
        self.faults[where] += 1


class FuzzedBroker:
    """A broker, and connections to it."""

    def __init__(
        self, data: Path, listener: Listener | None = None, options: Mapping[str, str] | None = None
    ) -> None:
        config = BrokerConfig.from_options(OPTIONS | {"log.dirs": str(data)} | dict(options or {}))
        self.result = Result()
        self._listener = listener or Listener()
        self._watch = Watch(self.result.faults)
        logging.getLogger("eoslog").addHandler(self._watch)
        self.broker = Broker(config)
        self.broker.start()
        self.server = Server()
        self.server.memory = self.broker.memory
        self.server._broker = self.broker
        for name in ("PLAINTEXT", "SASL_PLAINTEXT"):
            self.server._counts.add_listener(name)
        self.broker.topics.create("fuzz", 1, {})
        self.broker.topics.create(KEPT, 1, {})
        self._kept = 0
        asyncio.get_running_loop().set_exception_handler(self._loop_fault)

    def _loop_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.result.faults[f"loop: {context.get('message')} {context.get('exception')!r}"[:300]] += 1

    def connect(self, listener: Listener | None = None) -> Pipe:
        pipe = Pipe()
        pipe.protocol = Connection(self.broker, self.server, listener or self._listener)
        pipe.protocol.connection_made(pipe)
        return pipe

    @staticmethod
    async def feed(pipe: Pipe, data: bytes) -> None:
        """Send as a socket would, as long as the connection reads."""
        deadline = time.monotonic() + PATIENCE
        while data and not pipe.closed:
            if not pipe.reading:
                if time.monotonic() > deadline:
                    return
                await asyncio.sleep(0)
                continue
            buffer = pipe.protocol.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count], data = data[:count], data[count:]
            pipe.protocol.buffer_updated(count)

    async def run(self, stream: Iterable[bytes]) -> Result:
        """Feed all inputs, a connection for as long as it lives; now and then a good client comes."""
        result, pipe = self.result, self.connect()
        for number, data in enumerate(stream):
            begun = time.monotonic()
            answers = pipe.answers
            await self.feed(pipe, data)
            await asyncio.sleep(0)
            took = time.monotonic() - begun
            result.inputs += 1
            if took > result.slowest:
                result.slowest, result.slowest_input = took, data
            result.answered += pipe.answers > answers
            if pipe.closed:
                result.closed += 1
                pipe = self.connect()
            elif pipe.protocol.machine.first or pipe.protocol.machine.unbegun:
                pipe = await self._after(pipe)
            del pipe.written[:]
            if number % LIVELY == 0:
                await self.look_in()
        pipe.close()
        await asyncio.sleep(0.01)
        return result

    async def _after(self, pipe: Pipe) -> Pipe:
        """A request waits, or a frame is not whole: a new connection if that lasts."""
        for _ in range(3):
            await asyncio.sleep(0)
        if pipe.protocol.machine.first or pipe.protocol.machine.unbegun:
            self.result.left += 1
            pipe.close()
            return self.connect()
        return pipe

    # The good client

    async def call(self, pipe: Pipe, key: ApiKey, version: int, **body: Any) -> dict[str, Any]:
        await self.feed(pipe, b"".join(encode_request(key, version, 7, "good", body)))
        async with asyncio.timeout(10):
            while len(pipe.written) < 4 or len(pipe.written) < 4 + struct.unpack_from(">i", pipe.written)[0]:
                assert not pipe.closed, "a good client was disconnected"
                await asyncio.sleep(0)
        frame = bytes(pipe.written[4:])
        del pipe.written[:]
        message: dict[str, Any] = decode_response(key, version, frame)[1]
        return message

    async def look_in(self) -> None:
        """A good client writes a record, is told its offset, and finds the end there."""
        pipe = self.connect(Listener())
        records = encode_records([(b"k", str(self._kept).encode())], int(time.time() * 1000))
        data = [{"name": KEPT, "partition_data": [{"index": 0, "records": records}]}]
        answer = await self.call(pipe, ApiKey.PRODUCE, 9, acks=-1, timeout_ms=1000, topic_data=data)
        part = answer["responses"][0]["partition_responses"][0]
        assert (part["error_code"], part["base_offset"]) == (0, self._kept), part
        self._kept += 1
        topics = [{"name": KEPT, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        answer = await self.call(pipe, ApiKey.LIST_OFFSETS, 5, topics=topics)
        assert answer["topics"][0]["partitions"][0]["offset"] == self._kept
        assert (await self.call(pipe, ApiKey.METADATA, 9, topics=[]))["brokers"]
        pipe.close()
        self.result.lively += 1

    async def close(self) -> None:
        """End in order: everything that was begun has ended or been given up."""
        self.server.cut()
        await asyncio.sleep(0.05)
        await self.broker.close()
        logging.getLogger("eoslog").removeHandler(self._watch)
        assert not len(self.server), f"{len(self.server)} connections are left"


# -- make fuzz -------------------------------------------------------------------------------------
# `make fuzz`: a million hurt requests, in rounds with a fresh broker each, every round with other rules.
#
# Prints how many inputs, answers, closes and faults there were, the slowest input, and the memory after
# each round. Ends with an error if a handler failed on any of them, a good client was not served, one input
# held up the others for long, or memory grew from round to round.


SASL = Listener("SASL_PLAINTEXT", "SASL_PLAINTEXT")
USERS = (
    "listener.name.sasl_plaintext.plain.sasl.jaas.config",
    'PlainLoginModule required user_fuzz="fuzz";',
)
ROUNDS: dict[str, dict[str, str]] = {
    "open": {},
    "all allowed": {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"},
    "open to those without rules": {
        "authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true",
    },
    "before authentication": {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        USERS[0]: USERS[1], "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    },
}  # fmt: skip
LISTENERS = {"before authentication": SASL}
"""Which one the inputs come by, if not by a plain one."""
GROWTH = 48 << 20
"""Bytes that the process may grow from the first turn through the rounds to the last."""


async def one_round(name: str, seed: int, count: int) -> Result:
    """Feed so many inputs to a fresh broker."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
        fuzzed = FuzzedBroker(Path(directory), LISTENERS.get(name), ROUNDS[name])
        try:
            return await fuzzed.run(islice(inputs(seed), count))
        finally:
            await fuzzed.close()


def memory() -> int:
    """The resident bytes of this process."""
    gc.collect()
    rss: int = psutil.Process().memory_info().rss
    return rss


def fuzz(total: int, per_round: int, seed: int, *, say: Any = print) -> tuple[Result, list[int]]:
    """All rounds; answers what came of them and the memory after each turn through all kinds of rounds."""
    logging.getLogger("eoslog").setLevel(logging.ERROR)
    logging.getLogger("eoslog").propagate = False
    everything, turns, number = Result(), [], 0
    while everything.inputs < total:
        for name in ROUNDS:
            begun = time.monotonic()
            result = asyncio.run(one_round(name, seed + number, per_round))
            number += 1
            everything.add(result)
            took = time.monotonic() - begun
            say(
                f"round {number:3} ({name}): {result.inputs} inputs in {took:.0f} s,"
                f" {result.answered} answered, {result.closed} closed, {result.left} left waiting,"
                f" good client served {result.lively} times, slowest {result.slowest * 1000:.0f} ms,"
                f" {sum(result.faults.values())} faults,"
                f" {memory() >> 20} MB"
            )
            for fault, times in result.faults.items():
                say(f"    {times} x {fault}")
        turns.append(memory())
    return everything, turns


def main() -> None:
    """Read the options, run, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--round", type=int, default=25_000, help="inputs for one broker")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}; before: {memory() >> 20} MB", flush=True)
    result, turns = fuzz(options.inputs, options.round, options.seed)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{result.inputs} inputs: {result.answered} answered, {result.closed} connections closed,"
        f" {result.left} left waiting, good client served {result.lively} times of {result.lively},"
        f" {sum(result.faults.values())} faults, slowest {result.slowest * 1000:.0f} ms;"
        f" memory after each turn {[turn >> 20 for turn in turns]} MB, at most {most} MB"
    )
    if result.slowest > TOO_LONG:
        print(f"an input held up the others for {result.slowest:.1f} s: {result.slowest_input.hex()}")
    grown = turns[-1] - turns[0]
    if grown > GROWTH:
        print(f"memory grew by {grown >> 20} MB")
    sys.exit(bool(result.faults) or result.slowest > TOO_LONG or grown > GROWTH)


if __name__ == "__main__":
    main()
