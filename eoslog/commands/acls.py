"""`eoslog acls`: list, add and remove access rules; show which ones a query needs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import click

from eoslog.client.admin import acls as calls
from eoslog.client.wire.config import BOOTSTRAP_OPTION
from eoslog.commands.output import show, show_json
from eoslog.commands.session import DEFAULT_ADDRESS, CommandSession, cluster_command, pairs, principal_of
from eoslog.connector.options.rights import TOPIC, Needed, Right, needed, under
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.errors import OptionError
from eoslog.protocol.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    Pattern,
    Permission,
    ResourceType,
)

_RIGHTS_COLUMNS = ["resource", "pattern", "name", "operations", "why"]


@click.command()
@click.option(
    "--principal", callback=principal_of, metavar="TYPE:NAME",
    help="Who runs the query, as User:alice; for --as.",
)  # fmt: skip
@click.option(
    "--source", "source", multiple=True, metavar="OPTION=VALUE", help="An option of its source; repeatable."
)
@click.option(
    "--sink", "sink", multiple=True, metavar="OPTION=VALUE", help="An option of its sink; repeatable."
)
@click.option(
    "--prefix", metavar="TEXT",
    help="For all queries whose transactional.id and groups begin so: rights on those are prefixed, those on "
    "topics not.",
)  # fmt: skip
@click.option("--batch", is_flag=True, help="For a batch query, not a stream.")
@click.option(
    "--as", "form", type=click.Choice(["commands", "kafka"]),
    help="Print command lines: of eoslog acls add, or of kafka-acls.sh.",
)  # fmt: skip
@click.option("--command-config", metavar="FILE", help="With --as: for the commands that are printed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def suggest(
    principal: str | None,
    source: Sequence[str],
    sink: Sequence[str],
    prefix: str | None,
    batch: bool,
    form: str | None,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Show which rights a query needs, and those that it can do without.

    Give the options of its source and its sink as they are in the program. No cluster is asked.
    """
    if not source and not sink:
        raise click.UsageError("give --source or --sink, with the options of the query")
    if form and as_json:
        raise click.UsageError("give either --as or --json")
    if form and principal is None:
        raise click.UsageError("--as needs --principal: who gets the rights?")
    reads, writes = pairs(source, "--source"), pairs(sink, "--sink")
    found = _needed(reads, writes, stream=not batch)
    together = by_resource(_under(found.rights, prefix))
    if as_json:
        show_json({"rights": [_right_row(rights) for rights in together], "notes": list(found.notes)})
        return
    if form is None:
        show([_right_row(rights) for rights in together], _RIGHTS_COLUMNS, as_json=False)
    for rights in together if form else ():
        if rights[0].optional:
            click.echo(f"# optional: {_why(rights)}")
        arguments = _ours if form == "commands" else _kafkas
        click.echo(shlex.join(arguments(str(principal), rights, _address(reads, writes), command_config)))
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


def _under(rights: Sequence[Right], prefix: str | None) -> Sequence[Right]:
    if prefix is None:
        return rights
    if not any(right.name.startswith(prefix) for right in rights if right.resource != TOPIC):
        raise click.UsageError(
            f"--prefix {prefix}: no transactional.id and no group of the options begins so"
        )
    return under(rights, prefix, topics=False)


def _with_address(options: dict[str, str]) -> dict[str, str]:
    """The options, with the default address if they have none; it has no effect on rights."""
    return options if _address(options) else {BOOTSTRAP_OPTION: DEFAULT_ADDRESS, **options}


def _address(*options: dict[str, str]) -> str | None:
    found = (value for given in options for name, value in given.items() if name.lower() == BOOTSTRAP_OPTION)
    return next(found, None)


def by_resource(rights: Sequence[Right]) -> list[list[Right]]:
    """The rights, grouped by resource, the optional ones for themselves and last."""
    found: dict[tuple[str, str, bool, bool], list[Right]] = {}
    for right in sorted(rights, key=lambda right: right.optional):
        found.setdefault((right.resource, right.name, right.prefixed, right.optional), []).append(right)
    return list(found.values())


def _right_row(rights: Sequence[Right]) -> dict[str, Any]:
    return {
        "resource": _quoted_word(rights[0].resource),
        "pattern": "prefixed" if rights[0].prefixed else "literal",
        "name": rights[0].name,
        "operations": [_quoted_word(right.operation) for right in rights],
        "optional": rights[0].optional,
        "why": "optional: " * rights[0].optional + _why(rights),
    }


