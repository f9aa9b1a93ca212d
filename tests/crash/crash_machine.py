"""One life of the whole broker over a disk in memory, and the pictures of that disk at moments of a crash.

A crash need not stop anything: a picture is taken of the disk before one of its changes, together with what
the clients know at that moment. Later lives begin from such pictures, with any outcome of the crash.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import pickle
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any, Self

from eoslog.broker.config import BrokerConfig
from eoslog.broker.core import broker as broker_room
from eoslog.broker.log.segment import group_flush as flush_room
from eoslog.broker.log.segment import parallel_sync
from eoslog.broker.main import Node
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import decode_response, encode_request
from tests.broker.log.fakefs import FakeFile, FakeFileSystem, Outcome
from tests.crash.crash_loop import START_MS, Executor, Inline, Loop, Transport

DATA = "/data"
CONFIG = {
    "log.dirs": DATA,
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # What is periodic comes often, as a life takes a second or two: checkpoints, retention, compaction.
    "log.flush.offset.checkpoint.interval.ms": "120",
    "log.retention.check.interval.ms": "150",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.cleaner.delete.retention.ms": "100",
}

LONGEST_LIFE = 600.0
"""Seconds of the loop's time; a life takes a few."""

Picture = bytes
"""A disk and what the clients know, pickled: made often, looked at seldom."""


class Disk(FakeFileSystem):
    """Counts its changes; `before_change` is told of each before it happens, with its number from 1.

    The change with number `fail_at` fails once with `error` and does not happen.
    """

    def __init__(self, fail_at: int = 0, error: int = errno.EIO) -> None:
        super().__init__()
        self.changes, self.fail_at, self.error = 0, fail_at, error
        self.before_change: Callable[[int], None] = lambda number: None

    def step(self) -> None:
        self.changes += 1
        self.before_change(self.changes)
        if self.changes == self.fail_at:
            raise OSError(self.error, os.strerror(self.error))


