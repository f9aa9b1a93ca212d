"""The types of `messages/api_versions.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class ApiVersionsRequest(TypedDict):
    client_software_name: str
    client_software_version: str


class ApiVersionsRequestDraft(TypedDict, total=False):
    client_software_name: str
    client_software_version: str


class ApiVersionsResponseApiKey(TypedDict):
    api_key: int
    min_version: int
    max_version: int


class ApiVersionsResponseSupportedFeature(TypedDict):
    name: str
    min_version: int
    max_version: int


class ApiVersionsResponseFinalizedFeature(TypedDict):
    name: str
    max_version_level: int
    min_version_level: int


class ApiVersionsResponse(TypedDict):
    error_code: int
    api_keys: list[ApiVersionsResponseApiKey]
    throttle_time_ms: int
    supported_features: list[ApiVersionsResponseSupportedFeature]
    finalized_features_epoch: int
    finalized_features: list[ApiVersionsResponseFinalizedFeature]
    zk_migration_ready: bool
    ends_together: bool


class ApiVersionsResponseApiKeyDraft(TypedDict, total=False):
    api_key: int
    min_version: int
    max_version: int


class ApiVersionsResponseSupportedFeatureDraft(TypedDict, total=False):
    name: str
    min_version: int
    max_version: int


class ApiVersionsResponseFinalizedFeatureDraft(TypedDict, total=False):
    name: str
    max_version_level: int
    min_version_level: int


class ApiVersionsResponseDraft(TypedDict, total=False):
    error_code: int
    api_keys: Sequence[ApiVersionsResponseApiKeyDraft]
    throttle_time_ms: int
    supported_features: Sequence[ApiVersionsResponseSupportedFeatureDraft]
    finalized_features_epoch: int
    finalized_features: Sequence[ApiVersionsResponseFinalizedFeatureDraft]
    zk_migration_ready: bool
    ends_together: bool
