"""The types of `messages/find_coordinator.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class FindCoordinatorRequest(TypedDict):
    key: str
    key_type: int
    coordinator_keys: list[str]


class FindCoordinatorRequestDraft(TypedDict, total=False):
    key: str
    key_type: int
    coordinator_keys: Sequence[str]


class FindCoordinatorResponseCoordinator(TypedDict):
    key: str
    node_id: int
    host: str
    port: int
    error_code: int
    error_message: str | None


class FindCoordinatorResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: list[FindCoordinatorResponseCoordinator]


class FindCoordinatorResponseCoordinatorDraft(TypedDict, total=False):
    key: str
    node_id: int
    host: str
    port: int
    error_code: int
    error_message: str | None


class FindCoordinatorResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: Sequence[FindCoordinatorResponseCoordinatorDraft]
