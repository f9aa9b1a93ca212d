"""What the client may not see or do: what answers leave out, which batches and fetches are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from eoslog.broker.authorize.access_request import AccessRequest, Audit, RequestRefused
from eoslog.broker.handlers import (
    consumer_group_describe,
    describe_transactions,
    fetch,
    list_groups,
    list_transactions,
    produce,
)
from eoslog.broker.ports.ports import OsFileSystem
from eoslog.broker.rules.acls import Client
from eoslog.broker.stored.authorizer import Authorizer
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.acls import Acl, AclOperation, Pattern, Permission, ResourceType
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.plain_records import encode_records

ALICE = Client("User:alice", "127.0.0.1")
MAY_DESCRIBE = [
    (ResourceType.GROUP, "mine"), (ResourceType.TRANSACTIONAL_ID, "mine"), (ResourceType.TOPIC, "t"),
]  # fmt: skip


@pytest.fixture
def authorizer(tmp_path: Path) -> Authorizer:
    made = Authorizer(OsFileSystem(), str(tmp_path))
    made.add([
        Acl(kind, name, Pattern.LITERAL, "User:alice", "*", AclOperation.DESCRIBE, Permission.ALLOW)
        for kind, name in MAY_DESCRIBE
    ])  # fmt: skip
    return made


def told(authorizer: Authorizer, check: Any, request: dict[str, Any], answer: dict[str, Any]) -> Any:
    mend = check(AccessRequest(authorizer, cast(Audit, Mock()), ALICE, 0, 0, request, cast(Topics, None)))
    return answer if mend is None else mend(answer)


def test_groups_that_may_not_be_described_are_not_listed(authorizer: Authorizer) -> None:
    answer = {"groups": [{"group_id": "mine"}, {"group_id": "secret"}]}
    assert told(authorizer, list_groups.access, {}, answer)["groups"] == [{"group_id": "mine"}]


def test_transactional_ids_that_may_not_be_described_are_not_listed(authorizer: Authorizer) -> None:
    answer = {"transaction_states": [{"transactional_id": "mine"}, {"transactional_id": "secret"}]}
    found = told(authorizer, list_transactions.access, {}, answer)
    assert found["transaction_states"] == [{"transactional_id": "mine"}]


def test_a_transaction_tells_the_topics_that_may_be_seen(authorizer: Authorizer) -> None:
    state = {"transactional_id": "mine", "topics": [{"topic": "t"}, {"topic": "secret"}]}
    request = {"transactional_ids": ["mine"]}
    found = told(authorizer, describe_transactions.access, request, {"transaction_states": [state]})
    assert found["transaction_states"][0]["topics"] == [{"topic": "t"}]


@pytest.mark.parametrize("held", ["assignment", "target_assignment"])
def test_a_group_with_a_topic_that_may_not_be_seen_is_not_told(authorizer: Authorizer, held: str) -> None:
    for topic, code in (("t", None), ("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED)):
        nothing: dict[str, Any] = {"topic_partitions": []}
        member = {"assignment": nothing, "target_assignment": nothing}
        member[held] = {"topic_partitions": [{"topic_name": topic}]}
        request = {"group_ids": ["mine"], "include_authorized_operations": False}
        answer = {"groups": [{"group_id": "mine", "members": [member]}]}
        (group,) = told(authorizer, consumer_group_describe.access, request, answer)["groups"]
        assert group.get("error_code") == code and ("members" in group) == (code is None)


def produced(transactional_id: str | None, *, transactional: bool) -> dict[str, Any]:
    records = encode_records([(b"", b"x")], 1, producer_id=1, producer_epoch=0, transactional=transactional)
    part = {"index": 0, "records": records}
    topics = [{"name": "w", "topic_id": bytes(16), "partition_data": [part]}]
    return {"transactional_id": transactional_id, "acks": -1, "topic_data": topics}


@pytest.mark.parametrize(
    ("transactional_id", "transactional", "refused"),
    [("secret", True, True), (None, True, True), ("secret", False, False), (None, False, False)],
)
def test_a_transactional_batch_needs_the_right_to_its_id(
    authorizer: Authorizer, transactional_id: str | None, transactional: bool, refused: bool
) -> None:
    authorizer.add([
        Acl(ResourceType.TOPIC, "w", Pattern.LITERAL, "User:alice", "*", AclOperation.WRITE, Permission.ALLOW)
    ])  # fmt: skip
    request = produced(transactional_id, transactional=transactional)
    asked = AccessRequest(authorizer, cast(Audit, Mock()), ALICE, 0, 9, request, cast(Topics, None))
    assert isinstance(produce.access(asked), RequestRefused) == refused


@pytest.mark.parametrize(
    ("version", "field"),
    [(12, {"replica_id": 5}), (15, {"replica_state": {"replica_id": 5, "replica_epoch": 1}})],
)
def test_a_follower_needs_the_right_of_brokers(
    authorizer: Authorizer, version: int, field: dict[str, Any]
) -> None:
    authorizer.add([
        Acl(ResourceType.TOPIC, "t", Pattern.LITERAL, "User:alice", "*", AclOperation.READ, Permission.ALLOW)
    ])  # fmt: skip
    topics = Mock(name_of=lambda topic_id: "t")
    body = {"topics": [{"topic": "t", "topic_id": bytes(16), "partitions": [{"partition": 0}]}], **field}
    schema = APIS[ApiKey.FETCH].request
    request, _ = schema.read(version, b"".join(schema.write(version, body)))
    found = fetch.access(AccessRequest(authorizer, cast(Audit, Mock()), ALICE, 1, version, request, topics))
    assert isinstance(found, RequestRefused) and found.answer is not None
    assert found.answer["responses"][0]["partitions"][0]["error_code"] == 29
