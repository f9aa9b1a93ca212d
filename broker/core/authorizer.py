"""The authorizer: a broker's ACLs, stored in `acls.json` of the data directory, and the decisions they give.

A change takes effect once it is written and synced. If it cannot be written, nothing changes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from eoslog.broker.log import files
from eoslog.broker.ports import FileSystem
from eoslog.broker.rules.acls import Acls, Client
from eoslog.protocol.acls import Acl, AclFilter, AclOperation, Pattern, Permission, ResourceType
from eoslog.protocol.errors import ErrorCode, KafkaError

FILE = "acls.json"
_VERSION = 1
_MOST_REMEMBERED = 20_000


class Authorizer:
    """Decides by ACLs; super users may do everything."""

    def __init__(
        self, fs: FileSystem, directory: str, *, super_users: str = "", open_without: bool = False
    ) -> None:
        """Load the ACLs. `super_users` as in "User:a;User:b". Raises files.BadFile, OSError."""
        self._fs = fs
        self._path = os.path.join(directory, FILE)
        self._super_users = frozenset(filter(None, (name.strip() for name in super_users.split(";"))))
        known: list[Acl] = []
        if fs.exists(self._path):
            known = decode(files.read_whole(fs, self._path), self._path)
        self.acls = Acls(known, open_without=open_without)
        self.version = 0
        """Increases with each change of the ACLs."""
        self._decided: dict[tuple[Client, AclOperation, ResourceType, str], bool] = {}

    def allows(self, client: Client, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """Whether the client may do `operation` to one resource."""
        if client.principal in self._super_users:
            return True
        question = (client, operation, resource, name)
        answer = self._decided.get(question)
        if answer is None:
            if len(self._decided) >= _MOST_REMEMBERED:
                self._decided.clear()
            answer = self._decided[question] = self.acls.allows(client, operation, resource, name)
        return answer

    def allows_some(self, client: Client, operation: AclOperation, resource: ResourceType) -> bool:
        """Whether the client may do `operation` to at least one possible resource of this type."""
        return client.principal in self._super_users or self.acls.allows_some(client, operation, resource)

    def add(self, acls: Sequence[Acl]) -> None:
        """Add the rules that do not exist yet. On KafkaError nothing changes."""
        self._change(self.acls.changed(add=acls))

    def remove(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Remove the rules that match; returns them for each filter. On KafkaError nothing changes."""
        found = [self.acls.matching(wanted) for wanted in filters]
        self._change(self.acls.changed(remove=[acl for acls in found for acl in acls]))
        return found

    def _change(self, acls: Acls) -> None:
        if acls.all == self.acls.all:
            return
        try:
            files.write_whole(self._fs, self._path, encode(acls))
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the ACLs are not changed, {FILE} cannot be written: {error}"
            ) from error
        self.acls = acls
        self.version += 1
        self._decided.clear()


def encode(acls: Acls) -> bytes:
    """The file's content."""
    rows = [
        [a.resource.name, a.name, a.pattern.name, a.principal, a.host, a.operation.name, a.permission.name]
        for a in sorted(acls.all)
    ]
    return json.dumps({"version": _VERSION, "acls": rows}, indent=0).encode()


def decode(data: bytes, path: str) -> list[Acl]:
    """Read what `encode` wrote. Raises files.BadFile: without its rules a broker would allow too much."""
    try:
        content: Any = json.loads(data)
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']}")
        return [
            Acl(
                ResourceType[resource], name, Pattern[pattern], principal, host,
                AclOperation[operation], Permission[permission],
            )
            for resource, name, pattern, principal, host, operation, permission in content["acls"]
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise files.BadFile(f"{path} cannot be read ({error!r}); put it back from a copy") from error
