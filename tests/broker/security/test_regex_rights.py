"""A regular expression of KIP-848 stands for topics that the member may describe, and for no other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest
from acl_site import Site
from confluent_kafka import Consumer, Producer

from eoslog.protocol.apis import ApiKey

BEAT_MS = "200"
SOON = 30.0
"""Seconds within which a change has to be seen, on a busy machine too; a heartbeat or two are enough."""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    beats = dict.fromkeys(
        ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"), BEAT_MS
    )
    with Site(**beats) as started:
        started.create("web-a", "web-b", "web-secret", "other")
        yield started


@pytest.fixture
def rules(site: Site) -> Callable[..., None]:
    """Adds rules; none is there at first."""
    site.forget()
    return site.change


@contextmanager
def member(site: Site, user: str, group: str, regex: str = "^web-.*") -> Iterator[Consumer]:
    options = {"group.id": group, "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    consumer = Consumer(site.client(user, **options))
    consumer.subscribe([regex])
    yield consumer
    consumer.close()


def reads(consumer: Consumer, *topics: str) -> None:
    """Poll until it reads these topics; no record and no error of another one may come."""
    deadline = monotonic() + SOON
    while {part.topic for part in consumer.assignment()} != set(topics):
        assert monotonic() < deadline, f"{consumer.assignment()} instead of {topics}"
        message = consumer.poll(0.1)
        assert message is None or message.error() is None, message.error()


def test_only_what_may_be_described(site: Site, rules: Callable[..., None]) -> None:
    rules("bob", "READ GROUP g1", "READ TOPIC web-a")
    producer = Producer(site.client("admin"))
    for topic in ("web-a", "web-secret"):
        producer.produce(topic, topic.encode())
    producer.flush(10)
    with member(site, "bob", "g1") as consumer:
        found: list[Any] = []
        deadline = monotonic() + SOON
        while not found and monotonic() < deadline:
            found += [one for one in [consumer.poll(0.1)] if one is not None]
        assert [one.value() for one in found] == [b"web-a"], [one.error() for one in found]
        reads(consumer, "web-a")


def test_rules_come_and_go(site: Site, rules: Callable[..., None]) -> None:
    rules("bob", "READ GROUP g2", "READ TOPIC web-a")
    with member(site, "bob", "g2") as consumer:
        reads(consumer, "web-a")
        rules("bob", "READ TOPIC web-b")
        reads(consumer, "web-a", "web-b")
        rules("bob", "DESCRIBE TOPIC web-a", deny=True)
        reads(consumer, "web-b")
        site.create("web-new")
        rules("bob", "READ TOPIC web-n", prefixed=True)
        reads(consumer, "web-b", "web-new")


def test_a_classic_member_looks_with_its_own_rights(site: Site, rules: Callable[..., None]) -> None:
    """A join of the classic protocol may be what comes first after a change of the rules."""
    rules("bob", "READ GROUP g4", "READ TOPIC web-a", "READ TOPIC other")
    wire = site.wire("bob")

    def beat(epoch: int, **more: Any) -> Any:
        request = {
            "group_id": "g4", "member_id": "m1", "member_epoch": epoch, "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": None, "subscribed_topic_regex": "web-.*", "topic_partitions": [],
        }  # fmt: skip
        answer = wire.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **(request | more))
        assert answer["error_code"] == 0, answer
        return answer

    joined = beat(0)
    assert len(joined["assignment"]["topic_partitions"]) == 1
    rules("bob", "READ TOPIC web-b")
    metadata = b"\0\0" + b"\0\0\0\1" + b"\0\5other" + b"\xff\xff\xff\xff"
    request = {
        "group_id": "g4", "session_timeout_ms": 30_000, "rebalance_timeout_ms": 60_000, "member_id": "",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": metadata}],
    }  # fmt: skip
    answer = wire.call(ApiKey.JOIN_GROUP, 3, **request)
    assert answer["error_code"] == 0, answer
    told = site.wire("admin").call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g4"])["groups"][0]
    [target] = [one["target_assignment"] for one in told["members"] if one["member_id"] == "m1"]
    assert {part["topic_name"] for part in target["topic_partitions"]} == {"web-a", "web-b"}
