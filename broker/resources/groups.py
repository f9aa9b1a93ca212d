"""The configs of single groups (KIP-848). A group need not exist to have configs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eoslog.broker.config import ConfigError
from eoslog.broker.config.config_def import ConfigRule
from eoslog.broker.config.group_table import GROUP_CONFIGS, group_values
from eoslog.broker.resources.base import ConfigEntry, ConfigResourceType, ConfigSource, Resource, Synonym
from eoslog.broker.resources.brokers import synonyms_of
from eoslog.protocol.errors import ErrorCode, KafkaError


class GroupResource(Resource):
    """Groups by group id."""

    TYPE = ConfigResourceType.GROUP

    def names(self) -> list[str]:
        """The groups that have configs."""
        return self.broker.configs.names("group")

    def entries(self, name: str) -> Iterator[ConfigEntry]:
        """See `Resource.entries`."""
        configs = self.current(name)
        for config, line in sorted(GROUP_CONFIGS.items()):
            synonyms = synonyms_of(self.broker, line.option)
            if config in configs:
                synonyms = (Synonym(config, configs[config], ConfigSource.GROUP), *synonyms)
            yield ConfigEntry(config, synonyms[0].value, synonyms, line.rule.kind, meaning=line.meaning)

    def current(self, name: str) -> Mapping[str, str]:
        """See `Resource.current`."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a group's id must not be empty")
        return self.broker.configs.get("group", name)

    def check(self, name: str, configs: Mapping[str, str]) -> None:
        """See `Resource.check`."""
        self.current(name)
        try:
            group_values(self.broker.config, configs)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def put(self, name: str, configs: Mapping[str, str]) -> None:
        """See `Resource.put`."""
        self.check(name, configs)
        self.broker.configs.put("group", name, configs)

    def rule(self, config: str) -> ConfigRule | None:
        """See `Resource.rule`."""
        line = GROUP_CONFIGS.get(config)
        return line.rule if line else None

    def default(self, config: str) -> str:
        """See `Resource.default`."""
        return str(self.broker.config.value(GROUP_CONFIGS[config].option))
