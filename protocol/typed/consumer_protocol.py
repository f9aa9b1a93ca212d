"""The types of `messages/consumer_protocol.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from eoslog.protocol.primitives import Buffer


class ConsumerProtocolSubscriptionOwnedPartition(TypedDict):
    topic: str
    partitions: list[int]


class ConsumerProtocolSubscription(TypedDict):
    topics: list[str]
    user_data: bytes | None
    owned_partitions: list[ConsumerProtocolSubscriptionOwnedPartition]
    generation_id: int
    rack_id: str | None


class ConsumerProtocolSubscriptionOwnedPartitionDraft(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]


class ConsumerProtocolSubscriptionDraft(TypedDict, total=False):
    topics: Sequence[str]
    user_data: Buffer | None
    owned_partitions: Sequence[ConsumerProtocolSubscriptionOwnedPartitionDraft]
    generation_id: int
    rack_id: str | None


class ConsumerProtocolAssignmentAssignedPartition(TypedDict):
    topic: str
    partitions: list[int]


class ConsumerProtocolAssignment(TypedDict):
    assigned_partitions: list[ConsumerProtocolAssignmentAssignedPartition]
    user_data: bytes | None


class ConsumerProtocolAssignmentAssignedPartitionDraft(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]


class ConsumerProtocolAssignmentDraft(TypedDict, total=False):
    assigned_partitions: Sequence[ConsumerProtocolAssignmentAssignedPartitionDraft]
    user_data: Buffer | None
