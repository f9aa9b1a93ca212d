"""The types of `messages/create_acls.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class CreateAclsRequestCreation(TypedDict):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class CreateAclsRequest(TypedDict):
    creations: list[CreateAclsRequestCreation]


class CreateAclsRequestCreationDraft(TypedDict, total=False):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class CreateAclsRequestDraft(TypedDict, total=False):
    creations: Sequence[CreateAclsRequestCreationDraft]


class CreateAclsResponseResult(TypedDict):
    error_code: int
    error_message: str | None


class CreateAclsResponse(TypedDict):
    throttle_time_ms: int
    results: list[CreateAclsResponseResult]


class CreateAclsResponseResultDraft(TypedDict, total=False):
    error_code: int
    error_message: str | None


class CreateAclsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[CreateAclsResponseResultDraft]
