"""Who may come in at all, before anybody is asked for a name. Pure.

A page from elsewhere in the same browser is the enemy here. It can send requests to any address: so what
changes something needs a header that such a page may not set, and an origin that is ours. And by DNS it can
give its own name our address (rebinding): so a console on loopback, or one without authentication, answers
only to names that nobody else can own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

OWN_HEADER = "X-Eoslog-Console"
"""The page's script sends it with every change; a form or another site's script cannot."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""What every answer carries."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def exposed(host: str, *, authenticates: bool, passwords: bool, tls: bool) -> str | None:
    """What is wrong with a console at this address, beyond this machine; None if nothing is."""
    if is_loopback(host):
        return None
    if not authenticates:
        return "has no authentication, and is reached from other machines"
    if passwords and not tls:
        return "takes passwords or tokens without TLS, from other machines"
    return None


def host_of(header: str) -> str:
    """The name in a Host header, without its port; "" if it is none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def may_answer_to(header: str, names: Collection[str], *, strict: bool) -> bool:
    """Whether a Host header names us. `names`: those we are known by; not `strict`: any name will do."""
    host = host_of(header)
    if not host:
        return False
    return not strict or host == "localhost" or host in names or _is_address(host)


def _is_address(host: str) -> bool:
    """An address is nobody's name: DNS cannot lead it elsewhere."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def foreign(headers: Mapping[str, str], scheme: str) -> str | None:
    """Why a request that changes something does not come from our own page; None if it does."""
    if not headers.get(OWN_HEADER):
        return f"a change needs the header {OWN_HEADER}"
    origin = headers.get("Origin")
    if origin is not None and origin != f"{scheme}://{headers.get('Host', '')}":
        return "the request comes from another site (Origin)"
    if headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return "the request comes from another site (Sec-Fetch-Site)"
    return None
