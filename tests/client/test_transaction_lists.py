"""A list of transactions while coordinators move from one broker to another between two answers."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from eoslog.client.admin.transaction_states import (
    LOOKS,
    STATE_TOPIC,
    Listing,
    PendingListing,
    list_transactions,
)
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.connector.commit import commands as c
from eoslog.connector.run.runner import Runner
from eoslog.protocol.apis import ApiKey
from tests.client.fake_broker import Drop, FakeBroker

PATIENCE_SECONDS = 30
HELD = Listing("sink/1", 7, "Ongoing")


class Two:
    """Two brokers. One of them coordinates the transaction, and it moves when it is looked for. The second
    broker answers after the first one. `told`: whether clients may know who coordinates."""

    def __init__(self, moves: int, told: bool = True) -> None:
        self.home, self.moves, self.told = 2, moves, told
        self.first_answered = threading.Event()
        self.asked = 0
        self.second_told = threading.Event()
        made = [FakeBroker({ApiKey.METADATA: self._metadata}) for _ in range(2)]
        self.brokers = dict(enumerate(sorted(made, key=lambda broker: broker.port), 1))
        for broker, handler in zip(self.brokers.values(), (self._first, self._second), strict=True):
            broker.handlers[ApiKey.LIST_TRANSACTIONS] = handler
        self.brokers[2].handlers[ApiKey.METADATA] = self._told_by_the_second

    def _metadata(self, version: int, body: Any) -> Any:
        nodes = [
            {"node_id": n, "host": "127.0.0.1", "port": broker.port} for n, broker in self.brokers.items()
        ]
        part = {"error_code": 0, "partition_index": 0, "leader_id": self.home, "replica_nodes": [1, 2]}
        topics = [
            {"error_code": 0, "name": topic["name"], "partitions": [part | {"isr_nodes": [1, 2]}]}
            if self.told
            else {"error_code": 29, "name": topic["name"], "partitions": []}
            for topic in body["topics"] or ()
        ]
        return {"brokers": nodes, "topics": topics}

    def _told_by_the_second(self, version: int, body: Any) -> Any:
        answer = self._metadata(version, body)
        self.second_told.set()
        return answer

    def _listed(self, number: int) -> Any:
        held = {"transactional_id": HELD[0], "producer_id": HELD[1], "transaction_state": HELD[2]}
        found = [held] if self.home == number else []
        return {"error_code": 0, "unknown_state_filters": [], "transaction_states": found}

    def _first(self, version: int, body: Any) -> Any:
        self.asked += 1
        answer = self._listed(1)
        if self.moves:
            assert self.second_told.wait(PATIENCE_SECONDS), "both have told who coordinates, before it moves"
            self.moves -= 1
            self.home = 3 - self.home
        self.first_answered.set()
        return answer

    def _second(self, version: int, body: Any) -> Any:
        assert self.first_answered.wait(PATIENCE_SECONDS)
        self.first_answered.clear()
        return self._listed(2)

    def client(self) -> Cluster:
        limits: dict[str, Any] = {"request_timeout_ms": 1000 * PATIENCE_SECONDS, "retry_backoff_ms": 1}
        return Cluster(ClientConfig((("127.0.0.1", self.brokers[1].port),), **limits))

    def list(self) -> list[Listing]:
        with self.client() as cluster:
            return listed(cluster)

    def asked_about(self) -> int:
        """How often the first broker was asked who coordinates."""
        asked = [body for _, body in self.brokers[1].seen(ApiKey.METADATA)]
        return [topic["name"] for body in asked for topic in body["topics"] or ()].count(STATE_TOPIC)


def dropped(version: int, body: Any) -> Any:
    raise Drop


def listed(cluster: Cluster) -> list[Listing]:
    return list_transactions(cluster, "sink/", ["Ongoing"])


@pytest.fixture
def servers() -> Iterator[list[FakeBroker]]:
    started: list[FakeBroker] = []
    yield started
    for broker in started:
        broker.__exit__()


@pytest.mark.parametrize("told", [True, False])
def test_a_transaction_that_moves_away_from_who_is_asked_next_is_found(
    servers: list[FakeBroker], told: bool
) -> None:
    """From the second broker to the first one, which has answered already."""
    two = Two(moves=1, told=told)
    servers += two.brokers.values()
    assert two.list() == [HELD]


def test_nothing_is_asked_twice_while_nothing_moves(servers: list[FakeBroker]) -> None:
    two = Two(moves=0)
    servers += two.brokers.values()
    with two.client() as cluster:
        assert listed(cluster) == [HELD] and two.asked == 1
        before = two.asked_about()
        assert listed(cluster) == [HELD] and two.asked == 2
    assert two.asked_about() == before + 2, "before the list and after it, in the same round trip"


def test_a_broker_that_has_joined_since_is_asked(servers: list[FakeBroker]) -> None:
    """It coordinates, and the client has known the cluster without it."""
    two = Two(moves=0)
    servers += two.brokers.values()
    (joins,) = (number for number in two.brokers if number != 1)
    later = two.brokers.pop(joins)
    with two.client() as cluster:
        two.home = 1
        assert listed(cluster) == [HELD]
        two.brokers[joins], two.home = later, joins
        assert listed(cluster) == [HELD]


def test_a_broker_that_has_gone_since_is_not_waited_for(servers: list[FakeBroker]) -> None:
    two = Two(moves=0)
    servers.append(two.brokers[1])
    two.home = 1
    with two.client() as cluster:
        assert listed(cluster) == [HELD]
        two.brokers.pop(2).__exit__()
        assert listed(cluster) == [HELD]


def test_a_list_that_was_asked_ahead_is_read_later(servers: list[FakeBroker]) -> None:
    two = Two(moves=0)
    servers += two.brokers.values()
    with two.client() as cluster:
        assert PendingListing.ahead(cluster, "sink/", ["Ongoing"]) is None, "no connection is made for it"
        assert listed(cluster) == [HELD]
        asked = PendingListing.ahead(cluster, "sink/", ["Ongoing"])
        assert asked is not None
        cluster.metadata([])  # what else is asked does not wait for it
        assert list_transactions(cluster, "sink/", ["Ongoing"], ahead=asked) == [HELD] and two.asked == 2
        assert PendingListing.ahead(cluster, "sink/", ["Ongoing"]) is not None, (
            "its connections are used again"
        )


def test_nothing_is_asked_ahead_of_some_brokers_only(servers: list[FakeBroker]) -> None:
    two = Two(moves=0)
    servers += two.brokers.values()
    with two.client() as cluster:
        listed(cluster)
        busy = cluster.take(("127.0.0.1", two.brokers[2].port))
        assert PendingListing.ahead(cluster, "sink/", ["Ongoing"]) is None
        cluster.give_back(busy)
        assert PendingListing.ahead(cluster, "sink/", ["Ongoing"]) is not None


def test_the_driver_lists_what_is_open_alone(servers: list[FakeBroker]) -> None:
    two = Two(moves=0)
    servers += two.brokers.values()

    def rules() -> c.Rules[tuple[str, ...]]:
        yield c.ListOngoing("sink/")
        yield c.AskOngoing("sink/")
        found: tuple[str, ...] = yield c.ListOngoing("sink/", asked=True)
        return found

    with two.client() as cluster:
        assert Runner(cluster, 60_000).run(rules()) == (HELD.transactional_id,)
    asked = [body for broker in two.brokers.values() for _, body in broker.seen(ApiKey.LIST_TRANSACTIONS)]
    assert [body["state_filters"] for body in asked] == [["Ongoing"]] * 4


def test_a_list_that_was_asked_ahead_and_is_not_wanted(servers: list[FakeBroker]) -> None:
    two = Two(moves=0)
    servers += two.brokers.values()
    with two.client() as cluster:
        listed(cluster)
        asked = PendingListing.ahead(cluster, "sink/", ["Ongoing"])
        assert asked is not None
        asked.drop()
        assert all(broker.closed for broker in asked.brokers), "its answers would be taken for others"
        assert listed(cluster) == [HELD]


@pytest.mark.parametrize("when", ["before it is asked", "before it has answered"])
def test_a_broker_that_dies_with_a_list_asked_ahead(servers: list[FakeBroker], when: str) -> None:
    two = Two(moves=0)
    servers.append(two.brokers[1])
    two.home = 1
    with two.client() as cluster:
        listed(cluster)
        if when == "before it has answered":
            two.brokers[2].handlers[ApiKey.LIST_TRANSACTIONS] = dropped
        else:
            two.brokers.pop(2).__exit__()
        asked = PendingListing.ahead(cluster, "sink/", ["Ongoing"])
        two.brokers.pop(2, None)  # the cluster knows by now
        assert list_transactions(cluster, "sink/", ["Ongoing"], ahead=asked) == [HELD]


def test_a_coordinator_that_moves_while_a_list_is_under_way(servers: list[FakeBroker]) -> None:
    two = Two(moves=0)
    servers += two.brokers.values()
    with two.client() as cluster:
        listed(cluster)
        two.moves = 1
        asked = PendingListing.ahead(cluster, "sink/", ["Ongoing"])
        assert list_transactions(cluster, "sink/", ["Ongoing"], ahead=asked) == [HELD]


def test_a_cluster_that_does_not_come_to_rest_is_not_asked_for_ever(servers: list[FakeBroker]) -> None:
    two = Two(moves=1_000)
    servers += two.brokers.values()
    assert two.list() == [HELD] and two.asked == LOOKS
