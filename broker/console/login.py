"""Who asks the console: where a request comes from, and the login of its user."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from eoslog.broker.console.broker_access import BrokerAccess, Caller
from eoslog.broker.security.listeners import Listener
from eoslog.broker.security.sasl import SaslMechanisms
from eoslog.broker.security.session import AuthenticationState, ClientSession
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.scram import HASHES, ClientExchange, ScramError

# -- request origin --------------------------------------------------------------------------------
# Which requests are refused before authentication. Pure.
#
# The attacker here is a page of another site in the same browser. It can send requests to any address. So a
# request that changes something needs a header that such a page cannot set, and our own origin. By DNS
# rebinding it can also give its own name our address. So a console on loopback, or one without
# authentication, answers only to names that nobody else can own.


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


# -- login -----------------------------------------------------------------------------------------
# Authentication by HTTP's Basic and Bearer, checked by the SASL mechanisms of the console's listener.
#
# The console is a SASL client of the broker's own code. So passwords, SCRAM keys and tokens are checked by
# the same code as on the listener, with the same delays and log lines. A password is tried with SCRAM where
# the user has keys, then with PLAIN. A success is remembered for `REMEMBERED` seconds, or until the session
# ends if that is earlier. After `FREE_TRIES` failures, a user at a host may try only once in `PAUSE`
# seconds, until a try succeeds or none comes for a minute.


REMEMBERED = 60.0
_MOST_REMEMBERED = 256
FREE_TRIES, PAUSE, FORGIVEN = 5, 2.0, 60.0
_BEARER = "OAUTHBEARER"
_WITHOUT_PASSWORD = (_BEARER, "GSSAPI")


class NotAuthenticated(Exception):
    """The request has no valid credentials; `challenges` go into WWW-Authenticate."""

    def __init__(self, why: str, challenges: Sequence[str]) -> None:
        super().__init__(why)
        self.challenges = challenges


class TooManyTries(Exception):
    """Too many failures: the user has to wait."""


_Who = tuple[str, str]
"""A host and a user."""


class Tries:
    """Recent failures of each user at a host, and when the next try is allowed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._wrong: dict[_Who, tuple[int, float]] = {}  # failures, and the time of the last one

    def check(self, who: _Who) -> None:
        """Check whether a try is allowed. Raises TooManyTries."""
        tries, last = self._wrong.get(who, (0, 0.0))
        if tries >= FREE_TRIES and self._clock() < last + PAUSE:
            raise TooManyTries(f"wrong {tries} times: try again in {PAUSE:.0f} s")

    def wrong(self, who: _Who) -> None:
        """Count a failure."""
        now = self._clock()
        self._wrong = {one: found for one, found in self._wrong.items() if now < found[1] + FORGIVEN}
        self._wrong[who] = self._wrong.get(who, (0, 0.0))[0] + 1, now

    def right(self, who: _Who) -> None:
        """Forget the failures after a success."""
        self._wrong.pop(who, None)


