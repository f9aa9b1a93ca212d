"""Options of listeners, connections and requests."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.broker.config.base import INT32_MAX, option


@dataclass(frozen=True)
class NetworkOptions:
    """Where the broker listens, and what one client may ask of it."""

    host: str = option("127.0.0.1", "listen.host", "address to listen on and to advertise")
    port: int = option(9092, "listen.port", "port to listen on; 0 picks a free one", high=65535)
    node_id: int = option(1, "node.id", "this broker's id", high=INT32_MAX)
    request_max_bytes: int = option(
        104_857_600, "socket.request.max.bytes", "largest request", low=1, high=INT32_MAX
    )
    fetch_max_bytes: int = option(57_671_680, "fetch.max.bytes", "largest answer to a fetch", low=1024)
