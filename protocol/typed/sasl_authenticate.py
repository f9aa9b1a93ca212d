"""The types of `messages/sasl_authenticate.py`, made of it by `make typed`."""

from __future__ import annotations

from typing import TypedDict

from eoslog.protocol.primitives import Buffer


class SaslAuthenticateRequest(TypedDict):
    auth_bytes: bytes


class SaslAuthenticateRequestDraft(TypedDict, total=False):
    auth_bytes: Buffer


class SaslAuthenticateResponse(TypedDict):
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int


class SaslAuthenticateResponseDraft(TypedDict, total=False):
    error_code: int
    error_message: str | None
    auth_bytes: Buffer
    session_lifetime_ms: int
