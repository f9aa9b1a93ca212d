"""The types of `messages/delete_topics.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class DeleteTopicsRequestTopic(TypedDict):
    name: str | None
    topic_id: bytes


class DeleteTopicsRequest(TypedDict):
    topics: list[DeleteTopicsRequestTopic]
    topic_names: list[str]
    timeout_ms: int


class DeleteTopicsRequestTopicDraft(TypedDict, total=False):
    name: str | None
    topic_id: bytes


class DeleteTopicsRequestDraft(TypedDict, total=False):
    topics: Sequence[DeleteTopicsRequestTopicDraft]
    topic_names: Sequence[str]
    timeout_ms: int


class DeleteTopicsResponseResponse(TypedDict):
    name: str | None
    topic_id: bytes
    error_code: int
    error_message: str | None


class DeleteTopicsResponse(TypedDict):
    throttle_time_ms: int
    responses: list[DeleteTopicsResponseResponse]


class DeleteTopicsResponseResponseDraft(TypedDict, total=False):
    name: str | None
    topic_id: bytes
    error_code: int
    error_message: str | None


class DeleteTopicsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    responses: Sequence[DeleteTopicsResponseResponseDraft]
