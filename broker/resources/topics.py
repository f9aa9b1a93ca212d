"""The configs of topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from eoslog.broker.config.config_def import ConfigRule
from eoslog.broker.config.topic_table import TOPIC_CONFIGS
from eoslog.broker.resources.base import ConfigEntry, ConfigResourceType, ConfigSource, Resource, Synonym
from eoslog.broker.resources.brokers import synonyms_of
from eoslog.broker.topics.topic import Topic, check_name
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.broker.core.broker import Broker


class TopicResource(Resource):
    """Topics by name."""

    TYPE = ConfigResourceType.TOPIC

    def names(self) -> list[str]:
        """See `Resource.names`."""
        return self.broker.topics.names()

    def entries(self, name: str) -> Iterable[ConfigEntry]:
        """See `Resource.entries`."""
        return topic_entries(self.broker, self._topic(name).configs)

    def current(self, name: str) -> Mapping[str, str]:
        """See `Resource.current`."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "there are no defaults of all topics to be changed")
        return self._topic(name).configs

    def check(self, name: str, configs: Mapping[str, str]) -> None:
        """See `Resource.check`."""
        self.current(name)
        self.broker.topics.configs.check(name, configs)

    def put(self, name: str, configs: Mapping[str, str]) -> None:
        """See `Resource.put`."""
        self.current(name)
        self.broker.topics.configs.set(name, configs)

    def rule(self, config: str) -> ConfigRule | None:
        """See `Resource.rule`."""
        line = TOPIC_CONFIGS.get(config)
        return line.rule if line else None

    def default(self, config: str) -> str:
        """See `Resource.default`."""
        return self.broker.config.topics.defaults()[config]

    def _topic(self, name: str) -> Topic:
        check_name(name)
        topic = self.broker.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return topic


def topic_entries(broker: Broker, configs: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """All configs of a topic that sets `configs`, and where each value comes from."""
    defaults = broker.config.topics.defaults()
    for name, line in sorted(TOPIC_CONFIGS.items()):
        value = configs.get(name, defaults[name])
        synonyms = synonyms_of(broker, line.synonym) if line.synonym else ()
        if name in configs:
            synonyms = (Synonym(name, value, ConfigSource.TOPIC), *synonyms)
        yield ConfigEntry(name, value, synonyms, line.rule.kind, meaning=line.description)
