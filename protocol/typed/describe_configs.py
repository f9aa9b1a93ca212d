"""The types of `messages/describe_configs.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class DescribeConfigsRequestResource(TypedDict):
    resource_type: int
    resource_name: str
    configuration_keys: list[str] | None


class DescribeConfigsRequest(TypedDict):
    resources: list[DescribeConfigsRequestResource]
    include_synonyms: bool
    include_documentation: bool


class DescribeConfigsRequestResourceDraft(TypedDict, total=False):
    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None


class DescribeConfigsRequestDraft(TypedDict, total=False):
    resources: Sequence[DescribeConfigsRequestResourceDraft]
    include_synonyms: bool
    include_documentation: bool


class DescribeConfigsResponseSynonym(TypedDict):
    name: str
    value: str | None
    source: int


class DescribeConfigsResponseConfig(TypedDict):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: list[DescribeConfigsResponseSynonym]
    config_type: int
    documentation: str | None


class DescribeConfigsResponseResult(TypedDict):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: list[DescribeConfigsResponseConfig]


class DescribeConfigsResponse(TypedDict):
    throttle_time_ms: int
    results: list[DescribeConfigsResponseResult]


class DescribeConfigsResponseSynonymDraft(TypedDict, total=False):
    name: str
    value: str | None
    source: int


class DescribeConfigsResponseConfigDraft(TypedDict, total=False):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: Sequence[DescribeConfigsResponseSynonymDraft]
    config_type: int
    documentation: str | None


class DescribeConfigsResponseResultDraft(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: Sequence[DescribeConfigsResponseConfigDraft]


class DescribeConfigsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[DescribeConfigsResponseResultDraft]
