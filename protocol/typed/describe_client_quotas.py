"""The types of `messages/describe_client_quotas.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class DescribeClientQuotasRequestComponent(TypedDict):
    entity_type: str
    match_type: int
    match: str | None


class DescribeClientQuotasRequest(TypedDict):
    components: list[DescribeClientQuotasRequestComponent]
    strict: bool


class DescribeClientQuotasRequestComponentDraft(TypedDict, total=False):
    entity_type: str
    match_type: int
    match: str | None


class DescribeClientQuotasRequestDraft(TypedDict, total=False):
    components: Sequence[DescribeClientQuotasRequestComponentDraft]
    strict: bool


class DescribeClientQuotasResponseEntity(TypedDict):
    entity_type: str
    entity_name: str | None


class DescribeClientQuotasResponseValue(TypedDict):
    key: str
    value: float


class DescribeClientQuotasResponseEntry(TypedDict):
    entity: list[DescribeClientQuotasResponseEntity]
    values: list[DescribeClientQuotasResponseValue]


class DescribeClientQuotasResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: list[DescribeClientQuotasResponseEntry] | None


class DescribeClientQuotasResponseEntityDraft(TypedDict, total=False):
    entity_type: str
    entity_name: str | None


class DescribeClientQuotasResponseValueDraft(TypedDict, total=False):
    key: str
    value: float


class DescribeClientQuotasResponseEntryDraft(TypedDict, total=False):
    entity: Sequence[DescribeClientQuotasResponseEntityDraft]
    values: Sequence[DescribeClientQuotasResponseValueDraft]


class DescribeClientQuotasResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: Sequence[DescribeClientQuotasResponseEntryDraft] | None
