"""The types of `messages/incremental_alter_configs.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class IncrementalAlterConfigsRequestConfig(TypedDict):
    name: str
    config_operation: int
    value: str | None


class IncrementalAlterConfigsRequestResource(TypedDict):
    resource_type: int
    resource_name: str
    configs: list[IncrementalAlterConfigsRequestConfig]


class IncrementalAlterConfigsRequest(TypedDict):
    resources: list[IncrementalAlterConfigsRequestResource]
    validate_only: bool


class IncrementalAlterConfigsRequestConfigDraft(TypedDict, total=False):
    name: str
    config_operation: int
    value: str | None


class IncrementalAlterConfigsRequestResourceDraft(TypedDict, total=False):
    resource_type: int
    resource_name: str
    configs: Sequence[IncrementalAlterConfigsRequestConfigDraft]


class IncrementalAlterConfigsRequestDraft(TypedDict, total=False):
    resources: Sequence[IncrementalAlterConfigsRequestResourceDraft]
    validate_only: bool


class IncrementalAlterConfigsResponseResponse(TypedDict):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class IncrementalAlterConfigsResponse(TypedDict):
    throttle_time_ms: int
    responses: list[IncrementalAlterConfigsResponseResponse]


class IncrementalAlterConfigsResponseResponseDraft(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class IncrementalAlterConfigsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    responses: Sequence[IncrementalAlterConfigsResponseResponseDraft]
