"""Listeners: the addresses of the broker, their security protocols, and what is advertised to clients.

Options as in Kafka: `listeners`, `advertised.listeners`, `listener.security.protocol.map`, and
`listener.name.NAME.OPTION` for an option of one listener. Without `listeners` there is one listener,
PLAINTEXT, at `listen.host` and `listen.port`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eoslog.broker.config import LISTENER_PREFIX, BrokerConfig
from eoslog.broker.config.config_def import ConfigError
from eoslog.broker.config.options import ListenerOption, listener_option

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
ANY_ADDRESS = ("", "0.0.0.0", "::")
PREFIX = LISTENER_PREFIX

_ENDPOINT = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([^]]*)\]|([^:/\[\]]*)):([0-9]{1,5})")


@dataclass(frozen=True)
class Listener:
    """One address to listen on. `port` 0: any free port. `own`: the options of this listener alone."""

    name: str = "PLAINTEXT"
    protocol: str = "PLAINTEXT"
    host: str = "127.0.0.1"
    port: int = 0
    advertised: tuple[str, int] | None = None
    own: Mapping[str, str] = field(default_factory=dict)

    @property
    def tls(self) -> bool:
        """Whether its connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        """Whether its clients must authenticate by SASL."""
        return self.protocol.startswith("SASL")

    def option(self, config: BrokerConfig, name: str) -> Any:
        """A security option: this listener's own, else the broker's. Raises KeyError for unknown ones."""
        return self.own.get(name, config.value(name))

    def address(self, local: tuple[str, int]) -> tuple[str, int]:
        """The address for a client that connected to `local`.

        The advertised address, else the listener's; for a wildcard the one that the client connected to.
        """
        if self.advertised is not None:
            return self.advertised
        return (local[0] if self.host in ANY_ADDRESS else self.host), local[1]

    @property
    def open_to_others(self) -> bool:
        """Whether other machines reach it, and what they send is not encrypted."""
        return not self.tls and self.host != "localhost" and not self.host.startswith(("127.", "::1"))

    @property
    def place(self) -> str:
        """HOST:PORT where it listens."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.name}://{self.place}"


def listeners_of(config: BrokerConfig) -> list[Listener]:
    """The listeners that a broker's options define, in their order. Raises ConfigError."""
    _check_overrides(config, names_of(config))
    if not config.network.listeners.strip():
        if config.network.advertised_listeners.strip():
            raise ConfigError("advertised.listeners: give listeners too, with the same names")
        return [
            Listener(host=config.network.host, port=config.network.port, own=own_options(config, "PLAINTEXT"))
        ]
    protocols = _protocols(config.network.listener_protocols)
    endpoints = _endpoints("listeners", config.network.listeners)
    advertised = _endpoints("advertised.listeners", config.network.advertised_listeners)
    for name in advertised.keys() - endpoints.keys():
        raise ConfigError(f"advertised.listeners: {name} is none of the listeners {', '.join(endpoints)}")
    made = []
    for name, (host, port) in endpoints.items():
        if name not in protocols:
            raise ConfigError(f"listener.security.protocol.map: says no protocol for listener {name}")
        advertised_address = advertised.get(name)
        if advertised_address is not None and (
            advertised_address[0] in ANY_ADDRESS or advertised_address[1] == 0
        ):
            raise ConfigError(
                f"advertised.listeners: {name} must name a host and port that clients can reach"
            )
        made.append(
            Listener(name, protocols[name], host, port, advertised_address, own_options(config, name))
        )
    return made


def _protocols(text: str) -> dict[str, str]:
    found = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = item.partition(":")
        if protocol.upper() not in PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {item}: give NAME:PROTOCOL, one of {', '.join(PROTOCOLS)}"
            )
        found[name.strip().upper()] = protocol.upper()
    return found


def _endpoints(option: str, text: str) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        matched = _ENDPOINT.fullmatch(item)
        if matched is None or int(matched[4]) > 65_535:
            raise ConfigError(f"{option}: {item}: give NAME://HOST:PORT, for instance SSL://0.0.0.0:9093")
        name = matched[1].upper()
        if name in found:
            raise ConfigError(f"{option}: {name} is there twice; names of listeners are unique")
        found[name] = (matched[2] or matched[3] or "", int(matched[4]))
    return found


def own_options(config: BrokerConfig, name: str) -> dict[str, str]:
    """The options of one listener alone, by their names without prefix, as they are now."""
    prefix = f"{PREFIX}{name.lower()}."
    pairs = (pair.partition("=") for pair in config.network.listener_overrides)
    return {option.removeprefix(prefix): value for option, _, value in pairs if option.startswith(prefix)}


def names_of(config: BrokerConfig) -> list[str]:
    """The names of a broker's listeners."""
    return list(_endpoints("listeners", config.network.listeners)) or [Listener.name]


def option_of_listener(option: str, names: Sequence[str]) -> ListenerOption:
    """What listener.name.NAME.OPTION is for one of these listeners. Raises ConfigError if it is nothing.

    A misspelt option must not be ignored.
    """
    owner = next((name for name in names if option.startswith(f"{PREFIX}{name.lower()}.")), None)
    if owner is None:
        known = ", ".join(name.lower() for name in names)
        raise ConfigError(f"{option}: there is no such listener; they are, in lower case, {known}")
    found = listener_option(option.removeprefix(f"{PREFIX}{owner.lower()}."))
    if found is None:
        raise ConfigError(f"{option}: no option that a listener can have for itself")
    return found


def _check_overrides(config: BrokerConfig, names: Sequence[str]) -> None:
    for pair in config.network.listener_overrides:
        option, _, value = pair.partition("=")
        found = option_of_listener(option, names)
        if found.limit:
            replace(found.rule, name=option).parse(value)
