"""The broker's options: one frozen dataclass, made of one section a room, with Kafka's names.

Each field carries Kafka's option name and its meaning as metadata (`base.option`); `from_options` reads a
mapping of Kafka's names to strings, `topic_defaults` says what a topic gets when its own configs are silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from typing import Any

from eoslog.broker.config.base import ConfigError
from eoslog.broker.config.groups import GroupOptions
from eoslog.broker.config.network import NetworkOptions
from eoslog.broker.config.security import SecurityOptions
from eoslog.broker.config.storage import TIMESTAMP_TYPES, FlushMode, StorageOptions
from eoslog.broker.config.topics import TOPIC_CONFIGS
from eoslog.broker.config.transactions import TransactionOptions

__all__ = ["TIMESTAMP_TYPES", "TOPIC_CONFIGS", "BrokerConfig", "ConfigError", "FlushMode", "option_table"]


@dataclass(frozen=True)
class BrokerConfig(GroupOptions, TransactionOptions, SecurityOptions, StorageOptions, NetworkOptions):
    """All options of a broker. Times in ms, sizes in bytes."""

    def __post_init__(self) -> None:
        for option in fields(self):
            name, value = option.metadata["name"], getattr(self, option.name)
            low, high, choices = (option.metadata[key] for key in ("low", "high", "choices"))
            if type(option.default) is int and not low <= value <= high:
                raise ConfigError(f"{name}={value}: must be between {low} and {high}")
            if choices and value not in choices:
                raise ConfigError(f"{name}={value}: must be {' or '.join(choices)}")

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> BrokerConfig:
        """Build from Kafka's option names and text values. Raises ConfigError naming the option."""
        table = option_table()
        values: dict[str, Any] = {}
        for name, text in options.items():
            if name not in table:
                raise ConfigError(f"unknown option {name}; known are {', '.join(sorted(table))}")
            values[table[name].name] = _parse(table[name], text)
        return cls(**values)

    def topic_defaults(self) -> dict[str, str]:
        """Kafka's topic configs as this broker fills them in, by name."""
        return {topic: text_of(getattr(self, option)) for topic, option in TOPIC_CONFIGS.items()} | {
            "cleanup.policy": "delete"
        }


def option_table() -> dict[str, Field[Any]]:
    """Every option by Kafka's name."""
    return {option.metadata["name"]: option for option in fields(BrokerConfig)}


def text_of(value: object) -> str:
    """An option's value as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse(option: Field[Any], text: str) -> Any:
    name, default = option.metadata["name"], option.default
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{name}={text}: must be true or false")
        return text.lower() == "true"
    if isinstance(default, int):
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{name}={text}: must be a whole number") from None
    return text
