"""The types of `messages/join_group.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from eoslog.protocol.primitives import Buffer


class JoinGroupRequestProtocol(TypedDict):
    name: str
    metadata: bytes


class JoinGroupRequest(TypedDict):
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    reason: str | None


class JoinGroupRequestProtocolDraft(TypedDict, total=False):
    name: str
    metadata: Buffer


class JoinGroupRequestDraft(TypedDict, total=False):
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: Sequence[JoinGroupRequestProtocolDraft]
    reason: str | None


class JoinGroupResponseMember(TypedDict):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: list[JoinGroupResponseMember]


class JoinGroupResponseMemberDraft(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    metadata: Buffer


class JoinGroupResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: Sequence[JoinGroupResponseMemberDraft]
