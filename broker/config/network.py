"""Options of listeners, connections and requests."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cache
from typing import NamedTuple

from eoslog.broker.config.config_def import INT32_MAX, ConfigRule, option, rule_of
from eoslog.broker.config.kafka_options import rule_of_kafka
from eoslog.broker.config.security import SecurityOptions


@dataclass(frozen=True)
class NetworkOptions:
    """Where the broker listens, and the limits for clients."""

    host: str = option("127.0.0.1", "listen.host", "address to listen on, if listeners is not set")
    port: int = option(9092, "listen.port", "port to listen on, as above; 0 picks a free one", high=65535)
    listeners: str = option(
        "",
        "listeners",
        "addresses to listen on, as NAME://HOST:PORT,...; an empty host is every address, port 0 a free one",
    )
    advertised_listeners: str = option(
        "",
        "advertised.listeners",
        "the listeners' addresses that clients are given, as NAME://HOST:PORT,...",
    )
    listener_protocols: str = option(
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "listener.security.protocol.map",
        "the security protocol of each listener, as NAME:PROTOCOL,...",
    )
    listener_overrides: tuple[str, ...] = option(
        (),
        "listener.name.*",
        "an option of a single listener: listener.name.NAME.OPTION, the name in lower case; dynamic are"
        " ssl.keystore.*, ssl.key.password, ssl.truststore.*, max.connections and"
        " max.connection.creation.rate",
        secret=True,
        dynamic=True,
    )
    node_id: int = option(1, "node.id", "this broker's id", high=INT32_MAX)
    request_max_bytes: int = option(
        104_857_600, "socket.request.max.bytes", "largest request", low=1, high=INT32_MAX
    )
    fetch_max_bytes: int = option(
        57_671_680, "fetch.max.bytes", "largest answer to a fetch", low=1024, high=INT32_MAX
    )
    max_connections: int = option(
        INT32_MAX, "max.connections", "most connections at a time", low=1, high=INT32_MAX, dynamic=True
    )
    max_connections_per_ip: int = option(
        INT32_MAX,
        "max.connections.per.ip",
        "most connections of one address at a time",
        high=INT32_MAX,
        dynamic=True,
    )
    max_connections_per_ip_overrides: str = option(
        "",
        "max.connections.per.ip.overrides",
        "the same for some addresses or names of machines, as ADDRESS:NUMBER,...",
        pattern=r"([^,]+:[0-9]{1,9}(,[^,]+:[0-9]{1,9})*,?)?",
        hint="ADDRESS:NUMBER,...",
        dynamic=True,
    )
    max_connection_creation_rate: int = option(
        INT32_MAX,
        "max.connection.creation.rate",
        "most new connections a second; those beyond it wait before they are served",
        low=1,
        high=INT32_MAX,
        dynamic=True,
    )
    connections_max_idle_ms: int = option(
        600_000, "connections.max.idle.ms", "close a connection that has sent no request for this long", low=1
    )
    connections_max_stalled_ms: int = option(
        10_000,
        "connections.max.stalled.ms",
        "while memory is short, close a connection that for this long neither finishes its request nor reads"
        " its answer",
        low=1,
    )
    queued_max_request_bytes: int = option(
        268_435_456,
        "queued.max.request.bytes",
        "requests that all connections together may hold before reading waits; -1: no limit",
        low=-1,
    )
    queued_max_response_bytes: int = option(
        268_435_456,
        "queued.max.response.bytes",
        "answers that all connections together may hold before fetches wait; -1: no limit",
        low=-1,
    )
    fetch_session_slots: int = option(
        1_000,
        "max.incremental.fetch.session.cache.slots",
        "most fetch sessions (KIP-227) kept",
        high=INT32_MAX,
    )
    fetch_session_eviction_ms: int = option(
        120_000,
        "min.incremental.fetch.session.eviction.ms",
        "a fetch session that was not used for this long may make room for a new one",
    )


LIMITS = ("max.connections", "max.connection.creation.rate")
STORES = (
    "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.certificate.chain",
    "ssl.keystore.key", "ssl.key.password",
    "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.certificates",
)  # fmt: skip
"""The key store and the trust store."""

_MECHANISM = re.compile(
    r"(?:plain|scram-sha-256|scram-sha-512|oauthbearer|gssapi)\.(sasl\.jaas\.config|connections\.max\.reauth\.ms)"
)


class ListenerOption(NamedTuple):
    """An option of a single listener, listener.name.NAME.OPTION or .MECHANISM.OPTION, by the base option that
    it takes the place of: name, type and whether it is dynamic are those (KIP-226). A dynamic one is for one
    broker, except for the limits of connections, which may be set for all brokers."""

    base: str
    rule: ConfigRule

    @property
    def limit(self) -> bool:
        """Whether it limits connections."""
        return self.base in LIMITS

    @property
    def dynamic(self) -> bool:
        """Whether it changes while the broker runs."""
        return self.limit or self.base in STORES


def listener_option(name: str) -> ListenerOption | None:
    """The option of that name, without listener.name.NAME; None if a listener has none such."""
    of_mechanism = _MECHANISM.fullmatch(name)
    base = of_mechanism[1] if of_mechanism else name
    rule = _rules().get(base) or (rule_of_kafka(base) if of_mechanism else None)
    return None if rule is None else ListenerOption(base, rule)


@cache
def _rules() -> dict[str, ConfigRule]:
    """By base option."""
    declared = {
        one.metadata["name"]: rule_of(one) for one in (*fields(SecurityOptions), *fields(NetworkOptions))
    }
    wanted = {one.metadata["name"] for one in fields(SecurityOptions)} | set(LIMITS)
    return {name: rule for name, rule in declared.items() if name in wanted}
