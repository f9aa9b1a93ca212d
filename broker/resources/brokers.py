"""The broker's options as configs: under its id those of this broker, under "" those of all brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from eoslog.broker.config import option_table
from eoslog.broker.config.config_def import ConfigRule, rule_of, text_of
from eoslog.broker.core.dynamic_options import EVERY_BROKER
from eoslog.broker.resources.base import ConfigEntry, ConfigResourceType, ConfigSource, Resource, Synonym
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.broker.core.broker import Broker


class BrokerResource(Resource):
    """This broker, and the defaults of all brokers."""

    TYPE = ConfigResourceType.BROKER

    def names(self) -> list[str]:
        """See `Resource.names`."""
        return [str(self.broker.node_id)]

    def entries(self, name: str) -> Iterator[ConfigEntry]:
        """All options; for "" only those that were set for all brokers."""
        self._check_name(name)
        for option, declared in sorted(option_table().items()):
            synonyms = synonyms_of(self.broker, option)
            if name == EVERY_BROKER:
                synonyms = tuple(one for one in synonyms if one.source is ConfigSource.EVERY_BROKER)
                if not synonyms:
                    continue
            read_only, kind = not declared.metadata["dynamic"], rule_of(declared).kind
            value = synonyms[0].value
            yield ConfigEntry(option, value, synonyms, kind, read_only, declared.metadata["meaning"])

    def current(self, name: str) -> Mapping[str, str]:
        """See `Resource.current`."""
        self._check_name(name)
        return self.broker.options.get(name)

    def check(self, name: str, configs: Mapping[str, str]) -> None:
        """See `Resource.check`."""
        self._check_name(name)
        self.broker.options.check(name, configs)

    def put(self, name: str, configs: Mapping[str, str]) -> None:
        """See `Resource.put`."""
        self._check_name(name)
        self.broker.options.set(name, configs)

    def rule(self, config: str) -> ConfigRule | None:
        """See `Resource.rule`."""
        declared = option_table().get(config)
        return rule_of(declared) if declared else None

    def default(self, config: str) -> str:
        """See `Resource.default`."""
        return _static(self.broker, config)

    def _check_name(self, name: str) -> None:
        node_id = self.broker.node_id
        if name not in (EVERY_BROKER, str(node_id)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no broker {name!r}, this is {node_id}")


def synonyms_of(broker: Broker, option: str) -> tuple[Synonym, ...]:
    """All places that set an option's value, the one in effect first, its default last."""
    declared, options = option_table()[option], broker.options
    own, every = options.own, options.get(EVERY_BROKER)
    static, default = _static(broker, option), text_of(declared.default)
    found = [
        (own.get(option), ConfigSource.BROKER),
        (every.get(option), ConfigSource.EVERY_BROKER),
        (static if static != default else None, ConfigSource.STATIC_BROKER),
        (default, ConfigSource.DEFAULT),
    ]
    return tuple(Synonym(option, value, source) for value, source in found if value is not None)


def _static(broker: Broker, option: str) -> str:
    return text_of(broker.options.static.value(option))
