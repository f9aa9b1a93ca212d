"""Cutting what is not allowed out of a request's list, and putting it into the answer's list instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from eoslog.broker.authorize.guard import Asked, Check, Mend, Refused
from eoslog.broker.rules.acls import CLUSTER_NAME, Operation, ResourceType
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.schema import Message

CODES = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""What is answered where access to such a resource is denied."""

TOPIC_DENIED = CODES[ResourceType.TOPIC]
GROUP_DENIED = CODES[ResourceType.GROUP]
CLUSTER_DENIED = CODES[ResourceType.CLUSTER]
TRANSACTION_DENIED = CODES[ResourceType.TRANSACTIONAL_ID]

NO_ID = bytes(16)


def split(items: Iterable[Any], allowed: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    """What is allowed, and what is not."""
    kept: list[Any] = []
    denied: list[Any] = []
    for item in items:
        (kept if allowed(item) else denied).append(item)
    return kept, denied


def cut(
    request: Message,
    field: str,
    allowed: Callable[[Any], bool],
    answers: str,
    refuse: Callable[[Any], Message],
) -> Mend | None:
    """Cut the items of `field` that are not allowed; `refuse` makes each one's entry in `answers`."""
    kept, denied = split(request[field] or (), allowed)
    if not denied:
        return None
    request[field] = kept
    return appended(answers, [refuse(item) for item in denied])


def appended(field: str, refused: list[Message]) -> Mend:
    """Adds entries to a list of the answer."""

    def mend(answer: Message) -> Message:
        return answer | {field: [*answer.get(field, ()), *refused]}

    return mend


def topics(
    operation: Operation,
    *,
    field: str = "topics",
    name: str = "name",
    partitions: str = "partitions",
    index: str | None = "partition_index",
    answers: str = "topics",
    answer_name: str = "",
    entries: str = "partitions",
    entry: Callable[[int], Message],
) -> Check:
    """A check of APIs that name topics with partitions: each topic is judged by itself.

    `partitions` holds dicts with the number in `index`, or with None the numbers themselves. `entry` makes
    the answer for a partition that is denied.
    """

    def check(asked: Asked) -> Mend | None:
        def allowed(topic: Message) -> bool:
            found = asked.topic_name(topic, name)
            return found is None or asked.may_topic(operation, found)

        def refuse(topic: Message) -> Message:
            numbers = [part if index is None else part[index] for part in topic[partitions]]
            told: Message = {answer_name or name: topic.get(name), entries: [entry(n) for n in numbers]}
            return told | ({"topic_id": topic["topic_id"]} if "topic_id" in topic else {})

        return cut(asked.request, field, allowed, answers, refuse)

    return check


def needs(
    operation: Operation,
    resource: ResourceType,
    name: str | None = None,
    refuse: Callable[[Asked, ErrorCode], Message | None] | None = None,
) -> Check:
    """A check of APIs that are about one resource, named in the field `name`; without it the cluster."""

    def check(asked: Asked) -> Refused | None:
        which = CLUSTER_NAME if name is None else asked.request[name]
        if asked.may(operation, resource, which):
            return None
        code = CODES[resource]
        return Refused({"error_code": code} if refuse is None else refuse(asked, code))

    return check


def everybody(asked: Asked) -> None:
    """A check of APIs that are open to all."""


def in_turn(*checks: Check) -> Check:
    """All of these, one after the other; the first that refuses the whole request ends it."""

    def check(asked: Asked) -> Refused | Mend | None:
        mends: list[Mend] = []
        for one in checks:
            verdict = one(asked)
            if isinstance(verdict, Refused):
                return verdict
            if verdict is not None:
                mends.append(verdict)
        return _chained(mends) if mends else None

    return check


def _chained(mends: list[Mend]) -> Mend:
    def mend(answer: Message) -> Message:
        for one in mends:
            answer = one(answer)
        return answer

    return mend
