"""The types of `messages/alter_user_scram_credentials.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from eoslog.protocol.primitives import Buffer


class AlterUserScramCredentialsRequestDeletion(TypedDict):
    name: str
    mechanism: int


class AlterUserScramCredentialsRequestUpsertion(TypedDict):
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class AlterUserScramCredentialsRequest(TypedDict):
    deletions: list[AlterUserScramCredentialsRequestDeletion]
    upsertions: list[AlterUserScramCredentialsRequestUpsertion]


class AlterUserScramCredentialsRequestDeletionDraft(TypedDict, total=False):
    name: str
    mechanism: int


class AlterUserScramCredentialsRequestUpsertionDraft(TypedDict, total=False):
    name: str
    mechanism: int
    iterations: int
    salt: Buffer
    salted_password: Buffer


class AlterUserScramCredentialsRequestDraft(TypedDict, total=False):
    deletions: Sequence[AlterUserScramCredentialsRequestDeletionDraft]
    upsertions: Sequence[AlterUserScramCredentialsRequestUpsertionDraft]


class AlterUserScramCredentialsResponseResult(TypedDict):
    user: str
    error_code: int
    error_message: str | None


class AlterUserScramCredentialsResponse(TypedDict):
    throttle_time_ms: int
    results: list[AlterUserScramCredentialsResponseResult]


class AlterUserScramCredentialsResponseResultDraft(TypedDict, total=False):
    user: str
    error_code: int
    error_message: str | None


class AlterUserScramCredentialsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    results: Sequence[AlterUserScramCredentialsResponseResultDraft]
