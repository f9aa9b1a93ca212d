"""Scenarios: records in, records out; idempotence through cut connections."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from eoslog.protocol.apis import ApiKey
from tests.scenarios.cutting_proxy import CuttingProxy
from tests.scenarios.drivers.base import Admin, Client, Place, Refused
from tests.scenarios.steps import everything, put, until, values

Topic = Callable[..., list[Place]]
Seen = Callable[..., None]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression(client: Client, bootstrap: str, topic: Topic, compression: str) -> None:
    places = topic(3)
    with client.producer(bootstrap, compression=compression) as producer:
        sent = [
            producer.send(
                places[0].topic,
                b"value %d " % number * 20,
                key=b"key %d" % number,
                partition=number % 3,
                headers=[("number", b"%d" % number)],
            )
            for number in range(300)
        ]
        producer.flush()
        answered = {delivery.result() for delivery in sent}
    found = everything(client, bootstrap, places)
    for place, records in found.items():
        numbers = range(place.partition, 300, 3)
        assert values(records) == [b"value %d " % number * 20 for number in numbers]
        assert [record.key for record in records] == [b"key %d" % number for number in numbers]
        assert [record.headers for record in records] == [(("number", b"%d" % n),) for n in numbers]
        assert [record.offset for record in records] == list(range(100))
    assert answered == {(partition, offset) for partition in range(3) for offset in range(100)}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(client: Client, bootstrap: str, topic: Topic, acks: str) -> None:
    [place] = topic()
    with client.producer(bootstrap, idempotent=False, acks=acks) as producer:
        for number in range(100):
            producer.send(place.topic, b"%d" % number)
        producer.flush()
    deadline = time.monotonic() + 5
    while len(found := everything(client, bootstrap, [place])[place]) < 100:
        assert time.monotonic() < deadline
    assert values(found) == [b"%d" % number for number in range(100)]


def test_nulls_headers_and_timestamps(client: Client, bootstrap: str, topic: Topic, seen: Seen) -> None:
    [place] = topic()
    when = 1_600_000_000_000
    headers = [("a", b"1"), ("a", b"2"), ("empty", b"")]
    with client.producer(bootstrap) as producer:
        producer.send(place.topic, None, key=b"key", timestamp=when)
        producer.send(place.topic, b"", key=b"", timestamp=when + 1)
        producer.send(place.topic, b"value", headers=headers, timestamp=when + 2)
        before = int(time.time() * 1000)
        producer.send(place.topic, b"now")
        producer.flush()
    found = everything(client, bootstrap, [place])[place]
    assert [(one.key, one.value) for one in found] == [
        (b"key", None), (b"", b""), (None, b"value"), (None, b"now"),
    ]  # fmt: skip
    assert [one.timestamp for one in found[:3]] == [when, when + 1, when + 2]
    assert before <= found[3].timestamp <= int(time.time() * 1000)
    assert [list(one.headers) for one in found] == [[], [], headers, []]


@pytest.mark.needs("null-headers")
def test_headers_without_a_value(client: Client, bootstrap: str, topic: Topic) -> None:
    [place] = topic()
    with client.producer(bootstrap) as producer:
        producer.send(place.topic, b"value", headers=[("none", None)])
        producer.flush()
    [found] = everything(client, bootstrap, [place])[place]
    assert list(found.headers) == [("none", None)]


def test_the_brokers_own_timestamps(client: Client, bootstrap: str, topic: Topic) -> None:
    [place] = topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    with client.producer(bootstrap) as producer:
        producer.send(place.topic, b"value", timestamp=1_600_000_000_000)
        producer.flush()
    [found] = everything(client, bootstrap, [place])[place]
    assert before <= found.timestamp <= int(time.time() * 1000)


def test_a_record_above_the_limit(client: Client, bootstrap: str, topic: Topic, seen: Seen) -> None:
    [place] = topic(max_message_bytes="1000")
    with client.producer(bootstrap) as producer:
        with pytest.raises(Refused) as caught:
            producer.send(place.topic, b"x" * 5000).result()
        assert caught.value.name == "MESSAGE_TOO_LARGE"
    assert everything(client, bootstrap, [place]) == {place: []}


def test_no_key_on_a_compacted_topic(client: Client, bootstrap: str, topic: Topic, seen: Seen) -> None:
    [place] = topic(cleanup_policy="compact")
    with client.producer(bootstrap) as producer:
        with pytest.raises(Refused) as caught:
            producer.send(place.topic, b"value").result()
        seen(error=caught.value.name)
        assert caught.value.name in ("INVALID_RECORD", "UnknownError")  # which aiokafka has no name for
    with client.producer(bootstrap) as producer:
        producer.send(place.topic, b"value", key=b"key").result()
    assert values(everything(client, bootstrap, [place])[place]) == [b"value"]


@pytest.mark.needs("record-errors")
def test_the_records_without_a_key_are_named(client: Client, bootstrap: str, topic: Topic) -> None:
    """KIP-467: ten of a hundred have no key, which their compacted topic needs; the others were in the same
    batch, and may be sent again."""
    [place] = topic(cleanup_policy="compact")
    told: dict[str, set[int]] = {}
    with client.producer(bootstrap, linger_ms=500) as producer:
        keys = {number: None if number % 10 == 3 else b"key" for number in range(100)}
        sent = {number: producer.send(place.topic, b"value", key=key) for number, key in keys.items()}
        for number, delivery in sent.items():
            with pytest.raises(Refused) as caught:
                delivery.result()
            told.setdefault(caught.value.name, set()).add(number)
    wrong = set(range(3, 100, 10))
    assert told == {"INVALID_RECORD": wrong, "_INVALID_DIFFERENT_RECORD": set(range(100)) - wrong}
    assert everything(client, bootstrap, [place]) == {place: []}


def test_an_unknown_topic_is_made_by_its_first_record(client: Client, bootstrap: str, name: str) -> None:
    with client.producer(bootstrap) as producer:
        assert producer.send(name, b"value").result() == (0, 0)
    assert values(everything(client, bootstrap, [Place(name, 0)])[Place(name, 0)]) == [b"value"]


def test_a_topic_made_anew_under_a_living_producer(
    client: Client, bootstrap: str, topic: Topic, setting_up: Admin, seen: Seen
) -> None:
    """The new topic has another id (KIP-516); whether the old producer finds it is the client's affair."""
    [place] = topic()
    with client.producer(bootstrap, idempotent=False) as producer:
        put(producer, place, b"old 0", b"old 1")
        setting_up.delete_topic(place.topic)
        until(lambda: place.topic not in setting_up.topics(), "the topic is gone")
        setting_up.create_topic(place.topic)
        until(lambda: place.topic in setting_up.topics(), "the topic is there")
        # Without idempotence a batch that is sent again may come after the next one.
        assert sorted(put(producer, place, b"new 0", b"new 1")) == [0, 1]
    found = values(everything(client, bootstrap, [place])[place])
    assert sorted(map(str, found)) == ["b'new 0'", "b'new 1'"]


