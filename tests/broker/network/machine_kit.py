"""A connection's machine to which requests have come, and what a test does with it."""

import struct

from eoslog.broker.network.wire_machine import Slot, WireMachine
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import RequestHeader

LARGEST = 1 << 20


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def fed(count: int, size: int = 1) -> WireMachine:
    """A machine to which so many requests have come."""
    machine = WireMachine(LARGEST, 0.0)
    machine.receive(framed(*[b"x" * size] * count), 0.0)
    return machine


def begun(machine: WireMachine, key: ApiKey = ApiKey.PRODUCE, answers_short: bool = False) -> Slot | None:
    """The next request, if it may begin."""
    frame = machine.next_frame(answers_short)
    if frame is None:
        return None
    return machine.begin(RequestHeader(key, 9, 1, None), len(frame), 0.0)


def must_begin(machine: WireMachine, key: ApiKey = ApiKey.PRODUCE) -> Slot:
    slot = begun(machine, key)
    assert slot is not None
    return slot


def left(machine: WireMachine) -> bytes:
    """Let all answers leave whose turn it is."""
    out = b""
    while machine.first is not None and machine.first.parts is not None:
        out += b"".join(machine.leave())
    return out + machine.flush()
