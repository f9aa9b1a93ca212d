"""The types of `messages/describe_producers.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class DescribeProducersRequestTopic(TypedDict):
    name: str
    partition_indexes: list[int]


class DescribeProducersRequest(TypedDict):
    topics: list[DescribeProducersRequestTopic]


class DescribeProducersRequestTopicDraft(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]


class DescribeProducersRequestDraft(TypedDict, total=False):
    topics: Sequence[DescribeProducersRequestTopicDraft]


class DescribeProducersResponseActiveProducer(TypedDict):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class DescribeProducersResponsePartition(TypedDict):
    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: list[DescribeProducersResponseActiveProducer]


class DescribeProducersResponseTopic(TypedDict):
    name: str
    partitions: list[DescribeProducersResponsePartition]


class DescribeProducersResponse(TypedDict):
    throttle_time_ms: int
    topics: list[DescribeProducersResponseTopic]


class DescribeProducersResponseActiveProducerDraft(TypedDict, total=False):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class DescribeProducersResponsePartitionDraft(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: Sequence[DescribeProducersResponseActiveProducerDraft]


class DescribeProducersResponseTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[DescribeProducersResponsePartitionDraft]


class DescribeProducersResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[DescribeProducersResponseTopicDraft]
