"""The types of `messages/delete_records.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class DeleteRecordsRequestPartition(TypedDict):
    partition_index: int
    offset: int


class DeleteRecordsRequestTopic(TypedDict):
    name: str
    partitions: list[DeleteRecordsRequestPartition]


class DeleteRecordsRequest(TypedDict):
    topics: list[DeleteRecordsRequestTopic]
    timeout_ms: int


class DeleteRecordsRequestPartitionDraft(TypedDict, total=False):
    partition_index: int
    offset: int


class DeleteRecordsRequestTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[DeleteRecordsRequestPartitionDraft]


class DeleteRecordsRequestDraft(TypedDict, total=False):
    topics: Sequence[DeleteRecordsRequestTopicDraft]
    timeout_ms: int


class DeleteRecordsResponsePartition(TypedDict):
    partition_index: int
    low_watermark: int
    error_code: int


class DeleteRecordsResponseTopic(TypedDict):
    name: str
    partitions: list[DeleteRecordsResponsePartition]


class DeleteRecordsResponse(TypedDict):
    throttle_time_ms: int
    topics: list[DeleteRecordsResponseTopic]


class DeleteRecordsResponsePartitionDraft(TypedDict, total=False):
    partition_index: int
    low_watermark: int
    error_code: int


class DeleteRecordsResponseTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[DeleteRecordsResponsePartitionDraft]


class DeleteRecordsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[DeleteRecordsResponseTopicDraft]
