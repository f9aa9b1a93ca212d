"""Connections and routing: versions agreed, waits bounded, addresses learnt and forgotten, unknown things
named.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from eoslog.client.wire import retry
from eoslog.client.wire.cluster import Cluster, close_shared, shared_cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.retry import Backoff, retrying
from eoslog.connector.options.source_options import source_options
from eoslog.connector.source.reader import BatchReader, StreamReader
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.connector.spark.versions import ReadAllAvailable
from eoslog.errors import (
    BrokerUnreachable,
    ConnectionLost,
    OptionError,
    RetriesExhausted,
    UnknownTopic,
    UnsupportedByBroker,
)
from eoslog.protocol import errors
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.client.fake_broker import Drop, FakeBroker, Silence

# -- one connection ------------------------------------------------------------------------------
# One connection: versions agreed, answers in order, every wait bounded, every failure says where.


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


# -- routing -------------------------------------------------------------------------------------
# Routing: addresses learnt and forgotten, dead connections replaced, unknown things named.


def cluster(*ports: int, **more: Any) -> Cluster:
    limits = {"request_timeout_ms": 2_000, "api_timeout_ms": 3_000, "retry_backoff_ms": 1} | more
    return Cluster(ClientConfig(tuple(("127.0.0.1", port) for port in ports), **limits))


def test_at_first_nobody_is_waited_for_in_vain() -> None:
    """At the start of a query; a process that comes later waits for a broker that starts again."""
    for address in (("127.0.0.1", 1), ("no-such-host.invalid", 9092)):
        asked = Cluster(ClientConfig((address,), first_contact_timeout_ms=300, retry_backoff_ms=1))
        began = time.monotonic()
        with pytest.raises(BrokerUnreachable, match=r"within 300 ms \(first\.contact\.timeout\.ms\)"):
            asked.meet()
        assert 0.3 <= time.monotonic() - began < 5
    with pytest.raises(BrokerUnreachable, match=r"within 2000 ms \(kafka\.request\.timeout\.ms\)"):
        cluster(1, first_contact_timeout_ms=300).metadata([])


def test_who_is_there_and_silent_is_waited_for_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asked = cluster(listener.getsockname()[1], first_contact_timeout_ms=1, request_timeout_ms=800)
        with pytest.raises(BrokerUnreachable, match=r"within 800 ms \(kafka\.request"):
            asked.meet()


def test_unreachable_names_every_address_and_the_option_within_the_timeout() -> None:
    began = time.monotonic()
    with pytest.raises(BrokerUnreachable) as caught:
        cluster(1, 2, request_timeout_ms=400, api_timeout_ms=120_000).metadata(None)
    assert 0.3 < time.monotonic() - began < 60, "it is not waited for as for a cluster that was there once"
    for said in (
        "127.0.0.1:1",
        "127.0.0.1:2",
        "kafka.bootstrap.servers",
        "400 ms",
        "kafka.request.timeout.ms",
    ):
        assert said in str(caught.value)


def test_the_second_address_serves_when_the_first_does_not() -> None:
    with FakeBroker() as broker, cluster(1, broker.port) as c:
        assert c.partitions("t") == [0, 1]


def test_an_idle_connection_that_died_is_replaced() -> None:
    with FakeBroker() as broker, cluster(broker.port) as c:
        c.metadata(["t"])
        broker.drop_all()
        assert "t" in c.metadata(["t"]).topics


def test_unknown_topic_and_partition() -> None:
    def unknown(version: int, body: Any) -> Any:
        return {"brokers": [], "topics": [{"error_code": 3, "name": "gone", "partitions": []}]}

    with (
        FakeBroker({ApiKey.METADATA: unknown}) as broker,
        cluster(broker.port) as c,
        pytest.raises(UnknownTopic, match=r"'gone' does not exist .*create the topic"),
    ):
        c.topic("gone")
    with (
        FakeBroker() as broker,
        cluster(broker.port) as c,
        pytest.raises(UnknownTopic, match="no partition 9, but 0, 1"),
    ):
        c.leader("t", 9)


@pytest.mark.parametrize("late", [0, 1])
def test_a_partition_that_is_not_remembered_is_looked_up(late: int) -> None:
    """A topic has grown since this process last asked; `late`: so often brokers do not know of that yet."""
    answers = [1, *[1] * late, 2]

    def growing(version: int, body: Any) -> Any:
        there = answers.pop(0)
        parts = [{"partition_index": p, "leader_id": 0, "leader_epoch": 0} for p in range(there)]
        nodes = [{"node_id": 0, "host": "127.0.0.1", "port": broker.port}]
        return {"brokers": nodes, "topics": [{"name": "t", "partitions": parts}]}

    with FakeBroker({ApiKey.METADATA: growing}) as broker, cluster(broker.port) as c:
        assert set(c.topic("t").leaders) == {0}
        assert c.leader_address("t", 1) == ("127.0.0.1", broker.port) and not answers


def test_reading_never_creates_a_topic() -> None:
    with FakeBroker() as broker, cluster(broker.port) as c:
        c.topic("t")
        assert [body["allow_auto_topic_creation"] for _, body in broker.seen(ApiKey.METADATA)] == [False]


def test_coordinators_are_asked_for_once_and_again_when_forgotten() -> None:
    with FakeBroker() as broker, cluster(broker.port) as c:
        first = c.coordinators("transaction", ["a", "b"])
        assert c.coordinator("transaction", "a") is first["a"] is first["b"]
        assert len(broker.seen(ApiKey.FIND_COORDINATOR)) == 1
        c.forget_coordinator("transaction", "a")
        c.coordinator("transaction", "a")
        assert broker.seen(ApiKey.FIND_COORDINATOR)[-1][1]["coordinator_keys"] == ["a"]


def test_a_broker_whose_news_are_old_is_not_asked_for_ever() -> None:
    """Started again a moment ago, it still calls itself the coordinator."""
    refuses = {"throttle_time_ms": 0, "error_code": ErrorCode.NOT_COORDINATOR}
    with FakeBroker({ApiKey.HEARTBEAT: lambda version, body: refuses}) as old, FakeBroker() as right:
        right.handlers[ApiKey.HEARTBEAT] = lambda version, body: {**refuses, "error_code": 0}
        with cluster(old.port, right.port) as c:

            def beat() -> None:
                body = {"group_id": "g", "generation_id": 1, "member_id": "m"}
                retry.check(
                    c.coordinator("group", "g").call(APIS[ApiKey.HEARTBEAT], body)["error_code"], "it"
                )

            retrying(c, "Heartbeat", beat, forget=lambda: c.forget_coordinator("group", "g"))
        assert len(old.seen(ApiKey.HEARTBEAT)) == 1 and len(right.seen(ApiKey.HEARTBEAT)) == 1


def test_a_broker_that_is_alone_is_asked_again() -> None:
    with FakeBroker() as broker, cluster(broker.port, 1) as c:
        c.coordinator("group", "g")
        c.note(KafkaError(ErrorCode.NOT_COORDINATOR, "it"))
        c.forget_coordinator("group", "g")
        c.coordinator("group", "g")
        assert len(broker.seen(ApiKey.FIND_COORDINATOR)) == 2


def test_a_connection_with_answers_to_come_is_not_kept() -> None:
    with FakeBroker() as broker, cluster(broker.port) as c:
        address = c.leader_address("t", 0)
        taken = c.take(address)
        c.give_back(taken)
        assert c.take(address) is taken
        taken.send(ApiKey.METADATA, {"topics": []})
        c.give_back(taken)
        assert taken.closed and c.take(address) is not taken


def test_retries_end_by_their_timeout_and_name_it() -> None:
    def fail() -> None:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def run(**more: Any) -> None:
        retrying(cluster(1, api_timeout_ms=200, delivery_timeout_ms=300), "Doing", fail, **more)

    for option, limit in ((retry.API_TIMEOUT, 200), (retry.DELIVERY_TIMEOUT, 300)):
        given_up = rf"Doing: gave up after {limit} ms \({option}\).*LOAD_IN_PROGRESS"
        with pytest.raises(RetriesExhausted, match=given_up):
            run(option=option)
    with pytest.raises(KafkaError):
        run(final=(errors.CoordinatorLoadInProgress,))


def test_what_will_not_pass_is_raised_at_once() -> None:
    tries = []

    def fail() -> None:
        tries.append(1)
        raise KafkaError(ErrorCode.PRODUCER_FENCED)

    with pytest.raises(KafkaError):
        retrying(cluster(1), "Doing", fail)
    assert len(tries) == 1


def test_retries_forget_and_then_succeed() -> None:
    left, forgotten = [ConnectionLost("x"), KafkaError(ErrorCode.NOT_COORDINATOR)], []

    def attempt() -> str:
        if left:
            raise left.pop()
        return "done"

    c = cluster(1)
    done = retrying(c, "Doing", attempt, forget=lambda: forgotten.append(1))
    assert done == "done" and len(forgotten) == 2


def test_pauses_grow_and_stop_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now, pauses = [100.0], []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    backoff = Backoff(ClientConfig((), retry_backoff_ms=10, retry_backoff_max_ms=50), 150)
    while not backoff.over:
        backoff.pause()
    assert sum(pauses) == pytest.approx(0.15) and len(pauses) < 10
    assert 0.008 <= pauses[0] <= 0.012 and pauses[0] < pauses[1] < pauses[2] <= 0.06 >= max(pauses)


def test_shared_clusters_are_one_a_config() -> None:
    config = ClientConfig((("127.0.0.1", 1),))
    assert shared_cluster(config) is shared_cluster(config)
    kept = shared_cluster(config)
    close_shared(config)
    assert shared_cluster(config) is not kept


def test_addresses() -> None:
    assert parse_addresses(" a:1, [::1]:9092 ,") == (("a", 1), ("::1", 9092))
    for wrong in ("", "a", "a:", ":9", "a:b", "a:0", "a:65536", "a:1,b"):
        with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
            parse_addresses(wrong)


def test_addresses_as_consoles_of_hosts_and_listeners_show_them() -> None:
    """The protocol before an address is not looked at, as in Java: kafka.security.protocol says it."""
    taken = parse_addresses("PLAINTEXT://a:1,SASL_SSL://b.c-d.e:2, external-2.x://[::1]:3,ssl://10.0.0.1:4")
    assert taken == (("a", 1), ("b.c-d.e", 2), ("::1", 3), ("10.0.0.1", 4))
    for wrong in ("ssl://", "ssl://a", "ssl://:1", "://a:1", "s l://a:1", "a/b://c:1", "ssl://a:1/"):
        with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers: .* is not host:port"):
            parse_addresses(wrong)


def test_a_last_try_cut_short_does_not_hide_what_was_answered_before() -> None:
    """A server that closes the first connection and never answers on the others."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        peers: list[socket.socket] = []

        def run() -> None:
            listener.accept()[0].close()
            while True:
                try:
                    peers.append(listener.accept()[0])
                except OSError:
                    return

        threading.Thread(target=run, daemon=True).start()
        with cluster(port, request_timeout_ms=1_000) as asked, pytest.raises(BrokerUnreachable) as caught:
            asked.any_broker()
    assert "within 1000 ms" in str(caught.value)
    assert "nothing within" not in str(caught.value)
    for peer in peers:
        peer.close()


