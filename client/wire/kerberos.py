"""SASL GSSAPI (RFC 4752) of a client: Kerberos tickets from a keytab or a ticket cache, no security layer.

python-gssapi calls MIT's library, which reads krb5.conf (KRB5_CONFIG), gets the tickets and keeps them. Those
of a keytab are kept in this process, and replaced with the first login after half of their life. Imported
only if the mechanism is GSSAPI (extra `kerberos`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

from eoslog.client.wire.security_settings import KerberosSettings
from eoslog.errors import AuthenticationRefused, OptionError
from eoslog.errors.pages import see

try:
    import gssapi
except ImportError:
    gssapi = None

_NO_LAYER = 1
"""The bit of RFC 4752 that stands for messages without a security layer; Kafka has no other."""

_EXPIRED, _NO_KEY, _NO_CACHE = -1765328352, -1765328203, -1765328189
_ADVICE = {
    -1765328378: "check the principal: the KDC does not know it",
    -1765328377: "check kafka.sasl.kerberos.service.name, and that the KDC has a principal SERVICE/HOST for "
    "the broker's advertised host",
    -1765328366: "the principal is locked or has expired: ask who keeps the KDC",
    -1765328360: "the keytab's key is not the KDC's: export it again",
    _EXPIRED: "the ticket has expired: renew it (kinit), or give a keytab, which renews itself",
    -1765328347: "the clocks are too far apart: synchronize this machine's with the KDC's",
    -1765328230: "check the realm, and the KDCs in krb5.conf",
    -1765328228: "check the KDCs in krb5.conf, and that this machine reaches them",
    _NO_KEY: "the keytab must have this principal, on every machine that runs the query's tasks",
    _NO_CACHE: "there is no ticket: run kinit, or give a keytab",
}
"""What to do, by the Kerberos library's error code."""


def login(exchange: Callable[[bytes], bytes], kerberos: KerberosSettings, host: str) -> None:
    """Authenticate to the broker at `host`; `exchange` sends a token and returns the answer's.

    Raises AuthenticationRefused, also as `exchange` does, and OptionError without the extra.
    """
    if gssapi is None:
        raise OptionError(
            "kafka.sasl.mechanism=GSSAPI needs python-gssapi: add it with pip install "
            "'eoslog[kerberos]' (on Linux it is compiled: Debian's packages gcc, python3-dev and libkrb5-dev)"
        )
    if kerberos.keytab and not os.access(kerberos.keytab, os.R_OK):
        raise AuthenticationRefused(
            f"GSSAPI as {kerberos.who}: the keytab {kerberos.keytab} cannot be read; it must be on "
            "every machine that runs the query's tasks"
        )
    try:
        _agree(exchange, _context(kerberos, host))
    except gssapi.exceptions.GSSError as error:
        raise AuthenticationRefused(
            f"GSSAPI as {kerberos.who} to {kerberos.service}@{host}: {_reason(error, kerberos)}. "
            f"Check the options. {see('kerberos')}"
        ) from error


def credentials(kerberos: KerberosSettings) -> Any:
    """The tickets, new ones if half of their life is over. Raises GSSError."""
    name = kerberos.principal and gssapi.Name(kerberos.principal, gssapi.NameType.kerberos_principal)
    store = {"ccache": kerberos.ticket_cache} if kerberos.ticket_cache else {}
    if kerberos.keytab:
        mark = hashlib.sha256(f"{kerberos.principal} {kerberos.keytab}".encode()).hexdigest()[:16]
        store = {"client_keytab": kerberos.keytab, "ccache": f"MEMORY:eoslog-{mark}"}
    made = gssapi.Credentials(name=name or None, usage="initiate", store=store or None)
    made.inquire(name=False, lifetime=True, usage=False, mechs=False)  # gets the tickets, if there are none
    return made


def owner(kerberos: KerberosSettings) -> str:
    """The principal whose tickets are used; empty if there are none: a login says why."""
    if kerberos.principal or gssapi is None:
        return kerberos.principal
    try:
        return str(credentials(kerberos).name)
    except gssapi.exceptions.GSSError:
        return ""


def _context(kerberos: KerberosSettings, host: str) -> Any:
    broker = gssapi.Name(f"{kerberos.service}@{host}", gssapi.NameType.hostbased_service)
    flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
    mechanism = gssapi.MechType.kerberos
    return gssapi.SecurityContext(
        name=broker, creds=credentials(kerberos), mech=mechanism, flags=flags, usage="initiate"
    )


def _agree(exchange: Callable[[bytes], bytes], context: Any) -> None:
    """Exchange tokens until both know each other, then agree on no security layer."""
    answer = b""
    while not context.complete:
        answer = exchange(context.step(answer or None) or b"")
    offer = context.unwrap(answer or exchange(b"")).message
    if len(offer) != 4 or not offer[0] & _NO_LAYER:
        raise AuthenticationRefused(
            "GSSAPI: the broker insists on a security layer, which Kafka's protocol does not have: check the "
            "broker's SASL properties"
        )
    exchange(context.wrap(bytes([_NO_LAYER, 0, 0, 0]), encrypt=False).message)


def _reason(error: Any, kerberos: KerberosSettings) -> str:
    expired = isinstance(error, gssapi.exceptions.ExpiredCredentialsError)  # its minor code says "Success"
    code = error.min_code - (1 << 32) if error.min_code >= 1 << 31 else error.min_code
    code = _EXPIRED if expired else code
    if code == _NO_CACHE and kerberos.keytab:  # what the library says if it could not use the keytab
        return f"the keytab {kerberos.keytab} has no key of this principal; {_ADVICE[_NO_KEY]}"
    texts = error.get_all_statuses(error.min_code, False) if error.min_code and not expired else []
    said = ": ".join(texts or error.get_all_statuses(error.maj_code, True))
    return f"{said}; {_ADVICE.get(code, 'check krb5.conf, the principal and the clock')}"
