"""An event loop without a clock, threads or sockets: time jumps to the next thing to do, and a seed decides.

The whole broker runs on it, from its listener down, so that a run of seconds takes milliseconds and is the
same again for the same seed. Clients connect in memory; what they send are frames as on the wire.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import selectors
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context
from random import Random
from typing import Any, Self, TypeVar, TypeVarTuple, Unpack

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

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The client reads at once."""

    def get_write_buffer_size(self) -> int:
        return 0
