"""Where replicas may be, and how many: the one place that knows that this node is alone."""

from __future__ import annotations

from collections.abc import Sequence

from eoslog.broker.config import BrokerConfig
from eoslog.protocol.errors import ErrorCode, KafkaError

REPLICATION_FACTOR = 1
"""What every topic has, whatever was asked for."""

DEFAULT = -1
"""What a client asks for that leaves a number to the broker."""


def check_factor(config: BrokerConfig, asked: int) -> None:
    """Raise KafkaError INVALID_REPLICATION_FACTOR unless a topic may be made with this factor.

    The default is taken as it is: with default.replication.factor=3 a topic has 1 here as well.
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
            f"replicas {list(replicas)}: the only node there is has id {node_id}",
        )
