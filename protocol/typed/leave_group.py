"""The types of `messages/leave_group.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class LeaveGroupRequestMember(TypedDict):
    member_id: str
    group_instance_id: str | None
    reason: str | None


class LeaveGroupRequest(TypedDict):
    group_id: str
    member_id: str
    members: list[LeaveGroupRequestMember]


class LeaveGroupRequestMemberDraft(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    reason: str | None


class LeaveGroupRequestDraft(TypedDict, total=False):
    group_id: str
    member_id: str
    members: Sequence[LeaveGroupRequestMemberDraft]


class LeaveGroupResponseMember(TypedDict):
    member_id: str
    group_instance_id: str | None
    error_code: int


class LeaveGroupResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    members: list[LeaveGroupResponseMember]


class LeaveGroupResponseMemberDraft(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    error_code: int


class LeaveGroupResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    members: Sequence[LeaveGroupResponseMemberDraft]
