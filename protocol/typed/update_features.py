"""The types of `messages/update_features.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class UpdateFeaturesRequestFeatureUpdate(TypedDict):
    feature: str
    max_version_level: int
    allow_downgrade: bool
    upgrade_type: int


class UpdateFeaturesRequest(TypedDict):
    timeout_ms: int
    feature_updates: list[UpdateFeaturesRequestFeatureUpdate]
    validate_only: bool


class UpdateFeaturesRequestFeatureUpdateDraft(TypedDict, total=False):
    feature: str
    max_version_level: int
    allow_downgrade: bool
    upgrade_type: int


class UpdateFeaturesRequestDraft(TypedDict, total=False):
    timeout_ms: int
    feature_updates: Sequence[UpdateFeaturesRequestFeatureUpdateDraft]
    validate_only: bool


class UpdateFeaturesResponseResult(TypedDict):
    feature: str
    error_code: int
    error_message: str | None


class UpdateFeaturesResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[UpdateFeaturesResponseResult]


class UpdateFeaturesResponseResultDraft(TypedDict, total=False):
    feature: str
    error_code: int
    error_message: str | None


class UpdateFeaturesResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Sequence[UpdateFeaturesResponseResultDraft]
