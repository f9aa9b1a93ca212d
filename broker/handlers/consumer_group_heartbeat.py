"""ConsumerGroupHeartbeat (key 68, versions 0-1): a member's whole life in a consumer group (KIP-848).

With epoch 0 a member joins, with -1 it leaves, with -2 a static member leaves for a while. With any other
epoch it says that it is alive, which of its settings have changed, and what it reads. The answer has its
epoch and, if that has changed, its assignment; it is sent when the log is durable. From version 1 members
make their own id, and may subscribe by a regular expression (RE2). Assignors: uniform (the default) and
range.

A consumer group may replace a classic group without members, and keeps its offsets. Unlike in Kafka, a static
member whose first answer was lost may join again under its own id; another id gets UNRELEASED_INSTANCE_ID
until the member has left.

With ACLs a regular expression matches only topics that the member may describe. It is resolved when its first
member joins. When topics or ACLs change, all expressions of a group are resolved again, with the rights of
the member whose heartbeat comes next. Kafka checks ACLs again after group.consumer.regex.refresh.interval.ms,
or with the next new topic.

Left out: racks are stored but do not change the assignment, as there is one broker. Assignments are made at
once (as if group.consumer.assignment.interval.ms were 0). A classic group that has members refuses members of
the consumer protocol (GROUP_ID_NOT_FOUND), as Kafka does with group.consumer.migration.policy=disabled.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Awaitable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import GROUP_DENIED, TOPIC_DENIED, AccessRequest, RequestRefused, refusal
from eoslog.broker.coordinator.groups.consumer_group_state import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from eoslog.broker.coordinator.groups.consumer_groups import VisibleTopics
from eoslog.broker.coordinator.groups.group_records import write_parts
from eoslog.broker.requests import RequestContext, Settled
from eoslog.broker.rules.acls import Client
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponseDraft


KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS = (0, 1)


def access(
    asked: AccessRequest[ConsumerGroupHeartbeatRequest],
) -> RequestRefused[ConsumerGroupHeartbeatResponseDraft] | None:
    """Needs READ on the group, and DESCRIBE on every topic that is subscribed to by name."""
    if not asked.may(AclOperation.READ, ResourceType.GROUP, asked.request["group_id"]):
        return refusal(asked, GROUP_DENIED)
    names = asked.request["subscribed_topic_names"] or ()
    if not all([asked.may_topic(AclOperation.DESCRIBE, name) for name in names]):
        return refusal(asked, TOPIC_DENIED)
    return None


_OWN_ID = 1
"""The first version in which members make their own id."""


def handle(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponseDraft | Settled[ConsumerGroupHeartbeatResponseDraft]:
    """Pass the heartbeat to the group."""
    groups, visible_topics = context.broker.groups, _visible_topics(context)
    try:
        _check(request, context.header.api_version, groups.consumers.assignors)
        pending = groups.consumer_heartbeat(request["group_id"], _beat(context, request), visible_topics)
    except KafkaError as error:
        return _refusal(error)
    return Settled(_answer(pending))


def _visible_topics(context: RequestContext) -> VisibleTopics | None:
    """Which topics the member may describe. Refusals are not logged: the member did not ask by name."""
    authorizer = context.broker.authorizer
    if authorizer is None:
        return None
    client = Client(context.principal, context.client_host)
    sees = partial(authorizer.allows, client, AclOperation.DESCRIBE, ResourceType.TOPIC)
    return VisibleTopics(sees, authorizer.version)


def _beat(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    topics, owned = request["subscribed_topic_names"], request["topic_partitions"]
    return ConsumerHeartbeat(
        member_id=request["member_id"] or _new_id(),
        epoch=request["member_epoch"],
        instance_id=request["instance_id"],
        rack_id=request["rack_id"],
        rebalance_timeout_ms=request["rebalance_timeout_ms"],
        topics=None if topics is None else frozenset(topics),
        regex=request.get("subscribed_topic_regex"),
        assignor=request["server_assignor"],
        owned=None
        if owned is None
        else frozenset((bytes(topic["topic_id"]), index) for topic in owned for index in topic["partitions"]),
        client_id=context.header.client_id or "",
        client_host=context.client_host,
    )


def _new_id() -> str:
    """A random UUID as Kafka writes it: 22 characters of base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


async def _answer(pending: Awaitable[ConsumerHeartbeatAnswer]) -> ConsumerGroupHeartbeatResponseDraft:
    try:
        answer = await pending
    except KafkaError as error:
        return _refusal(error)
    body: ConsumerGroupHeartbeatResponseDraft = {
        "member_id": answer.member_id,
        "member_epoch": answer.epoch,
        "heartbeat_interval_ms": answer.heartbeat_interval_ms,
    }
    if answer.assignment is not None:
        body["assignment"] = {"topic_partitions": write_parts(answer.assignment)}
    return body


def _refusal(error: KafkaError) -> ConsumerGroupHeartbeatResponseDraft:
    return {"error_code": error.code, "error_message": error.message}


def _check(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Iterable[str]) -> None:
    """Raise KafkaError INVALID_REQUEST or UNSUPPORTED_ASSIGNOR for a request that is never valid."""
    epoch = request["member_epoch"]
    known = version >= _OWN_ID or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    named = {
        "member_id": request["member_id"] if known else None,
        "group_id": request["group_id"],
        "instance_id": request["instance_id"],
        "rack_id": request["rack_id"],
    }
    blank = [name for name, value in named.items() if value is not None and not value.strip()]
    if blank:
        raise _invalid(f"{blank[0]} may not be empty")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH and request["instance_id"] is None:
        raise _invalid("a member that leaves for a while (epoch -2) must have an instance id")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise _invalid(f"there is no member epoch {epoch}")
    assignor = request["server_assignor"]
    if assignor is not None and assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"assignor {assignor!r} is not one of {', '.join(assignors)}"
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request["rebalance_timeout_ms"] == -1:
        raise _invalid("a member that joins must give its rebalance time-out")
    if request["topic_partitions"] is None or request["topic_partitions"]:
        raise _invalid("a member that joins must say that it reads no partitions")
    if request["subscribed_topic_names"] is None and request.get("subscribed_topic_regex") is None:
        raise _invalid("a member that joins must say which topics it subscribes to")


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
