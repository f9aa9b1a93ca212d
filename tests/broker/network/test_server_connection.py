"""What is around a connection's machine, judged on a real socket with handlers made for the test."""

import asyncio
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.options import NetworkOptions
from eoslog.broker.fairness import LARGE_AT_ONCE, Memory, Turns
from eoslog.broker.network import connection as connection_module
from eoslog.broker.network import dispatch
from eoslog.broker.network.connection import Connection
from eoslog.broker.network.server import Server
from eoslog.broker.network.wire_machine import DRAINING, MAX_IN_FLIGHT
from eoslog.broker.requests import CloseConnection, Settled
from eoslog.broker.security.listeners import Listener
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import decode_response, encode_request
from tests.broker.broker_clients import bodies

FETCH, PRODUCE, END_TXN, HEARTBEAT = ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.HEARTBEAT
GROUPS = ApiKey.DESCRIBE_GROUPS

Table = dict[ApiKey, Callable[..., Any]]


class Client:
    """A client that sends and reads as a test wants it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.sent: list[tuple[int, int]] = []

    def send(self, key: ApiKey, version: int, body: dict[str, Any] | None = None) -> None:
        self.sent.append((key, version))
        parts = encode_request(key, version, len(self.sent), "test", body or {})
        self.writer.write(b"".join(parts))

    async def receive(self) -> tuple[int, dict[str, Any]]:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        frame = await self.reader.readexactly(size)
        (number,) = struct.unpack_from(">i", frame)
        key, version = self.sent[number - 1]
        return decode_response(key, version, frame)

    async def closed(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(), 5) == b""
        except ConnectionError:
            return True


@asynccontextmanager
async def serving(
    monkeypatch: pytest.MonkeyPatch, table: Table, max_bytes: int = 1 << 20, **options: Any
) -> AsyncIterator[tuple[Server, Callable[[], Awaitable[Client]]]]:
    monkeypatch.setattr(connection_module, "handlers", lambda: table)
    config = BrokerConfig(network=NetworkOptions(request_max_bytes=max_bytes, **options))
    memory = Memory(config.network.queued_max_request_bytes, config.network.queued_max_response_bytes)
    broker: Any = SimpleNamespace(config=config, memory=memory, authorizer=None, turns=Turns())
    server = Server()
    port = (await server.bind(Listener())).port
    await server.serve(broker)
    clients: list[Client] = []

    async def connect() -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        clients.append(client)
        return client

    try:
        yield server, connect
    finally:
        for client in clients:
            client.writer.close()
        await server.stop(1.0)


async def until(true: Callable[[Connection], bool], server: Server) -> None:
    """Wait until the one connection that there is has come, and is so."""
    while not all(true(one) for one in server._connections) or not len(server):
        await asyncio.sleep(0.01)


def is_paused(connection: Connection) -> bool:
    return not connection._transport.is_reading()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(bounded())


def heartbeat(context: Any, request: dict[str, Any]) -> dict[str, Any]:
    return {"error_code": 0}


def test_answers_keep_the_order_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        gates = {number: asyncio.Event() for number in (1, 2)}
        begun: list[int] = []

        def produce(context: Any, request: dict[str, Any]) -> Settled[Any]:
            number = context.header.correlation_id
            begun.append(number)

            async def answer() -> dict[str, Any]:
                await gates[number].wait()
                return {}

            return Settled(answer())

        async with serving(monkeypatch, {PRODUCE: produce, HEARTBEAT: heartbeat}) as (_, connect):
            client = await connect()
            client.send(PRODUCE, 9)
            client.send(PRODUCE, 9)
            client.send(HEARTBEAT, 4)
            while begun != [1, 2]:
                await asyncio.sleep(0.01)
            gates[2].set()  # the second is ready first, and still waits its turn
            gates[1].set()
            assert [(await client.receive())[0] for _ in range(3)] == [1, 2, 3]

    run(test)


def test_a_large_request_is_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are served meanwhile. A small one is read at once."""
    readers: list[threading.Thread] = []
    real = dispatch.begin

    def begin(*arguments: Any) -> Any:
        header, handler, read = real(*arguments)

        def noted() -> Any:
            readers.append(threading.current_thread())
            return read()

        return header, handler, noted

    async def test() -> None:
        monkeypatch.setattr(connection_module, "begin", begin)
        groups: Table = {GROUPS: lambda context, request: {"groups": []}}
        async with serving(monkeypatch, groups) as (_, connect):
            client = await connect()
            for names in (["one"], [f"group {number}" for number in range(10_000)]):
                client.send(GROUPS, 5, {"groups": names})
                await client.receive()
        assert [reader is threading.main_thread() for reader in readers] == [True, False]

    run(test)