# -- where nobody listens ------------------------------------------------------------------------
# Where nobody listens, a query says so after first.contact.timeout.ms, whatever Spark asks of it first.


def nobody() -> dict[str, str]:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    return {
        "kafka.bootstrap.servers": address,
        "subscribe": "orders",
        "first.contact.timeout.ms": "300",
        "kafka.request.timeout.ms": "20000",
    }


FIRST_CALLS: dict[str, Callable[[StreamReader], object]] = {
    "a new query": lambda reader: reader.initialOffset(),
    "availableNow": lambda reader: reader.prepareForTriggerAvailableNow(),
    "after a restart": lambda reader: reader.latestOffset({"orders": {"0": 1}}, ReadAllAvailable()),
    "a planned batch": lambda reader: reader.partitions({"orders": {"0": 1}}, {"orders": {"0": 2}}),
}


@pytest.mark.parametrize("first", FIRST_CALLS.values(), ids=FIRST_CALLS)
def test_a_stream_gives_up_soon(first: Callable[[StreamReader], object]) -> None:
    reader, began = StreamReader(source_options(nobody(), stream=True)), time.monotonic()
    with pytest.raises(BrokerUnreachable, match=r"first\.contact\.timeout\.ms"):
        first(reader)
    assert time.monotonic() - began < 5


