"""Tokens for OAUTHBEARER: where a process gets one, how long it keeps it, and when it gets the next."""

from __future__ import annotations

import base64
import importlib
import json
import math
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, NamedTuple

from eoslog.connector.client.wire.security_settings import SaslSettings
from eoslog.connector.errors import AuthenticationRefused

REFRESH_AT = 0.8
"""The part of its life after which a token or a session is renewed."""

_TOKEN_TIMEOUT_S = 10.0
_LONGEST_S = 366 * 86_400.0
_CLOCKS_DIFFER_S = 300.0
_CALLBACK = "kafka.sasl.oauthbearer.token.callback"


class _Token(NamedTuple):
    text: str
    renew_at: float  # on the clock


class Tokens:
    """The tokens of this process. `clock`: seconds that only go forward; `now`: seconds since 1970."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time
    ) -> None:
        self._clock, self._now = clock, now
        self._kept: dict[SaslSettings, _Token] = {}
        self._lock = threading.Lock()

    def token(self, sasl: SaslSettings) -> str:
        """A valid token. Raises AuthenticationRefused."""
        with self._lock:
            kept = self._kept.get(sasl)
            if kept is None or self._clock() >= kept.renew_at:
                asked_at = self._clock()
                text, seconds = self._called(sasl) if sasl.token_callback else _fetched(sasl)
                kept = self._kept[sasl] = _Token(text, asked_at + REFRESH_AT * seconds)
            return kept.text

    def _called(self, sasl: SaslSettings) -> tuple[str, float]:
        """Get a token from the user's function, which returns it or (token, seconds of its life)."""
        module, _, name = str(sasl.token_callback).partition(":")
        try:
            found = getattr(importlib.import_module(module), name)()
        except Exception as error:  # whatever the user's function does, it is the reason
            # Not `from error`: its text may contain a secret, and Spark shows the texts of causes.
            raise AuthenticationRefused(
                f"{_CALLBACK}={sasl.token_callback} failed: {type(error).__name__}; "
                "start it by hand, where the tasks run, to see why"
            ) from None
        text, seconds = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
        wrong = None
        if not isinstance(text, str) or not text.strip():
            wrong = (
                f"no token but {'an empty text' if text == '' else f'a value of type {type(text).__name__}'}"
            )
        elif isinstance(found, tuple):
            wrong = self._wrong_life(text, seconds)
        if wrong is not None:
            raise AuthenticationRefused(
                f"{_CALLBACK}={sasl.token_callback} returned {wrong}: make it return the token, or (token, "
                "for how many seconds from now it is good)"
            )
        return text, 0.0 if seconds is None else float(seconds)

    def _wrong_life(self, text: str, seconds: Any) -> str | None:
        """What is wrong with the second part of the callback's result."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
            return f"a time of type {type(seconds).__name__}"
        if seconds <= 0:
            return f"a time in the past ({seconds:.0f} s)"
        if seconds > _LONGEST_S:
            return f"{seconds:.0f} s, which is over a year (a time since 1970, or milliseconds?)"
        ends = _claims(text).get("exp")
        left = ends - self._now() if isinstance(ends, int | float) else math.inf
        if seconds > left + _CLOCKS_DIFFER_S:
            return f"{seconds:.0f} s for a token that ends in {left:.0f} s (milliseconds?)"
        return None


_tokens = Tokens()


def token_for(sasl: SaslSettings) -> str:
    """A valid token, which this process keeps. Raises AuthenticationRefused."""
    return _tokens.token(sasl)


def _claims(token: str) -> dict[str, Any]:
    """What a token (JWT) says of itself, unchecked; nothing if it is of another kind."""
    try:
        body = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _fetched(sasl: SaslSettings) -> tuple[str, float]:
    """Get a token by the client credentials flow (RFC 6749, section 4.4)."""
    form = {"grant_type": "client_credentials"} | ({"scope": sasl.scope} if sasl.scope else {})
    basic = base64.b64encode(f"{_quoted(sasl.client_id)}:{_quoted(sasl.client_secret)}".encode()).decode()
    url = str(sasl.token_url)
    request = urllib.request.Request(
        url, urllib.parse.urlencode(form).encode(), {"Authorization": f"Basic {basic}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_TOKEN_TIMEOUT_S) as response:
            answer = json.load(response)
        return str(answer["access_token"]), float(answer.get("expires_in", 0))
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"HTTP {error.code}" if isinstance(error, urllib.error.HTTPError) else type(error).__name__
        raise AuthenticationRefused(
            f"kafka.sasl.oauthbearer.token.endpoint.url={url} gave no token for {sasl.client_id}: {reason}; "
            "check the address, clientId and clientSecret"
        ) from error


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")
