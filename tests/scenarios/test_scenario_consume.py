"""Scenarios: where a consumer begins, how it moves, and what the list of offsets says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog.protocol.apis import ApiKey
from tests.scenarios.cutting_proxy import CuttingProxy
from tests.scenarios.drivers.base import Client, Place, Refused
from tests.scenarios.steps import everything, nothing_more, plain_producer, put, read, until, values

Topic = Callable[..., list[Place]]
Seen = Callable[..., None]
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