def test_a_request_with_effects_to_come_holds_back_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        gate = asyncio.Event()
        order: list[str] = []

        async def end_txn(context: Any, request: dict[str, Any]) -> dict[str, Any]:
            await gate.wait()
            order.append("ended")
            return {}

        def produce(context: Any, request: dict[str, Any]) -> dict[str, Any]:
            order.append("produced")
            return {}

        async with serving(monkeypatch, {PRODUCE: produce, END_TXN: end_txn}) as (server, connect):
            client = await connect()
            client.send(END_TXN, 3)
            client.send(PRODUCE, 9)
            await until(lambda connection: connection.machine.has_backlog, server)
            gate.set()
            assert [(await client.receive())[0] for _ in range(2)] == [1, 2]
            assert order == ["ended", "produced"]

    run(test)


def test_a_fault_is_told_where_the_api_has_a_place_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        def fail(context: Any, request: dict[str, Any]) -> dict[str, Any]:
            raise ZeroDivisionError("of the test")

        async def fail_later(context: Any, request: dict[str, Any]) -> dict[str, Any]:
            await asyncio.sleep(0)
            raise ZeroDivisionError("of the test")

        table: Table = {HEARTBEAT: fail, END_TXN: fail_later, PRODUCE: fail}
        async with serving(monkeypatch, table) as (_, connect):
            client = await connect()
            client.send(HEARTBEAT, 4)
            client.send(END_TXN, 3)
            assert [(await client.receive())[1]["error_code"] for _ in range(2)] == [-1, -1]
            client.send(PRODUCE, 9)
            assert await client.closed()
            assert "ZeroDivisionError" in caplog.text

    run(test)


NOT_TOLD = {
    ApiKey.FETCH,
    ApiKey.METADATA,
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
}
"""Clients misread these answers' one error code."""
TOLD_AT_THE_TOP = [
    (api.key, version, body)
    for api, version, body in bodies()
    if any(field.name == "error_code" and version in field.versions for field in api.response.struct.fields)
]


def broken(context: Any, request: dict[str, Any]) -> dict[str, Any]:
    raise ZeroDivisionError("of the test")


def test_every_api_that_has_one_error_code_tells_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case for case in TOLD_AT_THE_TOP if case[0] not in NOT_TOLD]

    async def test() -> None:
        async with serving(monkeypatch, dict.fromkeys(ApiKey, broken)) as (_, connect):
            client = await connect()
            for key, version, body in cases:
                client.send(key, version, body)
                _, answer = await client.receive()
                assert answer["error_code"] == -1, (key.name, version)

    assert len({key for key, _, _ in cases}) == 25
    run(test)


@pytest.mark.parametrize("key", sorted(NOT_TOLD), ids=lambda key: key.name)
def test_a_fault_that_would_be_misread_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, key: ApiKey
) -> None:
    async def test() -> None:
        async with serving(monkeypatch, {key: broken}) as (_, connect):
            for version, body in [(v, body) for k, v, body in TOLD_AT_THE_TOP if k == key]:
                caplog.clear()
                client = await connect()
                client.send(key, version, body)
                assert await client.closed()
                assert "fault while serving" in caplog.text

    run(test)


