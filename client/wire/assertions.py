"""Assertions for OAUTHBEARER: a signed JWT in place of a client's secret (RFC 7523), read or made.

PyJWT makes them (extra `oauth`).
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from eoslog.client.wire.token_settings import Assertion
from eoslog.errors import AuthenticationRefused, OptionError

_PREFIX = "kafka.sasl.oauthbearer.assertion"


def assertion(of: Assertion, now: float) -> str:
    """The JWT to send now. Raises OptionError, AuthenticationRefused."""
    if of.file is not None:
        return _read(f"{_PREFIX}.file", of.file).strip()
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
        found = json.loads(_read(f"{_PREFIX}.template.file", of.template_file))
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
    return load_pem_private_key(_read(f"{_PREFIX}.private.key.file", str(of.key_file)).encode(), secret)


def _read(option: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise OptionError(
            f"option {option}: {path} cannot be read: {reason}; give a file that exists on every machine "
            "that runs the query's tasks"
        ) from None
