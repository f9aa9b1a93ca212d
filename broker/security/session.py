"""A connection's authentication: who the client is, and what it may send before that is known.

On a listener without SASL the client is known at once: by its certificate, or as ANONYMOUS. With SASL these
are the states. A request that is not in the table closes the connection.

| state | allowed | next |
|---|---|---|
| START | ApiVersions | START |
| START | SaslHandshake | EXCHANGE, the mechanism chosen; version 0: TOKENS |
| EXCHANGE | ApiVersions; SaslAuthenticate | EXCHANGE until the mechanism is done, then KNOWN; FAILED |
| TOKENS | frames that are the mechanism's tokens, without a header | the same |
| KNOWN | everything; SaslHandshake starts again (KIP-368) | KNOWN, EXCHANGE |

After the end of a session (connections.max.reauth.ms, or a token's), only a new authentication is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.config_def import ConfigError
from eoslog.broker.security.listeners import Listener
from eoslog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from eoslog.broker.security.passwords import Exchange

USER = "User:"
ANONYMOUS = USER + "ANONYMOUS"


class AuthenticationState(Enum):
    """The state of a client's authentication."""

    START = "start"
    EXCHANGE = "exchange"
    TOKENS = "tokens"
    KNOWN = "known"
    FAILED = "failed"


_ALWAYS = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class ClientSession:
    """One connection's listener, state and principal."""

    __slots__ = ("ends_at", "exchange", "listener", "mechanism", "principal", "state")

    def __init__(self, listener: Listener, principal: str = ANONYMOUS) -> None:
        """`principal`: the client's on a listener without SASL."""
        self.listener = listener
        self.principal = principal
        self.state = AuthenticationState.START if listener.sasl else AuthenticationState.KNOWN
        self.mechanism = ""
        self.exchange: Exchange | None = None
        self.ends_at = float("inf")
        """When the session ends, on the monotonic clock in seconds."""

    def refuses(self, key: int, now: float) -> str | None:
        """Why a request must not be served now; None if it may."""
        if key in _ALWAYS:
            return None
        if self.state is not AuthenticationState.KNOWN:
            return f"API key {key} before authentication on listener {self.listener.name}"
        if now > self.ends_at:
            return f"the session of {self.principal} has ended and was not renewed"
        return None

    @property
    def known(self) -> bool:
        """Whether the client has authenticated; also while it does so again."""
        return self.principal != ANONYMOUS or not self.listener.sasl


OPEN = ClientSession(Listener())
"""A session of an anonymous client."""


# -- principals ------------------------------------------------------------------------------------
# From a client's certificate to its principal (`ssl.principal.mapping.rules`, KIP-371).
#
# A certificate's distinguished name is written as in RFC 2253: the last part first, joined by commas.


# The attributes with short names in RFC 2253, by OpenSSL's long names.
_SHORT = {
    "commonName": "CN", "localityName": "L", "stateOrProvinceName": "ST", "organizationName": "O",
    "organizationalUnitName": "OU", "countryName": "C", "streetAddress": "STREET", "domainComponent": "DC",
    "userId": "UID",
}  # fmt: skip

_RULE = re.compile(r"DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)(?=\s*(?:,|$))")
_SPECIAL = re.compile(r'([,+"\\<>;=])')


def principal_of(certificate: Mapping[str, Any] | None, listener: Listener, config: BrokerConfig) -> str:
    """The principal of a verified certificate from `ssl.SSLSocket.getpeercert`; ANONYMOUS without one."""
    if not certificate:
        return ANONYMOUS
    name = distinguished_name(certificate["subject"])
    return USER + mapped(name, listener.option(config, "ssl.principal.mapping.rules"))


def distinguished_name(subject: Sequence[Sequence[tuple[str, str]]]) -> str:
    """A subject in the form of RFC 2253."""
    parts = [
        "+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in one) for one in subject
    ]
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    text = _SPECIAL.sub(r"\\\1", value)
    if text[:1] in (" ", "#"):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and not text.endswith("\\ ") else text


def mapped(name: str, rules: str) -> str:
    """The distinguished name, mapped by the first rule that matches; unchanged if none does."""
    for pattern, replacement, case in parse_rules(rules):
        found = pattern.fullmatch(name)
        if found:
            text = found.expand(replacement)
            return text.lower() if case == "L" else text.upper() if case == "U" else text
    return name


@lru_cache
def parse_rules(text: str) -> list[tuple[re.Pattern[str], str, str]]:
    """Rules as (pattern, replacement, case); DEFAULT ends them. Raises ConfigError."""
    rules: list[tuple[re.Pattern[str], str, str]] = []
    rest = text.strip()
    while rest:
        found = _RULE.match(rest)
        if found is None:
            raise ConfigError(
                f"ssl.principal.mapping.rules: {rest}: give RULE:pattern/replacement/[LU] or DEFAULT"
            )
        if found[0] == "DEFAULT":
            return rules
        try:
            pattern = re.compile(found[1].replace("\\/", "/"))
            replacement = re.sub(r"\$(\d)", r"\\g<\1>", found[2].replace("\\/", "/"))
            pattern.sub(replacement, "")
        except re.error as error:
            raise ConfigError(f"ssl.principal.mapping.rules: {found[0]}: {error}") from error
        rules.append((pattern, replacement, found[3]))
        rest = rest[found.end() :].lstrip(" ,")
    return rules