def test_a_batch_gives_up_soon() -> None:
    began = time.monotonic()
    with pytest.raises(BrokerUnreachable, match=r"first\.contact\.timeout\.ms"):
        BatchReader(source_options(nobody(), stream=False)).partitions()
    assert time.monotonic() - began < 5


# -- topics that are not known just now ----------------------------------------------------------
# Topics and partitions that a broker does not know of, or cannot describe, just now: they are not gone.


def found(codes: list[int], pattern: str = "a-.*", internal: str = "") -> list[tuple[str, int]]:
    """Partitions of the pattern's topics, where the broker has an error for a-2 in its first answers."""

    def metadata(version: int, body: Any) -> Any:
        told = broker._metadata(version, {"topics": [{"name": name} for name in ("a-1", "a-2", "b-1")]})
        for topic in told["topics"]:
            topic["is_internal"] = topic["name"] == internal
        if codes:
            told["topics"][1] = {"error_code": codes.pop(0), "name": "a-2", "partitions": []}
        return told

    with FakeBroker({ApiKey.METADATA: metadata}) as broker:
        given = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}", "subscribePattern": pattern}
        options = source_options(given | {"kafka.retry.backoff.ms": "1"}, stream=True)
        try:
            return SourceTopics(options).partitions()
        finally:
            close_shared(options.client)


