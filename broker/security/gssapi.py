"""SASL GSSAPI (RFC 4752), the server's side: a client shows a Kerberos ticket for this broker.

    listener.name.NAME.gssapi.sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required \
        useKeyTab=true storeKey=true keyTab="/etc/eoslog/kafka.keytab" principal="kafka/host@REALM";

The ticket is checked with the keytab alone, no KDC is asked. There is no security layer: TLS is for that.
Needs python-gssapi (extra `kerberos`).

`sasl.kerberos.principal.to.local.rules` leads from a Kerberos principal to a user's name, with Kafka's rules.

    DEFAULT                               alice@REALM and kafka/host@REALM of the own realm: alice, kafka
    RULE:[n:format](match)s/from/to/gLU   of n parts: $0 is the realm, $1 and $2 the parts; [] must be there

The first rule that matches counts. What no rule matches is nobody.
"""

from __future__ import annotations

import asyncio
import os
import re
from functools import lru_cache
from typing import Any, NamedTuple

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.config_def import ConfigError
from eoslog.broker.security.listeners import PREFIX, Listener
from eoslog.broker.security.passwords import AuthenticationFailed, SaslStep
from eoslog.protocol import jaas

_NO_LAYER = 1
_OFFER = bytes([_NO_LAYER, 0, 0, 0])
"""No security layer is all that is offered, so no size of its messages either."""


class Keys:
    """A listener's keytab and principal, and the rules for its clients' names."""

    def __init__(self, listener: Listener, config: BrokerConfig) -> None:
        """Import python-gssapi, look for the key in the keytab. Raises ConfigError naming the option."""
        try:
            import gssapi
        except ImportError as error:
            raise ConfigError(
                "sasl.enabled.mechanisms: GSSAPI needs python-gssapi: pip install 'eoslog[kerberos]'"
            ) from error
        self.gssapi = gssapi
        self._option = f"{PREFIX}{listener.name.lower()}.gssapi.sasl.jaas.config"
        given = self._given(listener)
        principal, keytab = given.get("principal", ""), given.get("keyTab", "").removeprefix("file:")
        if not principal or not keytab:
            raise ConfigError(f"{self._option}: give useKeyTab=true, keyTab and principal of Krb5LoginModule")
        service: str = listener.option(config, "sasl.kerberos.service.name").strip()
        if service and service != principal.partition("/")[0]:
            raise ConfigError(f"sasl.kerberos.service.name={service}: the principal is {principal}")
        self._rules: str = listener.option(config, "sasl.kerberos.principal.to.local.rules")
        parse_rules(self._rules)
        self._realm = self._accept(principal, keytab)

    def _given(self, listener: Listener) -> dict[str, str]:
        text = listener.own.get("gssapi.sasl.jaas.config")
        if not text:
            raise ConfigError(f"{self._option}: GSSAPI needs it, with keyTab and principal")
        try:
            return jaas.parse(text).options
        except jaas.JaasError as error:
            raise ConfigError(f"{self._option}: {error}") from None

    def _accept(self, principal: str, keytab: str) -> str:
        """Make the credentials; returns the default realm of krb5.conf, else the principal's."""
        if not os.access(keytab, os.R_OK):
            raise ConfigError(f"{self._option}: the keytab {keytab} cannot be read")
        gssapi = self.gssapi
        try:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            self.credentials = gssapi.Credentials(name=name, usage="accept", store={"keytab": keytab})
            return _realm(str(gssapi.Name("x", gssapi.NameType.kerberos_principal).canonicalize(
                gssapi.MechType.kerberos))) or _realm(principal)  # fmt: skip
        except gssapi.exceptions.GSSError as error:
            raise ConfigError(f"{self._option}: {principal} in {keytab}: {text_of(error)}") from error

    def user_of(self, principal: str) -> str:
        """The user's name. Raises AuthenticationFailed."""
        user = local_name(principal, self._rules, self._realm)
        if user is None:
            raise AuthenticationFailed(
                f"no rule of sasl.kerberos.principal.to.local.rules makes {principal} a user"
            )
        return user


