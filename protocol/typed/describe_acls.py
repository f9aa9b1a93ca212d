"""The types of `messages/describe_acls.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class DescribeAclsRequest(TypedDict):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DescribeAclsRequestDraft(TypedDict, total=False):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DescribeAclsResponseAcl(TypedDict):
    principal: str
    host: str
    operation: int
    permission_type: int


class DescribeAclsResponseResource(TypedDict):
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: list[DescribeAclsResponseAcl]


class DescribeAclsResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: list[DescribeAclsResponseResource]


class DescribeAclsResponseAclDraft(TypedDict, total=False):
    principal: str
    host: str
    operation: int
    permission_type: int


class DescribeAclsResponseResourceDraft(TypedDict, total=False):
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: Sequence[DescribeAclsResponseAclDraft]


class DescribeAclsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: Sequence[DescribeAclsResponseResourceDraft]
