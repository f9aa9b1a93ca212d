"""GSSAPI: whose tickets a client uses, and for which service. Pure values, from Krb5LoginModule's options."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from eoslog.errors import OptionError

_USED = ("useKeyTab", "keyTab", "principal", "useTicketCache", "ticketCache", "serviceName")
_NO_EFFECT = (
    "storeKey", "doNotPrompt", "refreshKrb5Config", "debug", "isInitiator", "renewTGT",
    "tryFirstPass", "useFirstPass", "storePass", "clearPass",
)  # fmt: skip
"""Nobody prompts, no other module has a password, and MIT's library always reads krb5.conf as it is."""

_HOW = (
    "give useKeyTab=true with keyTab and principal, or useTicketCache=true for the tickets of kinit "
    "(see security.md, Kerberos)"
)


@dataclass(frozen=True)
class KerberosSettings:
    """Whose tickets to use, and for which service. Without a keytab they come from a ticket cache."""

    service: str
    principal: str = ""
    keytab: str = ""
    ticket_cache: str = ""

    @property
    def who(self) -> str:
        """The client, for messages."""
        return self.principal or f"the owner of the ticket cache {self.ticket_cache or '(the default one)'}"


def kerberos_settings(login: Mapping[str, str] | None, option: str | None) -> KerberosSettings:
    """Make settings from a login module's options; None, if there is no JAAS text: the default ticket cache.

    `option`: kafka.sasl.kerberos.service.name. Raises OptionError, which shows no value of the JAAS text.
    """
    if login is not None:
        _check(login)
    login = login or {}
    service = option or login.get("serviceName")
    if not service:
        raise OptionError(
            "option kafka.sasl.kerberos.service.name is missing: give the first part of the brokers' "
            "principal, as in kafka/host@REALM"
        )
    if login.get("serviceName", service) != service:
        raise OptionError(
            "kafka.sasl.jaas.config: serviceName is not kafka.sasl.kerberos.service.name: give one of them"
        )
    principal, keytab = login.get("principal", ""), login.get("keyTab", "").removeprefix("file:")
    if not _true(login, "useKeyTab"):
        return KerberosSettings(service, principal, "", login.get("ticketCache", ""))
    if not keytab or not principal:
        raise OptionError("kafka.sasl.jaas.config: useKeyTab=true needs keyTab and principal: give both")
    return KerberosSettings(service, principal, keytab)


def _true(login: Mapping[str, str], name: str, otherwise: str = "false") -> bool:
    """As Java's module reads it: any other text than true is false."""
    return login.get(name, otherwise).lower() == "true"


def _check(login: Mapping[str, str]) -> None:
    """Refuse what Java's Krb5LoginModule does not take either, and what it alone can do. Without this the
    tickets of whoever has run kinit would be used, and the query would run as somebody else."""
    for name in login:
        if name not in _USED + _NO_EFFECT:
            raise OptionError(f"kafka.sasl.jaas.config: Krb5LoginModule has no option {name}: {_near(name)}")
    by_keytab, by_cache = _true(login, "useKeyTab"), _true(login, "useTicketCache")
    said = ""
    if "keyTab" in login and not by_keytab:
        said = "keyTab is given without useKeyTab=true"
    elif "ticketCache" in login and not by_cache:
        said = "ticketCache is given without useTicketCache=true"
    elif not by_keytab and not by_cache:
        said = "neither useKeyTab=true nor useTicketCache=true is given, and Spark asks nobody for a password"
    elif not _true(login, "isInitiator", "true"):
        said = "isInitiator=false is for brokers: a client without tickets cannot log in"
    elif _true(login, "renewTGT"):
        said = (
            "renewTGT=true renews tickets of a cache, and eoslog does not: leave it out and have kinit -R run"
        )
    if said:
        raise OptionError(f"kafka.sasl.jaas.config: {said}: {_HOW}")


def _near(name: str) -> str:
    """Java's module passes over names that it does not know: as a misspelt principal, for one."""
    known = {one.lower(): one for one in _USED + _NO_EFFECT}
    near = difflib.get_close_matches(name.lower(), known, 1)
    return f"did you mean {known[near[0]]}?" if near else _HOW