def _why(rights: Sequence[Right]) -> str:
    return "; ".join(dict.fromkeys(right.why for right in rights))


def _ours(
    principal: str, rights: Sequence[Right], address: str | None, config: str | None = None
) -> Iterator[str]:
    yield from ("eoslog", "acls", "add")
    yield from ("--bootstrap-server", address) if address else ()
    yield from ("--command-config", config) if config else ()
    yield from ("--principal", principal)
    for right in rights:
        yield from ("--operation", _quoted_word(right.operation))
    yield from (f"--{_quoted_word(rights[0].resource)}", rights[0].name)
    yield from ["--prefixed"] if rights[0].prefixed else ()


def _kafkas(
    principal: str, rights: Sequence[Right], address: str | None, config: str | None = None
) -> Iterator[str]:
    yield from ("kafka-acls.sh", "--bootstrap-server", address or DEFAULT_ADDRESS)
    yield from ("--command-config", config) if config else ()
    yield from ("--add", "--allow-principal", principal)
    for right in rights:
        yield from ("--operation", right.operation)
    yield from (
        f"--{_quoted_word(rights[0].resource)}",
        *filter(None, [rights[0].name]),
    )  # the cluster has none
    yield from ("--resource-pattern-type", "prefixed") if rights[0].prefixed else ()


def kafka_acls(principal: str, rights: Sequence[Right], address: str | None) -> str:
    """The command line of kafka-acls.sh that gives rights on one resource."""
    return shlex.join(_kafkas(principal, rights, address))


def _quoted_word(name: str) -> str:
    """`transactional-id` for TransactionalId."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


_COLUMNS = ["resource", "pattern", "name", "principal", "host", "permission", "operation"]


class AclResource(NamedTuple):
    """The resource that a rule is about."""

    resource: ResourceType
    name: str


@click.group()
def command() -> None:
    """List, add and remove access rules (ACLs); show which ones a query needs."""


command.add_command(suggest)


def _operations(context: click.Context, option: click.Parameter, values: Sequence[str]) -> list[AclOperation]:
    """Operations by name, written like `describe-configs` or, as in Kafka's tools, `DescribeConfigs`."""
    known = {_word(one).replace("-", ""): one for one in AclOperation if one > AclOperation.ANY}
    found = []
    for value in values:
        one = known.get(value.replace("-", "").replace("_", "").lower())
        if one is None:
            names = ", ".join(map(_word, known.values()))
            raise click.UsageError(f"--operation {value}: choose one of {names}")
        found.append(one)
    return found


def _rule_options(function: Callable[..., None]) -> Callable[..., None]:
    """The options that describe rules, to add them or to find them."""
    for option in reversed((
        click.option("--principal", callback=principal_of, metavar="TYPE:NAME", help="As User:alice."),
        click.option("--host", metavar="HOST", help="An address, a network, or * for all."),
        click.option(
            "--operation", "operations", multiple=True, callback=_operations, metavar="OPERATION",
            help="For instance read, write, describe, all; repeatable.",
        ),
        click.option("--topic", "topics", multiple=True, metavar="NAME", help="Of this topic; repeatable."),
        click.option("--group", "groups", multiple=True, metavar="NAME", help="Of this group; repeatable."),
        click.option(
            "--transactional-id", "ids", multiple=True, metavar="NAME",
            help="Of this transactional id; repeatable.",
        ),
        click.option("--cluster", "of_cluster", is_flag=True, help="Of the cluster."),
        click.option("--prefixed", is_flag=True, help="Of all names that begin with the given one."),
        click.option("--deny", is_flag=True, help="Rules that deny."),
    )):  # fmt: skip
        function = option(function)
    return function


@command.command("list")
@_rule_options
@click.option("--matching", is_flag=True, help="All that apply to the name, by prefix and * too.")
@cluster_command
def list_rules(session: CommandSession, matching: bool, **rule: Any) -> None:
    """List all rules, or those that match the options."""
    if matching and rule["prefixed"]:
        raise click.UsageError("give either --matching or --prefixed")
    found: set[Acl] = set()
    for wanted in _filters(**rule):
        pattern = Pattern.MATCH if matching else wanted.pattern
        found |= set(calls.list_acls(session.cluster, replace(wanted, pattern=pattern)))
    session.show([_row(acl) for acl in sorted(found)], _COLUMNS)


