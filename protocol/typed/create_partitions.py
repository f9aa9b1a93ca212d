"""The types of `messages/create_partitions.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class CreatePartitionsRequestAssignment(TypedDict):
    broker_ids: list[int]


class CreatePartitionsRequestTopic(TypedDict):
    name: str
    count: int
    assignments: list[CreatePartitionsRequestAssignment] | None


class CreatePartitionsRequest(TypedDict):
    topics: list[CreatePartitionsRequestTopic]
    timeout_ms: int
    validate_only: bool


class CreatePartitionsRequestAssignmentDraft(TypedDict, total=False):
    broker_ids: Sequence[int]


class CreatePartitionsRequestTopicDraft(TypedDict, total=False):
    name: str
    count: int
    assignments: Sequence[CreatePartitionsRequestAssignmentDraft] | None


class CreatePartitionsRequestDraft(TypedDict, total=False):
    topics: Sequence[CreatePartitionsRequestTopicDraft]
    timeout_ms: int
    validate_only: bool


class CreatePartitionsResponseResult(TypedDict):
    name: str
    error_code: int
    error_message: str | None


class CreatePartitionsResponse(TypedDict):
    throttle_time_ms: int
    results: list[CreatePartitionsResponseResult]


class CreatePartitionsResponseResultDraft(TypedDict, total=False):
    name: str
    error_code: int
    error_message: str | None


class CreatePartitionsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[CreatePartitionsResponseResultDraft]
