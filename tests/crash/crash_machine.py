"""One life of the whole broker: a disk in memory, pictures of it, and an event loop without a clock."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import logging
import math
import os
import pickle
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context
from dataclasses import replace
from inspect import CORO_CREATED, getcoroutinestate
from random import Random
from typing import Any, Self, TypeVar, TypeVarTuple, Unpack

from eoslog.broker.config import BrokerConfig
from eoslog.broker.core import broker as broker_room
from eoslog.broker.log import durability, files
from eoslog.broker.main import Node
from eoslog.broker.requests import Settled
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import decode_response, encode_request
from tests.broker.log.logkit import FakeFile, FakeFileSystem, Outcome

# -- the event loop ------------------------------------------------------------------------------
# An event loop without a clock, threads or sockets: time jumps to the next thing to do, and a seed decides.
#
# The whole broker runs on it, from its listener down, so that a run of seconds takes milliseconds and is the
# same again for the same seed. Clients connect in memory; what they send are frames as on the wire.

START_MS = 1_700_000_000_000
PORT = 9092


Ts = TypeVarTuple("Ts")
T = TypeVar("T")


class Stuck(AssertionError):
    """Somebody waits, and nothing will ever happen."""


class _NoSelector(selectors.SelectSelector):
    """Waits by moving the loop's time."""

    loop: Loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck("nothing is left to do, but somebody waits")
        self.loop.now += max(0.0, timeout)
        return []


class Loop(asyncio.SelectorEventLoop):
    """See the head of this file."""

    def __init__(self, seed: int) -> None:
        selector = _NoSelector()
        self.now = 0.0
        self.random = Random(seed)
        selector.loop = self
        self.servers: list[MemoryServer] = []
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def _write_to_self(self) -> None:
        """There is no other thread that would have to wake us."""

    def later(self, action: Callable[[], object]) -> None:
        """Do something after a moment, as a disk or a network does."""
        self.call_later(self.random.random() * 0.002, action)

    async def create_server(self, protocol_factory: Any, *_: Any, **__: Any) -> Any:
        server = MemoryServer(protocol_factory)
        self.servers.append(server)
        return server

    def run_in_executor(
        self, executor: concurrent.futures.Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """At once, in this thread."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)


class Executor:
    """In place of a pool of threads: a job is done after a moment, and no two at a time."""

    def __init__(self, *_: Any, **__: Any) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        self._loop = loop

    def submit(self, job: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def do() -> None:
            try:
                future.set_result(job(*args))
            except Exception as error:
                future.set_exception(error)

        self._loop.later(do)
        return future

    def shutdown(self, wait: bool = True, **_: Any) -> None:
        """Nothing runs on its own."""


class Inline:
    """In place of a pool of threads that somebody waits for: a job is done at once."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def submit(self, job: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(job(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class _Socket:
    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", PORT)


class MemoryServer:
    """What `create_server` answers; clients come by `connect`."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.factory = factory
        self.sockets = [_Socket()]
        self.connections: list[Transport] = []

    async def start_serving(self) -> None:
        """Clients may come."""

    def close(self) -> None:
        """No more clients."""


class Transport(asyncio.Transport):
    """The broker's end of a connection in memory."""

    def __init__(self, loop: Loop, server: MemoryServer, hear: Callable[[bytes], None]) -> None:
        super().__init__({"peername": ("127.0.0.1", 5000), "sockname": ("127.0.0.1", PORT)})
        self._loop, self._hear = loop, hear
        self._inbox: deque[bytes] = deque()
        self._paused = self._closed = False
        self._protocol = server.factory()
        self._protocol.connection_made(self)
        server.connections.append(self)

    def send(self, data: bytes) -> None:
        """From the client; it arrives a moment later, in order."""
        self._inbox.append(data)
        self._loop.later(self._deliver)

    def _deliver(self) -> None:
        while self._inbox and not self._paused and not self._closed:
            data = memoryview(self._inbox.popleft())
            while data:
                room = self._protocol.get_buffer(len(data))
                size = min(len(room), len(data))
                room[:size] = data[:size]
                self._protocol.buffer_updated(size)
                data = data[size:]

    def write(self, data: Any) -> None:
        if not self._closed:
            self._hear(bytes(data))

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._loop.call_soon(self._deliver)

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close

    def forget(self) -> None:
        """The broker is gone: nobody awaits the answers that were to wait for its disk."""
        for slot in self._protocol.machine._line:
            if isinstance(slot.answer, Settled) and getcoroutinestate(slot.answer._answer) == CORO_CREATED:
                slot.answer.abandon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The client reads at once."""

    def get_write_buffer_size(self) -> int:
        return 0


# -- the machine ---------------------------------------------------------------------------------
# One life of the whole broker over a disk in memory, and the pictures of that disk at moments of a crash.
#
# A crash need not stop anything: a picture is taken of the disk before one of its changes, together with what
# the clients know at that moment. Later lives begin from such pictures, with any outcome of the crash.

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
    stand_ins = [*_STAND_INS, (durability, "QUICK", math.inf if seed % 3 == 2 else 0.0)]
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
    (durability, "ThreadPoolExecutor", Executor),
    (files, "ThreadPoolExecutor", Inline),
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
    for server in loop.servers:
        for connection in server.connections:
            connection.forget()
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
