"""The types of `messages/sasl_handshake.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class SaslHandshakeRequest(TypedDict):
    mechanism: str


class SaslHandshakeRequestDraft(TypedDict, total=False):
    mechanism: str


class SaslHandshakeResponse(TypedDict):
    error_code: int
    mechanisms: list[str]


class SaslHandshakeResponseDraft(TypedDict, total=False):
    error_code: int
    mechanisms: Sequence[str]
