"""What members of classic consumer groups tell each other, read and written by the broker.

A group that goes between the classic protocol and KIP-848 needs it: subscriptions come inside JoinGroup, and
assignments go out inside SyncGroup, as ConsumerProtocolSubscription and ConsumerProtocolAssignment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from eoslog.broker.rules.consumer_state import Cluster, Part
from eoslog.protocol import coordinator_records
from eoslog.protocol.messages.consumer_protocol import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    CONSUMER_PROTOCOL_SUBSCRIPTION,
)
from eoslog.protocol.schema import Message, ProtocolError, Schema

PROTOCOL_TYPE = "consumer"

_LATEST = 3


@dataclass(frozen=True, slots=True)
class Subscription:
    """A classic member's subscription; `owned` is what it says it reads."""

    topics: frozenset[str]
    owned: frozenset[Part]
    rack_id: str | None = None


def read_subscription(data: bytes, cluster: Cluster) -> Subscription:
    """Read a ConsumerProtocolSubscription; topics that are gone are not in `owned`. Raises ProtocolError."""
    body = _read(CONSUMER_PROTOCOL_SUBSCRIPTION, data)
    owned = _parts(body.get("owned_partitions") or (), cluster)
    return Subscription(frozenset(body["topics"]), owned, body.get("rack_id"))


def subscribed_topics(data: bytes) -> frozenset[str]:
    """The topics of a ConsumerProtocolSubscription. Raises ProtocolError."""
    return frozenset(_read(CONSUMER_PROTOCOL_SUBSCRIPTION, data)["topics"])


def read_assignment(data: bytes, cluster: Cluster) -> tuple[frozenset[Part], bytes]:
    """Read a ConsumerProtocolAssignment: the partitions and the assignor's data. Raises ProtocolError."""
    if not data:
        return frozenset(), b""
    body = _read(CONSUMER_PROTOCOL_ASSIGNMENT, data)
    return _parts(body["assigned_partitions"], cluster), bytes(body["user_data"] or b"")


def write_assignment(parts: Iterable[Part], cluster: Cluster, like: bytes) -> bytes:
    """Write a ConsumerProtocolAssignment in the version of the subscription `like`."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic_id, index in sorted(parts):
        topic = cluster.by_id(topic_id)
        if topic is not None:
            by_topic[topic.name].append(index)
    assigned = [{"topic": name, "partitions": indexes} for name, indexes in by_topic.items()]
    version = min(int.from_bytes(like[:2], "big"), _LATEST)
    return coordinator_records.encode(
        CONSUMER_PROTOCOL_ASSIGNMENT, version, {"assigned_partitions": assigned, "user_data": None}
    )


def _read(schema: Schema, data: bytes) -> Message:
    """Newer versions than ours begin with what ours have."""
    if len(data) < 2:
        raise ProtocolError(f"{schema.name} of {len(data)} bytes has no version")
    version = min(int.from_bytes(data[:2], "big", signed=True), _LATEST)
    if version < 0:
        raise ProtocolError(f"{schema.name} has version {version}")
    body, _ = schema.read(version, data, 2)
    return body


def _parts(topics: Iterable[Message], cluster: Cluster) -> frozenset[Part]:
    found = ((cluster.topic(topic["topic"]), topic["partitions"]) for topic in topics)
    return frozenset((t.topic_id, index) for t, indexes in found if t is not None for index in indexes)
