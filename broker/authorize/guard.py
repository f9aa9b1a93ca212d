"""Authorizes each request before its handler runs.

Each API has a check: `access` in its handler's file. The check may answer in the handler's place
(`RequestRefused`). It may remove what is not allowed from the request, and return a function that adds it
to the answer with its error code. Or it may return None: the request goes on unchanged. An API without a
check is refused to everybody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from eoslog.broker.authorize.access_request import AccessRequest, Audit, Check, RequestRefused, Restore
from eoslog.broker.requests.context import CloseConnection, Settled
from eoslog.broker.rules.acls import Client
from eoslog.broker.stored.authorizer import Authorizer
from eoslog.protocol.schema import Message

if TYPE_CHECKING:
    from eoslog.broker.requests.context import Handler, RequestContext
    from eoslog.protocol.frames import RequestHeader


class Guard:
    """Runs the checks before the handlers."""

    def __init__(self, authorizer: Authorizer, checks: Mapping[int, Check]) -> None:
        self._authorizer, self._checks, self._audit = authorizer, checks, Audit()

    def around(self, header: RequestHeader, handler: Handler) -> Handler:
        """The handler, preceded by its API's check."""
        check = self._checks.get(header.api_key)

        def guarded(context: RequestContext, request: Message) -> Any:
            if check is None:
                raise CloseConnection(f"API key {header.api_key} has no access rule, so nobody may use it")
            asked = self.asked(context, request)
            checked = check(asked)
            if isinstance(checked, RequestRefused):
                if checked.answer is None:
                    raise CloseConnection(f"{context.principal} may not use API key {header.api_key}")
                return checked.answer
            result = handler(context, request)
            return result if checked is None else _restored(result, checked)

        return guarded

    def asked(self, context: RequestContext, request: Message) -> AccessRequest[Any]:
        """The request, as checks get it."""
        header = context.header
        client = Client(context.principal, context.client_host)
        topics = context.broker.topics
        return AccessRequest(
            self._authorizer, self._audit, client, header.api_key, header.api_version, request, topics
        )


def _restored(result: Message | Awaitable[Message | None] | None, restore: Restore[Any]) -> Any:
    """What a handler returned, with the refusals added to its answer, now or later."""
    if isinstance(result, Settled):
        return Settled(_later(result, restore))
    if isinstance(result, Awaitable):
        return _later(result, restore)
    return _unanswered() if result is None else restore(result)


def _later(result: Awaitable[Message | None], restore: Restore[Any]) -> Coroutine[Any, Any, Message | None]:
    async def answer() -> Message | None:
        message = await result
        return _unanswered() if message is None else restore(message)

    return answer()


def _unanswered() -> Message:
    """With acks=0 there is no answer for a refusal: the connection is closed, as after any error."""
    raise CloseConnection("access was denied, and acks=0 leaves no answer to say so")
