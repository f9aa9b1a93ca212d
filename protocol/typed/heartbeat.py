"""The types of `messages/heartbeat.py`, made of it by `make typed`."""

from __future__ import annotations

from typing import TypedDict


class HeartbeatRequest(TypedDict):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class HeartbeatRequestDraft(TypedDict, total=False):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class HeartbeatResponse(TypedDict):
    throttle_time_ms: int
    error_code: int


class HeartbeatResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