def test_work_that_is_cancelled_leaves_no_client_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async def cancelled(context: Any, request: dict[str, Any]) -> dict[str, Any]:
            task = asyncio.ensure_future(asyncio.sleep(10))
            task.cancel()
            await task
            return {}

        async with serving(monkeypatch, {END_TXN: cancelled, HEARTBEAT: heartbeat}) as (_, connect):
            client = await connect()
            client.send(END_TXN, 3)
            client.send(HEARTBEAT, 4)
            assert [(await client.receive())[1]["error_code"] for _ in range(2)] == [-1, 0]

    run(test)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    "answer", [{"error_code": "no number"}, {"error_code": 2**40}, 7, {"error_code": [1]}]
)
def test_an_answer_that_does_not_fit_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, answer: Any, later: bool
) -> None:
    async def delayed() -> Any:
        return answer

    async def test() -> None:
        table: Table = {HEARTBEAT: lambda context, request: delayed() if later else answer}
        async with serving(monkeypatch, table) as (_, connect):
            client = await connect()
            client.send(HEARTBEAT, 4)
            assert await client.closed()

    run(test)


def test_no_answer_for_acks_0_and_a_close_for_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        def produce(context: Any, request: dict[str, Any]) -> None:
            if context.header.correlation_id > 2:
                raise CloseConnection("test")

        async with serving(monkeypatch, {PRODUCE: produce, HEARTBEAT: heartbeat}) as (_, connect):
            client = await connect()
            client.send(PRODUCE, 9, {"acks": 0})
            client.send(HEARTBEAT, 4)
            assert (await client.receive())[0] == 2
            client.send(PRODUCE, 9, {"acks": 0})
            assert await client.closed()

    run(test)


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", 2**31 - 1) + b"x" * 64,
        struct.pack(">i", -1),
        struct.pack(">ihhi", 8, 999, 0, 1),
        struct.pack(">ihhi", 8, HEARTBEAT, 99, 1),
        struct.pack(">ihhi", 8, HEARTBEAT, 4, 1),
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["huge", "negative", "unknown key", "unknown version", "cut header", "no header", "http"],
)
def test_garbage_ends_one_connection_with_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    async def test() -> None:
        async with serving(monkeypatch, {HEARTBEAT: heartbeat}) as (_, connect):
            other = await connect()
            client = await connect()
            client.writer.write(garbage)
            assert await client.closed()
            other.send(HEARTBEAT, 4)
            assert (await other.receive())[0] == 1
        assert len([r for r in caplog.records if r.name == connection_module.__name__]) == 1

    run(test)


def test_an_unknown_version_of_api_versions_is_told_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        table: Table = {ApiKey.API_VERSIONS: heartbeat, HEARTBEAT: heartbeat}
        async with serving(monkeypatch, table) as (_, connect):
            client = await connect()
            client.writer.write(struct.pack(">ihhi", 8, ApiKey.API_VERSIONS, 77, 1))
            client.sent.append((ApiKey.API_VERSIONS, 0))
            number, answer = await client.receive()
            assert (number, answer["error_code"]) == (1, 35)
            assert answer["api_keys"] == [{"api_key": 18, "min_version": 0, "max_version": 4}]
            client.send(HEARTBEAT, 4)
            assert (await client.receive())[0] == 2

    run(test)


def test_who_has_too_much_in_flight_is_not_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        gate = asyncio.Event()
        begun = 0

        def produce(context: Any, request: dict[str, Any]) -> Settled[Any]:
            nonlocal begun
            begun += 1

            async def answer() -> dict[str, Any]:
                await gate.wait()
                return {}

            return Settled(answer())

        async with serving(monkeypatch, {PRODUCE: produce}) as (server, connect):
            client = await connect()
            for _ in range(1000):
                client.send(PRODUCE, 9)
            await until(is_paused, server)
            assert begun == MAX_IN_FLIGHT
            gate.set()
            assert [(await client.receive())[0] for _ in range(1000)] == list(range(1, 1001))

    run(test)


