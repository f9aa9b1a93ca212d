"""A proxy between clients and a broker that can cut, hold and lose, at a request of the test's choice.

Clients must not learn the broker's own address, so the answers that name it (Metadata, FindCoordinator,
DescribeCluster) are rewritten with the proxy's.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import (
    FrameReader,
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_response,
)
from eoslog.protocol.schema import Message

_LARGEST = 1 << 28
_NAMING = (ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER)


@dataclass
class Fault:
    """Something to do at a request of `key`, once `skip` such requests have passed, `times` times."""

    key: ApiKey
    before: bool
    """True: the request is lost with the connection; False: it arrives, its answer is lost."""
    skip: int = 0
    times: int = 1
    hits: int = 0

    def strikes(self, key: int) -> bool:
        """Count a request; whether this is one to strike at."""
        if key != self.key or self.hits >= self.times:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.hits += 1
        return True


@dataclass(eq=False)
class _Pair:
    """A client's connection and its twin to the broker."""

    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    asked: dict[int, RequestHeader] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)

    def cut(self) -> None:
        for end in (self.client, self.broker):
            end.transport.abort()


class CuttingProxy:
    """Listens on a port of its own in a thread of its own. A context manager."""

    def __init__(self, host: str, port: int, names: dict[int, int] | None = None) -> None:
        """`host`, `port`: the broker behind it. `names`: shared by the proxies of a cluster's nodes, the
        port of each broker and that of its proxy."""
        self._target = (host, port)
        self._names = names if names is not None else {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._faults: list[Fault] = []
        self._closed = False
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.requests: list[int] = []
        """API keys of the requests that came, in order."""

    @property
    def bootstrap(self) -> str:
        """host:port, for a client's bootstrap.servers."""
        return f"127.0.0.1:{self.port}"

    def cut_at(self, key: ApiKey, *, before: bool, skip: int = 0, times: int = 1) -> Fault:
        """Cut the connection at a request of `key`: before it arrives, or before its answer does."""
        fault = Fault(key, before, skip, times)
        self._do(lambda: self._faults.append(fault))
        return fault

    def cut_all(self) -> None:
        """Cut every connection now."""

        def cut() -> None:
            for pair in tuple(self._pairs):
                pair.cut()

        self._do(cut)

    def shut(self) -> None:
        """Cut everything, and let nobody in any more: what is behind is as good as dead."""
        self._closed = True
        self.cut_all()

    def pause(self) -> None:
        """Let nothing through from now on, in either direction, and keep the connections."""
        self._do(self._open.clear)

    def go_on(self) -> None:
        """Let everything through again, what was held back first."""
        self._do(self._open.set)

    def _do(self, work: Callable[[], object]) -> None:
        async def run() -> None:
            work()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._names[self._target[1]] = self._server.sockets[0].getsockname()[1]

    def __exit__(self, *_: object) -> None:
        self.shut()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            back, forth = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair(writer, forth)
        self._pairs.add(pair)
        try:
            with contextlib.suppress(ConnectionError):  # a cut, by us or by either side: both ends go
                await asyncio.gather(
                    self._pump(reader, lambda frame: self._ask(pair, frame)),
                    self._pump(back, lambda frame: self._answer(pair, frame)),
                )
        finally:
            self._pairs.discard(pair)
            pair.cut()

    async def _pump(self, reader: asyncio.StreamReader, take: Callable[[memoryview], object]) -> None:
        frames = FrameReader(_LARGEST)
        while data := await reader.read(1 << 18):
            for frame in frames.feed(data):
                await self._open.wait()
                take(frame)
        raise ConnectionResetError

    def _ask(self, pair: _Pair, frame: memoryview) -> None:
        header, _ = decode_request_header(frame)
        self.requests.append(header.api_key)
        struck = next((fault for fault in self._faults if fault.strikes(header.api_key)), None)
        if struck is not None and struck.before:
            raise ConnectionResetError
        if struck is not None:
            pair.lost.add(header.correlation_id)
        pair.asked[header.correlation_id] = header
        pair.broker.write(len(frame).to_bytes(4, "big") + frame)

    def _answer(self, pair: _Pair, frame: memoryview) -> None:
        number = int.from_bytes(frame[:4], "big")
        header = pair.asked.pop(number)
        if number in pair.lost:
            raise ConnectionResetError
        if header.api_key not in _NAMING:
            pair.client.write(len(frame).to_bytes(4, "big") + frame)
            return
        _, message = decode_response(header.api_key, header.api_version, frame)
        self._rename(message)
        pair.client.writelines(encode_response(header.api_key, header.api_version, number, message))

    def _rename(self, message: Message) -> None:
        places = [message, *(message.get("brokers") or ()), *(message.get("coordinators") or ())]
        for place in places:
            if place.get("port") in self._names:
                place["host"], place["port"] = "127.0.0.1", self._names[place["port"]]
