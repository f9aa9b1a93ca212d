"""The types of `messages/describe_user_scram_credentials.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class DescribeUserScramCredentialsRequestUser(TypedDict):
    name: str


class DescribeUserScramCredentialsRequest(TypedDict):
    users: list[DescribeUserScramCredentialsRequestUser] | None


class DescribeUserScramCredentialsRequestUserDraft(TypedDict, total=False):
    name: str


class DescribeUserScramCredentialsRequestDraft(TypedDict, total=False):
    users: Sequence[DescribeUserScramCredentialsRequestUserDraft] | None


class DescribeUserScramCredentialsResponseCredentialInfo(TypedDict):
    mechanism: int
    iterations: int


class DescribeUserScramCredentialsResponseResult(TypedDict):
    user: str
    error_code: int
    error_message: str | None
    credential_infos: list[DescribeUserScramCredentialsResponseCredentialInfo]


class DescribeUserScramCredentialsResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[DescribeUserScramCredentialsResponseResult]


class DescribeUserScramCredentialsResponseCredentialInfoDraft(TypedDict, total=False):
    mechanism: int
    iterations: int


class DescribeUserScramCredentialsResponseResultDraft(TypedDict, total=False):
    user: str
    error_code: int
    error_message: str | None
    credential_infos: Sequence[DescribeUserScramCredentialsResponseCredentialInfoDraft]


class DescribeUserScramCredentialsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Sequence[DescribeUserScramCredentialsResponseResultDraft]
