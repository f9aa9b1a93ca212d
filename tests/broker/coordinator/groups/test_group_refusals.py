"""What clients are told, at every version, of groups whose partition of the log is not available."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eoslog.broker.handlers import (
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from eoslog.broker.requests.context import RequestContext
from eoslog.protocol.apis import APIS
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.frames import RequestHeader
from tests.broker.coordinator.groups.group_shell import Shell, run

Answer = dict[str, Any]
GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE
PLACE = [{"partition_index": 0, "committed_offset": 1}]


def topic_error(answer: Answer) -> int:
    code: int = answer["topics"][0]["partitions"][0]["error_code"]
    return code


def fetch_body(version: int, topic_id: bytes) -> Answer:
    named = {"topic_id": topic_id} if version >= 10 else {"name": "t"}
    one = {"group_id": "g", "topics": [{**named, "partition_indexes": [0]}]}
    return {"groups": [one]} if version >= 8 else one


def fetch_error(version: int, answer: Answer) -> int:
    if version == 1:
        return topic_error(answer)
    code: int = (answer["groups"][0] if version >= 8 else answer)["error_code"]
    return code


def commit_body(version: int, topic_id: bytes) -> Answer:
    return {"group_id": "g", "topics": [{"name": "t", "topic_id": topic_id, "partitions": PLACE}]}


def txn_body(version: int, topic_id: bytes) -> Answer:
    topics = [{"name": "t", "partitions": PLACE}]
    return {"group_id": "g", "transactional_id": "x", "producer_id": 1, "producer_epoch": 0, "topics": topics}


def sync_body(version: int, topic_id: bytes) -> Answer:
    return {"group_id": "g"} | (
        {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    )


def join_body(version: int, topic_id: bytes) -> Answer:
    protocols = [{"name": "range", "metadata": b""}]
    return {
        "group_id": "g",
        "session_timeout_ms": 9000,
        "protocol_type": "consumer",
        "protocols": protocols,
    }


Body = Callable[[int, bytes], Answer]
Read = Callable[[int, Answer], int]
CASES: list[tuple[Any, Body, Read]] = [
    (offset_fetch, fetch_body, fetch_error),
    (offset_commit, commit_body, lambda version, answer: topic_error(answer)),
    (txn_offset_commit, txn_body, lambda version, answer: topic_error(answer)),
    (join_group, join_body, lambda version, answer: answer["error_code"]),
    (sync_group, sync_body, lambda version, answer: answer["error_code"]),
    (heartbeat, lambda *_: {"group_id": "g"}, lambda version, answer: answer["error_code"]),
    (leave_group, lambda *_: {"group_id": "g"}, lambda version, answer: answer["error_code"]),
    (
        describe_groups,
        lambda *_: {"groups": ["g"]},
        lambda version, answer: answer["groups"][0]["error_code"],
    ),
    (list_groups, lambda *_: {}, lambda version, answer: answer["error_code"]),
]


async def call(handler: Any, shell: Shell, version: int, body: Answer) -> Answer:
    """One request through its bytes, its handler, and its answer's bytes."""
    api = APIS[handler.KEY]
    request, _ = api.request.read(version, b"".join(bytes(p) for p in api.request.write(version, body)))
    broker: Any = SimpleNamespace(groups=shell.groups, topics=shell.topics, node_id=1, authorizer=None)
    header = RequestHeader(handler.KEY, version, 1, "client")
    answer = handler.handle(RequestContext(broker, header, "/127.0.0.1", "host", 9), request)
    if not isinstance(answer, dict):
        answer = await answer
    told: dict[str, Any]
    told, _ = api.response.read(version, b"".join(bytes(p) for p in api.response.write(version, answer)))
    return told


@pytest.mark.parametrize(
    ("handler", "body", "read", "version"),
    [
        pytest.param(*case, version, id=f"{case[0].KEY.name}-{version}")
        for case in CASES
        for version in range(APIS[case[0].KEY].min_version, APIS[case[0].KEY].max_version + 1)
    ],
)
def test_a_group_whose_partition_is_offline(
    tmp_path: Path, handler: Any, body: Body, read: Read, version: int
) -> None:
    async def attempt() -> None:
        shell = Shell(tmp_path / "data")
        topic_id = shell.topic()
        shell.partition("g").stay_offline("says the test")
        answer = await call(handler, shell, version, body(version, topic_id))
        assert read(version, answer) == GONE

    run(attempt())


@pytest.mark.parametrize("version", range(1, 11))
def test_a_topic_made_anew_has_none_of_the_old_one_s_offsets(tmp_path: Path, version: int) -> None:
    async def attempt() -> None:
        shell = Shell(tmp_path / "data")
        await shell.commit("g", p0=7)
        shell.topics.delete("t")  # and the deletion of its offsets is cut short by a crash
        topic_id = shell.topic()
        answer = await call(offset_fetch, shell, version, fetch_body(version, topic_id))
        (topic,) = (answer["groups"][0] if version >= 8 else answer)["topics"]
        assert topic["partitions"][0]["committed_offset"] == -1

    run(attempt())


@pytest.mark.parametrize("version", [0, 1, 3, 4, 6])
def test_a_coordinator_whose_topic_cannot_be_made(tmp_path: Path, version: int) -> None:
    def fail(name: str) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"no room for {name}")

    async def attempt() -> None:
        shell = Shell(tmp_path / "data")
        shell.topics.internal = fail  # type: ignore[method-assign,assignment]
        body = {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
        answer = await call(find_coordinator, shell, version, body)
        told = answer["coordinators"][0] if version >= 4 else answer
        assert told["error_code"] == GONE
        assert told["node_id"] == -1
        if version >= 1:
            assert "no room" in told["error_message"]

    asyncio.run(attempt())
