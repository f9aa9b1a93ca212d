"""Tokens for OAUTHBEARER: where a process gets one, how long it keeps it, and when it gets the next."""

from __future__ import annotations

import base64
import importlib
import json
import logging
import math
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from eoslog.client.wire.security_settings import Assertion, Flow, TokenSettings
from eoslog.errors import AuthenticationRefused, OptionError

# -- assertions ------------------------------------------------------------------------------------
# Assertions for OAUTHBEARER: a signed JWT in place of a client's secret (RFC 7523), read or made.
#
# PyJWT makes them (extra `oauth`).


_PREFIX = "kafka.sasl.oauthbearer.assertion"


def assertion(of: Assertion, now: float) -> str:
    """The JWT to send now. Raises OptionError, AuthenticationRefused."""
    if of.file is not None:
        return _read_option(f"{_PREFIX}.file", of.file).strip()
    try:
        import jwt
    except ImportError:
        raise OptionError(
            f"option {_PREFIX}.private.key.file needs PyJWT: add it with pip install 'eoslog[oauth]', also "
            "where the tasks run"
        ) from None
    template = _template(of)
    named = {"iss": of.issuer, "sub": of.subject, "aud": of.audience}
    claims = {name: value for name, value in named.items() if value} | template.get("payload", {})
    claims |= {"iat": int(now), "exp": int(now) + of.expires_s, "nbf": int(now) - of.not_before_s}
    if of.with_id:
        claims["jti"] = str(uuid.uuid4())
    try:
        return jwt.encode(claims, _key(of), of.algorithm, template.get("header"))
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        # Not `from error`: its text may contain a secret, and Spark shows the texts of causes.
        raise AuthenticationRefused(
            f"option {_PREFIX}.private.key.file: {of.key_file} cannot sign with {of.algorithm}: "
            f"{type(error).__name__}; check the key, {_PREFIX}.private.key.passphrase and {_PREFIX}.algorithm"
        ) from None


def _template(of: Assertion) -> dict[str, dict[str, Any]]:
    if of.template_file is None:
        return {}
    try:
        found = json.loads(_read_option(f"{_PREFIX}.template.file", of.template_file))
        return {name: dict(found.get(name, {})) for name in ("header", "payload")}
    except (ValueError, AttributeError, TypeError):
        raise OptionError(
            f"option {_PREFIX}.template.file: {of.template_file}: give JSON like "
            '{"header":{},"payload":{}}'
        ) from None


