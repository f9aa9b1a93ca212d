"""What all commands that talk to a cluster share: where it is, how to print, and how failures are told.

Exit status: 0 done, 1 something failed (a line on standard error says what), 2 the command line is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from typing import Any

import click

from eoslog.commands.output import Row, show, show_json
from eoslog.connector.client.cluster import Cluster
from eoslog.connector.client.config import ClientConfig, parse_addresses
from eoslog.connector.errors import EoslogError, OptionError
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.schema import ProtocolError

# Properties of Kafka's clients that --command-config may hold, and the fields they set.
_PROPERTIES = {
    "client.id": "client_id",
    "request.timeout.ms": "request_timeout_ms",
    "default.api.timeout.ms": "api_timeout_ms",
    "delivery.timeout.ms": "delivery_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "retry.backoff.max.ms": "retry_backoff_max_ms",
    "max.request.size": "max_request_bytes",
}
_OUR_NAMES = {
    "kafka.bootstrap.servers": "--bootstrap-server",
    "kafka.request.timeout.ms": "--timeout",
    "kafka.default.api.timeout.ms": "--timeout",
    "kafka.delivery.timeout.ms": "--timeout",
}
_ADDRESSES = "bootstrap.servers"
_SECURITY = ("ssl.", "sasl.", "security.")


class Session:
    """One command's cluster and output."""

    def __init__(self, cluster: Cluster, as_json: bool) -> None:
        self.cluster, self.as_json = cluster, as_json
        self._failed = False

    def show(self, rows: Sequence[Row], columns: Sequence[str]) -> None:
        """Print rows; see `output.show`."""
        show(rows, columns, as_json=self.as_json)

    def show_json(self, value: Any) -> None:
        """Print one JSON document."""
        show_json(value)

    def say(self, text: str) -> None:
        """Print a line for people: on standard error with --json, so that the output stays a document."""
        click.echo(text, err=self.as_json)

    def fail(self, error: Exception | str) -> None:
        """Tell a failure and go on; the exit status will be 1."""
        self._failed = True
        click.echo(f"Error: {_in_our_terms(str(error))}", err=True)

    def end(self) -> None:
        """Leave with status 1 if anything failed."""
        if self._failed:
            raise click.exceptions.Exit(1)


def cluster_command(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every command that talks to a cluster; `function` gets a Session first."""

    @click.option(
        "--bootstrap-server",
        "--bootstrap-servers",
        "addresses",
        metavar="HOST:PORT,...",
        help="Brokers to ask first.  [default: 127.0.0.1:9092]",
    )
    @click.option(
        "--command-config", metavar="FILE", help="Properties of Kafka's clients, such as client.id=admin."
    )
    @click.option(
        "--timeout", type=click.FloatRange(0.1), default=30.0, show_default=True, metavar="SECONDS",
        help="How long to go on trying.",
    )  # fmt: skip
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    def command(
        addresses: str | None, command_config: str | None, timeout: float, as_json: bool, **rest: Any
    ) -> None:
        try:
            config = client_config(addresses, command_config, timeout)
            with Cluster(config) as cluster:
                session = Session(cluster, as_json)
                function(session, **rest)
                session.end()
        except (EoslogError, KafkaError, ProtocolError) as error:
            raise click.ClickException(_in_our_terms(str(error))) from error

    return update_wrapper(command, function)


def client_config(addresses: str | None, file: str | None, timeout: float) -> ClientConfig:
    """The client's settings. Raises OptionError for an address or a property that cannot be used."""
    properties = read_client_properties(file) if file else {}
    text = addresses or properties.pop(_ADDRESSES, None) or "127.0.0.1:9092"
    properties.pop(_ADDRESSES, None)
    limit = max(1, int(timeout * 1000))
    config = ClientConfig(
        bootstrap=_addresses(text),
        client_id="eoslog-command",
        request_timeout_ms=limit,
        api_timeout_ms=limit,
        delivery_timeout_ms=limit,
    )
    changes: dict[str, Any] = {_PROPERTIES[name]: _parsed(name, value) for name, value in properties.items()}
    return replace(config, **changes)


def _addresses(text: str) -> tuple[tuple[str, int], ...]:
    try:
        return parse_addresses(text)
    except OptionError as error:
        raise click.UsageError(_in_our_terms(str(error))) from error


def _in_our_terms(text: str) -> str:
    """An error of the client, which names options of Spark queries, with the names of ours."""
    for theirs, ours in _OUR_NAMES.items():
        text = text.replace(theirs, ours)
    return text


def read_client_properties(path: str) -> dict[str, str]:
    """A file of client properties. Raises OptionError for what this client does not have."""
    from eoslog.broker.config import ConfigError
    from eoslog.broker.config.sources import read_properties

    try:
        properties = read_properties(path)
    except ConfigError as error:
        raise OptionError(str(error)) from error
    for name, value in list(properties.items()):
        if name == "security.protocol" and value.upper() == "PLAINTEXT":
            del properties[name]
        elif name.startswith(_SECURITY):
            raise OptionError(f"{path}: {name}: this client has no TLS and no SASL yet")
        elif name not in _PROPERTIES and name != _ADDRESSES:
            known = ", ".join([_ADDRESSES, *_PROPERTIES])
            raise OptionError(f"{path}: unknown property {name}; known are {known}")
    return properties


def _parsed(name: str, value: str) -> str | int:
    if name == "client.id":
        return value
    if not value.isdecimal():
        raise OptionError(f"{name}={value}: must be a whole number")
    return int(value)


def pairs(settings: Sequence[str], option: str) -> dict[str, str]:
    """NAME=VALUE arguments of a repeatable option, in a mapping. Raises click.UsageError."""
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {setting}: give NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def partitions_of(text: str, known: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
    """`topic` or `topic:0,1` as partitions, of those that are `known`. Raises click.UsageError."""
    topic, colon, numbers = text.partition(":")
    if topic not in known:
        raise click.ClickException(f"there is no topic {topic}")
    if not colon:
        return [(topic, partition) for partition in known[topic]]
    wanted = [int(piece) if piece.isdecimal() else -1 for piece in numbers.split(",")]
    wrong = [number for number in wanted if number not in known[topic]]
    if wrong:
        raise click.UsageError(
            f"{text}: topic {topic} has the partitions {', '.join(map(str, known[topic]))}"
        )
    return [(topic, partition) for partition in wanted]