class ConsoleLogin:
    """Turns the Authorization header of a request into a caller."""

    def __init__(
        self, inside: BrokerAccess, listener: Listener, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`listener`: its mechanisms are used. Without SASL everybody is let in, with TLS's principal."""
        self._inside, self._listener, self._clock = inside, listener, clock
        self._sasl: SaslMechanisms | None = inside.broker.sasl if listener.sasl else None
        self._secret = secrets.token_bytes(32)
        self._known: dict[bytes, tuple[str, float]] = {}
        self._tries = Tries(clock)
        self._offered = self._sasl.offered(ClientSession(listener)) if self._sasl is not None else []

    @property
    def passwords(self) -> bool:
        """Whether Basic is offered."""
        return any(name not in _WITHOUT_PASSWORD for name in self._offered)

    @property
    def challenges(self) -> list[str]:
        """The schemes that are offered, for WWW-Authenticate."""
        basic = ['Basic realm="eoslog console", charset="UTF-8"'] if self.passwords else []
        return basic + (['Bearer realm="eoslog console"'] if _BEARER in self._offered else [])

    async def caller(self, authorization: str | None, host: str, principal: str) -> Caller:
        """The caller. `principal`: TLS's, on a listener without SASL.

        Raises Unknown, TooManyTries, BrokerBusy."""
        if self._sasl is None:
            return self._known_as(principal, host)
        if not authorization:
            raise NotAuthenticated("who are you?", self.challenges)
        if not authorization.isascii():
            raise NotAuthenticated("the Authorization header is not understood", self.challenges)
        digest = hmac.digest(self._secret, authorization.encode(), "sha256")
        name, ends_at = self._known.get(digest, ("", 0.0))
        if self._clock() >= ends_at:
            self._known.pop(digest, None)
            session = await self._authenticated(authorization, host)
            name, ends_at = session.principal, min(session.ends_at, self._clock() + REMEMBERED)
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[digest] = name, ends_at
        return self._known_as(name, host)

    def _known_as(self, principal: str, host: str) -> Caller:
        session = ClientSession(self._listener, principal)
        session.state = AuthenticationState.KNOWN
        return Caller(session, host)

    async def _authenticated(self, authorization: str, host: str) -> ClientSession:
        scheme, _, rest = authorization.partition(" ")
        if scheme.lower() == "bearer" and _BEARER in self._offered:
            token = f"n,,\x01auth=Bearer {rest.strip()}\x01\x01".encode()
            return await self._tried([(_BEARER, lambda: _OneMessage(token))], host)
        if scheme.lower() != "basic" or not self.passwords:
            raise NotAuthenticated("this way to say who one is, is not offered", self.challenges)
        try:
            user, colon, password = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            user, colon, password = "", "", ""
        if not (user and colon and password):
            raise NotAuthenticated("the Authorization header is not understood", self.challenges)
        return await self._tried(
            [(name, _client(name, user, password)) for name in self._order(user)], host, user
        )

    def _order(self, user: str) -> list[str]:
        """The mechanisms to try for a user's password: those with stored keys first, PLAIN next."""
        stored = self._inside.broker.credentials.of(user)
        names = [name for name in self._offered if name not in _WITHOUT_PASSWORD]
        return sorted(names, key=lambda name: (name not in stored, name != "PLAIN", name))

    async def _tried(
        self, ways: Sequence[tuple[str, Callable[[], _Client]]], host: str, user: str = ""
    ) -> ClientSession:
        self._tries.check((host, user))
        for mechanism, client in ways:
            session = ClientSession(self._listener)
            if await self._exchanged(session, mechanism, client(), f"{host} (console)"):
                self._tries.right((host, user))
                return session
        self._tries.wrong((host, user))
        raise NotAuthenticated("the name and password, or the token, are not right", self.challenges)

    async def _exchanged(self, session: ClientSession, mechanism: str, client: _Client, peer: str) -> bool:
        """Run one exchange; returns whether it authenticated the user."""
        assert self._sasl is not None
        self._sasl.choose(session, mechanism, raw=False)
        try:
            token = client.first()
            while session.state is AuthenticationState.EXCHANGE:
                step, _ = await self._inside.run(self._sasl.step(session, token, peer))
                if step.user is None:
                    token = await asyncio.to_thread(client.final, step.token)
        except (KafkaError, ScramError):
            return False  # the broker has logged why
        return session.state is AuthenticationState.KNOWN


class _OneMessage:
    """The client of a mechanism with one message. To an error it answers with an empty one."""

    def __init__(self, message: bytes) -> None:
        self._message = message

    def first(self) -> bytes:
        return self._message

    def final(self, server_message: bytes) -> bytes:
        return b"\x01"


_Client = _OneMessage | ClientExchange


def _client(mechanism: str, user: str, password: str) -> Callable[[], _Client]:
    if mechanism in HASHES:
        return lambda: ClientExchange(mechanism, user, password, secrets.token_urlsafe(24))
    return lambda: _OneMessage(f"\0{user}\0{password}".encode())
