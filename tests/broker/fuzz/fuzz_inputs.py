"""Inputs for the fuzz: requests of every API and version, and what becomes of them when they are hurt."""

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

from eoslog.protocol.apis import APIS
from eoslog.protocol.fields import Array, Blob, Field, Fixed, Struct, Text, Type
from eoslog.protocol.frames import encode_request
from eoslog.protocol.schema import ProtocolError
from tests.broker.handlers.filled_requests import RECORDS, bodies

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
