"""One connection: versions agreed, answers in order, every wait bounded, every failure says where."""

import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest

from eoslog.client.wire.config import ClientConfig
from eoslog.client.wire.connection import BrokerConnection
from eoslog.errors import BrokerUnreachable, ConnectionLost, UnsupportedByBroker
from eoslog.protocol.apis import APIS, ApiKey
from tests.client.fake_broker import Drop, FakeBroker, Silence


def connect(port: int, timeout_ms: int = 2_000) -> BrokerConnection:
    return BrokerConnection(
        "127.0.0.1", port, ClientConfig((("127.0.0.1", port),), request_timeout_ms=timeout_ms)
    )


def raw_server(serve: Callable[[socket.socket], None]) -> int:
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        peer, _ = listener.accept()
        with peer, listener:
            serve(peer)

    threading.Thread(target=run, daemon=True).start()
    port: int = listener.getsockname()[1]
    return port


def test_versions_and_features_are_learnt() -> None:
    with FakeBroker(versions={ApiKey.PRODUCE: (3, 9)}) as broker:
        connection = connect(broker.port)
        assert connection.features == {"transaction.version": 2}
        assert connection.pick(ApiKey.PRODUCE) == 9
        assert connection.pick(ApiKey.PRODUCE, max_version=7) == 7
        with pytest.raises(UnsupportedByBroker, match=r"versions 3 to 9 of Produce.*between 12 and 13"):
            connection.pick(ApiKey.PRODUCE, min_version=12)


def test_an_older_broker_is_asked_again_at_its_version() -> None:
    with FakeBroker(versions={ApiKey.API_VERSIONS: (0, 2)}) as broker:
        assert connect(broker.port).pick(ApiKey.METADATA) == APIS[ApiKey.METADATA].max_version


def test_answers_come_in_the_order_of_requests() -> None:
    with FakeBroker() as broker:
        connection = connect(broker.port)
        for name in ("a", "b", "c"):
            connection.send(ApiKey.METADATA, {"topics": [{"name": name}]})
        assert connection.waiting == 3
        names = [connection.receive()["topics"][0]["name"] for _ in range(3)]
        assert names == ["a", "b", "c"]


def test_call_refuses_to_take_another_requests_answer() -> None:
    with FakeBroker() as broker:
        connection = connect(broker.port)
        connection.send(ApiKey.METADATA, {"topics": []})
        with pytest.raises(RuntimeError, match="answers to come"):
            connection.call(APIS[ApiKey.METADATA], {"topics": []})


def test_an_answer_is_not_taken_for_another_api_s() -> None:
    with FakeBroker() as broker:
        connection = connect(broker.port)
        connection.ask(APIS[ApiKey.METADATA], {"topics": []})
        with pytest.raises(RuntimeError, match="an answer of METADATA to come first"):
            connection.answer(APIS[ApiKey.FETCH])
        assert connection.answer(APIS[ApiKey.METADATA])["topics"] == []


def test_a_silent_broker_is_left_after_the_request_timeout() -> None:
    def silent(version: int, body: object) -> dict[str, object]:
        raise Silence

    with FakeBroker({ApiKey.METADATA: silent}) as broker:
        connection = connect(broker.port, 200)
        began = time.monotonic()
        with pytest.raises(ConnectionLost, match=r"Metadata: .*200 ms \(kafka\.request\.timeout\.ms\)"):
            connection.call(APIS[ApiKey.METADATA], {"topics": []})
        assert time.monotonic() - began < 20
        assert connection.closed


def test_a_closed_connection_says_what_was_under_way() -> None:
    def drop(version: int, body: object) -> dict[str, object]:
        raise Drop

    with FakeBroker({ApiKey.METADATA: drop}) as broker:
        connection = connect(broker.port)
        with pytest.raises(ConnectionLost, match=rf"127\.0\.0\.1:{broker.port} .*answer to Metadata"):
            connection.call(APIS[ApiKey.METADATA], {"topics": []})
        with pytest.raises(ConnectionLost):
            connection.send(ApiKey.METADATA, {"topics": []})


def test_refused_and_silent_addresses_are_unreachable() -> None:
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1: Connection refused"):
        connect(1)
    port = raw_server(lambda peer: time.sleep(60))
    began = time.monotonic()
    with pytest.raises(BrokerUnreachable, match=f":{port}"):
        connect(port, 200)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", -5),
        struct.pack(">ii", 6, 0) + b"\x00",
        b"\x00" * 12,
    ],
    ids=["http", "negative size", "cut", "wrong"],
)
def test_garbage_is_no_broker(said: bytes) -> None:
    def serve(peer: socket.socket) -> None:
        peer.recv(1000)
        peer.sendall(said)

    with pytest.raises(BrokerUnreachable):
        connect(raw_server(serve), 500)


def test_a_large_request_is_sent_in_parts_and_whole() -> None:
    with FakeBroker() as broker:
        connection = connect(broker.port, 10_000)
        names = [f"topic-{i}-{'x' * 200}" for i in range(20_000)]
        answer = connection.call(APIS[ApiKey.METADATA], {"topics": [{"name": n} for n in names]})
        assert [topic["name"] for topic in answer["topics"]] == names
