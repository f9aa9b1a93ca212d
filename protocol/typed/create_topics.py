"""The types of `messages/create_topics.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class CreateTopicsRequestAssignment(TypedDict):
    partition_index: int
    broker_ids: list[int]


class CreateTopicsRequestConfig(TypedDict):
    name: str
    value: str | None


class CreateTopicsRequestTopic(TypedDict):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: list[CreateTopicsRequestAssignment]
    configs: list[CreateTopicsRequestConfig]


class CreateTopicsRequest(TypedDict):
    topics: list[CreateTopicsRequestTopic]
    timeout_ms: int
    validate_only: bool


class CreateTopicsRequestAssignmentDraft(TypedDict, total=False):
    partition_index: int
    broker_ids: Sequence[int]


class CreateTopicsRequestConfigDraft(TypedDict, total=False):
    name: str
    value: str | None


class CreateTopicsRequestTopicDraft(TypedDict, total=False):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: Sequence[CreateTopicsRequestAssignmentDraft]
    configs: Sequence[CreateTopicsRequestConfigDraft]


class CreateTopicsRequestDraft(TypedDict, total=False):
    topics: Sequence[CreateTopicsRequestTopicDraft]
    timeout_ms: int
    validate_only: bool


class CreateTopicsResponseConfig(TypedDict):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool


class CreateTopicsResponseTopic(TypedDict):
    name: str
    topic_id: bytes
    error_code: int
    error_message: str | None
    topic_config_error_code: int
    num_partitions: int
    replication_factor: int
    configs: list[CreateTopicsResponseConfig] | None


class CreateTopicsResponse(TypedDict):
    throttle_time_ms: int
    topics: list[CreateTopicsResponseTopic]


class CreateTopicsResponseConfigDraft(TypedDict, total=False):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool


class CreateTopicsResponseTopicDraft(TypedDict, total=False):
    name: str
    topic_id: bytes
    error_code: int
    error_message: str | None
    topic_config_error_code: int
    num_partitions: int
    replication_factor: int
    configs: Sequence[CreateTopicsResponseConfigDraft] | None


class CreateTopicsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[CreateTopicsResponseTopicDraft]
