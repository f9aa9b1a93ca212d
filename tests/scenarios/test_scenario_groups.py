"""Scenarios: groups with rebalance, in the classic protocol and in the consumer protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from eoslog.protocol.apis import ApiKey
from tests.scenarios.cutting_proxy import CuttingProxy
from tests.scenarios.drivers.base import Client, Consumer, Place, Refused
from tests.scenarios.steps import is_committed, plain_producer, put, read, until, values

Topic = Callable[..., list[Place]]
Seen = Callable[..., None]

STRATEGIES = [
    "range",
    pytest.param("roundrobin", marks=pytest.mark.needs("roundrobin")),
    pytest.param("sticky", marks=pytest.mark.needs("sticky")),
    pytest.param("cooperative-sticky", marks=pytest.mark.needs("cooperative-sticky")),
]


def _has(consumer: Consumer, place: Place) -> bool:
    """Whether the consumer has this partition, and no other."""
    return consumer.assignment() == {place}


def _shared(members: list[Consumer], places: list[Place]) -> Callable[[], bool]:
    """Whether the members hold all partitions, evenly, none of them twice."""

    def shared() -> bool:
        held = [member.assignment() for member in members]
        whole = frozenset().union(*held) == frozenset(places)
        even = max(map(len, held)) - min(map(len, held)) <= 1
        return whole and even and sum(map(len, held)) == len(places)

    return shared


PROTOCOLS = ["classic", pytest.param("consumer", marks=pytest.mark.needs("consumer-protocol"))]


def _two_members(client: Client, bootstrap: str, places: list[Place], name: str, **options: Any) -> None:
    """One member has all; two share; the one that stays has all again."""
    topic = places[0].topic
    with client.consumer(bootstrap, group=name, client_id="one", **options) as one:
        one.subscribe([topic])
        until(_shared([one], places), "the only member has everything", one)
        with client.consumer(bootstrap, group=name, client_id="two", **options) as two:
            two.subscribe([topic])
            until(_shared([one, two], places), "two members share", one, two)
        until(_shared([one], places), "the member that is left has everything", one)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_member_comes_and_goes(
    client: Client, bootstrap: str, topic: Topic, name: str, strategy: str
) -> None:
    _two_members(client, bootstrap, topic(4), name, strategy=strategy)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_lost_in_a_rebalance(
    client: Client, bootstrap: str, topic: Topic, name: str, protocol: str
) -> None:
    places = topic(4)
    with (
        plain_producer(client, bootstrap) as producer,
        client.consumer(bootstrap, group=name, protocol=protocol) as one,
        client.consumer(bootstrap, group=name, protocol=protocol) as two,
    ):
        found: set[tuple[int, int]] = set()

        def take(consumer: Consumer) -> None:
            records = consumer.poll(consumer.patience)
            found.update((one.partition, one.offset) for one in records)
            ends = {Place(r.topic, r.partition): r.offset + 1 for r in records}
            if ends:
                try:
                    consumer.commit(ends)
                except Refused as refused:  # of a generation that is over: the heirs read it again
                    assert refused.name in _OVER, refused

        for place in places:
            put(producer, place, *(b"%d" % number for number in range(25)))
        one.subscribe([places[0].topic])

        def reads() -> bool:
            take(one)
            return len(found) > 10

        until(reads, "the first one reads")
        two.subscribe([places[0].topic])

        def done() -> bool:
            take(one)
            take(two)
            return len(found) == 200 and _shared([one, two], places)()

        for place in places:
            put(producer, place, *(b"%d" % number for number in range(25)))
        until(done, "everything is read by either")


_OVER = (
    "REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "STALE_MEMBER_EPOCH",
    "CommitFailedError",
)  # fmt: skip


def test_a_dead_members_partitions_go_to_the_others(
    client: Client, bootstrap: str, topic: Topic, name: str, proxy: CuttingProxy
) -> None:
    places = topic(2)
    dead = client.consumer(proxy.bootstrap, group=name, client_id="dead")
    with client.consumer(bootstrap, group=name, client_id="alive") as alive:
        for consumer in (dead, alive):
            consumer.subscribe([places[0].topic])
        until(_shared([dead, alive], places), "both are members", dead, alive)
        proxy.shut()
        until(_shared([alive], places), "the other one has everything", alive)
    dead.close()


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.OFFSET_COMMIT,
        ApiKey.FIND_COORDINATOR,
    ],
    ids=lambda key: key.name.lower(),
)
def test_a_group_through_a_cut(
    client: Client, bootstrap: str, topic: Topic, name: str, proxy: CuttingProxy, key: ApiKey
) -> None:
    """An answer of the coordinator is lost; the member comes to what it is due, and its commit holds."""
    places = topic(2)
    fault = proxy.cut_at(key, before=False)
    with (
        client.consumer(proxy.bootstrap, group=name, client_id="one") as one,
        client.consumer(bootstrap, group=name, client_id="two") as two,
    ):
        for consumer in (one, two):
            consumer.subscribe([places[0].topic])
        until(_shared([one, two], places), "both are members", one, two)

        def committed() -> bool:
            assigned = one.assignment()
            if not assigned:
                return False
            [mine] = assigned
            try:
                one.commit({mine: 5})
            except Refused:
                return False  # a commit whose answer is lost is for the caller to repeat
            return one.committed([mine]) == {mine: 5}

        until(lambda: _shared([one, two], places)() and committed(), "the commit holds", one, two)
        until(lambda: fault.hits == 1, "the answer was lost", one, two)
        until(_shared([one, two], places), "both are members still", one, two)


@pytest.mark.needs("static")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_comes_back_without_a_rebalance(
    client: Client, bootstrap: str, topic: Topic, name: str, protocol: str
) -> None:
    places = topic(4)
    who = {"group": name, "session_ms": 6000, "protocol": protocol}

    def member(instance: str) -> Consumer:
        made = client.consumer(bootstrap, instance=instance, client_id=instance, **who)
        made.subscribe([places[0].topic])
        return made

    one, two = member("one"), member("two")
    until(_shared([one, two], places), "both are members", one, two)
    held = one.assignment(), two.assignment()
    two.close()
    for _ in range(5):
        one.poll(0.1)
        assert one.assignment() == held[0]
    two = member("two")
    until(lambda: two.assignment() == held[1], "it has what it had", one, two)
    assert one.assignment() == held[0]
    one.close()
    two.close()


@pytest.mark.needs("static-fencing")
def test_a_second_static_member_of_the_same_name_fences_the_first(
    client: Client, bootstrap: str, topic: Topic, name: str, seen: Seen
) -> None:
    [place] = topic()
    first = client.consumer(bootstrap, group=name, instance="one", client_id="first")
    first.subscribe([place.topic])
    until(lambda: first.assignment() == {place}, "the first is a member", first)
    with client.consumer(bootstrap, group=name, instance="one", client_id="second") as second:
        second.subscribe([place.topic])
        until(lambda: second.assignment() == {place}, "the second took over", second)
        second.commit({place: 3})

        def fenced() -> bool:
            try:
                first.poll(0.1)
                first.commit({place: 1})
            except Refused as refused:
                if refused.name.endswith("CommitFailedException"):
                    return (
                        False  # Java's heartbeat was refused before the commit: its next poll says with what
                    )
                seen(error=refused.name)
                return True
            return False

        until(fenced, "the first one hears of it")
        # The Java client may answer once with what it had asked for before its own commit.
        until(lambda: second.committed([place]) == {place: 3}, "the second's commit holds")
    first.close()


def test_a_commit_of_a_lost_member_is_refused(
    client: Client, bootstrap: str, topic: Topic, name: str, proxy: CuttingProxy, seen: Seen
) -> None:
    [place] = topic()
    proxied = client.consumer(proxy.bootstrap, group=name, client_id="lost")
    proxied.subscribe([place.topic])
    until(lambda: proxied.assignment() == {place}, "it is a member", proxied)
    proxied.commit({place: 1})
    with client.consumer(bootstrap, group=name, client_id="heir") as heir:
        proxy.pause()
        heir.subscribe([place.topic])
        until(lambda: heir.assignment() == {place}, "the heir took over", heir)
        heir.commit({place: 5})
        proxy.go_on()
        with pytest.raises(Refused) as caught:
            proxied.commit({place: 2})
        seen(error=caught.value.name)
        # The Java client may answer once with what it had asked for before the heir's commit.
        until(lambda: heir.committed([place]) == {place: 5}, "the heir's commit holds")
    proxied.close()


@pytest.mark.needs("consumer-protocol")
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_consumer_protocol(client: Client, bootstrap: str, topic: Topic, name: str, assignor: str) -> None:
    _two_members(client, bootstrap, topic(4), name, protocol="consumer", assignor=assignor)


@pytest.mark.needs("consumer-protocol")
def test_consumer_protocol_reads_and_commits(client: Client, bootstrap: str, topic: Topic, name: str) -> None:
    [place] = topic()
    with plain_producer(client, bootstrap) as producer:
        put(producer, place, b"0", b"1", b"2")
    for expected in ([b"0", b"1", b"2"], [b"2"]):
        with client.consumer(bootstrap, group=name, protocol="consumer") as consumer:
            consumer.subscribe([place.topic])
            assert values(read(consumer, len(expected))) == expected
            consumer.commit({place: 2})
            assert consumer.committed([place]) == {place: 2}


@pytest.mark.needs("consumer-protocol")
def test_consumer_protocol_offsets_in_a_transaction(
    client: Client, bootstrap: str, topic: Topic, name: str
) -> None:
    [place] = topic()
    with (
        client.producer(bootstrap, transactional_id=name) as producer,
        client.consumer(bootstrap, group=name, protocol="consumer") as consumer,
    ):
        producer.init()
        consumer.subscribe([place.topic])
        until(lambda: consumer.assignment() == {place}, "the only member has the partition", consumer)
        for offset, commit, expected in ((5, True, 5), (9, False, 5)):
            producer.begin()
            put(producer, place, b"%d" % offset)
            producer.send_offsets({place: offset}, consumer)
            producer.commit() if commit else producer.abort()
            until(partial(is_committed, consumer, place, expected), f"offset {expected}")


@pytest.mark.needs("consumer-protocol")
def test_consumer_protocol_a_dead_member(
    client: Client, bootstrap: str, topic: Topic, name: str, proxy: CuttingProxy
) -> None:
    places = topic(2)
    dead = client.consumer(proxy.bootstrap, group=name, protocol="consumer")
    with client.consumer(bootstrap, group=name, protocol="consumer") as alive:
        for consumer in (dead, alive):
            consumer.subscribe([places[0].topic])
        until(_shared([dead, alive], places), "both are members", dead, alive)
        proxy.shut()
        until(_shared([alive], places), "the other one has everything", alive)
    dead.close()


@pytest.mark.needs("consumer-protocol")
def test_an_empty_group_moves_to_the_consumer_protocol_and_back(
    client: Client, bootstrap: str, topic: Topic, name: str
) -> None:
    [place] = topic()
    for before, protocol in ((None, "classic"), (1, "consumer"), (2, "classic")):
        with client.consumer(bootstrap, group=name, protocol=protocol) as consumer:
            consumer.subscribe([place.topic])
            until(partial(_has, consumer, place), "the only member has the partition", consumer)
            assert consumer.committed([place]) == {place: before}
            consumer.commit({place: (before or 0) + 1})
