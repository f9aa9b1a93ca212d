"""Fencing by leader epoch (KIP-320): a client with older or newer metadata than ours is refused. Pure."""

from __future__ import annotations

from eoslog.protocol.errors import ErrorCode, KafkaError


def check_leader_epoch(current: int, known: int) -> None:
    """Compare the epoch that a client knows (-1: none) with the leader's current one.

    Raises KafkaError UNKNOWN_LEADER_EPOCH if the client's is newer, FENCED_LEADER_EPOCH if it is older.
    """
    if known > current:
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {known} is newer than {current}")
    if 0 <= known < current:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {known} is over, it is {current} now")
