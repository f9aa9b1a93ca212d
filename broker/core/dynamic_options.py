"""The broker's options that change while it runs (KIP-226).

The value of an option comes from the first of these that has one: set for this broker, set for all brokers,
given at the start, default. A change is visible to everything that holds the broker's config. Code that has
derived something from the old value registers with `checks` and `followers`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from eoslog.broker.config import LISTENER_PREFIX, BrokerConfig, ConfigError, option_table
from eoslog.broker.config.kafka_options import for_one_broker, foreign, read_only, rule_of_kafka
from eoslog.broker.config.option_sources import meaning
from eoslog.broker.core.config_store import ConfigStore
from eoslog.broker.log.files import BadFile
from eoslog.broker.security.listeners import listeners_of, names_of, option_of_listener
from eoslog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

EVERY_BROKER = ""
"""The resource name that stands for all brokers."""


class DynamicOptions:
    """Options that were set while a broker ran. They are in effect again from its next start on."""

    def __init__(self, config: BrokerConfig, store: ConfigStore) -> None:
        """Apply the stored options to `config`, in place. Raises BadFile if one is not valid."""
        self.static = replace(config)
        """As the broker was started."""
        self._config, self._store, self._own = config, store, str(config.network.node_id)
        self.checks: list[Callable[[BrokerConfig], None]] = []
        """Each raises KafkaError or ConfigError if the options are not acceptable."""
        self.followers: list[Callable[[], None]] = []
        """Each is called after a change."""
        self._listeners = names_of(config)
        try:
            config.follow(self._candidate(EVERY_BROKER, self.get(EVERY_BROKER)))
        except (ConfigError, KafkaError) as error:
            raise BadFile(f"{store.path}: {error}; correct it there") from error
        for name in (EVERY_BROKER, self._own):
            for option in filter(partial(self._is_left, name), self.get(name)):
                logger.warning("option %s of broker %r has no effect: that listener is gone", option, name)

    def get(self, name: str) -> dict[str, str]:
        """What was set for a broker, or for all."""
        return self._store.get("broker", name)

    @property
    def own(self) -> dict[str, str]:
        """What was set for this broker."""
        return self.get(self._own)

    def check(self, name: str, options: Mapping[str, str]) -> None:
        """Raise KafkaError INVALID_REQUEST unless exactly `options` could be set for `name`."""
        try:
            candidate = self._candidate(name, options)
            for check in self.checks:
                check(candidate)
        except (ConfigError, KafkaError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def set(self, name: str, options: Mapping[str, str]) -> None:
        """Set exactly these options for a broker, or for all. Raises KafkaError as `check` does.

        KAFKA_STORAGE_ERROR if they cannot be stored; then nothing changes.
        """
        self.check(name, options)
        self._store.put("broker", name, options)
        for option in sorted(options.keys() - option_table().keys()):
            if not option.startswith(LISTENER_PREFIX):
                logger.warning("option %s of broker %r is kept, but has no effect here", option, name)
        self._config.follow(self._candidate(name, options))
        for follower in self.followers:
            follower()

    def _candidate(self, name: str, options: Mapping[str, str]) -> BrokerConfig:
        """The broker's options with these set for `name`. Raises ConfigError."""
        table = option_table()
        for option, value in options.items():
            if option.startswith(LISTENER_PREFIX):
                if not self._is_left(name, option):
                    self._check_of_listener(name, option)
            elif option not in table:
                _check_kept(name, option, value)
            elif not table[option].metadata["dynamic"]:
                raise _read_only(option)
        layers = {place: self.get(place) for place in (EVERY_BROKER, self._own)} | {name: dict(options)}
        merged = {
            key: text
            for layer in layers.values()
            for key, text in layer.items()
            if key in table or self._has_listener(key)
        }
        candidate = self.static.with_options(merged)
        candidate.topics.values({})
        listeners_of(candidate)
        return candidate

    def _has_listener(self, option: str) -> bool:
        return any(option.startswith(f"{LISTENER_PREFIX}{name.lower()}.") for name in self._listeners)

    def _is_left(self, name: str, option: str) -> bool:
        """Whether this option was set for a listener that the broker does not have any more."""
        left = option.startswith(LISTENER_PREFIX) and option in self.get(name)
        return left and not self._has_listener(option)

    def _check_of_listener(self, name: str, option: str) -> None:
        """Raise ConfigError unless this option of a listener changes while the broker runs."""
        found = option_of_listener(option, self._listeners)
        if not found.dynamic:
            raise _read_only(option)
        if name == EVERY_BROKER and not found.limit:
            raise _for_one(option)


def _check_kept(name: str, option: str, value: str) -> None:
    """Raise ConfigError unless Kafka takes this option, which has no effect here, and ignoring it is safe.

    Kafka takes names that it does not know too, for plug-ins.
    """
    if read_only(option) or meaning(option) != option:
        raise _read_only(option)
    line = foreign(option)
    if line is not None and line.refuses(value):
        raise ConfigError(f"option {option} is not supported: {line.why}")
    if name == EVERY_BROKER and for_one_broker(option):
        raise _for_one(option)
    rule = rule_of_kafka(option)
    if rule is not None:
        rule.parse(value)


def _read_only(option: str) -> ConfigError:
    return ConfigError(f"option {option} cannot change while the broker runs: restart it with the new one")


def _for_one(option: str) -> ConfigError:
    return ConfigError(f"option {option} is for a single broker: name the broker by its id")