@command.command()
@_rule_options
@cluster_command
def add(
    session: CommandSession,
    principal: str | None,
    host: str | None,
    operations: list[AclOperation],
    prefixed: bool,
    deny: bool,
    **places: Any,
) -> None:
    """Add rules: one for each operation on each resource."""
    if principal is None or not operations:
        raise click.UsageError("a rule takes --principal and --operation")
    of = list(_places(prefixed=prefixed, **places))
    if not of:
        raise click.UsageError("say what the rule is of: --topic, --group, --transactional-id or --cluster")
    pattern = Pattern.PREFIXED if prefixed else Pattern.LITERAL
    permission = Permission.DENY if deny else Permission.ALLOW
    acls = [
        Acl(place.resource, place.name, pattern, principal, host or WILDCARD, operation, permission)
        for place, operation in product(of, operations)
    ]
    for acl in acls:
        _check_operation(acl)
    refusals = calls.add_acls(session.cluster, acls)
    for acl, refusal in zip(acls, refusals, strict=True):
        if refusal is not None:
            session.fail(f"{_sentence(acl)}: {refusal}")
    _print_acls(
        session, [acl for acl, refusal in zip(acls, refusals, strict=True) if refusal is None], "added"
    )


@command.command()
@_rule_options
@cluster_command
def remove(session: CommandSession, deny: bool, **rule: Any) -> None:
    """Remove the rules that match the options; those that deny only with --deny."""
    if not any(rule.values()):
        raise click.UsageError("say which rules: --principal, --topic, ...")
    permission = Permission.DENY if deny else Permission.ALLOW
    filters = [replace(wanted, permission=permission) for wanted in _filters(deny=deny, **rule)]
    gone, refused = calls.remove_acls(session.cluster, filters)
    for refusal in refused:
        session.fail(refusal)
    if not gone and not refused:
        session.fail("no rule matches: nothing was removed")
    _print_acls(session, gone, "removed")


def _print_acls(session: CommandSession, acls: Sequence[Acl], what: str) -> None:
    if session.as_json:
        session.show_json([_row(acl) for acl in acls])
        return
    for acl in acls:
        session.say(f"{_sentence(acl)}: {what}")


def _filters(
    principal: str | None,
    host: str | None,
    operations: list[AclOperation],
    prefixed: bool,
    deny: bool,
    **places: Any,
) -> Iterator[AclFilter]:
    """The filters that the options describe: one for each operation on each resource."""
    of: list[AclResource | None] = [*_places(prefixed=prefixed, **places)]
    pattern = Pattern.PREFIXED if prefixed else Pattern.LITERAL if of else Pattern.ANY
    permission = Permission.DENY if deny else Permission.ANY
    for place, operation in product(of or [None], operations or [AclOperation.ANY]):
        resource, name = place or (ResourceType.ANY, None)
        yield AclFilter(resource, name, pattern, principal, host, operation, permission)


def _places(
    topics: Sequence[str], groups: Sequence[str], ids: Sequence[str], of_cluster: bool, prefixed: bool
) -> Iterator[AclResource]:
    if of_cluster and prefixed:
        raise click.UsageError("--prefixed: the cluster has one name, leave it out")
    yield from (AclResource(ResourceType.TOPIC, name) for name in topics)
    yield from (AclResource(ResourceType.GROUP, name) for name in groups)
    yield from (AclResource(ResourceType.TRANSACTIONAL_ID, name) for name in ids)
    if of_cluster:
        yield AclResource(ResourceType.CLUSTER, CLUSTER_NAME)


def _check_operation(acl: Acl) -> None:
    supported = (*SUPPORTED[acl.resource], AclOperation.ALL)
    if acl.operation not in supported:
        raise click.UsageError(
            f"--operation {_word(acl.operation)}: a {_word(acl.resource)} knows "
            f"{', '.join(map(_word, supported))}"
        )


def _row(acl: Acl) -> dict[str, str]:
    return {
        "resource": _word(acl.resource),
        "pattern": _word(acl.pattern),
        "name": acl.name,
        "principal": acl.principal,
        "host": acl.host,
        "permission": _word(acl.permission),
        "operation": _word(acl.operation),
    }


def _sentence(acl: Acl) -> str:
    verb = "allowed" if acl.permission is Permission.ALLOW else "denied"
    return (
        f"{_word(acl.resource)} {acl.name} ({_word(acl.pattern)}): {acl.principal} is {verb} "
        f"{_word(acl.operation)} from {acl.host}"
    )


def _word(value: AclOperation | Pattern | Permission | ResourceType) -> str:
    return value.name.lower().replace("_", "-")
