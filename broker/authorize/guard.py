"""Between a request and its handler: is its client allowed to?

For each API a check (`table`) looks at the request. It may answer in the handler's place (`Refused`), cut
out of the request what is not allowed and give a function that puts that into the answer with its error
code, or say nothing, and the request goes on as it is. An API without a check is refused to everybody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eoslog.broker.authorize.audit import Audit
from eoslog.broker.authorize.store import Authorizer
from eoslog.broker.dispatch import CloseConnection, Settled
from eoslog.broker.rules.acls import CLUSTER_NAME, SUPPORTED, Client, Operation, ResourceType
from eoslog.protocol.schema import Message

if TYPE_CHECKING:
    from eoslog.broker.dispatch import Handler, RequestContext
    from eoslog.broker.topics import Topics
    from eoslog.protocol.frames import RequestHeader

Mend = Callable[[Message], Message]
"""Puts into an answer what was cut out of its request."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The whole request is refused, with this answer; None where the API has no answer for that."""

    answer: Message | None


class Asked:
    """A request to be judged, and who asks."""

    __slots__ = ("_audit", "_authorizer", "client", "key", "request", "topics", "version")

    def __init__(
        self,
        authorizer: Authorizer,
        audit: Audit,
        client: Client,
        key: int,
        version: int,
        request: Message,
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

    def topic_name(self, topic: Message, field: str = "name") -> str | None:
        """The name of a topic that the request gives by name or id; None for an unknown id."""
        name: str | None = topic.get(field)
        if name:
            return name
        found = self.topics.by_id(topic["topic_id"]) if "topic_id" in topic else None
        return None if found is None else found.name


Check = Callable[[Asked], Refused | Mend | None]


class Guard:
    """Puts the checks before the handlers."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer, self._audit = authorizer, Audit()

    def around(self, header: RequestHeader, handler: Handler) -> Handler:
        """The handler with its API's check before it."""
        from eoslog.broker.authorize.table import TABLE  # it needs this module

        check = TABLE.get(header.api_key)

        def guarded(context: RequestContext, request: Message) -> Any:
            if check is None:
                raise CloseConnection(f"API key {header.api_key} has no access rule, so nobody may use it")
            asked = self.asked(context, request)
            verdict = check(asked)
            if isinstance(verdict, Refused):
                if verdict.answer is None:
                    raise CloseConnection(f"{context.principal} may not use API key {header.api_key}")
                return verdict.answer
            result = handler(context, request)
            return result if verdict is None else _mended(result, verdict)

        return guarded

    def asked(self, context: RequestContext, request: Message) -> Asked:
        """The request as checks see it."""
        header = context.header
        client = Client(context.principal, context.client_host)
        topics = context.broker.topics
        return Asked(
            self._authorizer, self._audit, client, header.api_key, header.api_version, request, topics
        )


def _mended(result: Message | Awaitable[Message | None] | None, mend: Mend) -> Any:
    """What a handler returned, with its answer mended, be it now or later."""
    if isinstance(result, Settled):
        return Settled(_later(result, mend))
    if isinstance(result, Awaitable):
        return _later(result, mend)
    return _unanswered() if result is None else mend(result)


def _later(result: Awaitable[Message | None], mend: Mend) -> Coroutine[Any, Any, Message | None]:
    async def answer() -> Message | None:
        message = await result
        return _unanswered() if message is None else mend(message)

    return answer()


def _unanswered() -> Message:
    """There is no answer to put a refusal into (acks=0): the connection ends instead, as after any error."""
    raise CloseConnection("access was denied, and acks=0 leaves no answer to say so")
