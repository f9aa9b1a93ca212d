"""The types of `messages/delete_acls.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class DeleteAclsRequestFilter(TypedDict):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DeleteAclsRequest(TypedDict):
    filters: list[DeleteAclsRequestFilter]


class DeleteAclsRequestFilterDraft(TypedDict, total=False):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DeleteAclsRequestDraft(TypedDict, total=False):
    filters: Sequence[DeleteAclsRequestFilterDraft]


class DeleteAclsResponseMatchingAcl(TypedDict):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class DeleteAclsResponseFilterResult(TypedDict):
    error_code: int
    error_message: str | None
    matching_acls: list[DeleteAclsResponseMatchingAcl]


class DeleteAclsResponse(TypedDict):
    throttle_time_ms: int
    filter_results: list[DeleteAclsResponseFilterResult]


class DeleteAclsResponseMatchingAclDraft(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class DeleteAclsResponseFilterResultDraft(TypedDict, total=False):
    error_code: int
    error_message: str | None
    matching_acls: Sequence[DeleteAclsResponseMatchingAclDraft]


class DeleteAclsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    filter_results: Sequence[DeleteAclsResponseFilterResultDraft]
