"""`eoslog broker`: turns options into a running broker, or says what is wrong with them."""

from __future__ import annotations

import gc
import sys
from dataclasses import Field, fields
from typing import Any

import click

from eoslog.broker.config import BrokerConfig, option_sections
from eoslog.broker.config.config_def import rule_of, text_of
from eoslog.broker.config.option_sources import GatheredOptions, meaning, shown
from eoslog.broker.config.options import FORMATS, LEVELS


def sections() -> dict[str, list[Field[Any]]]:
    """The field of each option, by section, in the order of the broker's config."""
    found = {
        part.__name__.removesuffix("Options"): sorted(fields(part), key=lambda field: field.metadata["name"])
        for part in option_sections().values()
    }
    return dict(sorted(found.items()))


def write_options(formatter: click.HelpFormatter) -> None:
    """Write every option with its meaning and default, by section."""
    formatter.write_paragraph()
    formatter.write_text("Options for --config and --config-file, by Kafka's names where Kafka has them:")
    for title, options in sections().items():
        with formatter.section(title):
            formatter.write_dl([(field.metadata["name"], describe(field)) for field in options], col_max=46)


def describe(field: Field[Any]) -> str:
    """Meaning, choices and default of an option."""
    text: str = field.metadata["meaning"]
    choices = rule_of(field).choices
    if choices and not all(choice in text for choice in choices):
        text += f" ({', '.join(choices)})"
    default = text_of(field.default)
    return f"{text}  [{default}]" if default else text


def show_config(config: BrokerConfig, gathered: GatheredOptions) -> None:
    """Print the value of every option, where it comes from, and which options are ignored."""
    for line in gathered.warnings:
        click.echo(f"warning: {line}", err=True)
    origins = {meaning(name): origin for name, origin in gathered.origins.items()}
    for name, value in shown(config).items():
        origin = origins.get(name)
        click.echo(f"{name}={value}" + (f"  # {origin}" if origin else ""))


# Which option each flag sets, by Kafka's name where it has one.
FLAGS = {
    "data": "log.dirs",
    "flush": "flush.mode",
    "metrics": "metrics.listen",
    "console": "console.listen",
    "console_writable": "console.writable",
    "log_level": "logging.level",
    "log_format": "logging.format",
}


class BrokerCommand(click.Command):
    """A command whose help ends with the table of all options, which is made only when help is shown."""

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section."""
        from eoslog.commands.broker import write_options

        write_options(formatter)


@click.command(cls=BrokerCommand)
@click.option("--data", metavar="DIR", help="Data directory (log.dirs).  [default: ./eoslog-data]")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address to listen on; port 0 picks a free one.  [default: 127.0.0.1:9092]",
)
@click.option(
    "--flush",
    type=click.Choice(["fsync", "os"]),
    help="Acknowledge after a group fdatasync, or after the write call as Kafka does.  [default: fsync]",
)
@click.option("--config-file", metavar="FILE", help="Options in the format of Kafka's server.properties.")
@click.option(
    "--config",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option by its name, see below; repeatable. Wins over --config-file; flags win over both.",
)
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz there.")
@click.option("--console", metavar="HOST:PORT", help="Serve the web console there.")
@click.option(
    "--console-writable", is_flag=True, flag_value="true", default=None,
    help="Let transactions be aborted from the console.",
)  # fmt: skip
@click.option("--log-level", type=click.Choice(LEVELS), help="[default: info]")
@click.option("--log-format", type=click.Choice(FORMATS), help="[default: text]")
@click.option("--check-config", is_flag=True, help="Show the resulting options, and start nothing.")
def command(
    listen: str | None,
    config_file: str | None,
    settings: tuple[str, ...],
    check_config: bool,
    **flags: str | None,
) -> None:
    """Run a Kafka-compatible broker until SIGTERM or SIGINT.

    Prints one line on standard output when it is ready, and its log on standard error. After SIGTERM, running
    requests have shutdown.grace.ms to finish; a second SIGTERM ends the broker at once.
    """
    gc.disable()  # imported modules leave no garbage
    from eoslog.broker.config import ConfigError
    from eoslog.broker.config.option_sources import gather
    from eoslog.broker.main import StartError, run
    from eoslog.broker.ports import log_output

    gc.enable()
    try:
        given = {FLAGS[flag]: value for flag, value in flags.items() if value is not None}
        gathered = gather(config_file, settings, given | _address(listen))
        if listen is not None and gathered.options.get("listeners"):
            origin = gathered.origins["listeners"]
            raise ConfigError(f"--listen, and listeners of {origin}: both set the address, leave one out")
        config = gathered.config()
        if check_config:
            from eoslog.commands.broker import show_config

            show_config(config, gathered)
            return
        log_output.begin(config.operations.logging_level, config.operations.logging_format)
        log_output.ignored(gathered.warnings)
        run(config, on_ready=click.echo)
    except (StartError, ConfigError) as error:
        for line in str(error).splitlines():
            click.echo(f"eoslog broker: {line}", err=True)
        sys.exit(1)


def _address(listen: str | None) -> dict[str, str]:
    """The options that --listen sets. Raises ConfigError."""
    from eoslog.broker.config import ConfigError

    if listen is None:
        return {}
    host, colon, port = listen.rpartition(":")
    if not colon:
        raise ConfigError(f"--listen {listen}: give HOST:PORT, for instance 127.0.0.1:9092")
    return {"listen.host": host.strip("[]"), "listen.port": port}
