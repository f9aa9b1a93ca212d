"""What admin tools ask of a cluster of a single node; what stock admin clients ask beyond the scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import kafka.admin
import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
)
from kafka.admin import KafkaAdminClient

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


# -- stock admin clients -------------------------------------------------------------------------
# What the admin clients of confluent-kafka and kafka-python ask for beyond the scenarios.


def only(futures: dict[Any, Future[Any]]) -> Any:
    """The result of the one future."""
    (future,) = futures.values()
    return future.result(10)


@pytest.fixture
def admin(broker: EmbeddedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def python(broker: EmbeddedBroker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def code(futures: dict[Any, Future[Any]]) -> str:
    with pytest.raises(KafkaException) as caught:
        only(futures)
    name: str = caught.value.args[0].name()
    return name


# -- confluent-kafka ---------------------------------------------------------------------------


def test_confluent_changes_configs(admin: AdminClient, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, 1, 1)]))
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

    def told(name: str) -> ConfigEntry:
        asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
        found: ConfigEntry = only(admin.describe_configs([asked]))[name]
        return found

    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    )
    resource.add_incremental_config(
        ConfigEntry("retention.ms", "7", incremental_operation=AlterConfigOpType.SET)
    )
    only(admin.incremental_alter_configs([resource]))
    assert (told("cleanup.policy").value, told("retention.ms").value) == ("delete,compact", "7")
    assert ConfigSource(told("retention.ms").source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert [one.name for one in told("retention.ms").synonyms.values()] == [
        "retention.ms",
        "log.retention.ms",
    ]
    only(admin.alter_configs([ConfigResource(ConfigResource.Type.TOPIC, topic, {"segment.ms": "9"})]))
    assert ConfigSource(told("retention.ms").source) is ConfigSource.DEFAULT_CONFIG
    wrong = ConfigResource(ConfigResource.Type.TOPIC, topic, {"segment.ms": "soon"})
    assert code(admin.alter_configs([wrong])) == "INVALID_CONFIG"
    broker = only(admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]))
    assert broker["num.partitions"].is_read_only
    assert not broker["log.retention.ms"].is_read_only


def test_confluent_asks_about_the_cluster(admin: AdminClient, broker: EmbeddedBroker, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, 1, 1)]))
    cluster = admin.describe_cluster(include_authorized_operations=True).result(10)
    assert ([node.id for node in cluster.nodes], cluster.controller.id) == ([1], 1)
    assert cluster.cluster_id
    elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(10)
    assert [error.name() for error in elected.values()] == ["ELECTION_NOT_NEEDED"]


# -- kafka-python ------------------------------------------------------------------------------


def test_kafka_python_changes_configs(python: KafkaAdminClient, topic: str) -> None:
    python.create_topics([kafka.admin.NewTopic(topic, num_partitions=1, replication_factor=1)])

    def resource(**configs: str) -> kafka.admin.ConfigResource:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        return kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic, configs=named or None)

    python.alter_configs([resource(retention_ms="7")])
    found = str(python.describe_configs([resource()]))
    assert "retention.ms" in found
    assert "7" in found
    refused = str(python.alter_configs([resource(segment_ms="soon")]))
    assert "segment.ms=soon" in refused
    python.reset_configs([resource(retention_ms="")])
    assert "retention.ms" not in str(python.describe_configs([resource()]))
    assert topic in str(python.list_config_resources())
