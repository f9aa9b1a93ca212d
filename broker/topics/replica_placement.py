"""Where replicas may be, and how many: the only module that knows that this is a single node."""

from __future__ import annotations

from collections.abc import Sequence

from eoslog.broker.config import BrokerConfig
from eoslog.protocol.errors import ErrorCode, KafkaError

REPLICATION_FACTOR = 1
"""The replication factor of every topic, whatever was requested."""

DEFAULT = -1
"""A client requests this to let the broker choose."""


def check_factor(config: BrokerConfig, asked: int) -> None:
    """Raise KafkaError INVALID_REPLICATION_FACTOR unless a topic may be created with this factor.

    The default is always accepted: even with default.replication.factor=3 a topic gets 1.
    """
    if asked in (DEFAULT, REPLICATION_FACTOR) or (asked > 1 and config.topics.accept_replication_factor):
        return
    raise KafkaError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"replication factor {asked}: this is a single node, ask for 1"
        " (or start the broker with accept.any.replication.factor=true)",
    )


def check_replicas(node_id: int, replicas: Sequence[int]) -> None:
    """Raise KafkaError INVALID_REPLICA_ASSIGNMENT unless a partition may be on these brokers."""
    if list(replicas) != [node_id]:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"replicas {list(replicas)}: the only node has id {node_id}",
        )
