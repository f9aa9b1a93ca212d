"""The broker's options as configs: under its id those of this broker, under "" those of all brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from eoslog.broker.config import LISTENER_PREFIX, OVERRIDES, kafka_options, option_table
from eoslog.broker.config.config_def import ConfigError, ConfigRule, rule_of, text_of
from eoslog.broker.config.network import ListenerOption
from eoslog.broker.core.dynamic_options import EVERY_BROKER
from eoslog.broker.resources.base import ConfigEntry, ConfigResourceType, ConfigSource, Resource, Synonym
from eoslog.broker.security.listeners import names_of, option_of_listener
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

        Options of single listeners, and those without effect here (Kafka's, or of no broker), are among them
        if they are set.
        """
        self._check_name(name)
        for option in sorted((option_table().keys() - {OVERRIDES}) | _kept(self.broker)):
            synonyms = synonyms_of(self.broker, option)
            if name == EVERY_BROKER:
                synonyms = tuple(one for one in synonyms if one.source is ConfigSource.EVERY_BROKER)
            if synonyms:
                yield self._entry(option, synonyms)

    def _entry(self, option: str, synonyms: tuple[Synonym, ...]) -> ConfigEntry:
        rule, declared, value = self.rule(option), option_table().get(option), synonyms[0].value
        kind = rule.kind if rule else None
        if option.startswith(LISTENER_PREFIX):
            # Kafka says so of all of them, though some are dynamic.
            read_only, meaning = True, _meaning_of_listener(self.broker, option)
        elif declared:
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
        declared, own = option_table().get(config), _of_listener(self.broker, config)
        if own:
            return own.rule
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
    own = _of_listener(broker, option)
    names = (option, own.base) if own else (option,)
    found = [one for name in names for one in _set_for(broker, name)]
    if own:
        # As in Kafka: by source, and a default that is nothing is none.
        found = [one for one in sorted(found, key=lambda one: one.source) if one.value or one.source < 5]
    if not found or found[0].name != option:
        return ()
    return tuple(found)


def _set_for(broker: Broker, option: str) -> Iterator[Synonym]:
    declared, options = option_table().get(option), broker.options
    static = _static_listener_options(broker)
    given = options.static.given | options.static.ignored.keys() | static.keys()
    found = [
        (options.own.get(option), ConfigSource.BROKER),
        (options.get(EVERY_BROKER).get(option), ConfigSource.EVERY_BROKER),
        (_static(broker, option) if option in given else None, ConfigSource.STATIC_BROKER),
        (text_of(declared.default) if declared else None, ConfigSource.DEFAULT),
    ]
    return (Synonym(option, value, source) for value, source in found if value is not None)


def _static(broker: Broker, option: str) -> str | None:
    """The value at the start; None for an option without effect here that was not given."""
    static = broker.options.static
    if option in option_table():
        return text_of(static.value(option))
    return static.ignored.get(option, _static_listener_options(broker).get(option))


def _static_listener_options(broker: Broker) -> dict[str, str]:
    """The options of single listeners that the start gave."""
    return dict(pair.partition("=")[::2] for pair in broker.options.static.network.listener_overrides)


def _of_listener(broker: Broker, option: str) -> ListenerOption | None:
    """What an option is for a single listener; None if it is no such option."""
    if not option.startswith(LISTENER_PREFIX):
        return None
    try:
        return option_of_listener(option, names_of(broker.config))
    except ConfigError:
        return None


def _meaning_of_listener(broker: Broker, option: str) -> str:
    own = _of_listener(broker, option)
    declared = option_table().get(own.base) if own else None
    return f"for this listener alone: {declared.metadata['meaning']}" if declared else "has no effect here"


def _kept(broker: Broker) -> set[str]:
    """All options that are set, at the start or while the broker runs."""
    options = broker.options
    return {
        *options.static.ignored, *options.own, *options.get(EVERY_BROKER), *_static_listener_options(broker)
    }  # fmt: skip
