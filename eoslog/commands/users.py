"""`eoslog users`: lists, adds and removes users with passwords (SCRAM)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TextIO

import click

from eoslog.client.admin import users as calls
from eoslog.commands.session import CommandSession, cluster_command
from eoslog.protocol.scram import HASHES, MAX_ITERATIONS, MIN_ITERATIONS

_MECHANISM = click.Choice(list(HASHES), case_sensitive=False)


@click.group()
def command() -> None:
    """List, add and remove users with passwords (SCRAM)."""


@command.command("list")
@click.argument("names", nargs=-1, metavar="[USER]...")
@cluster_command
def list_users(session: CommandSession, names: tuple[str, ...]) -> None:
    """List users, and the mechanisms that each can authenticate with."""
    found, missing = calls.describe_users(session.cluster, names)
    for name in missing:
        session.fail(f"there is no user {name} with a password")
    session.show([asdict(known) for known in found], ["user", "mechanism", "iterations"])


@command.command()
@click.argument("name", metavar="USER")
@click.option("--mechanism", type=_MECHANISM, default="SCRAM-SHA-512", show_default=True)
@click.option(
    "--iterations", type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS), default=MIN_ITERATIONS,
    show_default=True, help="How often the password is hashed: more is harder to guess.",
)  # fmt: skip
@click.option(
    "--password-file", type=click.File(encoding="utf-8"), metavar="FILE",
    help="Its one line is the password; - is standard input.  [default: ask for it]",
)  # fmt: skip
@cluster_command
def add(
    session: CommandSession, name: str, mechanism: str, iterations: int, password_file: TextIO | None
) -> None:
    """Add a user, or change the password of one.

    No option takes the password: everybody on the machine can see arguments.
    """
    password = _password(password_file)
    calls.put_user(session.cluster, name, mechanism, password, iterations)
    session.say(f"user {name}: {mechanism} with {iterations} iterations is set")


def _password(file: TextIO | None) -> str:
    if file is None:
        asked: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return asked
    lines = file.read().splitlines()
    if not lines or not lines[0]:
        raise click.UsageError("--password-file: the file is empty")
    if len(lines) > 1:
        raise click.UsageError("--password-file: the password is one line, and the file has more")
    return lines[0]


@command.command()
@click.argument("name", metavar="USER")
@click.option("--mechanism", type=_MECHANISM, required=True)
@cluster_command
def remove(session: CommandSession, name: str, mechanism: str) -> None:
    """Remove a user's password for a mechanism."""
    calls.remove_user(session.cluster, name, mechanism)
    session.say(f"user {name}: {mechanism} is removed")