class GssapiExchange:
    """Tokens until both know each other; the offer of no security layer; the client's choice."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._context: Any = keys.gssapi.SecurityContext(creds=keys.credentials, usage="accept")
        self._offered = False

    async def step(self, token: bytes) -> SaslStep:
        """See `Exchange.step`. In a thread: the library reads and writes files."""
        try:
            return await asyncio.to_thread(self._step, token)
        except self._keys.gssapi.exceptions.GSSError as error:
            raise AuthenticationFailed(f"Kerberos: {text_of(error)}") from None

    def _step(self, token: bytes) -> SaslStep:
        if self._offered:
            return self._chosen(token)
        if not self._context.complete:
            answer = self._context.step(token)
            if answer or not self._context.complete:
                return SaslStep(answer or b"")
        elif token:
            raise AuthenticationFailed("an empty GSSAPI message was expected")
        self._offered = True
        return SaslStep(self._context.wrap(_OFFER, False).message)

    def _chosen(self, token: bytes) -> SaslStep:
        chosen = self._context.unwrap(token).message
        principal = str(self._context.initiator_name)
        if len(chosen) < 4 or chosen[0] != _NO_LAYER:
            raise AuthenticationFailed("the client wants a security layer, and Kafka has none")
        if chosen[4:] not in (b"", principal.encode()):
            raise AuthenticationFailed("acting for another user is not possible")
        return SaslStep(b"", self._keys.user_of(principal))


def text_of(error: Any) -> str:
    """What the Kerberos library says; it has no secrets in it."""
    texts = error.get_all_statuses(error.min_code, False) if error.min_code else []
    return ": ".join(texts or error.get_all_statuses(error.maj_code, True))


def _realm(principal: str) -> str:
    return principal.rpartition("@")[2] if "@" in principal else ""


_OPTION = "sasl.kerberos.principal.to.local.rules"
_RULE = re.compile(r"RULE:\[(\d+):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?(L|U)?")
_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")


class _Rule(NamedTuple):
    parts: int
    layout: str
    match: re.Pattern[str] | None
    pattern: re.Pattern[str] | None
    replacement: str
    everywhere: bool
    case: str


def local_name(principal: str, rules: str, realm: str) -> str | None:
    """The user's name; None if no rule matches. `realm`: the broker's own. Raises ConfigError."""
    found = _PRINCIPAL.fullmatch(principal)
    if found is None:
        return None
    first, second, where = found.groups()
    values = [where, first] if second is None else [where, first, second]
    for rule in parse_rules(rules):
        name = (first if where == realm else None) if rule is None else _applied(rule, values)
        if name is not None:
            return None if re.search("[/@]", name) or not name else name
    return None


def _applied(rule: _Rule, values: list[str]) -> str | None:
    if len(values) - 1 != rule.parts:
        return None
    name = re.sub(r"\$(\d)", lambda place: values[int(place[1])], rule.layout)
    if rule.match is not None and not rule.match.fullmatch(name):
        return None
    if rule.pattern is not None:
        name = rule.pattern.sub(rule.replacement, name, count=0 if rule.everywhere else 1)
    return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name


@lru_cache
def parse_rules(text: str) -> list[_Rule | None]:
    """The rules in their order; None is DEFAULT. Raises ConfigError."""
    return [_parse(one.strip()) for one in text.split(",") if one.strip()]


def _parse(text: str) -> _Rule | None:
    if text == "DEFAULT":
        return None
    found = _RULE.fullmatch(text)
    if found is None:
        raise ConfigError(f"{_OPTION}: {text}: give DEFAULT or RULE:[n:format](match)s/from/to/gLU")
    parts, layout, match, pattern, replacement, everywhere, case = found.groups()
    if any(int(place) > int(parts) for place in re.findall(r"\$(\d)", layout)):
        raise ConfigError(f"{_OPTION}: {text}: a principal of {parts} does not have all parts of the format")
    try:
        return _Rule(
            int(parts), layout, _compiled(match), _compiled(pattern),
            re.sub(r"\$(\d)", r"\\g<\1>", replacement or ""), bool(everywhere), case or "",
        )  # fmt: skip
    except re.error as error:
        raise ConfigError(f"{_OPTION}: {text}: {error}") from error


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    return None if pattern is None else re.compile(pattern)
