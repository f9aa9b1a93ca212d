"""The broker's options as configs: under its id those of this broker, under "" those of all brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from eoslog.broker.config import kafka_options, option_table
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
        """All options; for "" only those that were set for all brokers.

        Options without effect here (Kafka's, or of no broker) are among them if they are set.
        """
        self._check_name(name)
        for option in sorted(option_table().keys() | _kept(self.broker)):
            synonyms = synonyms_of(self.broker, option)
            if name == EVERY_BROKER:
                synonyms = tuple(one for one in synonyms if one.source is ConfigSource.EVERY_BROKER)
            if synonyms:
                yield self._entry(option, synonyms)

    def _entry(self, option: str, synonyms: tuple[Synonym, ...]) -> ConfigEntry:
        rule, declared, value = self.rule(option), option_table().get(option), synonyms[0].value
        kind = rule.kind if rule else None
        if declared:
            read_only, meaning = not declared.metadata["dynamic"], declared.metadata["meaning"]
        else:
            read_only, meaning = rule is None or kafka_options.read_only(option), "has no effect here"
        return ConfigEntry(option, value, synonyms, kind, read_only, meaning)

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
        return rule_of(declared) if declared else kafka_options.rule_of_kafka(config)

    def default(self, config: str) -> str:
        """See `Resource.default`."""
        return _static(self.broker, config) or ""

    def _check_name(self, name: str) -> None:
        node_id = self.broker.node_id
        if name not in (EVERY_BROKER, str(node_id)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no broker {name!r}, this is {node_id}")


def synonyms_of(broker: Broker, option: str) -> tuple[Synonym, ...]:
    """All places that set an option's value, the one in effect first, its default last."""
    declared, options = option_table().get(option), broker.options
    given = options.static.given | options.static.ignored.keys()
    found = [
        (options.own.get(option), ConfigSource.BROKER),
        (options.get(EVERY_BROKER).get(option), ConfigSource.EVERY_BROKER),
        (_static(broker, option) if option in given else None, ConfigSource.STATIC_BROKER),
        (text_of(declared.default) if declared else None, ConfigSource.DEFAULT),
    ]
    return tuple(Synonym(option, value, source) for value, source in found if value is not None)


def _static(broker: Broker, option: str) -> str | None:
    """The value at the start; None for an option without effect here that was not given."""
    static = broker.options.static
    return text_of(static.value(option)) if option in option_table() else static.ignored.get(option)


def _kept(broker: Broker) -> set[str]:
    """All options that are set, at the start or while the broker runs."""
    options = broker.options
    return {*options.static.ignored, *options.own, *options.get(EVERY_BROKER)}
