"""The broker's options: names, defaults, limits."""

from __future__ import annotations

from dataclasses import fields

import pytest

from eoslog.broker.config import BrokerConfig, ConfigError, option_sections, option_table
from eoslog.broker.config.topic_table import TOPIC_CONFIGS
from eoslog.broker.config.topics import TopicOptions
from eoslog.broker.log.segment.log_settings import LogSettings


def test_defaults_are_kafka_s_where_kafka_has_them() -> None:
    options = {option.metadata["name"]: option.default for option in option_table().values()}
    expected = {
        "auto.create.topics.enable": True,
        "num.partitions": 1,
        "message.max.bytes": 1048588,
        "log.segment.bytes": 1073741824,
        "log.index.interval.bytes": 4096,
        "transaction.max.timeout.ms": 900000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10000,
        "transactional.id.expiration.ms": 604800000,
        "producer.id.expiration.ms": 86400000,
        "group.min.session.timeout.ms": 6000,
        "group.max.session.timeout.ms": 1800000,
        "socket.request.max.bytes": 104857600,
        "offset.metadata.max.bytes": 4096,
        "offsets.topic.num.partitions": 8,
        "transaction.state.log.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
        "flush.mode": "fsync",
    }
    assert {name: options[name] for name in expected} == expected


def test_every_option_has_a_name_of_its_own_and_a_meaning() -> None:
    options = [option for section in option_sections().values() for option in fields(section)]
    names = [option.metadata["name"] for option in options]
    assert len(set(names)) == len(names)
    assert all(option.metadata["meaning"] for option in options)
    assert {line.synonym for line in TOPIC_CONFIGS.values() if line.synonym} <= option_table().keys()


def test_options_are_read_by_name() -> None:
    config = BrokerConfig.from_options(
        {"num.partitions": "3", "auto.create.topics.enable": "FALSE", "flush.mode": "os", "log.dirs": "/d"}
    )
    topics, storage = config.topics, config.storage
    assert (topics.num_partitions, topics.auto_create_topics, storage.flush, storage.log_dirs) == (
        3,
        False,
        "os",
        "/d",
    )


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("no.such.option", "1", "unknown option no.such.option; known are .*num.partitions"),
        ("num.partitions", "many", "num.partitions=many: must be a whole number"),
        ("num.partitions", "0", "num.partitions=0: must be between 1 and"),
        ("auto.create.topics.enable", "yes", "auto.create.topics.enable=yes: must be true or false"),
        ("flush.mode", "never", "flush.mode=never: must be fsync or os"),
        (
            "log.message.timestamp.type",
            "x",
            "log.message.timestamp.type=x: must be CreateTime or LogAppendTime",
        ),
        ("listen.port", "70000", "listen.port=70000: must be between 0 and 65535"),
    ],
)
def test_wrong_options_are_named(name: str, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        BrokerConfig.from_options({name: text})


def test_a_topic_s_configs_come_before_the_broker_s() -> None:
    config = BrokerConfig(topics=TopicOptions(segment_bytes=5000, message_max_bytes=70))
    settings = LogSettings.of(config, {"max.message.bytes": "80", "message.timestamp.type": "LogAppendTime"})
    assert (settings.segment_bytes, settings.max_message_bytes, settings.log_append_time) == (5000, 80, True)
    assert LogSettings.of(BrokerConfig(), {}) == LogSettings()
