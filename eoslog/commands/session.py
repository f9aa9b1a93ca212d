"""What all commands that talk to a cluster share: its address, the output, and the report of failures.

Exit status: 0 done, 1 something failed (a line on standard error says what), 2 the command line is wrong.
"""

from __future__ import annotations

import logging
import os
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import update_wrapper, wraps
from typing import Any, TypeVar

import click

from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import BOOTSTRAP_OPTION, BOOTSTRAP_ORIGIN, ClientConfig, parse_addresses
from eoslog.commands.output import Row, show, show_json
from eoslog.connector.options.parsing import (
    CONFIG_VARIABLE,
    SERVERS_VARIABLE,
    of_environment,
    parse,
    read_properties,
)
from eoslog.connector.options.table import TABLE, Use
from eoslog.errors import EoslogError, OptionError
from eoslog.protocol.batch import CorruptBatch
from eoslog.protocol.decode import PayloadTooLarge
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.schema import ProtocolError

_OUR_NAMES = {
    "kafka.bootstrap.servers": "--bootstrap-server",
    "kafka.request.timeout.ms": "--timeout",
    "kafka.default.api.timeout.ms": "--timeout",
    "kafka.delivery.timeout.ms": "--timeout",
}
_OF_CLIENTS = [one.name for one in TABLE if one.use is Use.ALL and one.name.startswith("kafka.")]
_LIMITS = ("kafka.request.timeout.ms", "kafka.default.api.timeout.ms", "kafka.delivery.timeout.ms")
Function = TypeVar("Function", bound=Callable[..., Any])
DEFAULT_ADDRESS = "127.0.0.1:9092"


class CommandSession:
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
        """Print a message: on standard error with --json, so that the output remains one document."""
        click.echo(text, err=self.as_json)

    def fail(self, error: Exception | str) -> None:
        """Report a failure and continue; the exit status will be 1."""
        self._failed = True
        click.echo(f"Error: {in_our_terms(str(error))}", err=True)

    def end(self) -> None:
        """Exit with status 1 if anything failed."""
        if self._failed:
            raise click.exceptions.Exit(1)


def cluster_options(whose: str = "Brokers to ask first.") -> Callable[[Function], Function]:
    """--bootstrap-server and --command-config, as every command has them."""
    servers = click.option(
        "--bootstrap-server", "--bootstrap-servers", "addresses", metavar="HOST:PORT,...",
        help=f"{whose}  [default: {SERVERS_VARIABLE}, else {DEFAULT_ADDRESS}]",
    )  # fmt: skip
    config = click.option(
        "--command-config", metavar="FILE",
        help=f"Properties of Kafka's clients, for TLS and SASL too.  [default: {CONFIG_VARIABLE}]",
    )  # fmt: skip
    return lambda function: servers(config(function))


def cluster_command(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every command that talks to a cluster; `function` gets a Session first."""

    @cluster_options()
    @click.option(
        "--timeout", type=click.FloatRange(0.1), default=30.0, show_default=True, metavar="SECONDS",
        help="How long to keep trying.",
    )  # fmt: skip
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    def command(
        addresses: str | None, command_config: str | None, timeout: float, as_json: bool, **rest: Any
    ) -> None:
        try:
            config = client_config(addresses, command_config, timeout)
            with Cluster(config) as cluster:
                session = CommandSession(cluster, as_json)
                function(session, **rest)
                session.end()
        except (EoslogError, KafkaError, ProtocolError) as error:
            raise click.ClickException(in_our_terms(str(error))) from error

    return update_wrapper(command, function)


def client_config(
    addresses: str | None, file: str | None, timeout: float, environment: Mapping[str, str] = os.environ
) -> ClientConfig:
    """The client's settings: the command line, a file of properties, the environment; the first counts.

    Raises OptionError for an unknown or invalid property, click.UsageError for an address.
    """
    named = {} if file is None else read_properties(file)
    origin = f"bootstrap.servers in {file}"
    if BOOTSTRAP_OPTION not in named:
        found, origin = of_environment(environment if file is None else {**environment, CONFIG_VARIABLE: ""})
        named = found | named
    given = dict.fromkeys(_LIMITS, str(max(1, int(timeout * 1000)))) | {"kafka.client.id": "eoslog"} | named
    if addresses is not None or BOOTSTRAP_OPTION not in given:
        given[BOOTSTRAP_OPTION], origin = addresses or DEFAULT_ADDRESS, BOOTSTRAP_OPTION
    try:
        parse_addresses(given[BOOTSTRAP_OPTION])
    except OptionError as error:
        raise click.UsageError(in_our_terms(str(error))) from error
    _tell_warnings()
    try:
        values = parse(given, Use.WRITE)
    except OptionError as error:
        names = (one.name for one in TABLE)  # all of them are named as the file has them
        raise OptionError(in_our_terms(str(error), [*given, *names])) from error
    return ClientConfig.from_options(values | {BOOTSTRAP_ORIGIN: origin})


class _Warnings(logging.Handler):
    """Shows warnings of the client as lines of the command."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print it to standard error."""
        click.echo(f"Warning: {in_our_terms(record.getMessage())}", err=True)


def _tell_warnings() -> None:
    logger = logging.getLogger("eoslog.client")
    if not any(isinstance(handler, _Warnings) for handler in logger.handlers):
        logger.addHandler(_Warnings(logging.WARNING))


def in_our_terms(text: str, more: Iterable[str] = ()) -> str:
    """A text of the client, with our names of its options, and of `more`, instead of those of Spark queries.

    Options of a query's source or sink keep their names: no command takes them.
    """
    theirs = sorted({*_OF_CLIENTS, *more}, key=len, reverse=True)
    names = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, theirs))})(?![\w-]|\.\w)")
    return names.sub(lambda found: _OUR_NAMES.get(found[0], found[0].removeprefix("kafka.")), text)


def pairs(settings: Sequence[str], option: str) -> dict[str, str]:
    """The NAME=VALUE arguments of a repeatable option. Raises click.UsageError."""
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {setting}: give NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def principal_of(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """The value of --principal. Raises click.UsageError."""
    if value is not None and not all(value.partition(":")):
        raise click.UsageError(f"--principal {value}: give TYPE:NAME, as User:alice")
    return value


def partitions_of(text: str, known: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
    """The partitions that `topic` or `topic:0,1` names, out of `known`. Raises click.UsageError."""
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


_NOT_JUDGED = 2
_REPORTED = (EoslogError, KafkaError, ProtocolError, CorruptBatch, PayloadTooLarge, OSError)


def judging(function: Callable[..., None]) -> Callable[..., None]:
    """Exit with status 2 for any failure: status 1 means that what is judged is wrong."""

    @wraps(function)
    def with_status(**options: Any) -> None:
        try:
            function(**options)
        except click.ClickException as error:
            error.show()
            raise click.exceptions.Exit(_NOT_JUDGED) from error
        except _REPORTED as error:
            _give_up(f"Error: {in_our_terms(str(error))}")
        except KeyboardInterrupt:
            _give_up("interrupted: nothing was proven")
        except click.exceptions.Exit:
            raise
        except Exception:
            _give_up(traceback.format_exc())

    return with_status


def _give_up(text: str) -> None:
    click.echo(text, err=True)
    raise click.exceptions.Exit(_NOT_JUDGED)
