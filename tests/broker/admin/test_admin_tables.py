"""The tables of configs: Kafka's names and defaults, bounds, other names of options, what has an effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from eoslog.broker.config import BrokerConfig, ConfigError, option_table
from eoslog.broker.config.config_def import ConfigRule, ConfigType, rule_of, text_of
from eoslog.broker.config.topics import TOPIC_CONFIGS, TopicOptions
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.resources import GROUP_CONFIGS, group_values

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
