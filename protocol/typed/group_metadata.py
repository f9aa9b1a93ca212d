"""The types of `messages/group_metadata.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from eoslog.protocol.primitives import Buffer


class OffsetCommitKey(TypedDict):
    group: str
    topic: str
    partition: int


class OffsetCommitKeyDraft(TypedDict, total=False):
    group: str
    topic: str
    partition: int


class OffsetCommitValue(TypedDict):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: bytes


class OffsetCommitValueDraft(TypedDict, total=False):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: bytes


class GroupMetadataKey(TypedDict):
    group: str


class GroupMetadataKeyDraft(TypedDict, total=False):
    group: str


class GroupMetadataValueMember(TypedDict):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(TypedDict):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: list[GroupMetadataValueMember]


class GroupMetadataValueMemberDraft(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: Buffer
    assignment: Buffer


class GroupMetadataValueDraft(TypedDict, total=False):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: Sequence[GroupMetadataValueMemberDraft]
