"""Code that handles messages: mypy must complain of the lines marked "wrong", and of no other.

Nothing here is ever called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import AccessRequest, RequestRefused, Restore
from eoslog.broker.requests import RequestContext, Settled
from eoslog.client.wire.connection import BrokerConnection
from eoslog.protocol.internal_topics import coordinator_records
from eoslog.protocol.messages.group_records import OFFSET_COMMIT_KEY
from eoslog.protocol.typed import FETCH, METADATA

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        MetadataRequest,
        MetadataRequestDraft,
        MetadataResponseDraft,
        ProduceResponseDraft,
    )


def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponseDraft:
    """A handler."""
    names = [topic["name"] for topic in request["topics"] or ()]
    names += [topic["nmae"] for topic in request["topics"] or ()]  # wrong: a field's name
    for topic in request["topics"]:  # wrong: null is not thought of
        print(topic["topic_id"])
    if names:
        return {"clustre_id": "c"}  # wrong: a field's name
    if request["allow_auto_topic_creation"]:
        return {"cluster_id": 7}  # wrong: a type
    return {"cluster_id": None, "topics": [{"name": name, "error_code": 0} for name in names]}


def settled(context: RequestContext, request: MetadataRequest) -> Settled[MetadataResponseDraft]:
    """A handler whose answer comes later."""

    async def answer() -> MetadataResponseDraft:
        return {"topics": [{"nmae": "t"}]}  # wrong: a field's name, deep within

    async def other() -> ProduceResponseDraft:
        return {"responses": []}

    return Settled(answer()) if request["topics"] else Settled(other())  # wrong: another API's answer


def authorize(
    asked: AccessRequest[MetadataRequest],
) -> RequestRefused[MetadataResponseDraft] | Restore[MetadataResponseDraft]:
    """An authorizer."""
    if asked.request["topic"]:  # wrong: a field's name
        return RequestRefused({"error_cod": 1})  # wrong: a field's name

    def mend(answer: MetadataResponseDraft) -> MetadataResponseDraft:
        answer["brokers"] = "all of them"  # wrong: a type
        return answer

    return mend


def ask(connection: BrokerConnection, names: list[str]) -> int:
    """A client's calls."""
    connection.call(METADATA, {"topics": [{"name": name} for name in names]}, max_version=9)
    connection.call(METADATA, {"topics": [{"nam": name} for name in names]})  # wrong: a field's name
    connection.call(METADATA, {"topics": "all"})  # wrong: a type
    connection.call(FETCH, {"max_wait_ms": "1"})  # wrong: a type
    body: MetadataRequestDraft = {"topics": None}
    body["topcs"] = None  # wrong: a field's name
    connection.ask(FETCH, body)  # wrong: another API's request
    answer = connection.answer(METADATA)
    print(answer["topics"][0]["partitions"][0]["leader"])  # wrong: a field's name
    return answer["cluster_id"]  # wrong: a type


def store(group: int) -> bytes:
    """A record of a coordinator's."""
    _, key = coordinator_records.decode(OFFSET_COMMIT_KEY, b"")
    print(key["group"].upper(), key["topics"])  # wrong: a field's name
    coordinator_records.encode(OFFSET_COMMIT_KEY, 1, {"group": "g", "topic": "t", "partition": 0})
    return coordinator_records.encode(OFFSET_COMMIT_KEY, 1, {"group": group})  # wrong: a type