def test_a_slow_reader_holds_up_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks for much and reads nothing: the broker makes no more than fits its bounds."""

    async def test() -> None:
        answered = 0
        records = b"x" * (1 << 20)

        def fetch(context: Any, request: dict[str, Any]) -> dict[str, Any]:
            nonlocal answered
            answered += 1
            part = {"partition_index": 0, "aborted_transactions": None, "records": records}
            return {"responses": [{"topic": "t", "partitions": [part]}]}

        async with serving(monkeypatch, {FETCH: fetch, HEARTBEAT: heartbeat}) as (server, connect):
            slow = await connect()
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(100):
                slow.send(FETCH, 12)
            await until(is_paused, server)
            assert answered < 30
            other = await connect()
            other.send(HEARTBEAT, 4)
            assert (await other.receive())[0] == 1
            slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for number in range(1, 101):
                assert (await slow.receive())[0] == number

    run(test)


def test_a_begun_request_ends_though_its_client_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A half-done EndTxn must not be cut off; a waiting Fetch must not stay."""

    async def test() -> None:
        gate, begun, ended, left = (asyncio.Event() for _ in range(4))

        async def end_txn(context: Any, request: dict[str, Any]) -> dict[str, Any]:
            begun.set()
            await gate.wait()
            ended.set()
            return {}

        async def wait_for_ever() -> dict[str, Any]:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                left.set()
            return {}

        table: Table = {END_TXN: end_txn, FETCH: lambda context, request: Settled(wait_for_ever())}
        async with serving(monkeypatch, table) as (_, connect):
            client = await connect()
            client.send(END_TXN, 3)
            await begun.wait()
            client.writer.close()
            await asyncio.sleep(0.05)
            gate.set()
            await ended.wait()

            begun.clear()
            client = await connect()
            client.send(FETCH, 12)
            client.send(FETCH, 12)
            await begun.wait()
            client.writer.transport.abort()
            await left.wait()

    run(test)


def test_stop_lets_begun_requests_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        begun = asyncio.Event()

        async def end_txn(context: Any, request: dict[str, Any]) -> dict[str, Any]:
            begun.set()
            await asyncio.sleep(0.2)
            return {}

        async with serving(monkeypatch, {END_TXN: end_txn}) as (server, connect):
            client = await connect()
            client.send(END_TXN, 3)
            await begun.wait()
            await server.stop(5.0)
            assert (await client.receive())[0] == 1
            assert await client.closed()
            with pytest.raises(ConnectionError):
                await connect()

    run(test)


def test_what_has_not_begun_does_not_begin_while_the_broker_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        gate = asyncio.Event()

        async def end_txn(context: Any, request: dict[str, Any]) -> dict[str, Any]:
            await gate.wait()
            return {}

        async with serving(monkeypatch, {END_TXN: end_txn, HEARTBEAT: heartbeat}) as (server, connect):
            client = await connect()
            client.send(END_TXN, 3)
            client.send(HEARTBEAT, 4)
            await until(lambda connection: connection.machine.has_backlog, server)
            stopped = asyncio.create_task(server.stop(5.0))
            await until(lambda connection: connection.machine.phase is DRAINING, server)
            gate.set()
            await stopped
            assert (await client.receive())[0] == 1
            assert await client.closed(), "no second answer"

    run(test)


def test_half_a_frame_is_not_held_when_its_client_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else such clients, one after another, use up what all may hold for as long as the broker lives."""

    async def test() -> None:
        async with serving(monkeypatch, {HEARTBEAT: heartbeat}) as (server, connect):
            client = await connect()
            client.writer.write(struct.pack(">i", 1000) + b"x" * 500)
            while server.memory.requests != 504:
                await asyncio.sleep(0.01)
            client.writer.close()
            while len(server):
                await asyncio.sleep(0.01)
            assert server.memory.requests == 0

    run(test)


def test_large_requests_are_served_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they take while they are read and served is bounded; small ones pass them."""

    async def test() -> None:
        gate = asyncio.Event()
        begun = 0

        async def describe(context: Any, request: dict[str, Any]) -> dict[str, Any]:
            nonlocal begun
            begun += 1
            await gate.wait()
            return {"groups": []}

        groups = {"groups": [f"a-group-of-some-length-{number}" for number in range(2000)]}
        async with serving(monkeypatch, {GROUPS: describe, HEARTBEAT: heartbeat}) as (_, connect):
            clients = [await connect() for _ in range(LARGE_AT_ONCE + 2)]
            for client in clients:
                client.send(GROUPS, 5, groups)
            other = await connect()
            while begun < LARGE_AT_ONCE:
                await asyncio.sleep(0.01)
            other.send(HEARTBEAT, 4)
            assert (await other.receive())[1]["error_code"] == 0
            assert begun == LARGE_AT_ONCE
            gate.set()
            for client in clients:
                await client.receive()

    run(test)
