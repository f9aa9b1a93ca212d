"""SASL OAUTHBEARER (RFC 7628): a signed token (JWT) in place of a password, checked with public keys.

The keys come from a JWKS, a file or URL (`sasl.oauthbearer.jwks.endpoint.url`). It is read again after
`sasl.oauthbearer.jwks.endpoint.refresh.ms`, and when a token names an unknown key, at most every ten seconds.
PyJWT checks signature, expiry and, where configured, issuer and audience. It is imported with the first
listener that needs it (extra `broker-oauth`).
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.config_def import ConfigError
from eoslog.broker.security.passwords import AuthenticationFailed, SaslStep

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
"""Signatures by key pairs only: a public key must never be accepted as a shared secret."""

_MESSAGE = re.compile(rb"n,(?:a=([^,]*))?,\x01((?:[A-Za-z]+=[^\x01]*\x01)*)\x01")
_INVALID = b'{"status":"invalid_token"}'
_AGAIN_AFTER = 10.0
_FETCH_TIMEOUT = 10.0


class TokenValidator:
    """Checks tokens."""

    def __init__(self, config: BrokerConfig) -> None:
        """Import PyJWT and read the keys. Raises ConfigError."""
        self._url = config.security.oauth_jwks_url.strip()
        if not re.match(r"(https?|file):", self._url):
            raise ConfigError(
                "sasl.oauthbearer.jwks.endpoint.url: OAUTHBEARER needs the http(s): or file: URL of a JWKS"
            )
        try:
            import jwt
        except ImportError as error:
            raise ConfigError(
                "sasl.enabled.mechanisms: OAUTHBEARER needs PyJWT: pip install 'eoslog[broker-oauth]'"
            ) from error
        self._jwt = jwt
        self._config = config
        self._audience = [name.strip() for name in config.security.oauth_audience.split(",") if name.strip()]
        self._keys: Any = None
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()

    async def user_of(self, token: str) -> tuple[str, int]:
        """The token's user, and how many ms it is still valid. Raises AuthenticationFailed."""
        jwt, config = self._jwt, self._config
        try:
            key = await self._key(jwt.get_unverified_header(token).get("kid"))
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self._audience or None,
                issuer=config.security.oauth_issuer or None,
                leeway=config.security.oauth_clock_skew_s,
                options={
                    "require": ["exp", config.security.oauth_subject_claim],
                    "verify_aud": bool(self._audience),
                    "verify_sub": False,
                },
            )
        except jwt.PyJWTError as error:
            raise AuthenticationFailed(f"the token is not valid: {type(error).__name__}") from None
        user = claims[config.security.oauth_subject_claim]
        if not isinstance(user, str) or not user:
            raise AuthenticationFailed(f"the token's claim {config.security.oauth_subject_claim} is no name")
        return user, max(1, int((claims["exp"] - time.time()) * 1000))

    async def _key(self, key_id: str | None) -> Any:
        async with self._lock:
            age = time.monotonic() - self._read_at
            if self._keys is None or age * 1000 > self._config.security.oauth_jwks_refresh_ms:
                await self._read()
            found = self._find(key_id)
            if found is None and time.monotonic() - self._read_at > _AGAIN_AFTER:
                await self._read()
                found = self._find(key_id)
        if found is None:
            raise AuthenticationFailed("the token's key is not known")
        return found

    def _find(self, key_id: str | None) -> Any:
        keys = self._keys.keys if self._keys is not None else []
        if key_id is None:
            return keys[0] if len(keys) == 1 else None
        return next((key for key in keys if key.key_id == key_id), None)

    async def _read(self) -> None:
        """Read the keys again. If that fails, the old ones stay."""
        self._read_at = time.monotonic()
        try:
            text = await asyncio.to_thread(self._fetch)
            self._keys = self._jwt.PyJWKSet.from_json(text)
        except (OSError, ValueError, self._jwt.PyJWTError) as error:
            if self._keys is None:
                self._read_at = float("-inf")
                raise AuthenticationFailed(
                    f"the broker cannot read the keys: {type(error).__name__}"
                ) from None

    def _fetch(self) -> str:
        from urllib.request import urlopen

        with urlopen(self._url, timeout=_FETCH_TIMEOUT) as answer:
            text: str = answer.read(1 << 20).decode()
            return text


class OauthExchange:
    """One message if the token is valid; else the reason, the client's empty answer, and a failure."""

    def __init__(self, tokens: TokenValidator) -> None:
        self._tokens = tokens
        self._failure: AuthenticationFailed | None = None

    async def step(self, token: bytes) -> SaslStep:
        """See `Exchange.step`."""
        if self._failure is not None:
            raise self._failure
        found = _MESSAGE.fullmatch(token)
        if found is None:
            raise AuthenticationFailed("the OAUTHBEARER message is not understood")
        pairs = dict(pair.split(b"=", 1) for pair in found[2].split(b"\x01") if pair)
        kind, _, bearer = pairs.get(b"auth", b"").decode("latin-1").partition(" ")
        if kind.lower() != "bearer" or not bearer:
            raise AuthenticationFailed("the OAUTHBEARER message has no token")
        try:
            user, lifetime_ms = await self._tokens.user_of(bearer.strip())
        except AuthenticationFailed as failure:
            self._failure = failure
            return SaslStep(_INVALID)
        if found[1] and found[1].decode("utf-8", "replace") != user:
            raise AuthenticationFailed("acting for another user is not possible")
        return SaslStep(b"", user, lifetime_ms)