@pytest.mark.parametrize("code", [3, 5, 6])
def test_a_topic_that_cannot_be_described_for_a_moment_is_not_gone(code: int) -> None:
    """Left out, it would be a loss; with failOnDataLoss=false it would be read again from its beginning."""
    assert found([code, code]) == [("a-1", 0), ("a-1", 1), ("a-2", 0), ("a-2", 1)]


def test_one_that_never_can_be_is_said() -> None:
    with pytest.raises(KafkaError, match="Metadata of a-2: TOPIC_AUTHORIZATION_FAILED"):
        found([29] * 1000)


def test_a_pattern_is_that_of_whole_names() -> None:
    assert found([], "a") == [] and found([], "-1") == []
    assert found([], "a-1|b") == [("a-1", 0), ("a-1", 1)]


def test_internal_topics_are_not_read() -> None:
    assert found([], internal="a-1") == [("a-2", 0), ("a-2", 1)]


@pytest.mark.parametrize("stale", [1, 2])
def test_a_partition_that_a_broker_has_not_heard_of_is_not_gone(stale: int) -> None:
    """The query stands at 5 in both; the first answers are of a broker that knows only one."""

    def metadata(version: int, body: Any) -> Any:
        broker.partitions = 1 if len(broker.seen(ApiKey.METADATA)) <= stale else 2
        return broker._metadata(version, body)

    def ends(version: int, body: Any) -> Any:
        parts = [{**part, "offset": 9} for topic in body["topics"] for part in topic["partitions"]]
        answers = [{"partition_index": p["partition_index"], "offset": p["offset"]} for p in parts]
        return {"topics": [{"name": "a", "partitions": answers}]}

    with FakeBroker({ApiKey.METADATA: metadata, ApiKey.LIST_OFFSETS: ends}) as broker:
        given = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}", "subscribe": "a"}
        given |= {"fetchOffset.retryIntervalMs": "1"}
        options = source_options(given, stream=True)
        try:
            found = SourceTopics(options).latest({("a", 0): 5, ("a", 1): 5})
        finally:
            close_shared(options.client)
    assert found == {("a", 0): 9, ("a", 1): 9}
