"""Configs over the wire, and the tables that they come from: Kafka's names, defaults and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from eoslog.broker.config import OVERRIDES, BrokerConfig, ConfigError, option_table
from eoslog.broker.config.config_def import ConfigRule, ConfigType, rule_of, text_of
from eoslog.broker.config.topics import TOPIC_CONFIGS, TopicOptions
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.resources import GROUP_CONFIGS, group_values
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire

# -- over the wire ---------------------------------------------------------------------------------
# Configs of all kinds of resources by the wire: told, changed, kept, refused.


Answer = dict[str, Any]

TOPIC, BROKER, GROUP = 2, 4, 32
UNSERVED = (0, 1, 3, 8, 16, 64)
"""Types that have no configs; 8 are loggers, 16 subscriptions to client metrics."""
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOLD = option_table().keys() - {OVERRIDES}
"""The options that are told of every broker; those of single listeners are told one by one."""
FROM_TOPIC, FROM_BROKER, FROM_ALL, FROM_START, FROM_DEFAULT, FROM_GROUP = 1, 2, 3, 4, 5, 8


def versions(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


def describe(
    wire: Wire, kind: int, name: str, keys: list[str] | None = None, version: int = 4, **how: Any
) -> Answer:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    (found,) = wire.call(ApiKey.DESCRIBE_CONFIGS, version, resources=[resource], **how)["results"]
    assert (found["resource_type"], found["resource_name"]) == (kind, name)
    result: Answer = found
    return result


def configs(wire: Wire, kind: int, name: str, **how: Any) -> dict[str, Answer]:
    found = describe(wire, kind, name, **how)
    assert found["error_code"] == 0, found
    return {config["name"]: config for config in found["configs"]}


def change(
    wire: Wire, kind: int, name: str, *changes: tuple[str, int, str | None], version: int = 1, **how: Any
) -> ErrorCode:
    wanted = [{"name": n, "config_operation": operation, "value": value} for n, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": wanted}
    answer = wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, resources=[resource], **how)
    return judged(answer, kind, name)


def replace(wire: Wire, kind: int, name: str, version: int = 2, **how: Any) -> ErrorCode:
    validate_only = how.pop("validate_only", False)
    wanted = [{"name": n, "value": value} for n, value in how.pop("configs", {}).items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": wanted}
    answer = wire.call(ApiKey.ALTER_CONFIGS, version, resources=[resource], validate_only=validate_only)
    return judged(answer, kind, name)


def judged(answer: Answer, kind: int, name: str) -> ErrorCode:
    (found,) = answer["responses"]
    assert (found["resource_type"], found["resource_name"]) == (kind, name)
    assert (found["error_code"] == 0) == (found["error_message"] is None)
    return ErrorCode(found["error_code"])


@pytest.fixture
def made(wire: Wire, topic: str) -> str:
    """A topic that sets one config."""
    wanted = {
        "name": topic, "num_partitions": 1, "replication_factor": 1,
        "configs": [{"name": "retention.ms", "value": "77"}],
    }  # fmt: skip
    (answer,) = wire.call(ApiKey.CREATE_TOPICS, 7, topics=[wanted])["topics"]
    assert answer["error_code"] == 0
    return topic


# -- topics ------------------------------------------------------------------------------------


def test_a_topic_s_configs_and_where_they_come_from(wire: Wire, made: str) -> None:
    for version in versions(ApiKey.DESCRIBE_CONFIGS):
        found = configs(wire, TOPIC, made, version=version, include_synonyms=True)
        assert found.keys() == TOPIC_CONFIGS.keys()
        own, silent = found["retention.ms"], found["segment.bytes"]
        assert (own["value"], own["config_source"], own["read_only"]) == ("77", FROM_TOPIC, False)
        assert own["synonyms"] == [
            {"name": "retention.ms", "value": "77", "source": FROM_TOPIC},
            {"name": "log.retention.ms", "value": "604800000", "source": FROM_DEFAULT},
        ]
        assert (silent["value"], silent["config_source"]) == (str(1 << 30), FROM_DEFAULT)
        if version >= 3:
            assert (own["config_type"], found["cleanup.policy"]["config_type"]) == (5, 7)
            assert own["documentation"] is None
    told = configs(wire, TOPIC, made, include_documentation=True)
    assert "without effect here" in told["flush.ms"]["documentation"]
    assert told["retention.ms"]["synonyms"] == []


def test_only_the_configs_asked_for_are_told(wire: Wire, made: str) -> None:
    assert configs(wire, TOPIC, made, keys=["retention.ms", "no.such"]).keys() == {"retention.ms"}
    assert configs(wire, TOPIC, made, keys=[]).keys() == TOPIC_CONFIGS.keys()


def test_what_is_not_there_is_not_told(wire: Wire, topic: str) -> None:
    codes = {
        (TOPIC, topic): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (TOPIC, "a b"): ErrorCode.INVALID_TOPIC_EXCEPTION,
        (BROKER, "2"): ErrorCode.INVALID_REQUEST,
        (BROKER, "one"): ErrorCode.INVALID_REQUEST,
        (GROUP, ""): ErrorCode.INVALID_REQUEST,
        (3, "x"): ErrorCode.INVALID_REQUEST,
        (-1, "x"): ErrorCode.INVALID_REQUEST,
    }
    for (kind, name), code in codes.items():
        found = describe(wire, kind, name)
        assert (found["error_code"], found["configs"]) == (code, []), (kind, name)
        assert found["error_message"]
        assert change(wire, kind, name, ("retention.ms", SET, "5")) == code
        assert replace(wire, kind, name) == code
    assert change(wire, TOPIC, topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert change(wire, TOPIC, "") == replace(wire, TOPIC, "") == ErrorCode.INVALID_REQUEST
    assert describe(wire, TOPIC, "")["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_changes_of_a_topic_one_by_one(wire: Wire, made: str) -> None:
    for version in versions(ApiKey.INCREMENTAL_ALTER_CONFIGS):
        steps = [
            (("segment.bytes", SET, "5000"), {"retention.ms": "77", "segment.bytes": "5000"}),
            (("cleanup.policy", APPEND, "compact,delete"), {"cleanup.policy": "delete,compact"}),
            (("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": "compact"}),
            (("cleanup.policy", DELETE, "ignored"), {"cleanup.policy": "delete"}),
            (("segment.bytes", DELETE, None), {"segment.bytes": str(1 << 30)}),
            (("retention.ms", SET, "77"), {"retention.ms": "77"}),
        ]
        for step, expected in steps:
            assert change(wire, TOPIC, made, step, version=version) == 0
            found = configs(wire, TOPIC, made)
            assert {name: found[name]["value"] for name in expected} == expected


def test_all_changes_of_a_resource_or_none(wire: Wire, made: str) -> None:
    wrong = [
        ("no.such.config", SET, "1"),
        ("segment.bytes", SET, "ten"),
        ("segment.bytes", SET, "1_000_000"),
        ("segment.bytes", SET, "3"),
        ("cleanup.policy", SET, "burn"),
        ("cleanup.policy", SET, "delete,delete"),
        ("compression.gzip.level", SET, "0"),
        ("min.cleanable.dirty.ratio", SET, "nan"),
        ("min.cleanable.dirty.ratio", SET, "1.5"),
        ("min.compaction.lag.ms", SET, "6"),
        ("leader.replication.throttled.replicas", SET, "all"),
        ("preallocate", SET, "maybe"),
        ("remote.storage.enable", SET, "true"),
        ("segment.bytes", APPEND, "5"),
        ("no.such.config", SUBTRACT, "5"),
    ]
    for one in wrong:
        both = [("max.compaction.lag.ms", SET, "5"), one]
        assert change(wire, TOPIC, made, *both) == ErrorCode.INVALID_CONFIG, one
    refused: list[tuple[str, int, str | None]]
    refused = [("retention.ms", 9, "1"), ("retention.ms", -1, "1"), ("retention.ms", SET, None)]
    for bad in refused:
        assert change(wire, TOPIC, made, ("segment.bytes", SET, "5000"), bad) == ErrorCode.INVALID_REQUEST
    twice = [("segment.bytes", SET, "5000"), ("segment.bytes", DELETE, None)]
    assert change(wire, TOPIC, made, *twice) == ErrorCode.INVALID_REQUEST
    found = configs(wire, TOPIC, made)
    assert {name for name, one in found.items() if one["config_source"] == FROM_TOPIC} == {"retention.ms"}


def test_a_list_does_not_grow_without_end(wire: Wire, made: str) -> None:
    name = "leader.replication.throttled.replicas"
    many = [",".join(f"{i}:1" for i in range(start, start + 3000)) for start in (10_000, 20_000)]
    assert change(wire, TOPIC, made, (name, SET, many[0])) == 0
    assert change(wire, TOPIC, made, (name, APPEND, many[1])) == ErrorCode.INVALID_CONFIG
    assert configs(wire, TOPIC, made)[name]["value"] == many[0]


def test_configs_of_a_topic_are_replaced_as_a_whole(wire: Wire, made: str) -> None:
    for version in versions(ApiKey.ALTER_CONFIGS):
        wanted = {"segment.bytes": "5000"}
        assert replace(wire, TOPIC, made, version, configs=wanted) == 0
        found = configs(wire, TOPIC, made)
        assert {name for name, one in found.items() if one["config_source"] == FROM_TOPIC} == {
            "segment.bytes"
        }
        assert replace(wire, TOPIC, made, version, configs={"nope": "1"}) == ErrorCode.INVALID_CONFIG
        assert (
            replace(wire, TOPIC, made, version, configs={"segment.bytes": None}) == ErrorCode.INVALID_REQUEST
        )
        assert configs(wire, TOPIC, made)["segment.bytes"]["value"] == "5000"
    assert replace(wire, TOPIC, made) == 0
    assert configs(wire, TOPIC, made)["segment.bytes"]["config_source"] == FROM_DEFAULT


def test_what_is_only_checked_changes_nothing(wire: Wire, made: str) -> None:
    assert change(wire, TOPIC, made, ("retention.ms", SET, "5"), validate_only=True) == 0
    assert replace(wire, TOPIC, made, validate_only=True) == 0
    assert (
        change(wire, TOPIC, made, ("retention.ms", SET, "x"), validate_only=True) == ErrorCode.INVALID_CONFIG
    )
    wrong = replace(wire, TOPIC, made, configs={"x": "1"}, validate_only=True)
    assert wrong == ErrorCode.INVALID_CONFIG
    assert change(wire, BROKER, "", ("log.retention.ms", SET, "5"), validate_only=True) == 0
    assert change(wire, GROUP, "g", ("consumer.session.timeout.ms", SET, "46000"), validate_only=True) == 0
    assert configs(wire, TOPIC, made)["retention.ms"]["value"] == "77"
    assert configs(wire, BROKER, "") == {}
    assert configs(wire, GROUP, "g")["consumer.session.timeout.ms"]["config_source"] == FROM_DEFAULT


def test_a_resource_that_is_named_twice_is_refused_and_no_other(wire: Wire, made: str) -> None:
    config = [{"name": "retention.ms", "config_operation": SET, "value": "5"}]
    twice = {"resource_type": TOPIC, "resource_name": made, "configs": config}
    other = {"resource_type": GROUP, "resource_name": "g", "configs": []}
    for key, version in ((ApiKey.INCREMENTAL_ALTER_CONFIGS, 1), (ApiKey.ALTER_CONFIGS, 2)):
        if key == ApiKey.ALTER_CONFIGS:
            twice = twice | {"configs": [{"name": "retention.ms", "value": "5"}]}
        answer = wire.call(key, version, resources=[twice, other, twice])
        codes = [one["error_code"] for one in answer["responses"]]
        assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
    assert configs(wire, TOPIC, made)["retention.ms"]["value"] == "77"


# -- brokers -----------------------------------------------------------------------------------


def test_a_broker_s_options_are_all_told(wire: Wire) -> None:
    found = configs(wire, BROKER, "1", include_synonyms=True, include_documentation=True)
    assert found.keys() == TOLD
    for name in TOLD:
        declared = option_table()[name]
        assert found[name]["read_only"] == (not declared.metadata["dynamic"])
        assert found[name]["is_sensitive"] == rule_of(declared).secret
        assert found[name]["documentation"]
        assert not rule_of(declared).secret or found[name]["value"] is None
    given = found["log.dirs"]
    assert given["config_source"] == FROM_START
    assert [one["source"] for one in given["synonyms"]] == [FROM_START, FROM_DEFAULT]


def test_options_of_all_brokers_and_of_this_one(broker: EmbeddedBroker, wire: Wire, topic: str) -> None:
    wire.call(ApiKey.CREATE_TOPICS, 7, topics=[{"name": topic, "num_partitions": 1, "replication_factor": 1}])
    name = "log.cleaner.min.compaction.lag.ms"

    def told() -> tuple[str, int, str, int]:
        option = configs(wire, BROKER, "1")[name]
        config = configs(wire, TOPIC, topic)["min.compaction.lag.ms"]
        return option["value"], option["config_source"], config["value"], config["config_source"]

    assert told() == ("0", FROM_DEFAULT, "0", FROM_DEFAULT)
    assert change(wire, BROKER, "", (name, SET, "5")) == 0
    assert told() == ("5", FROM_ALL, "5", FROM_ALL)
    assert configs(wire, BROKER, "").keys() == {name}
    assert change(wire, BROKER, "1", (name, SET, "7")) == 0
    assert told() == ("7", FROM_BROKER, "7", FROM_BROKER)
    sources = configs(wire, BROKER, "1", include_synonyms=True)[name]["synonyms"]
    assert [(one["value"], one["source"]) for one in sources] == [
        ("7", FROM_BROKER), ("5", FROM_ALL), ("0", FROM_DEFAULT)
    ]  # fmt: skip
    assert change(wire, BROKER, "1", (name, DELETE, None)) == 0
    assert replace(wire, BROKER, "") == 0
    assert told() == ("0", FROM_DEFAULT, "0", FROM_DEFAULT)


def test_options_that_cannot_change_or_do_not_fit(wire: Wire, topic: str) -> None:
    wrong = [
        ("num.partitions", "3"),
        ("log.dirs", "elsewhere"),
        ("listener.name.plaintext.ssl.client.auth", "none"),
        ("listener.name.plaintext.no.such.option", "1"),
        ("listener.name.plaintext.max.connections", "0"),
        ("listener.name.plaintext.max.connections", "many"),
        ("listener.name.PLAINTEXT.max.connections", "5"),
        ("listener.name.other.max.connections", "5"),
        ("listener.name.*", "5"),
        ("max.connections", "0"),
        ("log.retention.hours", "5"),
        ("controller.quorum.voters", "1@localhost:9093"),
        ("num.io.threads", "many"),
        ("cordoned.log.dirs", "here"),
        ("log.segment.bytes", "3"),
        ("log.segment.bytes", "many"),
        ("log.cleaner.max.compaction.lag.ms", "0"),
    ]
    for name in ("", "1"):
        for option, value in wrong:
            assert change(wire, BROKER, name, (option, SET, value)) == ErrorCode.INVALID_REQUEST, option
            assert replace(wire, BROKER, name, configs={option: value}) == ErrorCode.INVALID_REQUEST
        assert change(wire, BROKER, name, ("log.retention.ms", APPEND, "3")) == ErrorCode.INVALID_CONFIG
    wanted = {
        "name": topic, "num_partitions": 1, "replication_factor": 1,
        "configs": [{"name": "min.compaction.lag.ms", "value": "100"}],
    }  # fmt: skip
    wire.call(ApiKey.CREATE_TOPICS, 7, topics=[wanted])
    clash = ("log.cleaner.max.compaction.lag.ms", SET, "99")
    assert change(wire, BROKER, "", clash) == ErrorCode.INVALID_REQUEST
    wire.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": topic}])
    assert configs(wire, BROKER, "") == {}


def test_what_the_start_gave_is_static_even_where_it_is_the_default(topic: str) -> None:
    given = {"log.cleanup.policy": "delete", "log.retention.hours": "168", "log.segment.bytes": "5000"}
    with EmbeddedBroker(config=given) as broker, Wire(broker.host, broker.port) as wire:
        wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1}
        wire.call(ApiKey.CREATE_TOPICS, 7, topics=[wanted])
        found = configs(wire, BROKER, "1", include_synonyms=True)
        for name in ("log.cleanup.policy", "log.retention.ms", "log.segment.bytes"):
            assert found[name]["config_source"] == FROM_START, name
            assert [one["source"] for one in found[name]["synonyms"]] == [FROM_START, FROM_DEFAULT]
        assert found["log.roll.ms"]["config_source"] == FROM_DEFAULT
        inherited = configs(wire, TOPIC, topic, include_synonyms=True)
        for name in ("cleanup.policy", "retention.ms", "segment.bytes"):
            assert inherited[name]["config_source"] == FROM_START, name
        assert inherited["segment.ms"]["config_source"] == FROM_DEFAULT


RELOGIN, THREADS, NOBODYS = "sasl.kerberos.min.time.before.relogin", "num.io.threads", "no.such.option"


def test_options_without_effect_are_kept_over_a_restart() -> None:
    with EmbeddedBroker() as broker:
        with Wire(broker.host, broker.port) as wire:
            assert change(wire, BROKER, "1", (RELOGIN, SET, "70000"), (NOBODYS, SET, "a secret?")) == 0
            assert change(wire, BROKER, "", (THREADS, SET, "7")) == 0
            assert change(wire, BROKER, "", (RELOGIN, SET, "1")) == ErrorCode.INVALID_REQUEST
            assert change(wire, BROKER, "1", (RELOGIN, SET, "soon")) == ErrorCode.INVALID_REQUEST
            assert change(wire, BROKER, "1", ("metric.reporters", APPEND, "a")) == 0
            assert change(wire, BROKER, "1", ("metric.reporters", APPEND, "b")) == 0
        broker.restart()
        with Wire(broker.host, broker.port) as wire:
            found = configs(wire, BROKER, "1", include_synonyms=True)
            shown = {
                name: (found[name]["value"], found[name]["config_source"], found[name]["read_only"])
                for name in found.keys() - option_table().keys()
            }
            assert shown == {
                RELOGIN: ("70000", FROM_BROKER, False), THREADS: ("7", FROM_ALL, False),
                NOBODYS: (None, FROM_BROKER, True), "metric.reporters": ("a,b", FROM_BROKER, False),
            }  # fmt: skip
            assert found[NOBODYS]["is_sensitive"]
            assert [one["value"] for one in found[NOBODYS]["synonyms"]] == [None]
            assert configs(wire, BROKER, "").keys() == {THREADS}
            assert replace(wire, BROKER, "1") == replace(wire, BROKER, "") == 0
            assert configs(wire, BROKER, "1").keys() == TOLD


# -- groups, types without configs -------------------------------------------------------------


def test_configs_of_a_group(wire: Wire) -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assert configs(wire, GROUP, "g1").keys() == {session, heartbeat}
    assert change(wire, GROUP, "g1", (session, SET, "50000"), (heartbeat, SET, "6000")) == 0
    found = configs(wire, GROUP, "g1", include_synonyms=True)[session]
    assert (found["value"], found["config_source"]) == ("50000", FROM_GROUP)
    assert [one["source"] for one in found["synonyms"]] == [FROM_GROUP, FROM_DEFAULT]
    assert configs(wire, GROUP, "g2")[session]["config_source"] == FROM_DEFAULT
    for name, value in (
        (session, "5"),
        (session, "60001"),
        (heartbeat, "1"),
        ("no.such", "1"),
        (session, "x"),
    ):
        assert change(wire, GROUP, "g1", (name, SET, value)) == ErrorCode.INVALID_CONFIG
    assert change(wire, GROUP, "g1", (session, APPEND, "1")) == ErrorCode.INVALID_CONFIG
    listed = wire.call(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[GROUP])["config_resources"]
    assert listed == [{"resource_name": "g1", "resource_type": GROUP}]
    assert replace(wire, GROUP, "g1") == 0
    assert wire.call(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[GROUP])["config_resources"] == []


def test_members_of_a_group_hear_of_its_configs(wire: Wire, made: str) -> None:
    def interval(group: str) -> int:
        answer = wire.call(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=group, member_id=f"m-{group}", member_epoch=0,
            rebalance_timeout_ms=60_000, subscribed_topic_names=[made], topic_partitions=[],
        )  # fmt: skip
        assert answer["error_code"] == 0, answer
        found: int = answer["heartbeat_interval_ms"]
        return found

    assert change(wire, GROUP, "slow", ("consumer.heartbeat.interval.ms", SET, "9000")) == 0
    assert (interval("slow"), interval("other")) == (9000, 5000)


def test_resources_are_listed_by_type(wire: Wire, made: str) -> None:
    def listed(*kinds: int) -> list[tuple[int, str]]:
        answer = wire.call(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=list(kinds))
        assert answer["error_code"] == 0
        return [(one["resource_type"], one["resource_name"]) for one in answer["config_resources"]]

    assert (TOPIC, made) in listed(TOPIC)
    assert listed(BROKER, BROKER) == [(BROKER, "1")]
    assert {(TOPIC, made), (BROKER, "1")} <= set(listed())
    assert {kind for kind, _ in listed()} <= {TOPIC, BROKER, GROUP}
    for kind in UNSERVED:
        answer = wire.call(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[TOPIC, kind])
        assert answer["error_code"] == ErrorCode.UNSUPPORTED_VERSION
    assert wire.call(ApiKey.LIST_CONFIG_RESOURCES, 0)["config_resources"] == []


@pytest.mark.parametrize("kind", UNSERVED)
def test_a_type_without_configs_is_refused(wire: Wire, kind: int) -> None:
    told = describe(wire, kind, "1")
    assert (told["error_code"], told["configs"]) == (ErrorCode.INVALID_REQUEST, [])
    assert str(kind) in told["error_message"]
    assert change(wire, kind, "1", ("root", SET, "INFO")) == ErrorCode.INVALID_REQUEST
    assert replace(wire, kind, "1", configs={"root": "INFO"}) == ErrorCode.INVALID_REQUEST


def test_a_limit_of_connections_holds_at_once() -> None:
    with EmbeddedBroker() as broker, Wire(broker.host, broker.port) as wire:
        for name in (
            "max.connections", "max.connections.per.ip", "listener.name.plaintext.max.connections",
        ):  # fmt: skip
            assert change(wire, BROKER, "", (name, SET, "1")) == 0
            with Wire(broker.host, broker.port) as other, pytest.raises(OSError):
                other.call(ApiKey.API_VERSIONS, 0)
            assert change(wire, BROKER, "", (name, DELETE, None)) == 0
            with Wire(broker.host, broker.port) as other:
                assert other.call(ApiKey.API_VERSIONS, 0)["error_code"] == 0


# -- restarts ----------------------------------------------------------------------------------


def test_what_was_changed_outlives_a_kill() -> None:
    with EmbeddedBroker(config={"log.retention.ms": "1111"}) as broker:
        with Wire(broker.host, broker.port) as wire:
            wanted = {"name": "t", "num_partitions": 1, "replication_factor": 1}
            wire.call(ApiKey.CREATE_TOPICS, 7, topics=[wanted])
            assert configs(wire, TOPIC, "t")["retention.ms"]["config_source"] == FROM_START
            assert change(wire, TOPIC, "t", ("segment.ms", SET, "5")) == 0
            assert change(wire, BROKER, "", ("log.retention.ms", SET, "2222")) == 0
            assert change(wire, BROKER, "1", ("message.max.bytes", SET, "3333")) == 0
            assert change(wire, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == 0
        broker.kill()
        broker.start()
        with Wire(broker.host, broker.port) as wire:
            topic = configs(wire, TOPIC, "t")
            values = [topic[name]["value"] for name in ("segment.ms", "retention.ms", "max.message.bytes")]
            assert values == ["5", "2222", "3333"]
            assert configs(wire, GROUP, "g")["consumer.session.timeout.ms"]["value"] == "50000"


# -- the tables of configs -------------------------------------------------------------------------
# The tables of configs: Kafka's names and defaults, bounds, other names of options, what has an effect.


# Defaults of Apache Kafka 4.3's topic configs (TopicConfig).
KAFKA = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_kafka_s_topic_configs_have_kafka_s_defaults() -> None:
    defaults = BrokerConfig().topics.defaults()
    assert {name: defaults.get(name) for name in KAFKA} == KAFKA
    later = {"errors.deadletterqueue.group.enable", "remote.copy.lag.bytes", "remote.copy.lag.ms"}
    assert defaults.keys() - KAFKA.keys() == later, "of Kafka's trunk"


def test_every_default_fits_its_own_rule() -> None:
    for line in TOPIC_CONFIGS.values():
        line.rule.check(line.default)
        assert line.rule.parse(text_of(line.default)) == line.default
        if line.synonym:
            declared = option_table()[line.synonym]
            assert (declared.default, declared.metadata["dynamic"]) == (line.default, True)
    for declared in option_table().values():
        assert rule_of(declared).kind is ConfigType.PASSWORD or (
            rule_of(declared).parse(text_of(declared.default)) == declared.default
        )


class Seen(dict[str, Any]):
    """Remembers which of its keys were looked at."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.keys_seen: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.keys_seen.add(key)
        return super().__getitem__(key)


