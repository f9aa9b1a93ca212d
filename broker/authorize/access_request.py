"""A request to authorize, the possible results of a check, and the log of refusals: in the format of Kafka's
authorizer, with a bound on the number of lines."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from eoslog.broker.rules.acls import Client
from eoslog.protocol.acls import CLUSTER_NAME, SUPPORTED, AclOperation, ResourceType

if TYPE_CHECKING:
    from eoslog.broker.stored.authorizer import Authorizer
    from eoslog.broker.topics.topics import Topics


logger = logging.getLogger("eoslog.broker.authorizer")

MOST_LOGGED = 20
"""Refusals of one principal that get a line each, in `WINDOW_S`. Further ones are only counted."""
WINDOW_S = 1.0


class Audit:
    """Logs what was refused to which principal; on the event loop."""

    def __init__(self) -> None:
        self._logged: Counter[str] = Counter()  # by principal, in this window
        self._more: Counter[tuple[str, str, int]] = Counter()  # by principal, host and API key

    def denied(
        self, client: Client, key: int, operation: AclOperation, resource: ResourceType, name: str
    ) -> None:
        """Log that a client may not do what it asked for with the API `key`."""
        if not self._logged:
            asyncio.get_running_loop().call_later(WINDOW_S, self._end_window)
        self._logged[client.principal] += 1
        if self._logged[client.principal] > MOST_LOGGED:
            self._more[client.principal, client.host, key] += 1
            return
        logger.info(
            "Principal = %s is Denied operation = %s from host = %s on resource = %s:LITERAL:%s"
            " for request = %d",
            client.principal, operation.name, client.host, resource.name, name, key,
        )  # fmt: skip

    def _end_window(self) -> None:
        self._logged.clear()
        for (principal, host, key), count in self._more.most_common(MOST_LOGGED):
            logger.info(
                "Principal = %s is Denied %d times more from host = %s for request = %d",
                principal, count, host, key,
            )  # fmt: skip
        self._more.clear()


Request = TypeVar("Request")
Answer = TypeVar("Answer")

Restore: TypeAlias = Callable[[Answer], Answer]
"""Adds to an answer what was removed from its request."""


@dataclass(frozen=True, slots=True)
class RequestRefused(Generic[Answer]):
    """The whole request is refused with this answer; None where the API has no answer for that."""

    answer: Answer | None


class AccessRequest(Generic[Request]):
    """A request to authorize, and its client."""

    __slots__ = ("_audit", "_authorizer", "client", "key", "request", "topics", "version")

    def __init__(
        self,
        authorizer: Authorizer,
        audit: Audit,
        client: Client,
        key: int,
        version: int,
        request: Request,
        topics: Topics,
    ) -> None:
        """Checks remove from `request` what is not allowed."""
        self._authorizer, self._audit = authorizer, audit
        self.client = client
        self.key, self.version, self.request = key, version, request
        self.topics = topics

    def may(self, operation: AclOperation, resource: ResourceType, name: str, *, log: bool = True) -> bool:
        """Whether the client may do this. `log`: log a refusal, since the client asked for this."""
        allowed = self._authorizer.allows(self.client, operation, resource, name)
        if not allowed and log:
            self._audit.denied(self.client, self.key, operation, resource, name)
        return allowed

    def may_topic(self, operation: AclOperation, name: str) -> bool:
        """Whether the client may do this to a topic."""
        return self.may(operation, ResourceType.TOPIC, name)

    def may_cluster(self, operation: AclOperation, *, log: bool = True) -> bool:
        """Whether the client may do this to the cluster."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, log=log)

    def may_some(self, operation: AclOperation, resource: ResourceType) -> bool:
        """Whether the client may do this to at least one possible resource of this type."""
        return self._authorizer.allows_some(self.client, operation, resource)

    def operations(self, resource: ResourceType, name: str) -> int:
        """All operations that the client may do to a resource, as bits by their numbers."""
        return sum(1 << o for o in SUPPORTED[resource] if self.may(o, resource, name, log=False))

    def topic_name(self, topic: Mapping[str, object], field: str = "name") -> str | None:
        """The name of a topic that the request has by name or id; None for an unknown id."""
        name, topic_id = topic.get(field), topic.get("topic_id")
        if name and isinstance(name, str):
            return name
        found = self.topics.by_id(topic_id) if isinstance(topic_id, bytes) else None
        return None if found is None else found.name


Check = Callable[[AccessRequest[Any]], RequestRefused[Any] | Restore[Any] | None]
