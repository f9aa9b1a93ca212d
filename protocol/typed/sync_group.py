"""The types of `messages/sync_group.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from eoslog.protocol.primitives import Buffer


class SyncGroupRequestAssignment(TypedDict):
    member_id: str
    assignment: bytes


class SyncGroupRequest(TypedDict):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: list[SyncGroupRequestAssignment]


class SyncGroupRequestAssignmentDraft(TypedDict, total=False):
    member_id: str
    assignment: Buffer


class SyncGroupRequestDraft(TypedDict, total=False):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Sequence[SyncGroupRequestAssignmentDraft]


class SyncGroupResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


class SyncGroupResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: Buffer