def test_what_is_said_to_have_an_effect_reaches_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    config = BrokerConfig()
    seen = Seen(config.topics.values({}))
    monkeypatch.setattr(TopicOptions, "values", lambda *_: seen)
    LogSettings.of(config, {})
    assert seen.keys_seen == {name for name, line in TOPIC_CONFIGS.items() if not line.no_effect}


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"log.retention.hours": "2"}, "retention_ms", 7_200_000),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, "retention_ms", 180_000),
        ({"log.retention.hours": "2", "log.retention.ms": "5"}, "retention_ms", 5),
        ({"log.retention.hours": "-1"}, "retention_ms", -1),
        ({"log.roll.hours": "1"}, "segment_ms", 3_600_000),
        ({"log.roll.jitter.hours": "1"}, "segment_jitter_ms", 3_600_000),
        ({"log.flush.scheduler.interval.ms": "5"}, "flush_ms", 5),
        ({"log.cleanup.policy": " compact , delete "}, "cleanup_policy", ("compact", "delete")),
        ({"log.cleanup.policy": ""}, "cleanup_policy", ()),
        ({"log.cleaner.min.cleanable.ratio": "1e-1"}, "min_cleanable_dirty_ratio", 0.1),
        ({"default.replication.factor": "3"}, "default_replication_factor", 3),
        ({"min.insync.replicas": "2"}, "min_insync_replicas", 2),
        ({"offsets.topic.replication.factor": "3"}, "offsets_topic_replication_factor", 3),
        ({"transaction.state.log.replication.factor": "3"}, "transaction_log_replication_factor", 3),
        ({"transaction.state.log.min.isr": "2"}, "transaction_log_min_isr", 2),
    ],
)
def test_options_by_kafka_s_several_names(options: dict[str, str], field: str, value: object) -> None:
    assert getattr(BrokerConfig.from_options(options).topics, field) == value


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"log.retention.hours": "x"}, "log.retention.hours=x: must be a whole number"),
        ({"log.retention.hours": str(2**62)}, "log.retention.hours=.*must be between"),
        ({"log.retention.hours": "-2"}, "log.retention.hours=-2: must be between -1"),
        ({"log.cleanup.policy": "burn"}, "log.cleanup.policy=burn: must be compact or delete"),
        ({"log.cleanup.policy": "delete,"}, "without empty or repeated items"),
        ({"log.cleaner.min.cleanable.ratio": "half"}, "must be a number"),
        ({"log.cleaner.min.cleanable.ratio": "2"}, "must be between 0 and 1"),
        ({"num.partitions": "1_0"}, "num.partitions=1_0: must be a whole number"),
        ({"num.partitions": "\u0663"}, "must be a whole number"),
        ({"compression.gzip.level": "0"}, "must be -1 or between 1 and 9"),
    ],
)
def test_wrong_values_are_named(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        BrokerConfig.from_options(options)


def test_a_secret_is_in_no_message() -> None:
    rule = ConfigRule("key", ConfigType.PASSWORD, pattern="[a-z]+", hint="letters", secret=True)
    with pytest.raises(ConfigError) as caught:
        rule.parse("hunter2")
    assert str(caught.value) == "key: must be letters"


def test_a_group_s_configs_keep_to_the_broker_s_bounds() -> None:
    config = BrokerConfig()
    session, heartbeat = GROUP_CONFIGS
    assert group_values(config, {}) == {session: 45_000, heartbeat: 5_000}
    assert group_values(config, {session: "50000"}) == {session: 50_000, heartbeat: 5_000}
    for configs, says in (
        ({"x": "1"}, "unknown group config x"),
        ({session: "44999"}, "between 45000 and 60000"),
        ({heartbeat: "15001"}, "between 5000 and 15000"),
    ):
        with pytest.raises(ConfigError, match=says):
            group_values(config, configs)
    wide = BrokerConfig.from_options({"group.consumer.max.heartbeat.interval.ms": "60000"})
    with pytest.raises(ConfigError, match="must be larger than"):
        group_values(wide, {heartbeat: "45000"})
