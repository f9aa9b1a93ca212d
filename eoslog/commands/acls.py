"""`eoslog acls`: list, add and remove access rules; show which ones a query needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import click

from eoslog.client.admin import acls as calls
from eoslog.commands.session import CommandSession, cluster_command
from eoslog.commands.suggest import suggest
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

_COLUMNS = ["resource", "pattern", "name", "principal", "host", "permission", "operation"]


class AclResource(NamedTuple):
    """The resource that a rule is about."""

    resource: ResourceType
    name: str


@click.group()
def command() -> None:
    """List, add and remove access rules (ACLs); show which ones a query needs."""


command.add_command(suggest)


def _principal(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not all(value.partition(":")):
        raise click.UsageError(f"--principal {value}: give TYPE:NAME, as User:alice")
    return value


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
        click.option("--principal", callback=_principal, metavar="TYPE:NAME", help="As User:alice."),
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
