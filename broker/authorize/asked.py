"""A request that is to be judged, and what a check may say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from eoslog.broker.authorize.audit import Audit
from eoslog.broker.rules.acls import CLUSTER_NAME, SUPPORTED, Client, Operation, ResourceType
from eoslog.broker.stored.authorizer import Authorizer

if TYPE_CHECKING:
    from eoslog.broker.topics.topics import Topics

Request = TypeVar("Request")
Answer = TypeVar("Answer")

Mend: TypeAlias = Callable[[Answer], Answer]
"""Puts into an answer what was cut out of its request."""


@dataclass(frozen=True, slots=True)
class Refused(Generic[Answer]):
    """The whole request is refused, with this answer; None where the API has no answer for that."""

    answer: Answer | None


class Asked(Generic[Request]):
    """A request to be judged, and who asks."""

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
        """`request` is changed by what is cut out of it."""
        self._authorizer, self._audit = authorizer, audit
        self.client = client
        self.key, self.version, self.request = key, version, request
        self.topics = topics

    def may(self, operation: Operation, resource: ResourceType, name: str, *, told: bool = True) -> bool:
        """Whether the client may. `told`: a refusal is one of something asked for, so it is logged."""
        allowed = self._authorizer.allows(self.client, operation, resource, name)
        if not allowed and told:
            self._audit.denied(self.client, self.key, operation, resource, name)
        return allowed

    def may_topic(self, operation: Operation, name: str) -> bool:
        """Whether the client may do this to a topic."""
        return self.may(operation, ResourceType.TOPIC, name)

    def may_cluster(self, operation: Operation, *, told: bool = True) -> bool:
        """Whether the client may do this to the cluster."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, told=told)

    def may_some(self, operation: Operation, resource: ResourceType) -> bool:
        """Whether there may be a resource of this type to which the client may do this."""
        return self._authorizer.allows_some(self.client, operation, resource)

    def operations(self, resource: ResourceType, name: str) -> int:
        """All that the client may do to a resource, as bits by the operations' numbers."""
        return sum(1 << o for o in SUPPORTED[resource] if self.may(o, resource, name, told=False))

    def topic_name(self, topic: Mapping[str, object], field: str = "name") -> str | None:
        """The name of a topic that the request gives by name or id; None for an unknown id."""
        name, topic_id = topic.get(field), topic.get("topic_id")
        if name and isinstance(name, str):
            return name
        found = self.topics.by_id(topic_id) if isinstance(topic_id, bytes) else None
        return None if found is None else found.name


Check = Callable[[Asked[Any]], Refused[Any] | Mend[Any] | None]
