"""Access rules by Kafka's ACLs (KIP-11, KIP-290, KIP-679), pure.

An ACL allows or denies one operation to a principal from a host. It applies to one resource by name
(LITERAL), to all resources of a type (LITERAL "*"), or to all whose names have a prefix (PREFIXED).

- DENY wins over ALLOW. Without either, access is denied; but if the resource has no ACL at all,
  allow.everyone.if.no.acl.found decides.
- An ALLOW of READ, WRITE, DELETE or ALTER implies DESCRIBE; one of ALTER_CONFIGS implies DESCRIBE_CONFIGS.
  A DENY implies no other operation. ALL stands for every operation in both.
- "User:*" is every principal; "*" is every host; a network such as 10.0.0.0/8 is every host in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address, ip_network

from eoslog.protocol.acls import (
    EVERYBODY,
    SUPPORTED,
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    Pattern,
    Permission,
    ResourceType,
)

_O = AclOperation

# Requested operation -> the operations whose ALLOW is enough for it.
_ENOUGH: dict[AclOperation, frozenset[AclOperation]] = {
    operation: frozenset({operation, _O.ALL}) for operation in AclOperation
} | {
    _O.DESCRIBE: frozenset({_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER, _O.ALL}),
    _O.DESCRIBE_CONFIGS: frozenset({_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.ALL}),
}


@dataclass(frozen=True, slots=True)
class Client:
    """A principal and its host."""

    principal: str
    host: str


class Acls:
    """An immutable set of rules, and the decisions that follow from it."""

    def __init__(self, acls: Iterable[Acl] = (), *, open_without: bool = False) -> None:
        """`open_without`: whether a resource without any rule is open to everybody."""
        self.all = frozenset(acls)
        self._open_without = open_without
        self._by_name: dict[tuple[ResourceType, Pattern, str], list[Acl]] = {}
        self._longest = dict.fromkeys(ResourceType, 0)
        for acl in self.all:
            self._by_name.setdefault((acl.resource, acl.pattern, acl.name), []).append(acl)
            if acl.pattern is Pattern.PREFIXED:
                self._longest[acl.resource] = max(self._longest[acl.resource], len(acl.name))

    def changed(self, add: Iterable[Acl] = (), remove: Iterable[Acl] = ()) -> Acls:
        """A new set with some rules removed and others added."""
        return Acls((self.all - frozenset(remove)) | frozenset(add), open_without=self._open_without)

    def matching(self, wanted: AclFilter) -> list[Acl]:
        """The rules that match a filter, in order."""
        return sorted(acl for acl in self.all if wanted.matches(acl))

    def _about(self, resource: ResourceType, name: str) -> Iterator[Acl]:
        """The rules whose pattern covers this resource."""
        found = self._by_name
        yield from found.get((resource, Pattern.LITERAL, name), ())
        if name != WILDCARD:
            yield from found.get((resource, Pattern.LITERAL, WILDCARD), ())
        for size in range(1, min(len(name), self._longest[resource]) + 1):
            yield from found.get((resource, Pattern.PREFIXED, name[:size]), ())

    def allows(self, client: Client, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """Whether the client may do `operation` to one resource."""
        allowed, any_rule = False, False
        for acl in self._about(resource, name):
            any_rule = True
            if not _means(acl, client):
                continue
            if acl.permission is Permission.DENY:
                if acl.operation in (operation, AclOperation.ALL):
                    return False
            elif acl.operation in _ENOUGH[operation]:
                allowed = True
        return allowed or (self._open_without and not any_rule)

    def allows_some(self, client: Client, operation: AclOperation, resource: ResourceType) -> bool:
        """Whether the client may do `operation` to at least one possible resource of this type.

        An ALLOW counts unless a DENY covers everything that it allows.
        """
        wanted = (operation, AclOperation.ALL)
        rules = [
            acl
            for acl in self.all
            if acl.resource is resource and acl.operation in wanted and _means(acl, client)
        ]
        denied = {(acl.pattern, acl.name) for acl in rules if acl.permission is Permission.DENY}
        if (Pattern.LITERAL, WILDCARD) in denied:
            return False
        if self._open_without:
            return True
        return any(acl.permission is Permission.ALLOW and not _covered(acl, denied) for acl in rules)

    def operations(self, client: Client, resource: ResourceType, name: str) -> list[AclOperation]:
        """All operations that the client may do to one resource."""
        return [o for o in SUPPORTED[resource] if self.allows(client, o, resource, name)]


def _covered(acl: Acl, denied: set[tuple[Pattern, str]]) -> bool:
    if acl.pattern is Pattern.LITERAL:
        if acl.name == WILDCARD:
            return False
        if (Pattern.LITERAL, acl.name) in denied:
            return True
    return any((Pattern.PREFIXED, acl.name[:size]) in denied for size in range(1, len(acl.name) + 1))


def _means(acl: Acl, client: Client) -> bool:
    """Whether a rule applies to this client."""
    return acl.principal in (client.principal, EVERYBODY) and (
        acl.host in (WILDCARD, client.host) or ("/" in acl.host and _within(client.host, acl.host))
    )


@lru_cache(maxsize=4096)
def _within(host: str, network: str) -> bool:
    """Whether an address is in a network; False if either is malformed."""
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False
