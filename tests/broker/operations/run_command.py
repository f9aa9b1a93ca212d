"""Runs a command in this process against a broker, and reads what it printed."""

import json
from typing import Any

from click.testing import CliRunner, Result

from eoslog.cli import main
from eoslog.testing import EmbeddedBroker


def run(broker: EmbeddedBroker, *arguments: str, input: str | None = None) -> Result:
    """The command's result; a fault of its own, that is no error it told, is raised."""
    result = CliRunner().invoke(
        main, [*arguments, "--bootstrap-server", broker.bootstrap, "--timeout", "20"], input=input
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def ok(broker: EmbeddedBroker, *arguments: str, input: str | None = None) -> str:
    """What a command that succeeds prints."""
    result = run(broker, *arguments, input=input)
    assert result.exit_code == 0, result.output
    return result.stdout


def failure(broker: EmbeddedBroker, *arguments: str) -> str:
    """What a command that fails says on standard error."""
    result = run(broker, *arguments)
    assert result.exit_code == 1, result.output
    return result.stderr


def document(broker: EmbeddedBroker, *arguments: str) -> Any:
    """What a command prints with --json."""
    return json.loads(ok(broker, *arguments, "--json"))
