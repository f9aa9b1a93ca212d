"""What admin tools ask of a cluster, answered by one of a single node."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire


def versions(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


@pytest.fixture
def made(wire: Wire, topic: str) -> str:
    """A topic of two partitions."""
    wanted = {"name": topic, "num_partitions": 2, "replication_factor": 1}
    wire.call(ApiKey.CREATE_TOPICS, 7, topics=[wanted])
    return topic


def test_no_election_is_needed(wire: Wire, made: str) -> None:
    for version in versions(ApiKey.ELECT_LEADERS):
        wanted = [{"topic": made, "partitions": [0, 1, 2]}, {"topic": "no", "partitions": [0]}]
        answer = wire.call(ApiKey.ELECT_LEADERS, version, topic_partitions=wanted)
        needless, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [
            (one["topic"], [part["error_code"] for part in one["partition_result"]])
            for one in answer["replica_election_results"]
        ] == [(made, [needless, needless, unknown]), ("no", [unknown])]
        answer = wire.call(ApiKey.ELECT_LEADERS, version, topic_partitions=None)
        results = {one["topic"]: one["partition_result"] for one in answer["replica_election_results"]}
        assert results[made] == []
    answer = wire.call(ApiKey.ELECT_LEADERS, 2, election_type=2, topic_partitions=None)
    assert answer["error_code"] == ErrorCode.INVALID_REQUEST


def test_partitions_stay_on_their_node(wire: Wire, made: str) -> None:
    for version in versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS):

        def moved(topic: str, index: int, replicas: list[int] | None, version: int = version) -> ErrorCode:
            wanted = [{"name": topic, "partitions": [{"partition_index": index, "replicas": replicas}]}]
            answer = wire.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, topics=wanted)
            assert answer["error_code"] == 0
            ((result,),) = (one["partitions"] for one in answer["responses"])
            return ErrorCode(result["error_code"])

        assert moved(made, 0, [1]) == 0
        for replicas in ([2], [1, 2], [], [1, 1]):
            assert moved(made, 0, replicas) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert moved(made, 0, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert moved(made, 2, [1]) == moved("no", 0, None) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for topics in (None, [{"name": made, "partition_indexes": [0]}]):
        answer = wire.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=topics)
        assert (answer["error_code"], answer["topics"]) == (0, [])


def test_partitions_stay_in_their_directory(broker: EmbeddedBroker, wire: Wire, made: str) -> None:
    for version in versions(ApiKey.ALTER_REPLICA_LOG_DIRS):

        def moved(path: str, topic: str, index: int, version: int = version) -> ErrorCode:
            wanted = [{"path": path, "topics": [{"name": topic, "partitions": [index]}]}]
            answer = wire.call(ApiKey.ALTER_REPLICA_LOG_DIRS, version, dirs=wanted)
            ((result,),) = (one["partitions"] for one in answer["results"])
            return ErrorCode(result["error_code"])

        assert moved(str(broker.data), made, 1) == 0
        assert moved(str(broker.data) + "/", made, 1) == 0
        assert moved("/elsewhere", made, 1) == ErrorCode.LOG_DIR_NOT_FOUND
        assert moved(str(broker.data), made, 2) == ErrorCode.REPLICA_NOT_AVAILABLE
        assert moved(str(broker.data), "no", 0) == ErrorCode.REPLICA_NOT_AVAILABLE


def test_a_quorum_of_one(broker: EmbeddedBroker, wire: Wire) -> None:
    wanted = [
        {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}, {"partition_index": 1}]},
        {"topic_name": "t", "partitions": [{"partition_index": 0}]},
    ]
    for version in versions(ApiKey.DESCRIBE_QUORUM):
        answer = wire.call(ApiKey.DESCRIBE_QUORUM, version, topics=wanted)
        (quorum, second), (other,) = (topic["partitions"] for topic in answer["topics"])
        assert (answer["error_code"], quorum["error_code"], quorum["leader_id"]) == (0, 0, 1)
        assert [voter["replica_id"] for voter in quorum["current_voters"]] == [1]
        assert quorum["observers"] == []
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert second["error_code"] == other["error_code"] == unknown
        if version >= 2:
            ((listener,),) = (node["listeners"] for node in answer["nodes"])
            assert (listener["host"], listener["port"]) == (broker.host, broker.port)


def test_features_can_only_be_confirmed(wire: Wire) -> None:
    def update(version: int, *wanted: tuple[str, int]) -> tuple[int, list[int]]:
        updates: list[dict[str, Any]] = [
            {"feature": name, "max_version_level": level} for name, level in wanted
        ]
        answer = wire.call(ApiKey.UPDATE_FEATURES, version, feature_updates=updates)
        assert (answer["error_code"] == 0) == (answer["error_message"] is None)
        return answer["error_code"], [one["error_code"] for one in answer.get("results") or []]

    kept, lower, unknown = ("transaction.version", 2), ("transaction.version", 1), ("no.such", 1)
    refused = ErrorCode.INVALID_UPDATE_VERSION
    for version in versions(ApiKey.UPDATE_FEATURES):
        told = [0] if version < 2 else []
        assert update(version, kept) == (0, told)
        assert update(version, kept, kept) == (0, told * 2)
        assert update(version) == (0, [])
        for wanted in ([lower], [unknown], [kept, unknown]):
            assert update(version, *wanted) == (refused, [])


def test_the_cluster_is_one_broker(broker: EmbeddedBroker, wire: Wire) -> None:
    for version in versions(ApiKey.DESCRIBE_CLUSTER):
        answer = wire.call(ApiKey.DESCRIBE_CLUSTER, version)
        (node,) = answer["brokers"]
        assert (node["broker_id"], node["host"], node["port"]) == (1, broker.host, broker.port)
        assert (answer["error_code"], answer["controller_id"]) == (0, 1)
        assert answer["cluster_authorized_operations"] == -(2**31)
        asked = wire.call(ApiKey.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True)
        assert asked["cluster_authorized_operations"] > 0
    for kind, code in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        assert wire.call(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=kind)["error_code"] == code
