"""How many connections there are, by listener and by address, and which new ones must wait or go away.

The options: `max.connections`, `max.connections.per.ip` and its overrides, `max.connection.creation.rate`. A
listener may have its own `max.connections` and rate (KIP-402, KIP-612), beside those of the whole broker.
"""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Callable

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.config_def import INT32_MAX
from eoslog.broker.config.network import LIMITS
from eoslog.broker.security.listeners import PREFIX, own_options

logger = logging.getLogger(__name__)

_LONGEST_WAIT = 60.0


class _Pace:
    """Gives new connections their turns: one every 1/rate seconds, but up to `rate` of them at once."""

    def __init__(self) -> None:
        self._next = 0.0

    def wait(self, now: float, rate: int) -> float:
        """Seconds until the turn of a connection that comes now."""
        self._next = max(self._next, now - 1) + 1 / rate
        return min(self._next - now, _LONGEST_WAIT)


class _Place:
    """A listener: its connections, also those whose TLS handshake is not done, and its own limits."""

    def __init__(self, name: str) -> None:
        self.name, self.open, self.pace = name, 0, _Pace()
        self.arriving: Callable[[], int] = int
        self.most = self.rate = INT32_MAX

    @property
    def count(self) -> int:
        return self.open + self.arriving()

    def follow(self, config: BrokerConfig) -> None:
        own = own_options(config, self.name)
        self.most, self.rate = (int(own.get(name, INT32_MAX)) for name in LIMITS)


class ConnectionCounts:
    """The counts of all listeners, and the limits as they are now."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._by_ip: Counter[str] = Counter()
        self._pace = _Pace()
        self._config = BrokerConfig()
        self._overrides: dict[str, int] = {}

    def add_listener(self, name: str) -> None:
        """A listener, before its first connection."""
        self._places[name] = _Place(name)

    def count_arriving(self, name: str, arriving: Callable[[], int]) -> None:
        """Count also the connections of a listener whose handshake is not done."""
        self._places[name].arriving = arriving

    def follow(self, config: BrokerConfig) -> None:
        """Keep to the limits of these options from now on."""
        self._config = config
        self._overrides = _overrides(config.network.max_connections_per_ip_overrides)
        for place in self._places.values():
            place.follow(config)

    def why_full(self, listener: str) -> str | None:
        """Why no further connection may come in by a listener, or None."""
        most, place = self._config.network.max_connections, self._places[listener]
        if sum(one.count for one in self._places.values()) >= most:
            return _too_many(most)
        return _too_many(place.most, listener) if place.count >= place.most else None

    def enter(self, listener: str, host: str) -> str | None:
        """Count a new connection. Returns why it cannot be served, None if it can."""
        place, network = self._places[listener], self._config.network
        place.open += 1
        self._by_ip[host] += 1
        if sum(one.open for one in self._places.values()) > network.max_connections:
            return _too_many(network.max_connections)
        if place.open > place.most:
            return _too_many(place.most, listener)
        most = self._overrides.get(host, network.max_connections_per_ip)
        if self._by_ip[host] > most:
            return f"there are already {most} connections from {host} (max.connections.per.ip)"
        return None

    def wait(self, listener: str, now: float) -> float:
        """Seconds until a new connection's turn; 0 or less: at once."""
        place = self._places[listener]
        rate = self._config.network.max_connection_creation_rate
        return max(self._pace.wait(now, rate), place.pace.wait(now, place.rate))

    def leave(self, listener: str, host: str) -> None:
        """A connection that was counted has ended."""
        self._places[listener].open -= 1
        self._by_ip[host] -= 1
        if not self._by_ip[host]:
            del self._by_ip[host]


def _too_many(most: int, listener: str = "") -> str:
    option = f"{PREFIX}{listener.lower()}.max.connections" if listener else "max.connections"
    return f"there are already {most} connections ({option})"


def _overrides(text: str) -> dict[str, int]:
    """Most connections by address. A name of a machine stands for all its addresses, as they are now."""
    found = dict[str, int]()
    for item in filter(None, map(str.strip, text.split(","))):
        host, _, number = item.rpartition(":")
        found |= dict.fromkeys(_addresses(host.strip("[]")), int(number))
    return found


def _addresses(host: str) -> set[str]:
    try:
        return {str(place[0]) for *_, place in socket.getaddrinfo(host, None)}
    except OSError as error:
        logger.warning("max.connections.per.ip.overrides: %s has no effect: %s", host, error)
        return set()
