"""The broker's options: one frozen dataclass with a section for each subject, with Kafka's names.

Each field has Kafka's option name, its meaning and its rule as metadata (`config_def.option`).
`from_options` reads a mapping of Kafka's names to strings. The table of topic configs is in `topics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, get_type_hints

from eoslog.broker.config.config_def import ConfigError, rule_of
from eoslog.broker.config.options import (
    FlushMode,
    GroupOptions,
    NetworkOptions,
    OperationsOptions,
    SecurityOptions,
    StorageOptions,
    TransactionOptions,
)
from eoslog.broker.config.topics import SCALED, TopicOptions

__all__ = ["BrokerConfig", "ConfigError", "FlushMode", "option_sections", "option_table"]

LISTENER_PREFIX = "listener.name."
"""Prefix of the options of a single listener; `security.listeners` checks them."""
OVERRIDES = LISTENER_PREFIX + "*"
"""All of them together, as one option of the table."""


@dataclass(frozen=True)
class BrokerConfig:
    """All options of a broker, by section. Times in ms, sizes in bytes."""

    operations: OperationsOptions = field(default_factory=OperationsOptions)
    groups: GroupOptions = field(default_factory=GroupOptions)
    transactions: TransactionOptions = field(default_factory=TransactionOptions)
    security: SecurityOptions = field(default_factory=SecurityOptions)
    topics: TopicOptions = field(default_factory=TopicOptions)
    storage: StorageOptions = field(default_factory=StorageOptions)
    network: NetworkOptions = field(default_factory=NetworkOptions)
    given: frozenset[str] = field(default=frozenset(), compare=False)
    """The options that were given at the start, by their own names."""
    ignored: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Options of Kafka that were given too and have no effect here, as text."""

    def __post_init__(self) -> None:
        for name, declared in option_table().items():
            rule_of(declared).check(self.value(name))

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> BrokerConfig:
        """Build from Kafka's option names and text values. Raises ConfigError naming the option."""
        config = cls().with_options(options)
        return replace(config, given=frozenset(option_values(options)))

    def with_options(self, options: Mapping[str, str]) -> BrokerConfig:
        """A copy with these options, by Kafka's names, changed. Raises ConfigError naming the option."""
        changes: dict[str, dict[str, Any]] = {}
        values = option_values(options)
        if OVERRIDES in values:
            values[OVERRIDES] = _overridden(self.value(OVERRIDES), values[OVERRIDES])
        for name, value in values.items():
            section, declared = _places()[name]
            changes.setdefault(section, {})[declared.name] = value
        return replace(self, **{name: replace(getattr(self, name), **some) for name, some in changes.items()})

    def value(self, name: str) -> Any:
        """The value of an option, by Kafka's name."""
        section, declared = _places()[name]
        return getattr(getattr(self, section), declared.name)

    def follow(self, other: BrokerConfig) -> None:
        """Copy the dynamic options of `other` in place, so that all users of this config see them (KIP-226).

        Nothing else may change a config, which is why it is frozen. Code that keeps a reference to a section
        alone does not see a change.
        """
        for section, options in option_sections().items():
            taken = {
                declared.name: getattr(getattr(other, section), declared.name)
                for declared in fields(options)
                if declared.metadata["dynamic"]
            }
            object.__setattr__(self, section, replace(getattr(self, section), **taken))


@cache
def option_sections() -> dict[str, type[Any]]:
    """The dataclass of each section, by the section's name."""
    return {
        name: kind
        for name, kind in get_type_hints(BrokerConfig).items()
        if isinstance(kind, type) and is_dataclass(kind)
    }


@cache
def _places() -> dict[str, tuple[str, Field[Any]]]:
    """The section and the field of each option, by Kafka's name."""
    return {
        declared.metadata["name"]: (section, declared)
        for section, options in option_sections().items()
        for declared in fields(options)
    }


@cache
def option_table() -> dict[str, Field[Any]]:
    """Every option by Kafka's name."""
    return {name: declared for name, (_, declared) in _places().items()}


def option_values(options: Mapping[str, str]) -> dict[str, Any]:
    """Parse these options; the values by Kafka's name.

    If an option is given by several of Kafka's names for it, the first in rank counts (`topics.SCALED`).
    Raises ConfigError.
    """
    table, values = option_table(), dict[str, Any]()
    own = tuple(f"{name}={text}" for name, text in options.items() if name.startswith(LISTENER_PREFIX))
    if own:
        values[OVERRIDES] = own
        options = {name: text for name, text in options.items() if not name.startswith(LISTENER_PREFIX)}
    unknown = sorted(options.keys() - table.keys() - SCALED.keys())
    if unknown:
        raise ConfigError(f"unknown option {unknown[0]}; known are {', '.join(sorted(table))}")
    for name, text in options.items():
        if name in table:
            values[name] = rule_of(table[name]).parse(text)
    for name, (target, factor) in SCALED.items():
        if name in options and target not in values:
            values[target] = _scaled(name, options[name], factor, table[target])
    return values


def _overridden(before: tuple[str, ...], after: tuple[str, ...]) -> tuple[str, ...]:
    """Options of single listeners, as NAME=VALUE, with others on top."""
    merged = dict(pair.partition("=")[::2] for pair in (*before, *after))
    return tuple(f"{name}={text}" for name, text in merged.items())


def _scaled(name: str, text: str, factor: int, declared: Field[Any]) -> Any:
    """The value of an option that was given by another name, in another unit; -1 has no unit."""
    rule = rule_of(declared)
    value = replace(rule, name=name).parse(text)
    if factor > 1 and value > 0:
        value *= factor
        replace(rule, name=name).check(value)
    return value
