"""SASL on a broker's listeners: the mechanisms, and a session's exchange with one of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.config_def import ConfigError
from eoslog.broker.security.listeners import Listener
from eoslog.broker.security.oauth import OauthExchange, TokenValidator
from eoslog.broker.security.passwords import (
    AuthenticationFailed,
    Credentials,
    Exchange,
    Passwords,
    PlainExchange,
    SaslStep,
    ScramExchange,
    credential_of_password,
)
from eoslog.broker.security.session import AuthenticationState, ClientSession
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.scram import HASHES, Credential

logger = logging.getLogger(__name__)

_SHOWN = 100
"""Characters of a user's name in the log: anybody may send one."""

MECHANISMS = ("PLAIN", *HASHES, "OAUTHBEARER", "GSSAPI")

Begin = Callable[[], Exchange]


class SaslMechanisms:
    """The mechanisms of each listener with SASL."""

    def __init__(self, listeners: Sequence[Listener], config: BrokerConfig, credentials: Credentials) -> None:
        """Prepare all mechanisms. Raises ConfigError that names the option."""
        self._config = config
        self._credentials = credentials
        self._tokens: TokenValidator | None = None
        self._offered = {one.name: self._of(one) for one in listeners if one.sasl}

    def _of(self, listener: Listener) -> dict[str, Begin]:
        text: str = listener.option(self._config, "sasl.enabled.mechanisms")
        names = [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in names if name not in MECHANISMS]
        if unknown or not names:
            raise ConfigError(
                f"listener {listener.name}: sasl.enabled.mechanisms={text}: give some of "
                + ", ".join(MECHANISMS)
            )
        return {name: self._begin(listener, name) for name in names}

    def _begin(self, listener: Listener, mechanism: str) -> Begin:
        if mechanism == "OAUTHBEARER":
            self._tokens = tokens = self._tokens or TokenValidator(self._config)
            return lambda: OauthExchange(tokens)
        if mechanism == "GSSAPI":
            from eoslog.broker.security.gssapi import GssapiExchange, Keys  # needs an extra

            keys = Keys(listener, self._config)
            return lambda: GssapiExchange(keys)
        passwords = Passwords(listener, mechanism, self._config)
        if mechanism == "PLAIN":
            return lambda: PlainExchange(passwords)

        given = _GivenCredentials(mechanism, passwords)

        def credential(user: str) -> Credential | None:
            return self._credentials.get(user, mechanism) or given.of(user)

        return lambda: ScramExchange(mechanism, credential)

    def choose(self, session: ClientSession, mechanism: str, *, raw: bool) -> list[str]:
        """Begin an exchange; returns the mechanisms offered. `raw`: its tokens come without headers.

        Raises KafkaError UNSUPPORTED_SASL_MECHANISM, after which the session has failed, and
        ILLEGAL_SASL_STATE.
        """
        offered = self._offered.get(session.listener.name)
        again = session.state is AuthenticationState.KNOWN
        if offered is None or not (session.state is AuthenticationState.START or again) or (raw and again):
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "a handshake has no place here")
        if mechanism not in offered or (again and mechanism != session.mechanism):
            session.state = AuthenticationState.FAILED
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"offered are {', '.join(offered)}")
        session.mechanism, session.exchange = mechanism, offered[mechanism]()
        session.state = AuthenticationState.TOKENS if raw else AuthenticationState.EXCHANGE
        return list(offered)

    def offered(self, session: ClientSession) -> list[str]:
        """The mechanisms at the session's listener."""
        return list(self._offered.get(session.listener.name, ()))

    async def step(self, session: ClientSession, token: bytes, peer: str) -> tuple[SaslStep, int]:
        """Answer the client's next token. Returns also the session's lifetime in ms (0: without end).

        Raises KafkaError ILLEGAL_SASL_STATE, and SASL_AUTHENTICATION_FAILED after a short delay.
        """
        exchange, again = session.exchange, session.known
        if exchange is None or session.state not in (
            AuthenticationState.EXCHANGE,
            AuthenticationState.TOKENS,
        ):
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "a token has no place here")
        try:
            step = await exchange.step(token)
            if step.user is not None and again and session.principal != f"User:{step.user}":
                raise AuthenticationFailed("a session cannot be renewed by another user", step.user)
        except (AuthenticationFailed, ConfigError) as error:
            session.state, session.exchange = AuthenticationState.FAILED, None
            user = getattr(error, "user", "")
            who = f" of {user[:_SHOWN]!r}" if user else ""
            logger.warning("authentication%s by %s from %s failed: %s", who, session.mechanism, peer, error)
            await asyncio.sleep(self._config.security.failed_authentication_delay_ms / 1000)
            reason = (
                error if isinstance(error, AuthenticationFailed) else "the broker's configuration is wrong"
            )
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED, f"Authentication failed: {reason}"
            ) from None
        if step.user is None:
            return step, 0
        session.state, session.exchange = AuthenticationState.KNOWN, None
        session.principal = f"User:{step.user}"
        lifetime_ms = self._lifetime_ms(session, step)
        now = asyncio.get_running_loop().time()
        session.ends_at = now + lifetime_ms / 1000 if lifetime_ms else float("inf")
        return step, lifetime_ms

    def _lifetime_ms(self, session: ClientSession, step: SaslStep) -> int:
        name = "connections.max.reauth.ms"
        own = session.listener.own.get(f"{session.mechanism.lower()}.{name}")
        most = int(own if own is not None else session.listener.option(self._config, name))
        given = [time for time in (most, step.lifetime_ms) if time > 0]
        return min(given) if given else 0


class _GivenCredentials:
    """SCRAM credentials of users whose passwords are in the configuration, computed in advance.

    So the time of an answer does not show whether a user exists, and guessing passwords costs the broker no
    hashing."""

    def __init__(self, mechanism: str, passwords: Passwords) -> None:
        self._mechanism, self._passwords = mechanism, passwords
        self._made: dict[tuple[str, str], Credential] = {}
        self._make()

    def of(self, user: str) -> Credential | None:
        """A user's credential. Raises ConfigError."""
        self._make()
        return self._made.get((user, self._passwords.password(user) or ""))

    def _make(self) -> None:
        """Compute the credentials of users that have changed."""
        wanted = self._passwords.all.items()
        if self._made.keys() != set(wanted):
            self._made = {
                (user, password): self._made.get((user, password))
                or credential_of_password(self._mechanism, user, password)
                for user, password in wanted
            }
