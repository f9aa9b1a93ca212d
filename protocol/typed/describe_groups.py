"""The types of `messages/describe_groups.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from eoslog.protocol.primitives import Buffer


class DescribeGroupsRequest(TypedDict):
    groups: list[str]
    include_authorized_operations: bool


class DescribeGroupsRequestDraft(TypedDict, total=False):
    groups: Sequence[str]
    include_authorized_operations: bool


class DescribeGroupsResponseMember(TypedDict):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribeGroupsResponseGroup(TypedDict):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: list[DescribeGroupsResponseMember]
    authorized_operations: int


class DescribeGroupsResponse(TypedDict):
    throttle_time_ms: int
    groups: list[DescribeGroupsResponseGroup]


class DescribeGroupsResponseMemberDraft(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: Buffer
    member_assignment: Buffer


class DescribeGroupsResponseGroupDraft(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: Sequence[DescribeGroupsResponseMemberDraft]
    authorized_operations: int


class DescribeGroupsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    groups: Sequence[DescribeGroupsResponseGroupDraft]
