"""The types of `messages/describe_log_dirs.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class DescribeLogDirsRequestTopic(TypedDict):
    topic: str
    partitions: list[int]


class DescribeLogDirsRequest(TypedDict):
    topics: list[DescribeLogDirsRequestTopic] | None


class DescribeLogDirsRequestTopicDraft(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]


class DescribeLogDirsRequestDraft(TypedDict, total=False):
    topics: Sequence[DescribeLogDirsRequestTopicDraft] | None


class DescribeLogDirsResponsePartition(TypedDict):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool


class DescribeLogDirsResponseTopic(TypedDict):
    name: str
    partitions: list[DescribeLogDirsResponsePartition]


class DescribeLogDirsResponseResult(TypedDict):
    error_code: int
    log_dir: str
    topics: list[DescribeLogDirsResponseTopic]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool


class DescribeLogDirsResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    results: list[DescribeLogDirsResponseResult]


class DescribeLogDirsResponsePartitionDraft(TypedDict, total=False):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool


class DescribeLogDirsResponseTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[DescribeLogDirsResponsePartitionDraft]


class DescribeLogDirsResponseResultDraft(TypedDict, total=False):
    error_code: int
    log_dir: str
    topics: Sequence[DescribeLogDirsResponseTopicDraft]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool


class DescribeLogDirsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    results: Sequence[DescribeLogDirsResponseResultDraft]
