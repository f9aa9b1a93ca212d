"""Scenarios: transactions, what each isolation level sees of them, and who may go on with one."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

import pytest

from eoslog.protocol.apis import ApiKey
from tests.scenarios.cutting_proxy import CuttingProxy
from tests.scenarios.drivers.base import Client, Place, Producer, Refused
from tests.scenarios.steps import (
    everything,
    is_committed,
    nothing_more,
    plain_producer,
    put,
    read,
    until,
    values,
)

Topic = Callable[..., list[Place]]
Seen = Callable[..., None]


def _initialised(client: Client, bootstrap: str, name: str, **options: int) -> Producer:
    producer = client.producer(bootstrap, transactional_id=name, **options)
    producer.init()
    return producer


def _refused(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.name


def test_commit_and_abort(client: Client, bootstrap: str, topic: Topic, name: str, seen: Seen) -> None:
    places = topic(3)
    committed: dict[Place, list[bytes]] = {place: [] for place in places}
    offsets: list[tuple[int, int]] = []
    with _initialised(client, bootstrap, name) as producer:
        for transaction in range(8):
            producer.begin()
            sent = [(place, b"%d-%d" % (transaction, number)) for number in range(10) for place in places]
            answers = [producer.send(place.topic, value, partition=place.partition) for place, value in sent]
            producer.flush()
            offsets += [answer.result() for answer in answers]
            if transaction % 3:
                producer.commit()
                for place, value in sent:
                    committed[place].append(value)
            else:
                producer.abort()
    visible = everything(client, bootstrap, places)
    assert {place: values(records) for place, records in visible.items()} == committed
    everywhere = everything(client, bootstrap, places, committed=False)
    assert [len(records) for records in everywhere.values()] == [80] * 3
    # Every transaction ends with one marker in each partition.
    expected = {transaction * 11 + number for transaction in range(8) for number in range(10)}
    for records in everywhere.values():
        assert {record.offset for record in records} == expected
    assert sorted(offsets) == sorted((p.partition, offset) for p in places for offset in expected)


def test_interleaved_transactions(client: Client, bootstrap: str, topic: Topic, name: str) -> None:
    """Three producers, whose transactions overlap in every partition; some commit, some abort."""
    places = topic(2)
    dice = random.Random(939)
    producers = [_initialised(client, bootstrap, f"{name}-{number}") for number in range(3)]
    open_ones: dict[int, list[tuple[Place, bytes]]] = {}
    committed: dict[Place, set[bytes]] = {place: set() for place in places}
    for step in range(60):
        number = dice.randrange(3)
        producer = producers[number]
        if number not in open_ones:
            producer.begin()
            open_ones[number] = []
        for place in dice.sample(places, dice.randint(1, 2)):
            value = b"%d-%d" % (step, place.partition)
            put(producer, place, value)
            open_ones[number].append((place, value))
        if dice.random() < 0.4 or step >= 57:
            commit = dice.random() < 0.6
            producer.commit() if commit else producer.abort()
            for place, value in open_ones.pop(number):
                if commit:
                    committed[place].add(value)
    for number in open_ones:
        producers[number].abort()
    found = everything(client, bootstrap, places)
    assert {place: set(values(records)) for place, records in found.items()} == committed
    assert [len(records) for records in found.values()] == [len(one) for one in committed.values()]
    for producer in producers:
        producer.close()


def test_transactions_without_records(client: Client, bootstrap: str, topic: Topic, name: str) -> None:
    [place] = topic()
    with _initialised(client, bootstrap, name) as producer:
        for end in (producer.commit, producer.abort, producer.commit):
            producer.begin()
            end()
        producer.begin()
        assert put(producer, place, b"1") == [0]
        producer.commit()
    assert values(everything(client, bootstrap, [place])[place]) == [b"1"]


def test_an_open_transaction_hides_what_follows(
    client: Client, bootstrap: str, topic: Topic, name: str
) -> None:
    [place] = topic()
    with (
        plain_producer(client, bootstrap) as plain,
        _initialised(client, bootstrap, name) as producer,
        client.consumer(bootstrap, committed=True) as careful,
        client.consumer(bootstrap, committed=False) as eager,
    ):
        put(plain, place, b"before")
        producer.begin()
        put(producer, place, b"in doubt")
        put(plain, place, b"after")
        for consumer in (careful, eager):
            consumer.assign({place: 0})
        assert values(read(eager, 3)) == [b"before", b"in doubt", b"after"]
        assert values(read(careful, 1)) == [b"before"]
        nothing_more(careful)
        assert eager.ends(place) == (0, 3)
        assert careful.ends(place) == (0, 1), "the last stable offset"
        producer.commit()
        assert values(read(careful, 2)) == [b"in doubt", b"after"]
        assert careful.ends(place) == (0, 4)


def test_the_oldest_open_transaction_counts(client: Client, bootstrap: str, topic: Topic, name: str) -> None:
    [place] = topic()
    with (
        _initialised(client, bootstrap, name + "-1") as first,
        _initialised(client, bootstrap, name + "-2") as second,
        client.consumer(bootstrap) as consumer,
    ):
        first.begin()
        put(first, place, b"first")
        second.begin()
        put(second, place, b"second")
        second.commit()
        consumer.assign({place: 0})
        assert consumer.ends(place) == (0, 0)
        nothing_more(consumer)
        first.abort()
        assert values(read(consumer, 1)) == [b"second"]


def test_offsets_in_the_transaction(client: Client, bootstrap: str, topic: Topic, name: str) -> None:
    [place] = topic()
    with (
        _initialised(client, bootstrap, name) as producer,
        client.consumer(bootstrap, group=name) as consumer,
    ):
        consumer.subscribe([place.topic])
        until(lambda: consumer.assignment() == {place}, "the only member has the partition", consumer)
        assert consumer.committed([place]) == {place: None}
        for offset, commit, expected in ((5, True, 5), (9, False, 5), (7, True, 7)):
            producer.begin()
            put(producer, place, b"%d" % offset)
            producer.send_offsets({place: offset}, consumer)
            producer.commit() if commit else producer.abort()
            until(partial(is_committed, consumer, place, expected), f"offset {expected}")
    assert values(everything(client, bootstrap, [place])[place]) == [b"5", b"7"]


def test_read_process_write(client: Client, bootstrap: str, topic: Topic, name: str) -> None:
    [source], [target] = topic(suffix="-in"), topic(suffix="-out")
    with plain_producer(client, bootstrap) as plain:
        put(plain, source, *(b"%d" % number for number in range(100)))
    with (
        _initialised(client, bootstrap, name) as producer,
        client.consumer(bootstrap, group=name) as consumer,
    ):
        consumer.subscribe([source.topic])
        done = attempt = 0
        while done < 100:
            records = read(consumer, 1)
            attempt += 1
            producer.begin()
            for record in records:
                producer.send(target.topic, record.value)
            producer.send_offsets({source: records[-1].offset + 1}, consumer)
            if attempt == 1:
                producer.abort()
                consumer.seek(source, 0)
                continue
            producer.commit()
            done = records[-1].offset + 1
        until(lambda: consumer.committed([source]) == {source: 100}, "all offsets are committed")
    assert values(everything(client, bootstrap, [target])[target]) == [b"%d" % n for n in range(100)]


def test_a_second_producer_fences_the_first(
    client: Client, bootstrap: str, topic: Topic, name: str, seen: Seen
) -> None:
    [place] = topic()
    first = _initialised(client, bootstrap, name)
    first.begin()
    put(first, place, b"zombie")
    with _initialised(client, bootstrap, name) as second:
        second.begin()
        put(second, place, b"alive")
        second.commit()
        error = _refused(first.commit)
        seen(commit=error)
        assert error in client.fenced
        second.begin()
        put(second, place, b"still alive")
        second.commit()
    first.close()
    assert values(everything(client, bootstrap, [place])[place]) == [b"alive", b"still alive"]


def test_a_fenced_producer_cannot_write(
    client: Client, bootstrap: str, topic: Topic, name: str, seen: Seen
) -> None:
    [place] = topic()
    first = _initialised(client, bootstrap, name)
    first.begin()
    put(first, place, b"1")
    with _initialised(client, bootstrap, name):
        error = _refused(lambda: first.send(place.topic, b"2").result())
        seen(send=error)
    first.close()
    assert everything(client, bootstrap, [place]) == {place: []}
    assert values(everything(client, bootstrap, [place], committed=False)[place]) == [b"1"]


def test_an_abandoned_transaction_times_out(
    client: Client, bootstrap: str, topic: Topic, name: str, seen: Seen
) -> None:
    [place] = topic()
    producer = _initialised(client, bootstrap, name, transaction_timeout_ms=1000)
    producer.begin()
    put(producer, place, b"abandoned")
    with plain_producer(client, bootstrap) as plain, client.consumer(bootstrap) as consumer:
        put(plain, place, b"behind it")
        consumer.assign({place: 0})
        begun = time.monotonic()
        assert values(read(consumer, 1, 40)) == [b"behind it"]
        assert time.monotonic() - begun < 45, "a producer's default is a minute"
    seen(commit=_refused(producer.commit))
    producer.close()
    with _initialised(client, bootstrap, name) as again:
        again.begin()
        put(again, place, b"again")
        again.commit()
    assert values(everything(client, bootstrap, [place])[place]) == [b"behind it", b"again"]


def test_abort_after_an_error_and_go_on(
    client: Client, bootstrap: str, topic: Topic, name: str, seen: Seen
) -> None:
    """Whether the same producer can go on is for the client to say; a new one with the same id can."""
    [place] = topic(max_message_bytes="1000")
    expected = []
    with _initialised(client, bootstrap, name) as producer:
        producer.begin()
        put(producer, place, b"fits")
        error = _refused(lambda: producer.send(place.topic, b"x" * 5000).result())
        assert error == "MESSAGE_TOO_LARGE"
        producer.abort()
        try:
            producer.begin()
            put(producer, place, b"same producer")
            producer.commit()
            expected.append(b"same producer")
        except Refused as refused:
            seen(same_producer=refused.name)
    with _initialised(client, bootstrap, name) as producer:
        producer.begin()
        put(producer, place, b"new producer")
        producer.commit()
    assert values(everything(client, bootstrap, [place])[place]) == [*expected, b"new producer"]


def test_a_too_long_time_out_is_refused(client: Client, bootstrap: str, name: str, seen: Seen) -> None:
    producer = client.producer(bootstrap, transactional_id=name, transaction_timeout_ms=1_000_000_000)
    error = _refused(producer.init)
    producer.close()
    seen(error=error)
    # Two clients tell it in the text only.
    assert error in ("INVALID_TRANSACTION_TIMEOUT", "KafkaError", "org.apache.kafka.common.KafkaException")


@pytest.mark.parametrize("before", [True, False], ids=["request-lost", "answer-lost"])
@pytest.mark.parametrize(
    "key", [ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID], ids=lambda key: key.name.lower()
)
def test_transactions_through_a_cut(
    client: Client, bootstrap: str, topic: Topic, name: str, proxy: CuttingProxy, key: ApiKey, before: bool
) -> None:
    places = topic(2)
    first = key is ApiKey.INIT_PRODUCER_ID
    fault = proxy.cut_at(key, before=before, skip=0 if first else 1, times=1 if first else 2)
    with _initialised(client, proxy.bootstrap, name) as producer:
        for transaction in range(6):
            producer.begin()
            for place in places:
                put(producer, place, b"%d" % transaction)
            producer.abort() if transaction == 4 else producer.commit()
    assert fault.hits == (1 if first else 2)
    found = everything(client, bootstrap, places)
    expected = [b"0", b"1", b"2", b"3", b"5"]
    assert {place: values(records) for place, records in found.items()} == dict.fromkeys(places, expected)


@pytest.mark.needs("group-metadata")
def test_a_zombie_of_the_group_cannot_commit_offsets(
    client: Client, bootstrap: str, topic: Topic, name: str, proxy: CuttingProxy, seen: Seen
) -> None:
    """KIP-447: who is no member any more cannot commit in its transaction."""
    [place] = topic()
    zombie = client.consumer(proxy.bootstrap, group=name, client_id="zombie")
    zombie.subscribe([place.topic])
    until(lambda: zombie.assignment() == {place}, "the zombie is a member", zombie)
    with _initialised(client, bootstrap, name) as producer:
        producer.begin()
        producer.send_offsets({place: 1}, zombie)
        producer.commit()
        proxy.shut()
        with client.consumer(bootstrap, group=name, client_id="heir") as heir:
            heir.subscribe([place.topic])
            until(lambda: heir.assignment() == {place}, "the heir took over", heir)
            producer.begin()
            error = _refused(lambda: (producer.send_offsets({place: 9}, zombie), producer.commit()))
            seen(error=error)
            producer.abort()
            until(lambda: heir.committed([place]) == {place: 1}, "the heir sees the true offset")
    zombie.close()