class LoopClock:
    """The loop's time as the broker's."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        self._loop = loop

    def now_ms(self) -> int:
        return START_MS + int(self._loop.now * 1000)

    def monotonic(self) -> float:
        return self._loop.now


class Channel:
    """A client's end of a connection: requests go out one after the other, answers come in that order.

    `heard` is called with an answer the moment the broker lets it go, before anything else happens: what
    was let go counts as known to the client, whatever comes then.
    """

    def __init__(self, machine: Machine, name: str) -> None:
        self._name, self._number = name, 0
        self._waiting: dict[int, tuple[ApiKey, int, asyncio.Future[Any], Callable[[Any], None] | None]] = {}
        self._data = b""
        self._transport = Transport(machine.loop, machine.loop.servers[0], self._hear)

    def ask(
        self, key: ApiKey, version: int, heard: Callable[[Any], None] | None = None, /, **body: Any
    ) -> asyncio.Future[Any]:
        """Send a request; await what this answers for the answer's message."""
        self._number += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = (key, version, answer, heard)
        self._transport.send(b"".join(encode_request(key, version, self._number, self._name, body)))
        return answer

    def _hear(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4 and len(self._data) >= 4 + int.from_bytes(self._data[:4]):
            size = 4 + int.from_bytes(self._data[:4])
            frame, self._data = self._data[4:size], self._data[size:]
            number = int.from_bytes(frame[:4])
            key, version, answer, heard = self._waiting.pop(number)
            _, message = decode_response(key, version, frame)
            if heard is not None:
                heard(message)
            if not answer.done():
                answer.set_result(message)

    @property
    def closed(self) -> bool:
        """Whether the broker has ended the connection."""
        return self._transport.is_closing()


class Machine:
    """A started broker. Make it by `Machine.start` on a `Loop`."""

    def __init__(self, disk: Disk, segment_bytes: int, config: dict[str, str]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        self.loop, self.disk = loop, disk
        self._segment_bytes = segment_bytes
        self._config = BrokerConfig.from_options(CONFIG | config)
        self.node = Node(self._config, disk)
        self._shrinking: asyncio.Task[None]

    @classmethod
    async def start(cls, disk: Disk, segment_bytes: int = 1 << 20, **config: str) -> Self:
        """Raises StartError."""
        machine = cls(disk, segment_bytes, config)
        await machine.node.start()
        machine._shrinking = asyncio.create_task(machine._shrink_segments())
        return machine

    async def _shrink_segments(self) -> None:
        """Let logs roll after fewer bytes than Kafka's lower bound allows to ask for, new ones too."""
        while True:
            self._shrink()
            await asyncio.sleep(0.02)

    def _shrink(self) -> None:
        for partition in self.node.broker.topics.all_partitions():
            if partition.settings.segment_bytes != self._segment_bytes:
                partition.reconfigure(replace(partition.settings, segment_bytes=self._segment_bytes))

    def connect(self, name: str) -> Channel:
        """A new connection."""
        return Channel(self, name)


class Faulty(logging.Handler):
    """Collects what the broker logs as a fault of its own: a handler that failed without meaning to."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if (
            record.exc_info
            and record.exc_info[0] is not None
            and "fault while serving" in record.getMessage()
        ):
            self.found.append(logging.Formatter().format(record))

    def loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback or a task that nobody awaits has failed."""
        error = context.get("exception")
        if isinstance(error, Exception) or "destroyed" in context["message"]:
            self.found.append(f"{context['message']}: {error!r} {context.get('task', '')}")


def run(seed: int, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run on a loop of its own. A fault in a handler is an AssertionError."""
    loop = Loop(seed)
    log, handler = logging.getLogger("eoslog"), Faulty()
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    # One disk in three is so quick that the broker does not hand its syncs over.
    stand_ins = [*_STAND_INS, (flush_room, "QUICK", math.inf if seed % 3 == 2 else 0.0)]
    real = [getattr(module, name) for module, name, _ in stand_ins]
    for module, name, stand_in in stand_ins:
        setattr(module, name, stand_in)
    loop.set_exception_handler(handler.loop_failed)
    try:
        asyncio.set_event_loop(loop)
        result = loop.run_until_complete(asyncio.wait_for(main(), LONGEST_LIFE))
        assert not handler.found, handler.found[0]
        return result
    except TimeoutError as error:
        if loop.now < LONGEST_LIFE:
            raise
        raise AssertionError(
            f"after {LONGEST_LIFE} s there are still requests without an answer; faults: {handler.found}; "
            f"waiting: {_waiting(loop)}"
        ) from error
    finally:
        for (module, name, _), before in zip(stand_ins, real, strict=True):
            setattr(module, name, before)
        log.removeHandler(handler)
        log.propagate = propagate
        _end(loop)


_STAND_INS = (
    (flush_room, "ThreadPoolExecutor", Executor),
    (parallel_sync, "ThreadPoolExecutor", Inline),
    (broker_room, "SystemClock", LoopClock),
)


def _waiting(loop: Loop) -> list[str]:
    """Where each task of the broker's stands."""
    return [f"{task.get_name()} {[str(at) for at in task.get_stack()]}" for task in asyncio.all_tasks(loop)]


def _end(loop: Loop) -> None:
    """The life is over, in the middle of whatever it does."""
    loop.set_exception_handler(lambda loop, context: None)
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    asyncio.set_event_loop(None)
    loop.close()


def picture(disk: Disk, state: Any) -> Picture:
    """Disk and clients as they are."""
    return pickle.dumps((disk.root, state), pickle.HIGHEST_PROTOCOL)


def after_crash(taken: Picture, outcome: Outcome, seed: int) -> tuple[Disk, Any]:
    """The disk when the power is back, and the clients that have lived on."""
    disk = Disk()
    disk.root, state = pickle.loads(taken)
    disk.crash(outcome, Random(seed))
    return disk, state


__all__ = [
    "Channel",
    "Disk",
    "FakeFile",
    "FakeFileSystem",
    "Machine",
    "Outcome",
    "Picture",
    "after_crash",
    "picture",
    "run",
]
