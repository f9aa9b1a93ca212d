"""Scenarios: records written, where a consumer begins, how it moves, and what the list of offsets says."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from eoslog.protocol.apis import ApiKey
from tests.scenarios.cutting_proxy import CuttingProxy
from tests.scenarios.drivers.base import Admin, Client, Place, Refused
from tests.scenarios.steps import everything, nothing_more, plain_producer, put, read, until, values

# -- produce ---------------------------------------------------------------------------------------
# Scenarios: records in, records out; idempotence through cut connections.


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


# -- consume ---------------------------------------------------------------------------------------
# Scenarios: where a consumer begins, how it moves, and what the list of offsets says.


BEGIN = 1_600_000_000_000


@pytest.fixture
def filled(bootstrap: str, client: Client, topic: Topic) -> Place:
    """A partition of ten records, a second apart."""
    [place] = topic()
    with plain_producer(client, bootstrap) as producer:
        for number in range(10):
            producer.send(place.topic, b"%d" % number, timestamp=BEGIN + number * 1000)
            producer.flush()
    return place


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_where_a_new_group_begins(
    client: Client, bootstrap: str, filled: Place, name: str, reset: str
) -> None:
    with (
        plain_producer(client, bootstrap) as producer,
        client.consumer(bootstrap, group=name, reset=reset) as consumer,
    ):
        consumer.subscribe([filled.topic])
        if reset == "latest":
            until(lambda: consumer.assignment() == {filled}, "the only member has the partition", consumer)
            nothing_more(consumer)
        else:
            assert values(read(consumer, 10)) == [b"%d" % number for number in range(10)]
        put(producer, filled, b"new")
        assert values(read(consumer, 1)) == [b"new"]


def test_a_committed_offset_is_where_the_next_one_goes_on(
    client: Client, bootstrap: str, filled: Place, name: str
) -> None:
    with client.consumer(bootstrap, group=name) as consumer:
        consumer.subscribe([filled.topic])
        assert values(read(consumer, 10))[:2] == [b"0", b"1"]
        consumer.commit({filled: 7})
        assert consumer.committed([filled]) == {filled: 7}
    with client.consumer(bootstrap, group=name) as consumer:
        consumer.subscribe([filled.topic])
        assert values(read(consumer, 3)) == [b"7", b"8", b"9"]
        assert consumer.position(filled) == 10


def test_seek_and_pause(client: Client, bootstrap: str, filled: Place) -> None:
    with client.consumer(bootstrap) as consumer:
        consumer.assign({filled: 4})
        assert values(read(consumer, 6)) == [b"%d" % number for number in range(4, 10)]
        consumer.seek(filled, 8)
        assert values(read(consumer, 2)) == [b"8", b"9"]
        consumer.pause(filled)
        with plain_producer(client, bootstrap) as producer:
            put(producer, filled, b"10")
        nothing_more(consumer)
        consumer.resume(filled)
        assert values(read(consumer, 1)) == [b"10"]


def test_an_offset_out_of_range_is_reset(client: Client, bootstrap: str, filled: Place) -> None:
    with client.consumer(bootstrap, reset="earliest") as consumer:
        consumer.assign({filled: 1000})
        assert values(read(consumer, 10)) == [b"%d" % number for number in range(10)]


def test_offsets_by_time(client: Client, bootstrap: str, filled: Place) -> None:
    with client.consumer(bootstrap) as consumer:
        consumer.assign({filled: 0})
        assert consumer.ends(filled) == (0, 10)
        found = {at: consumer.at_time(filled, BEGIN + at) for at in (-1, 0, 1, 3500, 9000, 9001)}
        assert found == {-1: 0, 0: 0, 1: 1, 3500: 4, 9000: 9, 9001: None}


def test_two_partitions_from_different_offsets(client: Client, bootstrap: str, topic: Topic) -> None:
    first, second = topic(2)
    with plain_producer(client, bootstrap) as producer, client.consumer(bootstrap) as consumer:
        for place in (first, second):
            put(producer, place, b"0", b"1", b"2")
        consumer.assign({first: 1, second: 2})
        found = read(consumer, 3)
        assert sorted((one.partition, one.offset) for one in found) == [(0, 1), (0, 2), (1, 2)]


def test_large_records_and_many_fetches(client: Client, bootstrap: str, topic: Topic) -> None:
    [place] = topic(max_message_bytes="3000000")
    sent = [bytes([number]) * 700_000 for number in range(12)]
    with plain_producer(client, bootstrap) as producer, client.consumer(bootstrap) as consumer:
        put(producer, place, *sent)
        consumer.assign({place: 0})
        assert values(read(consumer, 12)) == sent


def test_everything_arrives_through_cuts(
    client: Client, bootstrap: str, topic: Topic, proxy: CuttingProxy
) -> None:
    [place] = topic()
    with plain_producer(client, bootstrap) as producer:
        put(producer, place, *(b"%d" % number for number in range(200)))
    faults = [proxy.cut_at(ApiKey.FETCH, before=before, skip=1, times=2) for before in (True, False)]
    with client.consumer(proxy.bootstrap) as consumer, plain_producer(client, bootstrap) as producer:
        consumer.assign({place: 0})
        found = read(consumer, 200)
        number = 200
        while sum(fault.hits for fault in faults) < 4:
            put(producer, place, b"%d" % number)
            found += read(consumer, 1)
            number += 1
    assert values(found) == [b"%d" % one for one in range(number)]


def test_every_other_client_reads_what_one_wrote(
    client: Client, every_client: list[Client], bootstrap: str, topic: Topic, name: str
) -> None:
    """Records, headers, transactions and compression of one client as all the others see them."""
    [place] = topic()
    with client.producer(bootstrap, transactional_id=name, compression="zstd") as producer:
        producer.init()
        for end in ("commit", "abort", "commit"):
            producer.begin()
            sent = [
                producer.send(
                    place.topic,
                    b"%d" % number,
                    key=end.encode(),
                    headers=[("number", b"%d" % number)],
                    timestamp=BEGIN + number,
                )
                for number in range(10)
            ]
            producer.flush()
            assert [delivery.result()[0] for delivery in sent] == [0] * 10
            getattr(producer, end)()
    for committed in (True, False):
        views = [everything(one, bootstrap, [place], committed=committed)[place] for one in every_client]
        assert len(views[0]) == (20 if committed else 30)
        assert all(view == views[0] for view in views)


def test_commit_metadata_of_strangers(
    client: Client, bootstrap: str, filled: Place, name: str, seen: Seen
) -> None:
    """A consumer outside of the group's generations commits where no member is, but not under one's feet."""
    with client.consumer(bootstrap, group=name) as loner:
        loner.assign({filled: 0})
        read(loner, 10)
        loner.commit({filled: 3})
        with client.consumer(bootstrap, group=name) as member:
            member.subscribe([filled.topic])
            until(lambda: member.assignment() == {filled}, "it is a member", member)
            with pytest.raises(Refused) as caught:
                loner.commit({filled: 5})
            seen(error=caught.value.name)
            assert member.committed([filled]) == {filled: 3}
