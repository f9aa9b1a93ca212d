"""Values that no client library sends are answered as Apache Kafka 4.3.1 answers them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire, create
from tests.broker.handlers.hostile_batches import batch, record


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config={"auto.create.topics.enable": "true"}) as started:
        create(started.bootstrap, "t")
        with Wire(started.host, started.port) as wire:
            assert [part["error_code"] for part in produce(wire, "t", 1)] == [0]
        yield started


def produce(wire: Wire, topic: str, *counts: int) -> list[dict[str, Any]]:
    """One request with a batch of so many records each, all for partition 0."""
    now = int(time.time() * 1000)
    parts = [{"index": 0, "records": batch([record(n) for n in range(count)], now)} for count in counts]
    told = wire.call(ApiKey.PRODUCE, 9, acks=-1, topic_data=[{"name": topic, "partition_data": parts}])
    return [part for response in told["responses"] for part in response["partition_responses"]]


def list_offsets(wire: Wire, version: int, timestamp: int, isolation: int = 0) -> dict[str, Any]:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    told = wire.call(ApiKey.LIST_OFFSETS, version, isolation_level=isolation, topics=topics)
    (found,) = told["topics"][0]["partitions"]
    return dict(found)


@pytest.mark.parametrize("version", [1, 2, 5, 8, 11])
@pytest.mark.parametrize("timestamp", [-7, -100, -(2**63)])
def test_special_times_that_do_not_exist(wire: Wire, version: int, timestamp: int) -> None:
    found = list_offsets(wire, version, timestamp)
    assert (found["error_code"], found["offset"]) == (ErrorCode.UNSUPPORTED_VERSION, -1)


@pytest.mark.parametrize("isolation", [2, -1, 100])
def test_isolation_levels_that_do_not_exist(wire: Wire, isolation: int) -> None:
    for version in (2, 7):
        found = list_offsets(wire, version, -1, isolation)
        assert (found["error_code"], found["offset"]) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    for version in (4, 6, 11):
        told = fetch(wire, version, isolation=isolation)
        whole = ErrorCode.UNKNOWN_SERVER_ERROR if version >= 7 else ErrorCode.NONE
        assert told["error_code"] == whole
        (part,) = told["responses"][0]["partitions"]
        assert (part["error_code"], bytes(part["records"])) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"")


def fetch(wire: Wire, version: int, most: int = 1 << 20, here: int = 1 << 20, isolation: int = 0) -> Any:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": here}
    topics = [{"topic": "t", "partitions": [part]}]
    return wire.call(
        ApiKey.FETCH, version, max_bytes=most, isolation_level=isolation, topics=topics, session_epoch=-1
    )


@pytest.mark.parametrize(("most", "here"), [(-1, 100), (100, -1), (-(2**31), -1)])
def test_negative_sizes(wire: Wire, most: int, here: int) -> None:
    told = fetch(wire, 11, most, here)
    (part,) = told["responses"][0]["partitions"]
    assert (told["error_code"], part["error_code"]) == (0, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert fetch(wire, 11, 0, 0)["responses"][0]["partitions"][0]["records"], "one batch at least"


@pytest.mark.parametrize(("kind", "name"), [(None, None), ("consumer", None), (None, "range")])
def test_a_sync_must_name_its_protocol_from_version_5(wire: Wire, kind: Any, name: Any) -> None:
    sent = {"generation_id": 1, "member_id": "m", "protocol_type": kind, "protocol_name": name}
    told = wire.call(ApiKey.SYNC_GROUP, 5, group_id="nobody", **sent)
    assert told["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    older = {"group_id": "nobody", "generation_id": 1, "member_id": "m"}
    assert wire.call(ApiKey.SYNC_GROUP, 4, **older)["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("validate_only", [False, True])
def test_the_topic_of_kafka_s_controllers_cannot_be_made(wire: Wire, validate_only: bool) -> None:
    topic = {"name": "__cluster_metadata", "num_partitions": 1, "replication_factor": 1}
    told = wire.call(ApiKey.CREATE_TOPICS, 5, topics=[topic], validate_only=validate_only)
    assert told["topics"][0]["error_code"] == ErrorCode.INVALID_REQUEST
    names = [{"name": "__cluster_metadata"}]
    told = wire.call(ApiKey.METADATA, 9, topics=names, allow_auto_topic_creation=True)
    assert told["topics"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (part,) = produce(wire, "__cluster_metadata", 1)
    assert part["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_twice_in_one_produce_takes_and_answers_both(wire: Wire) -> None:
    """Kafka stores the last batch alone, without a word on the first: see compatibility.md."""
    end = list_offsets(wire, 7, -1)["offset"]
    first, second = produce(wire, "t", 2, 3)
    assert (first["error_code"], first["base_offset"]) == (0, end)
    assert (second["error_code"], second["base_offset"]) == (0, end + 2)
    assert list_offsets(wire, 7, -1)["offset"] == end + 5
