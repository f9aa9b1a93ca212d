"""What a client needs to know before it opens its first connection: addresses and time-outs.

Names are those of Kafka's client configuration, with underscores for dots. The object is frozen, hashable and
picklable: it is sent from the driver to the tasks and is the key of connection caches there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from eoslog.client.wire.security_settings import Security
from eoslog.errors import OptionError

Address = tuple[str, int]
BOOTSTRAP_OPTION = "kafka.bootstrap.servers"
BOOTSTRAP_ORIGIN = "bootstrap.origin"
"""Beside parsed options: what has named the brokers of first contact."""
PROTOCOL_OPTION = "kafka.security.protocol"


@dataclass(frozen=True)
class ClientConfig:
    """Addresses and limits of one client; every duration in milliseconds."""

    bootstrap: tuple[Address, ...]
    client_id: str = "eoslog"
    request_timeout_ms: int = 30_000
    """The longest wait for one answer, for one connection, and for the first contact with a cluster."""
    api_timeout_ms: int = 60_000
    """The longest time for which a call is tried again, even if a broker comes and goes."""
    delivery_timeout_ms: int = 120_000
    """The longest time for which a batch of records, or the end of a transaction, is tried again."""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    max_request_bytes: int = 1 << 20
    """Batches for several partitions share one Produce request up to this size."""
    max_response_bytes: int = 1 << 30
    """A longer answer means that the peer does not speak Kafka's protocol."""
    poll_timeout_ms: int | None = None
    """The longest a reader waits for records; None: api_timeout_ms."""
    max_in_flight: int = 5
    """The most unanswered Produce requests on a connection."""
    metadata_max_age_ms: int = 300_000
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    """A broker answers a Fetch when it has fetch_min_bytes, or after this time."""
    max_partition_fetch_bytes: int = 4 << 20
    fetch_max_bytes: int = 50 << 20
    """The lower of the two is used: a request is for one partition."""
    client_rack: str = ""
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    """Socket buffers; -1: the system's own."""
    connect_timeout_ms: int = 10_000
    """The longest wait for a connection's first packet, within request_timeout_ms."""
    first_contact_timeout_ms: int = 5_000
    """How long the start of a query tries addresses where nothing listens, or that no name server knows."""

    security: Security = field(default_factory=Security)
    bootstrap_origin: str = field(default=BOOTSTRAP_OPTION, compare=False)
    """What has named the brokers of first contact, for messages."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Make a config from parsed options, by their lower-case names (`kafka.client.id`...).

        Raises OptionError.
        """
        known = {
            option: field for option, field in _FIELD_OF_OPTION.items() if options.get(option) is not None
        }
        values = {field: options[option] for option, field in known.items()}
        return cls(**values, security=Security.from_options(options))

    def value_of(self, option: str) -> Any:
        """What an option is set to."""
        return getattr(self, _FIELD_OF_OPTION[option])


_FIELD_OF_OPTION = {
    BOOTSTRAP_OPTION: "bootstrap",
    BOOTSTRAP_ORIGIN: "bootstrap_origin",
    "kafka.client.id": "client_id",
    "kafka.request.timeout.ms": "request_timeout_ms",
    "kafka.default.api.timeout.ms": "api_timeout_ms",
    "kafka.delivery.timeout.ms": "delivery_timeout_ms",
    "kafka.retry.backoff.ms": "retry_backoff_ms",
    "kafka.retry.backoff.max.ms": "retry_backoff_max_ms",
    "kafka.max.request.size": "max_request_bytes",
    "kafkaconsumer.polltimeoutms": "poll_timeout_ms",
    "kafka.max.in.flight.requests.per.connection": "max_in_flight",
    "kafka.metadata.max.age.ms": "metadata_max_age_ms",
    "kafka.fetch.min.bytes": "fetch_min_bytes",
    "kafka.fetch.max.wait.ms": "fetch_max_wait_ms",
    "kafka.max.partition.fetch.bytes": "max_partition_fetch_bytes",
    "kafka.fetch.max.bytes": "fetch_max_bytes",
    "kafka.client.rack": "client_rack",
    "kafka.send.buffer.bytes": "send_buffer_bytes",
    "kafka.receive.buffer.bytes": "receive_buffer_bytes",
    "kafka.socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "first.contact.timeout.ms": "first_contact_timeout_ms",
}
assert set(_FIELD_OF_OPTION.values()) <= {field.name for field in fields(ClientConfig)}


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Parse `host:port,SASL_SSL://host:port,[::1]:port`. Raises OptionError naming the wrong piece."""
    pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
    if not pieces:
        raise OptionError(f"{BOOTSTRAP_OPTION} is empty: give at least one broker as host:port")
    return tuple(_parse_address(piece) for piece in pieces)


_PROTOCOL = re.compile(r"^[\w.%-]+://")  # as Java's client, which looks at kafka.security.protocol alone


def _parse_address(piece: str) -> Address:
    host, colon, port = _PROTOCOL.sub("", piece, count=1).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    known = colon and host and "/" not in host and port.isdecimal()
    if not known or not 0 < int(port) < 65536:
        raise OptionError(
            f"{BOOTSTRAP_OPTION}: {piece!r} is not host:port; "
            "give brokers as in broker1:9092,broker2:9092 (a port is between 1 and 65535)"
        )
    return host, int(port)