def _through_a_cut(
    client: Client, proxy: CuttingProxy, place: Place, cut: Callable[[], Any], **options: Any
) -> list[int]:
    """Send 300 records through the proxy while it cuts; answers their offsets by number."""
    with client.producer(proxy.bootstrap, **options) as producer:
        offsets = put(producer, place, b"first")
        cut()
        for start in range(0, 300, 20):
            sent = [producer.send(place.topic, b"%d" % number) for number in range(start, start + 20)]
            producer.flush()
            offsets += [delivery.result()[1] for delivery in sent]
    return offsets


@pytest.mark.parametrize("before", [True, False], ids=["request-lost", "answer-lost"])
def test_idempotence_through_a_cut(
    client: Client, bootstrap: str, topic: Topic, proxy: CuttingProxy, before: bool
) -> None:
    [place] = topic()
    fault = None

    def cut() -> None:
        nonlocal fault
        fault = proxy.cut_at(ApiKey.PRODUCE, before=before, skip=2, times=3)

    offsets = _through_a_cut(client, proxy, place, cut)
    assert fault is not None and fault.hits == 3
    found = everything(client, bootstrap, [place])[place]
    assert values(found) == [b"first", *(b"%d" % number for number in range(300))]
    assert offsets == [record.offset for record in found]


def test_idempotence_while_all_connections_are_cut(
    client: Client, bootstrap: str, topic: Topic, proxy: CuttingProxy
) -> None:
    [place] = topic()
    with client.producer(proxy.bootstrap) as producer:
        sent = []
        for number in range(600):
            sent.append(producer.send(place.topic, b"%d" % number))
            if number % 150 == 149:
                proxy.cut_all()
        producer.flush()
        offsets = [delivery.result()[1] for delivery in sent]
    found = everything(client, bootstrap, [place])[place]
    assert values(found) == [b"%d" % number for number in range(600)]
    assert offsets == [record.offset for record in found]
