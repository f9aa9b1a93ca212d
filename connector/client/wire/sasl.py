"""The client's side of SASL over Kafka's frames: one function that authenticates a connection.

SaslHandshake chooses the mechanism, SaslAuthenticate carries its messages (KIP-152). The broker may limit the
session's life (KIP-368): the connection is authenticated again before that ends.
"""

from __future__ import annotations

import base64
import importlib
import json
import secrets
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from eoslog.connector.client.wire.security_settings import SaslSettings
from eoslog.connector.errors import AuthenticationRefused
from eoslog.protocol.apis import Api
from eoslog.protocol.errors import info
from eoslog.protocol.schema import Given
from eoslog.protocol.scram import HASHES, ClientExchange, ScramError
from eoslog.protocol.typed.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE

if TYPE_CHECKING:
    from eoslog.protocol.typed.sasl_authenticate import SaslAuthenticateResponse


RequestDraft = TypeVar("RequestDraft")
Response = TypeVar("Response")


class Ask(Protocol):
    """Send a request on the connection and wait for its answer."""

    def __call__(self, api: Api[Any, RequestDraft, Response, Any], body: Given[RequestDraft]) -> Response:
        """The answer."""
        ...


REFRESH_AT = 0.8
"""The part of its life after which a token or a session is renewed."""

_TOKEN_TIMEOUT_S = 10.0


def authenticate(ask: Ask, sasl: SaslSettings) -> int:
    """Authenticate. Returns the session's life in ms, 0: for ever. Raises AuthenticationRefused."""
    answer = ask(SASL_HANDSHAKE, {"mechanism": sasl.mechanism})
    if answer["error_code"]:
        offered = ", ".join(answer["mechanisms"]) or "none"
        raise AuthenticationRefused(
            f"the broker does not accept kafka.sasl.mechanism={sasl.mechanism}; it offers {offered}: "
            "choose one of these"
        )

    def exchange(token: bytes) -> SaslAuthenticateResponse:
        response = ask(SASL_AUTHENTICATE, {"auth_bytes": token})
        if response["error_code"]:
            name = info(response["error_code"]).name
            raise AuthenticationRefused(
                f"{sasl.mechanism} as {sasl.user or sasl.client_id or 'the token'}: {name}: "
                f"{response['error_message'] or 'no reason given'}; check the credentials"
            )
        return response

    if sasl.mechanism in HASHES:
        last = _scram(exchange, sasl)
    elif sasl.mechanism == "PLAIN":
        last = exchange(f"\0{sasl.user}\0{sasl.password}".encode())
    else:
        last = _bearer(exchange, sasl)
    return last["session_lifetime_ms"]


def _scram(
    exchange: Callable[[bytes], SaslAuthenticateResponse], sasl: SaslSettings
) -> SaslAuthenticateResponse:
    client = ClientExchange(sasl.mechanism, sasl.user, sasl.password, secrets.token_urlsafe(24))
    try:
        response = exchange(client.first())
        last = exchange(client.final(bytes(response["auth_bytes"])))
        client.check(bytes(last["auth_bytes"]))
    except ScramError as error:
        raise AuthenticationRefused(
            f"{sasl.mechanism} as {sasl.user}: {error}; check the credentials"
        ) from error
    return last


def _bearer(
    exchange: Callable[[bytes], SaslAuthenticateResponse], sasl: SaslSettings
) -> SaslAuthenticateResponse:
    """RFC 7628. A refusal comes first as a message; the error comes after that is acknowledged."""
    extensions = "".join(f"{name}={value}\x01" for name, value in sasl.extensions)
    response = exchange(f"n,,\x01auth=Bearer {token_for(sasl)}\x01{extensions}\x01".encode())
    if response["auth_bytes"]:
        exchange(b"\x01")
        said = bytes(response["auth_bytes"]).decode("utf-8", "replace")
        raise AuthenticationRefused(
            f"OAUTHBEARER: the broker refused the token: {said}; check its audience, scope and issuer"
        )
    return response


class _Token(NamedTuple):
    text: str
    renew_at: float  # on the monotonic clock


_tokens: dict[SaslSettings, _Token] = {}
_lock = threading.Lock()


def token_for(sasl: SaslSettings) -> str:
    """A valid token, which this process keeps. Raises AuthenticationRefused."""
    with _lock:
        token = _tokens.get(sasl)
        if token is None or time.monotonic() >= token.renew_at:
            token = _tokens[sasl] = _called(sasl) if sasl.token_callback else _fetched(sasl)
        return token.text


def _called(sasl: SaslSettings) -> _Token:
    """Get a token from the user's function, which returns it or (token, seconds of its life)."""
    module, _, name = str(sasl.token_callback).partition(":")
    try:
        found = getattr(importlib.import_module(module), name)()
    except Exception as error:  # whatever the user's function does, it is the reason
        # Not `from error`: its text may contain a secret, and Spark shows the texts of causes.
        raise AuthenticationRefused(
            f"kafka.sasl.oauthbearer.token.callback={sasl.token_callback} failed: {type(error).__name__}; "
            "start it by hand, where the tasks run, to see why"
        ) from None
    text, seconds = found if isinstance(found, tuple) else (found, 0)
    return _Token(str(text), time.monotonic() + REFRESH_AT * float(seconds))


def _fetched(sasl: SaslSettings) -> _Token:
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
        return _Token(
            str(answer["access_token"]), time.monotonic() + REFRESH_AT * float(answer.get("expires_in", 0))
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"HTTP {error.code}" if isinstance(error, urllib.error.HTTPError) else type(error).__name__
        raise AuthenticationRefused(
            f"kafka.sasl.oauthbearer.token.endpoint.url={url} gave no token for {sasl.client_id}: {reason}; "
            "check the address, clientId and clientSecret"
        ) from error


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")
