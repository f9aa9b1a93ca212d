"""Topics by the wire: made, enlarged, deleted, told of, page by page; and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from eoslog.broker.config.topics import TOPIC_CONFIGS
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire

Answer = dict[str, Any]


def versions(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


def create(
    wire: Wire, name: str, partitions: int = 1, factor: int = 1, version: int = 7, **how: Any
) -> Answer:
    validate_only = how.pop("validate_only", False)
    wanted = {"name": name, "num_partitions": partitions, "replication_factor": factor, **how}
    answer = wire.call(ApiKey.CREATE_TOPICS, version, topics=[wanted], validate_only=validate_only)
    (made,) = answer["topics"]
    result: Answer = made
    return result


def metadata(wire: Wire, *names: str, version: int = 13, **how: Any) -> list[Answer]:
    topics = [{"name": name} for name in names]
    answer = wire.call(ApiKey.METADATA, version, topics=topics, allow_auto_topic_creation=False, **how)
    found: list[Answer] = answer["topics"]
    return found


def partitions(wire: Wire, name: str) -> int:
    (found,) = metadata(wire, name)
    assert found["error_code"] == 0
    return len(found["partitions"])


@pytest.fixture
def strict() -> Iterator[Wire]:
    """A broker that makes no topics by itself, deletes none, and has room for few."""
    options = {
        "auto.create.topics.enable": "false", "delete.topic.enable": "false", "max.partitions": "5",
        "accept.any.replication.factor": "true", "default.replication.factor": "3",
        "offsets.topic.replication.factor": "3", "transaction.state.log.min.isr": "2",
    }  # fmt: skip
    with EmbeddedBroker(config=options) as broker, Wire(broker.host, broker.port) as wire:
        yield wire


# -- making ------------------------------------------------------------------------------------


def test_a_topic_comes_back_with_its_configs_and_their_sources(wire: Wire, topic: str) -> None:
    given = [{"name": "retention.ms", "value": "5"}]
    for version in versions(ApiKey.CREATE_TOPICS):
        for name, only in ((f"{topic}-check-{version}", True), (f"{topic}-{version}", False)):
            made = create(wire, name, 2, version=version, configs=given, validate_only=only)
            assert (made["error_code"], made["error_message"]) == (0, None)
            if version >= 5:
                configs = {config["name"]: config for config in made["configs"]}
                assert configs.keys() == TOPIC_CONFIGS.keys()
                assert (configs["retention.ms"]["value"], configs["retention.ms"]["config_source"]) == (
                    "5",
                    1,
                )
                assert configs["segment.ms"]["config_source"] == 5
                assert (made["num_partitions"], made["replication_factor"]) == (2, 1)
            if version >= 7:
                assert (made["topic_id"] == bytes(16)) == only
            (found,) = metadata(wire, name)
            assert found["error_code"] == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if only else 0)


def test_configs_of_a_new_topic_that_cannot_be(wire: Wire, topic: str) -> None:
    for name, value in (("retention.ms", None), ("no.such", "1"), ("retention.ms", "x")):
        made = create(wire, topic, configs=[{"name": name, "value": value}])
        assert made["error_code"] == ErrorCode.INVALID_CONFIG
        assert name in made["error_message"]
    assert metadata(wire, topic)[0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_replication_factors_on_a_single_node(wire: Wire, strict: Wire, topic: str) -> None:
    for factor, here, there in ((-1, 0, 0), (1, 0, 0), (3, 38, 0), (0, 38, 38), (-2, 38, 38)):
        name = f"{topic}{factor}"
        assert create(wire, name, 1, factor)["error_code"] == here
        made = create(strict, name, 1, factor)
        assert made["error_code"] == there
        assert there or made["replication_factor"] == 1


def test_assignments_name_this_node_for_each_partition(wire: Wire, topic: str) -> None:
    def assigned(*replicas: tuple[int, list[int]], **how: Any) -> ErrorCode:
        assignments = [{"partition_index": index, "broker_ids": brokers} for index, brokers in replicas]
        how = {"partitions": -1, "factor": -1, **how}
        return ErrorCode(create(wire, topic, **how, assignments=assignments)["error_code"])

    every: tuple[list[tuple[int, list[int]]], ...]
    every = ([(0, [2])], [(0, [])], [(0, [1, 1])], [(0, [1]), (0, [1])], [(1, [1])], [(-1, [1])])
    for wrong in every:
        assert assigned(*wrong) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert assigned((0, [1]), partitions=1) == ErrorCode.INVALID_REQUEST
    assert assigned((0, [1]), factor=1) == ErrorCode.INVALID_REQUEST
    assert assigned((1, [1]), (0, [1])) == 0
    assert partitions(wire, topic) == 2


def test_there_is_room_for_so_many_partitions(strict: Wire, wire: Wire, topic: str) -> None:
    for count in (2**31 - 1, 6):
        for only in (True, False):
            assert (
                create(strict, topic, count, validate_only=only)["error_code"] == ErrorCode.POLICY_VIOLATION
            )
    assert create(strict, topic, 4)["error_code"] == 0
    assert enlarge(strict, topic, 6) == ErrorCode.POLICY_VIOLATION
    assert enlarge(strict, topic, 5) == 0
    assert create(strict, topic + "2", 1)["error_code"] == ErrorCode.POLICY_VIOLATION
    assert create(wire, topic, 2**31 - 1)["error_code"] == ErrorCode.POLICY_VIOLATION
    assert create(wire, topic, -2)["error_code"] == ErrorCode.INVALID_PARTITIONS


# -- enlarging ---------------------------------------------------------------------------------


def enlarge(wire: Wire, name: str, total: int, version: int = 3, **how: Any) -> ErrorCode:
    wanted = {"name": name, "count": total, "assignments": how.pop("assignments", None)}
    answer = wire.call(ApiKey.CREATE_PARTITIONS, version, topics=[wanted], **how)
    (result,) = answer["results"]
    assert result["name"] == name
    assert (result["error_code"] == 0) == (result["error_message"] is None)
    return ErrorCode(result["error_code"])


def test_a_topic_grows(wire: Wire, topic: str) -> None:
    create(wire, topic)
    total = 1
    for version in versions(ApiKey.CREATE_PARTITIONS):
        assert enlarge(wire, topic, total + 2, version, validate_only=True) == 0
        assert partitions(wire, topic) == total
        total += 2
        assert enlarge(wire, topic, total, version) == 0
        assert partitions(wire, topic) == total
    assigned = [{"broker_ids": [1]}, {"broker_ids": [1]}]
    assert enlarge(wire, topic, total + 2, assignments=assigned) == 0


def test_what_does_not_grow(wire: Wire, topic: str) -> None:
    create(wire, topic, 3)
    wire.call(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    for total in (3, 2, 0, -1, -(2**31)):
        assert enlarge(wire, topic, total) == ErrorCode.INVALID_PARTITIONS
    assert enlarge(wire, "__consumer_offsets", 100) == ErrorCode.INVALID_PARTITIONS
    assert enlarge(wire, topic + "-no", 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for assignments in ([], [{"broker_ids": [1]}] * 3, [{"broker_ids": [1]}, {"broker_ids": [2]}]):
        code = enlarge(wire, topic, 5, assignments=assignments)
        assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    wanted = {"name": topic, "count": 5, "assignments": None}
    other = {"name": topic + "-no", "count": 5, "assignments": None}
    answer = wire.call(ApiKey.CREATE_PARTITIONS, 3, topics=[wanted, other, wanted])
    codes = {one["name"]: one["error_code"] for one in answer["results"]}
    assert codes == {
        topic: ErrorCode.INVALID_REQUEST, topic + "-no": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }  # fmt: skip
    assert partitions(wire, topic) == 3


# -- deleting ----------------------------------------------------------------------------------


def test_a_topic_that_is_named_twice_is_not_deleted(wire: Wire, topic: str) -> None:
    topic_id = create(wire, topic)["topic_id"]
    by_name, by_id = {"name": topic}, {"name": None, "topic_id": topic_id}
    both, neither = {"name": topic, "topic_id": topic_id}, {"name": None}
    for wanted in ([by_name, by_name], [by_id, by_id], [by_name, by_id], [both], [neither]):
        answer = wire.call(ApiKey.DELETE_TOPICS, 6, topics=wanted)
        assert {one["error_code"] for one in answer["responses"]} == {ErrorCode.INVALID_REQUEST}
        assert all(one["error_message"] for one in answer["responses"])
    answer = wire.call(ApiKey.DELETE_TOPICS, 4, topic_names=[topic, topic])
    assert [one["error_code"] for one in answer["responses"]] == [ErrorCode.INVALID_REQUEST]
    assert partitions(wire, topic) == 1
    answer = wire.call(ApiKey.DELETE_TOPICS, 6, topics=[by_id])
    assert [(one["name"], one["error_code"]) for one in answer["responses"]] == [(topic, 0)]


def test_a_broker_that_deletes_nothing(strict: Wire, topic: str) -> None:
    create(strict, topic)
    for version in range(1, 6):
        answer = strict.call(ApiKey.DELETE_TOPICS, version, topic_names=[topic])
        code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        assert [one["error_code"] for one in answer["responses"]] == [code]
    assert partitions(strict, topic) == 1


# -- telling -----------------------------------------------------------------------------------


def test_metadata_at_every_version(wire: Wire, topic: str) -> None:
    topic_id = create(wire, topic, 2)["topic_id"]
    for version in versions(ApiKey.METADATA):
        answer = wire.call(ApiKey.METADATA, version, topics=[{"name": topic}, {"name": topic}])
        (found,) = answer["topics"]
        assert (found["error_code"], found["name"], found["is_internal"]) == (0, topic, False)
        assert found["topic_id"] == (topic_id if version >= 10 else bytes(16))
        for index, one in enumerate(found["partitions"]):
            assert (one["partition_index"], one["leader_id"], one["offline_replicas"]) == (index, 1, [])
            assert one["replica_nodes"] == one["isr_nodes"] == [1]
        assert [node["node_id"] for node in answer["brokers"]] == [1]
        everything = wire.call(ApiKey.METADATA, version, topics=None if version else [])
        assert topic in {one["name"] for one in everything["topics"]}


def test_topics_by_id(wire: Wire, topic: str) -> None:
    topic_id = create(wire, topic)["topic_id"]
    wanted = [{"name": None, "topic_id": topic_id}, {"name": "x"}, {"name": None, "topic_id": b"z" * 16}]
    for version in (12, 13):
        answer = wire.call(ApiKey.METADATA, version, topics=[*wanted, wanted[0]])
        assert [(one["name"], one["error_code"]) for one in answer["topics"]] == [
            (topic, 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)
        ]  # fmt: skip
        (nothing,) = wire.call(ApiKey.METADATA, version, topics=[{"name": None}])["topics"]
        assert nothing["error_code"] == ErrorCode.INVALID_REQUEST
    for version in (10, 11):
        for name in (None, topic):
            (one,) = wire.call(ApiKey.METADATA, version, topics=[{"name": name, "topic_id": topic_id}])[
                "topics"
            ]
            assert one["error_code"] == ErrorCode.INVALID_REQUEST


def test_topics_that_are_not_made_by_asking(strict: Wire, wire: Wire, topic: str) -> None:
    asked = {"topics": [{"name": topic}, {"name": "a b"}], "allow_auto_topic_creation": True}
    codes = [one["error_code"] for one in strict.call(ApiKey.METADATA, 9, **asked)["topics"]]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION]
    codes = [one["error_code"] for one in metadata(wire, topic, "a b")]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION]
    codes = [one["error_code"] for one in wire.call(ApiKey.METADATA, 9, **asked)["topics"]]
    assert codes == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_asking_makes_no_more_topics_than_there_is_room_for() -> None:
    with EmbeddedBroker(config={"max.partitions": "3"}) as broker, Wire(broker.host, broker.port) as wire:
        topics = [{"name": f"t{number}"} for number in range(5)]
        answer = wire.call(ApiKey.METADATA, 9, topics=topics, allow_auto_topic_creation=True)
        codes = [one["error_code"] for one in answer["topics"]]
        assert codes == [0, 0, 0, ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION]


def test_a_partition_that_is_offline_has_no_leader() -> None:
    with EmbeddedBroker() as broker:
        with Wire(broker.host, broker.port) as wire:
            create(wire, "t", 2)
        broker.kill()
        shutil.rmtree(broker.data / "t-1")
        broker.start()
        with Wire(broker.host, broker.port) as wire:
            (found,) = metadata(wire, "t")
            good, bad = found["partitions"]
            assert (good["error_code"], good["leader_id"], good["isr_nodes"]) == (0, 1, [1])
            assert (bad["error_code"], bad["leader_id"]) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
            assert (bad["isr_nodes"], bad["offline_replicas"]) == ([], [1])
            page = wire.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": "t"}])
            assert [one["leader_id"] for one in page["topics"][0]["partitions"]] == [1, -1]


def pages(wire: Wire, limit: int, *names: str, cursor: Answer | None = None) -> Iterator[Answer]:
    while True:
        answer = wire.call(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0,
            topics=[{"name": name} for name in names], response_partition_limit=limit, cursor=cursor,
        )  # fmt: skip
        yield answer
        cursor = answer["next_cursor"]
        if cursor is None:
            return


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 2000, 0, -5])
def test_partitions_page_by_page(wire: Wire, topic: str, limit: int) -> None:
    base = topic.replace("[", "-").replace("]", "-")
    counts = {f"{base}a": 3, f"{base}b": 1, f"{base}c": 4}
    for name, count in counts.items():
        create(wire, name, count)
    found = []
    for page in pages(wire, limit, *reversed(counts), f"{base}no"):
        size = sum(len(one["partitions"]) for one in page["topics"])
        assert size <= max(1, limit)
        found += [
            (one["name"], part["partition_index"]) for one in page["topics"] for part in one["partitions"]
        ]
    assert found == [(name, index) for name, count in counts.items() for index in range(count)]
    everything = {one["name"] for page in pages(wire, limit) for one in page["topics"]}
    assert counts.keys() <= everything


def test_pages_that_do_not_begin(wire: Wire, topic: str) -> None:
    create(wire, topic, 3)
    (page,) = pages(wire, 5, topic, topic + "-no", "a b")
    found = {one["name"]: one for one in page["topics"]}
    assert found[topic]["error_code"] == 0
    first = found[topic]["partitions"][0]
    assert first["eligible_leader_replicas"] == first["last_known_elr"] == []
    assert found[topic + "-no"]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found["a b"]["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION
    for cursor in (
        {"topic_name": "other", "partition_index": 0},
        {"topic_name": topic, "partition_index": -1},
    ):
        (page,) = pages(wire, 5, topic, cursor=cursor)
        assert [one["error_code"] for one in page["topics"]] == [ErrorCode.INVALID_REQUEST]
    (page,) = pages(wire, 5, topic, cursor={"topic_name": topic, "partition_index": 2**31 - 1})
    assert [one["partitions"] for one in page["topics"]] == [[]]
