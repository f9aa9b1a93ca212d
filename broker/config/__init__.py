"""The broker's options: one frozen dataclass, made of one section a room, with Kafka's names.

Each field carries Kafka's option name, its meaning and its bounds as metadata (`base.option`); `from_options`
reads a mapping of Kafka's names to strings. The table of the topic configs is in `topic_table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, fields, replace
from functools import cache
from typing import Any

from eoslog.broker.config.base import ConfigError, rule_of
from eoslog.broker.config.groups import GroupOptions
from eoslog.broker.config.network import NetworkOptions
from eoslog.broker.config.operations import OperationsOptions
from eoslog.broker.config.security import SecurityOptions
from eoslog.broker.config.storage import FlushMode, StorageOptions
from eoslog.broker.config.topics import SCALED, TopicOptions
from eoslog.broker.config.transactions import TransactionOptions

__all__ = ["BrokerConfig", "ConfigError", "FlushMode", "option_table"]

_LISTENER = "listener.name."
"""How the options of one listener alone begin; `security.listeners` judges them."""


@dataclass(frozen=True)
class BrokerConfig(
    OperationsOptions,
    GroupOptions,
    TransactionOptions,
    SecurityOptions,
    TopicOptions,
    StorageOptions,
    NetworkOptions,
):
    """All options of a broker. Times in ms, sizes in bytes."""

    def __post_init__(self) -> None:
        for declared in fields(self):
            rule_of(declared).check(getattr(self, declared.name))

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> BrokerConfig:
        """Build from Kafka's option names and text values. Raises ConfigError naming the option."""
        return cls(**option_values(options))

    def follow(self, other: BrokerConfig) -> None:
        """Take over the dynamic options of `other`, in place: all who hold this config see them (KIP-226).

        Nothing else may change a config, which is why it is frozen.
        """
        for declared in fields(self):
            if declared.metadata["dynamic"]:
                object.__setattr__(self, declared.name, getattr(other, declared.name))


@cache
def option_table() -> dict[str, Field[Any]]:
    """Every option by Kafka's name."""
    return {declared.metadata["name"]: declared for declared in fields(BrokerConfig)}


def option_values(options: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a BrokerConfig that these options set, and their values.

    Of Kafka's several names for one thing the first by rank counts (`topics.SCALED`). Raises ConfigError.
    """
    table, values = option_table(), dict[str, Any]()
    own = tuple(f"{name}={text}" for name, text in options.items() if name.startswith(_LISTENER))
    if own:
        values["listener_overrides"] = own
        options = {name: text for name, text in options.items() if not name.startswith(_LISTENER)}
    unknown = sorted(options.keys() - table.keys() - SCALED.keys())
    if unknown:
        raise ConfigError(f"unknown option {unknown[0]}; known are {', '.join(sorted(table))}")
    for name, text in options.items():
        if name in table:
            values[table[name].name] = rule_of(table[name]).parse(text)
    for name, (target, factor) in SCALED.items():
        field = table[target]
        if name in options and field.name not in values:
            values[field.name] = _scaled(name, options[name], factor, field)
    return values


def _scaled(name: str, text: str, factor: int, field: Field[Any]) -> Any:
    """The value of a `field` that was given by another name, in another unit; -1 is a word of its own."""
    rule = rule_of(field)
    value = replace(rule, name=name).parse(text)
    if factor > 1 and value > 0:
        value *= factor
        replace(rule, name=name).check(value)
    return value
