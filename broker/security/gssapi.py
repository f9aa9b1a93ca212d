"""SASL GSSAPI (RFC 4752), the server's side: a client shows a Kerberos ticket for this broker.

    listener.name.NAME.gssapi.sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required \\
        useKeyTab=true storeKey=true keyTab="/etc/eoslog/kafka.keytab" principal="kafka/host@REALM";

The ticket is checked with the keytab alone, no KDC is asked. There is no security layer: TLS is for that.
Needs python-gssapi (extra `kerberos`).
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.config_def import ConfigError
from eoslog.broker.security.kerberos_names import local_name, parse_rules
from eoslog.broker.security.listeners import PREFIX, Listener
from eoslog.broker.security.mechanism import AuthenticationFailed, SaslStep
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
