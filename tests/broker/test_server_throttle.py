"""Quotas: who takes more than its share is told to wait, and made to."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from broker_clients import Wire, create
from filled_requests import RECORDS

from eoslog.broker.ports import OsFileSystem
from eoslog.broker.quotas import Quotas, entity
from eoslog.broker.throttle import LONGEST, Throttle
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import EmbeddedBroker

TRIES = 50


@pytest.fixture
def wire(broker: EmbeddedBroker) -> Iterator[Wire]:
    with Wire(broker.host, broker.port) as opened:
        yield opened


def limit(wire: Wire, name: str, value: float | None, **kinds: str | None) -> None:
    """Set a limit of the clients of that kind."""
    whose = [{"entity_type": kind.replace("_", "-"), "entity_name": one} for kind, one in kinds.items()]
    change = {"key": name, "value": value or 0.0, "remove": value is None}
    entries = [{"entity": whose, "ops": [change]}]
    answer = wire.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=False)
    assert answer["entries"][0]["error_code"] == 0


def produce(wire: Wire, topic: str, size: int) -> int:
    """Produce so many bytes; answers the time that the client was told to wait, in ms."""
    records = encode_records([(b"k", b"x" * size)], int(time.time() * 1000))
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    answer = wire.call(ApiKey.PRODUCE, 9, acks=-1, topic_data=data)
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    return int(answer["throttle_time_ms"])


def fetch(wire: Wire, topic: str) -> dict[str, Any]:
    return wire.call(
        ApiKey.FETCH, 12, max_wait_ms=10, min_bytes=1, max_bytes=1 << 20,
        topics=[{"topic": topic, "partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]}],
    )  # fmt: skip


def test_a_fast_producer_waits(broker: EmbeddedBroker, wire: Wire) -> None:
    create(broker.bootstrap, "produced")
    assert produce(wire, "produced", 50_000) == 0
    limit(wire, "producer_byte_rate", 100_000, client_id="wire")
    for _ in range(TRIES):  # who stands still for a while has saved some of its share
        begun = time.monotonic()
        if wait_ms := produce(wire, "produced", 80_000):
            break
    assert wait_ms > 0
    wire.call(ApiKey.METADATA, 9, topics=[])
    assert time.monotonic() - begun > wait_ms / 1000 - 0.05, "the next request begins later"
    limit(wire, "producer_byte_rate", None, client_id="wire")
    assert produce(wire, "produced", 50_000) == 0


def test_a_fast_consumer_waits(broker: EmbeddedBroker, wire: Wire) -> None:
    create(broker.bootstrap, "fetched")
    for _ in range(4):
        produce(wire, "fetched", 100_000)
    limit(wire, "consumer_byte_rate", 500_000, user=None)
    assert any(fetch(wire, "fetched")["throttle_time_ms"] for _ in range(TRIES))
    limit(wire, "consumer_byte_rate", None, user=None)


def test_who_uses_the_processor_for_long_waits(broker: EmbeddedBroker, wire: Wire) -> None:
    limit(wire, "request_percentage", 1.0, client_id=None)
    for _ in range(5000):
        wait_ms = wire.call(ApiKey.METADATA, 9, topics=None)["throttle_time_ms"]
        if wait_ms:
            break
    assert wait_ms > 0
    with Wire(broker.host, broker.port) as other:
        limit(other, "request_percentage", None, client_id=None)


def throttle(tmp_path: Any, limits: dict[tuple[tuple[str, str | None], ...], float]) -> Throttle:
    quotas = Quotas(OsFileSystem(), str(tmp_path))
    for whose, value in limits.items():
        quotas.change(entity(whose), {"producer_byte_rate": value})
    return Throttle(quotas)


def wait(throttled: Throttle, user: str, client: str, size: int, now: float) -> float:
    return throttled.wait(ApiKey.PRODUCE, f"User:{user}", client, size, {}, 0.0, now)


def test_what_is_shared(tmp_path: Any) -> None:
    """A user's clients share its limit; the default of client ids is one's own."""
    throttled = throttle(tmp_path, {(("user", "alice"),): 100, (("client-id", None),): 100})
    assert wait(throttled, "alice", "a", 100, 10.0) == 0
    assert wait(throttled, "alice", "b", 100, 10.0) == pytest.approx(1.0)
    assert wait(throttled, "bob", "a", 100, 10.0) == 0
    assert wait(throttled, "bob", "b", 100, 10.0) == 0
    assert wait(throttled, "carol", "b", 100, 10.0) == pytest.approx(1.0)


def test_the_rate_is_kept_and_no_wait_is_without_end(tmp_path: Any) -> None:
    throttled = throttle(tmp_path, {(("user", None),): 100})
    now = 0.0
    for _ in range(50):
        now += wait(throttled, "alice", "a", 30, now)
    assert now == pytest.approx(50 * 30 / 100 - 1.0, abs=0.5)
    assert wait(throttled, "alice", "a", 1 << 40, now) == pytest.approx(LONGEST)


def test_nobody_without_a_limit_waits(tmp_path: Any) -> None:
    assert throttle(tmp_path, {}).idle
    throttled = throttle(tmp_path, {(("user", "alice"),): 1})
    assert wait(throttled, "bob", "a", len(RECORDS) << 20, 0.0) == 0
