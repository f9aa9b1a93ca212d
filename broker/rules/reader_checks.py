"""What readers say of themselves: the leader epoch that they know (KIP-320), their isolation level (KIP-98).

A client with older or newer metadata than ours is refused. Pure.
"""

from __future__ import annotations

from eoslog.protocol.errors import ErrorCode, KafkaError

_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1


def check_leader_epoch(current: int, known: int) -> None:
    """Compare the epoch that a client knows (-1: none) with the leader's current one.

    Raises KafkaError UNKNOWN_LEADER_EPOCH if the client's is newer, FENCED_LEADER_EPOCH if it is older.
    """
    if known > current:
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {known} is newer than {current}")
    if 0 <= known < current:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {known} is over, it is {current} now")


def reads_committed(isolation_level: int) -> bool:
    """Whether a reader sees only what is committed.

    Raises KafkaError UNKNOWN_SERVER_ERROR for a level that does not exist: so Kafka answers.
    """
    if isolation_level not in (_READ_UNCOMMITTED, _READ_COMMITTED):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"isolation level {isolation_level} is unknown: use 0 or 1"
        )
    return isolation_level == _READ_COMMITTED
