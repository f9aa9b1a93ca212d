"""Which requests are refused before authentication. Pure.

The attacker here is a page of another site in the same browser. It can send requests to any address. So a
request that changes something needs a header that such a page cannot set, and our own origin. By DNS
rebinding it can also give its own name our address. So a console on loopback, or one without authentication,
answers only to names that nobody else can own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

OWN_HEADER = "X-Eoslog-Console"
"""The page's script sends it with every change. A form or another site's script cannot."""

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
    """Whether only this machine can connect to this address."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def exposed(host: str, *, authenticates: bool, passwords: bool, tls: bool) -> str | None:
    """Why a console at this address must not be open to other machines; None if it may."""
    if is_loopback(host):
        return None
    if not authenticates:
        return "has no authentication, and is reached from other machines"
    if passwords and not tls:
        return "takes passwords or tokens without TLS, from other machines"
    return None


def host_of(header: str) -> str:
    """The name in a Host header, without its port; "" if the header is malformed."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def may_answer_to(header: str, names: Collection[str], *, strict: bool) -> bool:
    """Whether a Host header is accepted. `names`: our own names. Not `strict`: any name is accepted."""
    host = host_of(header)
    if not host:
        return False
    return not strict or host == "localhost" or host in names or _is_address(host)


def _is_address(host: str) -> bool:
    """Whether a name is an address: DNS cannot redirect an address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def foreign(headers: Mapping[str, str], scheme: str) -> str | None:
    """Why a request for a change is not from our own page; None if it is."""
    if not headers.get(OWN_HEADER):
        return f"a change needs the header {OWN_HEADER}"
    origin = headers.get("Origin")
    if origin is not None and origin != f"{scheme}://{headers.get('Host', '')}":
        return "the request comes from another site (Origin)"
    if headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return "the request comes from another site (Sec-Fetch-Site)"
    return None
