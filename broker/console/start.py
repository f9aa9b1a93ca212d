"""From the broker's options to a running console, or the reason why there is none."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eoslog.broker.config.config_def import ConfigError
from eoslog.broker.console import login
from eoslog.broker.security.listeners import ANY_ADDRESS, Listener

if TYPE_CHECKING:
    from eoslog.broker.config import BrokerConfig
    from eoslog.broker.console.server import Console
    from eoslog.broker.core.broker import Broker
    from eoslog.broker.metrics.metrics import Metrics

logger = logging.getLogger(__name__)

_BACKLOG = 64


async def open_console(broker: Broker, listeners: Sequence[Listener], metrics: Metrics) -> Console:
    """Serve the console that console.listen asks for.

    Raises ConfigError for invalid options, OSError for an address that cannot be used, and
    ModuleNotFoundError without aiohttp.
    """
    from eoslog.broker.console.server import Console, ConsoleAddress

    config = broker.config
    host, port = _address(config.operations.console_listen)
    listener = chosen(listeners, config)
    _check_logins(listener, config)
    _check_exposure(host, listener, config)
    tls = None
    if listener.tls:
        from eoslog.broker.security.tls import ListenerTls

        tls = ListenerTls(listener, config)  # its own: two threads must not share a context
    names = frozenset({host.lower()} | ({listener.advertised[0].lower()} if listener.advertised else set()))
    strict = login.is_loopback(host) or not authenticates(listener, config)
    place = ConsoleAddress(
        _bound(host, port), listener, tls, names, strict, config.operations.console_writable
    )
    console = Console(place, broker, metrics)
    await console.start()
    shown = f"[{host}]" if ":" in host else host
    logger.info(
        "console at %s://%s:%d, by the rules of listener %s, %s",
        "https" if tls else "http", shown, console.port, listener.name,
        "may abort transactions" if config.operations.console_writable else "read-only",
        extra={"port": console.port},
    )  # fmt: skip
    return console


def chosen(listeners: Sequence[Listener], config: BrokerConfig) -> Listener:
    """The listener whose TLS and authentication the console uses: the one named, else the strictest.

    Raises ConfigError for a name that no listener has.
    """
    wanted = config.operations.console_listener.upper()
    if not wanted:
        return max(listeners, key=lambda one: (one.sasl, authenticates(one, config), one.tls))
    for listener in listeners:
        if listener.name == wanted:
            return listener
    names = ", ".join(listener.name for listener in listeners)
    raise ConfigError(
        f"console.listener={config.operations.console_listener}: must be one of the listeners {names}"
    )


def authenticates(listener: Listener, config: BrokerConfig) -> bool:
    """Whether every client of this listener must authenticate."""
    return listener.sasl or (listener.tls and listener.option(config, "ssl.client.auth") == "required")


def _check_logins(listener: Listener, config: BrokerConfig) -> None:
    """Refuse a listener by which no browser gets in. Raises ConfigError."""
    mechanisms: str = listener.option(config, "sasl.enabled.mechanisms")
    if listener.sasl and {name.strip() for name in mechanisms.split(",")} - {""} == {"GSSAPI"}:
        raise ConfigError(
            f"console.listen: listener {listener.name} has no other logins than Kerberos, and browsers have "
            "none for the console: name another listener in console.listener, or add SCRAM-SHA-512 to its "
            "sasl.enabled.mechanisms"
        )


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"console.listen={text}: must be HOST:PORT, for instance 127.0.0.1:8080")
    return host.strip("[]"), int(port)


def _check_exposure(host: str, listener: Listener, config: BrokerConfig) -> None:
    """Refuse an open console that other machines can reach, unless options allow it. Raises ConfigError."""
    wrong = login.exposed(
        host, authenticates=authenticates(listener, config), passwords=listener.sasl, tls=listener.tls
    )
    if wrong is None:
        return
    options = config.operations
    problem = f"the console at {options.console_listen} {wrong} (by the rules of listener {listener.name})"
    if not options.console_insecure:
        raise ConfigError(
            f"{problem}: bind it to 127.0.0.1, name a listener with SASL_SSL in console.listener, or say"
            " console.insecure=true if something before it takes care of that"
        )
    logger.warning("%s: whoever reaches it may use it (console.insecure)", problem)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server(("" if host in ANY_ADDRESS else host, port), family=family, backlog=_BACKLOG)
