"""The types of `messages/list_groups.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class ListGroupsRequest(TypedDict):
    states_filter: list[str]
    types_filter: list[str]


class ListGroupsRequestDraft(TypedDict, total=False):
    states_filter: Sequence[str]
    types_filter: Sequence[str]


class ListGroupsResponseGroup(TypedDict):
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class ListGroupsResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    groups: list[ListGroupsResponseGroup]


class ListGroupsResponseGroupDraft(TypedDict, total=False):
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class ListGroupsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    groups: Sequence[ListGroupsResponseGroupDraft]
