"""The configs of topics: checks them, stores them, and applies them to the topics' logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eoslog.broker.config import BrokerConfig
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.topics.known_topics import KnownTopics
from eoslog.broker.topics.partition_creation import storage_error
from eoslog.broker.topics.topic import Topic, is_internal
from eoslog.protocol.errors import ErrorCode, KafkaError


class TopicConfigs:
    """The configs of the `known` topics, with the broker's options as defaults."""

    def __init__(self, known: KnownTopics, config: BrokerConfig) -> None:
        self._known, self._config = known, config

    def settings(self, configs: Mapping[str, str]) -> LogSettings:
        """The settings for the logs of a topic with these configs. Raises KafkaError INVALID_CONFIG."""
        return LogSettings.of(self._config, configs)

    def set(self, name: str, configs: Mapping[str, str]) -> Topic:
        """Replace the configs of a topic. Its logs use the new ones at once.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, KAFKA_STORAGE_ERROR; then the topic is
        unchanged.
        """
        topic = self._known.existing(name)
        settings = self.check(name, configs)
        changed = replace(topic, configs=dict(configs))
        try:
            self._known.put(changed)
        except OSError as error:
            raise storage_error(f"the configs of topic {name} are unchanged", error) from error
        for partition in topic.partitions:
            partition.reconfigure(settings)
        return changed

    def check(self, name: str, configs: Mapping[str, str]) -> LogSettings:
        """The settings of a topic with these configs. Raises KafkaError as `set` does."""
        self._known.existing(name)
        settings = self.settings(configs)
        if is_internal(name) and configs.get("cleanup.policy") != "compact":
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"topic {name} is the broker's own and needs cleanup.policy=compact",
            )
        return settings

    def check_defaults(self, config: BrokerConfig) -> None:
        """Raise KafkaError INVALID_CONFIG if a topic's own configs do not fit these broker options."""
        for topic in self._known:
            LogSettings.of(config, topic.configs)

    def defaults_changed(self) -> None:
        """Apply changed options of the broker to all logs."""
        for topic in self._known:
            settings = self.settings(topic.configs)
            for partition in topic.partitions:
                partition.reconfigure(settings)