def _key(of: Assertion) -> Any:
    """The private key. Raises ValueError, TypeError: it, or its passphrase, is wrong."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    secret = None if of.key_passphrase is None else of.key_passphrase.encode()
    return load_pem_private_key(
        _read_option(f"{_PREFIX}.private.key.file", str(of.key_file)).encode(), secret
    )


def _read_option(option: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise OptionError(
            f"option {option}: {path} cannot be read: {reason}; give a file that exists on every machine "
            "that runs the query's tasks"
        ) from None


# -- tokens ----------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

REFRESH_AT = 0.8
"""The part of its life after which a token or a session is renewed."""

_TOKEN_TIMEOUT_S = 10.0
_LONGEST_S = 366 * 86_400.0
_CLOCKS_DIFFER_S = 300.0
_OAUTH = "urn:ietf:params:oauth"
_CALLBACK = "kafka.sasl.oauthbearer.token.callback"


class _Token(NamedTuple):
    text: str
    renew_at: float  # on the clock
    ends_at: float


class Tokens:
    """The tokens of this process. `clock`: seconds that only go forward; `now`: seconds since 1970."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time
    ) -> None:
        self._clock, self._now = clock, now
        self._kept: dict[TokenSettings, _Token] = {}
        self._lock = threading.Lock()

    def token(self, settings: TokenSettings) -> str:
        """A valid token. Raises AuthenticationRefused."""
        with self._lock:
            kept = self._kept.get(settings)
            if kept is None or self._clock() >= kept.renew_at:
                kept = self._kept[settings] = self._renewed(settings, kept)
            return kept.text

    def _renewed(self, settings: TokenSettings, kept: _Token | None) -> _Token:
        """The next token. If none can be had, the old one is used to its end."""
        asked_at = self._clock()
        try:
            text, seconds = self._got(settings)
        except (AuthenticationRefused, OptionError) as error:
            if kept is None or asked_at >= kept.ends_at:
                raise
            logger.warning("the token is used to its end, as there is no next one. See logins.md. %s", error)
            return kept
        return _Token(text, asked_at + REFRESH_AT * seconds, asked_at + seconds)

    def _got(self, settings: TokenSettings) -> tuple[str, float]:
        if settings.flow is Flow.CALLBACK:
            text, seconds = self._called(settings)
        elif settings.flow is Flow.FILE:
            text, seconds = _read(settings), None
        else:
            text, seconds = self._fetched(settings)
        claims = _claims(text)
        if settings.subject_claim is not None and claims and settings.subject_claim not in claims:
            raise AuthenticationRefused(
                f"the token has no claim {settings.subject_claim} (kafka.sasl.oauthbearer.sub.claim.name): "
                f"correct the name; it has {', '.join(sorted(claims))}"
            )
        lives = [] if seconds is None else [seconds]
        ends = claims.get("exp")
        if isinstance(ends, int | float):
            lives.append(max(ends - self._now(), 0.0))
        return text, min(lives, default=0.0)

    def _called(self, settings: TokenSettings) -> tuple[str, float | None]:
        """Get a token from the user's function, which returns it or (token, seconds of its life)."""
        module, _, name = settings.callback.partition(":")
        try:
            found = getattr(importlib.import_module(module), name)()
        except Exception as error:  # whatever the user's function does, it is the reason
            # Not `from error`: its text may contain a secret, and Spark shows the texts of causes.
            raise AuthenticationRefused(
                f"{_CALLBACK}={settings.callback} failed: {type(error).__name__}; "
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
                f"{_CALLBACK}={settings.callback} returned {wrong}: make it return the token, or (token, "
                "for how many seconds from now it is good)"
            )
        return text, None if seconds is None else float(seconds)

    def _fetched(self, settings: TokenSettings) -> tuple[str, float | None]:
        """Get a token by the client credentials flow (RFC 6749, section 4.4) or a JWT as grant (RFC 7523)."""
        form, headers = self._request(settings)
        request = urllib.request.Request(settings.url, urllib.parse.urlencode(form).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=_TOKEN_TIMEOUT_S) as response:
                answer = json.load(response)
            seconds = answer.get("expires_in")
            return str(answer["access_token"]), None if seconds is None else float(seconds)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            status = (
                f"HTTP {error.code}" if isinstance(error, urllib.error.HTTPError) else type(error).__name__
            )
            raise AuthenticationRefused(
                f"kafka.sasl.oauthbearer.token.endpoint.url={settings.url} gave no token for "
                f"{settings.client_id or 'the assertion'}: {status}; check the address, the client's id, "
                "and its secret or assertion"
            ) from error

    def _request(self, settings: TokenSettings) -> tuple[dict[str, str], dict[str, str]]:
        """The form and the headers of a request for a token, as Kafka's clients send them."""
        form = {"scope": settings.scope} if settings.scope else {}
        if settings.assertion is None:
            id_and_secret = (
                f"{_quoted(settings, settings.client_id)}:{_quoted(settings, settings.client_secret)}"
            )
            basic = base64.b64encode(id_and_secret.encode()).decode()
            return {"grant_type": "client_credentials"} | form, {"Authorization": f"Basic {basic}"}

        signed = assertion(settings.assertion, self._now())
        if settings.flow is Flow.JWT_BEARER:
            return {"grant_type": f"{_OAUTH}:grant-type:jwt-bearer", "assertion": signed} | form, {}
        named = {"client_id": settings.client_id} if settings.client_id else {}
        asserted = {
            "client_assertion_type": f"{_OAUTH}:client-assertion-type:jwt-bearer",
            "client_assertion": signed,
        }
        return {"grant_type": "client_credentials"} | asserted | named | form, {}

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


def token_for(settings: TokenSettings) -> str:
    """A valid token, which this process keeps. Raises AuthenticationRefused."""
    return _tokens.token(settings)


def _claims(token: str) -> dict[str, Any]:
    """What a token (JWT) says of itself, unchecked; nothing if it is of another kind."""
    try:
        body = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _read(settings: TokenSettings) -> str:
    path = urllib.request.url2pathname(urllib.parse.urlsplit(settings.url).path)
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise AuthenticationRefused(
            f"kafka.sasl.oauthbearer.token.endpoint.url={settings.url} cannot be read: {reason}; give a file "
            "that exists on every machine that runs the query's tasks"
        ) from None


def _quoted(settings: TokenSettings, text: str) -> str:
    """As RFC 6749 has it; Kafka's clients only do it if they are told to."""
    return urllib.parse.quote_plus(text) if settings.url_encoded else text
