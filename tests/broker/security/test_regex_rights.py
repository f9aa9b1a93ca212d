"""A regular expression of KIP-848 stands for topics that the member may describe, and for no other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.broker.security.acl_site import Site

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
