"""The types of `messages/list_config_resources.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class ListConfigResourcesRequest(TypedDict):
    resource_types: list[int]


class ListConfigResourcesRequestDraft(TypedDict, total=False):
    resource_types: Sequence[int]


class ListConfigResourcesResponseConfigResource(TypedDict):
    resource_name: str
    resource_type: int


class ListConfigResourcesResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    config_resources: list[ListConfigResourcesResponseConfigResource]


class ListConfigResourcesResponseConfigResourceDraft(TypedDict, total=False):
    resource_name: str
    resource_type: int


class ListConfigResourcesResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    config_resources: Sequence[ListConfigResourcesResponseConfigResourceDraft]
