"""The broker's options in words: the table of `eoslog broker --help`, and the output of --check-config."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

import click

from eoslog.broker.config import BrokerConfig, option_sections
from eoslog.broker.config.config_def import text_of
from eoslog.broker.config.option_sources import GatheredOptions, meaning, shown


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
    choices = field.metadata["choices"]
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
