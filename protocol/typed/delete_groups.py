"""The types of `messages/delete_groups.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class DeleteGroupsRequest(TypedDict):
    groups_names: list[str]


class DeleteGroupsRequestDraft(TypedDict, total=False):
    groups_names: Sequence[str]


class DeleteGroupsResponseResult(TypedDict):
    group_id: str
    error_code: int


class DeleteGroupsResponse(TypedDict):
    throttle_time_ms: int
    results: list[DeleteGroupsResponseResult]


class DeleteGroupsResponseResultDraft(TypedDict, total=False):
    group_id: str
    error_code: int


class DeleteGroupsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[DeleteGroupsResponseResultDraft]
