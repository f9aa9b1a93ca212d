"""OAUTHBEARER: where tokens come from. Pure values, by the option names of Kafka 4 and by older ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from eoslog.errors import OptionError
from eoslog.protocol import jaas

_PREFIX = "kafka.sasl.oauthbearer."
_CLASSES = "org.apache.kafka.common.security.oauthbearer."


class Flow(Enum):
    """How a token is got. The value is for messages."""

    CALLBACK = "kafka.sasl.oauthbearer.token.callback"
    FILE = "a file"
    CLIENT_CREDENTIALS = "client credentials"
    JWT_BEARER = "a JWT as grant"


RETRIEVERS: dict[str, Flow | None] = {
    f"{_CLASSES}DefaultJwtRetriever": None,
    f"{_CLASSES}FileJwtRetriever": Flow.FILE,
    f"{_CLASSES}ClientCredentialsJwtRetriever": Flow.CLIENT_CREDENTIALS,
    f"{_CLASSES}JwtBearerJwtRetriever": Flow.JWT_BEARER,
}
"""Kafka's classes; None: the URL says which."""


@dataclass(frozen=True)
class Assertion:
    """A signed JWT that says who the client is: from a file, or made with a private key."""

    file: str | None = None
    key_file: str | None = None
    key_passphrase: str | None = field(default=None, repr=False)
    algorithm: str = "RS256"
    template_file: str | None = None
    issuer: str | None = None
    subject: str | None = None
    audience: str | None = None
    expires_s: int = 300
    not_before_s: int = 60
    with_id: bool = False


@dataclass(frozen=True)
class TokenSettings:
    """Where a process gets its tokens. `assertion`: in place of the client's secret, or as grant."""

    flow: Flow
    url: str = ""
    callback: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    url_encoded: bool = False
    subject_claim: str | None = None
    assertion: Assertion | None = None


def token_settings(options: Mapping[str, Any], login: Mapping[str, str]) -> TokenSettings:
    """Make settings from parsed options and those of the login module. Raises OptionError."""
    given = {name.removeprefix(_PREFIX): value for name, value in options.items() if name.startswith(_PREFIX)}
    made = TokenSettings(
        _flow(given),
        url=given.get("token.endpoint.url") or "",
        callback=given.get("token.callback") or "",
        client_id=given.get("client.credentials.client.id") or login.get("clientId", ""),
        client_secret=given.get("client.credentials.client.secret") or login.get("clientSecret", ""),
        scope=given.get("scope") or login.get("scope", ""),
        url_encoded=bool(given.get("header.urlencode")),
        subject_claim=given.get("sub.claim.name"),
        assertion=_assertion(given),
    )
    _check(made)
    return made


def _flow(given: Mapping[str, Any]) -> Flow:
    url, callback = given.get("token.endpoint.url"), given.get("token.callback")
    if (url is None) == (callback is None):
        raise OptionError(
            "OAUTHBEARER needs one source of tokens: give kafka.sasl.oauthbearer.token.endpoint.url (with "
            "kafka.sasl.oauthbearer.client.credentials.client.id and .secret), or "
            "kafka.sasl.oauthbearer.token.callback as module:function"
        )
    name = jaas.class_name(given.get("jwt.retriever.class") or "")
    if name and name not in RETRIEVERS:
        raise OptionError(
            f"option kafka.sasl.oauthbearer.jwt.retriever.class cannot be {name!r}: choose one of "
            f"{', '.join(RETRIEVERS)}, or give kafka.sasl.oauthbearer.token.callback in place of it"
        )
    if url is None:
        return Flow.CALLBACK
    by_url = Flow.FILE if str(url).startswith("file:") else Flow.CLIENT_CREDENTIALS
    flow = RETRIEVERS.get(name) or by_url
    if not str(url).startswith(("http:", "https:", "file:")) or (flow is Flow.FILE) != (by_url is Flow.FILE):
        raise OptionError(
            "option kafka.sasl.oauthbearer.token.endpoint.url: tokens come from "
            f"{flow.value}: give a URL that begins with {'file:' if flow is Flow.FILE else 'https:'}"
        )
    return flow


def _assertion(given: Mapping[str, Any]) -> Assertion | None:
    said = {
        name.removeprefix("assertion."): value
        for name, value in given.items()
        if name.startswith("assertion.") and value
    }
    if not said:
        return None
    if ("file" in said) == ("private.key.file" in said):
        raise OptionError(
            "an assertion comes from one place: give kafka.sasl.oauthbearer.assertion.file, or "
            "kafka.sasl.oauthbearer.assertion.private.key.file, which signs one"
        )
    return Assertion(
        file=said.get("file"),
        key_file=said.get("private.key.file"),
        key_passphrase=said.get("private.key.passphrase"),
        algorithm=said.get("algorithm", "rs256").upper(),
        template_file=said.get("template.file"),
        issuer=said.get("claim.iss"),
        subject=said.get("claim.sub"),
        audience=said.get("claim.aud"),
        expires_s=said.get("claim.exp.seconds", 300),
        not_before_s=said.get("claim.nbf.seconds", 60),
        with_id=said.get("claim.jti.include", False),
    )


def _check(made: TokenSettings) -> None:
    if made.flow is Flow.CALLBACK and ":" not in made.callback:
        raise OptionError("option kafka.sasl.oauthbearer.token.callback: give it as module:function")
    if made.flow is Flow.JWT_BEARER and made.assertion is None:
        raise OptionError(
            "JwtBearerJwtRetriever needs an assertion: give kafka.sasl.oauthbearer.assertion.file, or "
            "kafka.sasl.oauthbearer.assertion.private.key.file"
        )
    by_secret = made.flow is Flow.CLIENT_CREDENTIALS and made.assertion is None
    if by_secret and not (made.client_id and made.client_secret):
        raise OptionError(
            "the token endpoint needs an id and a secret: give "
            "kafka.sasl.oauthbearer.client.credentials.client.id and .secret, or clientId and clientSecret "
            "in kafka.sasl.jaas.config"
        )
    if made.assertion is not None and made.flow in (Flow.CALLBACK, Flow.FILE):
        raise OptionError(
            "kafka.sasl.oauthbearer.assertion options have no effect, as tokens come from "
            f"{made.flow.value}: leave them out"
        )
