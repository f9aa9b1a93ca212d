"""A topic, and the checks of a new or growing one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from eoslog.broker.log.partition import Partition
from eoslog.protocol.errors import ErrorCode, KafkaError

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
METADATA_TOPIC = "__cluster_metadata"
"""Of Kafka's controllers. Clients that find a topic of this name take it for theirs."""

MAX_NAME = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True)
class Topic:
    """A topic. `configs`: only those that were set on it."""

    name: str
    topic_id: bytes
    partitions: list[Partition]
    configs: dict[str, str]

    @property
    def internal(self) -> bool:
        """Whether it is one of the broker's own topics."""
        return is_internal(self.name)


def is_internal(name: str) -> bool:
    """Whether this is the name of one of the broker's own topics."""
    return name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


def check_name(name: str) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION unless `name` is a legal topic name."""
    if name in ("", ".", ".."):
        reason = f"a topic cannot be named {name!r}"
    elif len(name) > MAX_NAME:
        reason = f"a topic name has at most {MAX_NAME} characters, not {len(name)}"
    elif not _LEGAL.fullmatch(name):
        reason = f"topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def check_new_name(name: str, existing: Iterable[str]) -> None:
    """Raises KafkaError unless a topic of this name can be created beside the `existing` ones.

    INVALID_TOPIC_EXCEPTION for an illegal name, for one of the broker's own, and for one that differs from
    another only in '.' and '_' (they are the same in metric names); INVALID_REQUEST for that of Kafka's
    controllers; TOPIC_ALREADY_EXISTS.
    """
    check_name(name)
    if name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name} is of Kafka's controllers alone")
    if is_internal(name):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} is the broker's own")
    plain = name.replace(".", "_")
    for other in existing:
        if other == name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        if other.replace(".", "_") == plain:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name} differs from {other} only in '.' and '_': their metric names would collide",
            )


def check_growth(topic: Topic, total: int) -> None:
    """Raises KafkaError INVALID_PARTITIONS unless a topic may grow to `total` partitions."""
    count = len(topic.partitions)
    if topic.internal:
        reason = "is the broker's own, its number of partitions is fixed at its first use"
    elif total == count:
        reason = f"already has {count} partitions"
    elif total < count:
        reason = f"has {count} partitions, {total} would be fewer"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"topic {topic.name} {reason}")


def check_room(name: str, added: int, count: int, limit: int) -> None:
    """Raises KafkaError POLICY_VIOLATION if `added` partitions and the existing `count` exceed `limit`."""
    if count + added > limit:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {name}: {added} more partitions are too many: there are {count}, and max.partitions is"
            f" {limit}",
        )
