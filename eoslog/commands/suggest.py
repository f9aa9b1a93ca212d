"""`eoslog acls suggest`: the rights that a query needs, worked out from its options alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import click

from eoslog.client.wire.config import BOOTSTRAP_OPTION
from eoslog.commands.output import show, show_json
from eoslog.commands.session import DEFAULT_ADDRESS, pairs
from eoslog.connector.options.rights import Needed, Right, needed
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.errors import OptionError

_COLUMNS = ["resource", "pattern", "name", "operations", "why"]


@click.command()
@click.option("--principal", metavar="TYPE:NAME", help="Who runs the query, as User:alice; for --as.")
@click.option(
    "--source", "source", multiple=True, metavar="OPTION=VALUE", help="An option of its source; repeatable."
)
@click.option(
    "--sink", "sink", multiple=True, metavar="OPTION=VALUE", help="An option of its sink; repeatable."
)
@click.option("--batch", is_flag=True, help="For a batch query, not a stream.")
@click.option(
    "--as", "form", type=click.Choice(["commands", "kafka"]),
    help="Print command lines: of eoslog acls add, or of kafka-acls.sh.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def suggest(
    principal: str | None,
    source: Sequence[str],
    sink: Sequence[str],
    batch: bool,
    form: str | None,
    as_json: bool,
) -> None:
    """Show which rights a query needs, and no more.

    Give the options of its source and its sink as they are in the program. No cluster is asked.
    """
    if not source and not sink:
        raise click.UsageError("give --source or --sink, with the options of the query")
    if form and as_json:
        raise click.UsageError("give either --as or --json")
    if form and principal is None:
        raise click.UsageError("--as needs --principal: who gets the rights?")
    if principal is not None and not all(principal.partition(":")):
        raise click.UsageError(f"--principal {principal}: give TYPE:NAME, as User:alice")
    reads, writes = pairs(source, "--source"), pairs(sink, "--sink")
    found = _needed(reads, writes, stream=not batch)
    together = by_resource(found.rights)
    if as_json:
        show_json({"rights": [_row(rights) for rights in together], "notes": list(found.notes)})
        return
    if form is None:
        show([_row(rights) for rights in together], _COLUMNS, as_json=False)
    for rights in together if form else ():
        arguments = _ours if form == "commands" else _kafkas
        click.echo(shlex.join(arguments(str(principal), rights, _address(reads, writes))))
    for note in found.notes:
        click.echo(f"Note: {note}", err=True)


def _needed(reads: dict[str, str], writes: dict[str, str], *, stream: bool) -> Needed:
    try:
        return needed(
            source_options(_with_address(reads), stream=stream) if reads else None,
            sink_options(_with_address(writes), stream=stream) if writes else None,
            stream=stream,
        )
    except OptionError as error:
        raise click.UsageError(str(error)) from error


def _with_address(options: dict[str, str]) -> dict[str, str]:
    """The options, with the default address if they have none; it has no effect on rights."""
    return options if _address(options) else {BOOTSTRAP_OPTION: DEFAULT_ADDRESS, **options}


def _address(*options: dict[str, str]) -> str | None:
    found = (value for given in options for name, value in given.items() if name.lower() == BOOTSTRAP_OPTION)
    return next(found, None)


def by_resource(rights: Sequence[Right]) -> list[list[Right]]:
    """The rights, grouped by resource."""
    found: dict[tuple[str, str, bool], list[Right]] = {}
    for right in rights:
        found.setdefault((right.resource, right.name, right.prefixed), []).append(right)
    return list(found.values())


def _row(rights: Sequence[Right]) -> dict[str, Any]:
    return {
        "resource": _word(rights[0].resource),
        "pattern": "prefixed" if rights[0].prefixed else "literal",
        "name": rights[0].name,
        "operations": [_word(right.operation) for right in rights],
        "why": "; ".join(dict.fromkeys(right.why for right in rights)),
    }


def _ours(principal: str, rights: Sequence[Right], address: str | None) -> Iterator[str]:
    yield from ("eoslog", "acls", "add")
    yield from ("--bootstrap-server", address) if address else ()
    yield from ("--principal", principal)
    for right in rights:
        yield from ("--operation", _word(right.operation))
    yield from (f"--{_word(rights[0].resource)}", rights[0].name)
    yield from ["--prefixed"] if rights[0].prefixed else ()


def _kafkas(principal: str, rights: Sequence[Right], address: str | None) -> Iterator[str]:
    yield from ("kafka-acls.sh", "--bootstrap-server", address or DEFAULT_ADDRESS)
    yield from ("--add", "--allow-principal", principal)
    for right in rights:
        yield from ("--operation", right.operation)
    yield from (f"--{_word(rights[0].resource)}", *filter(None, [rights[0].name]))  # the cluster has none
    yield from ("--resource-pattern-type", "prefixed") if rights[0].prefixed else ()


def kafka_acls(principal: str, rights: Sequence[Right], address: str | None) -> str:
    """The command line of kafka-acls.sh that gives rights on one resource."""
    return shlex.join(_kafkas(principal, rights, address))


def _word(name: str) -> str:
    """`transactional-id` for TransactionalId."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()
