"""The command line: `eoslog broker` runs the bundled broker.

Each command imports its room when it is called, so that a broker is up without waiting for the libraries of
the others.
"""

from __future__ import annotations

import logging
import sys

import click

import eoslog

LEVELS = ("debug", "info", "warning", "error")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(eoslog.__version__, prog_name="eoslog")
def main() -> None:
    """Exactly-once between Spark and a Kafka log."""


@main.command()
@click.option("--data", default="./eoslog-data", show_default=True, metavar="DIR", help="Data directory.")
@click.option(
    "--listen",
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to listen on; port 0 picks a free one.",
)
@click.option(
    "--flush",
    type=click.Choice(["fsync", "os"]),
    default="fsync",
    show_default=True,
    help="Acknowledge after a group fdatasync, or after the write call as Kafka does.",
)
@click.option(
    "--config",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A broker option by Kafka's name; repeatable.",
)
@click.option("--log-level", type=click.Choice(LEVELS), default="warning", show_default=True)
def broker(data: str, listen: str, flush: str, settings: tuple[str, ...], log_level: str) -> None:
    """Run a Kafka-compatible broker until SIGTERM or SIGINT.

    Prints one line on standard output when it is ready.
    """
    from eoslog.broker.main import StartError, configure, run

    logging.basicConfig(
        level=log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        run(configure(data, listen, flush, settings), on_ready=_announce)
    except StartError as error:
        click.echo(f"eoslog broker: {error}", err=True)
        sys.exit(1)


def _announce(line: str) -> None:
    click.echo(line)
