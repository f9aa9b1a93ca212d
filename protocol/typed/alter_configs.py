"""The types of `messages/alter_configs.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class AlterConfigsRequestConfig(TypedDict):
    name: str
    value: str | None


class AlterConfigsRequestResource(TypedDict):
    resource_type: int
    resource_name: str
    configs: list[AlterConfigsRequestConfig]


class AlterConfigsRequest(TypedDict):
    resources: list[AlterConfigsRequestResource]
    validate_only: bool


class AlterConfigsRequestConfigDraft(TypedDict, total=False):
    name: str
    value: str | None


class AlterConfigsRequestResourceDraft(TypedDict, total=False):
    resource_type: int
    resource_name: str
    configs: Sequence[AlterConfigsRequestConfigDraft]


class AlterConfigsRequestDraft(TypedDict, total=False):
    resources: Sequence[AlterConfigsRequestResourceDraft]
    validate_only: bool


class AlterConfigsResponseResponse(TypedDict):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class AlterConfigsResponse(TypedDict):
    throttle_time_ms: int
    responses: list[AlterConfigsResponseResponse]


class AlterConfigsResponseResponseDraft(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class AlterConfigsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    responses: Sequence[AlterConfigsResponseResponseDraft]
