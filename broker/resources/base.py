"""What all resources with configs have in common: how a config is described, how changes are combined."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from eoslog.broker.config.config_def import ConfigRule, ConfigType
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.broker.core.broker import Broker

MAX_VALUE = 32_767
"""The longest value that a config may have, in characters."""


class ConfigResourceType(IntEnum):
    """The types of resources that have configs, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a config's value comes from (KIP-226), by Kafka's numbers."""

    TOPIC = 1
    BROKER = 2
    EVERY_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class AlterConfigOp(IntEnum):
    """The operations of IncrementalAlterConfigs (KIP-339), by Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Synonym(NamedTuple):
    """A place that a value may come from (KIP-226)."""

    name: str
    value: str
    source: ConfigSource


class ConfigChange(NamedTuple):
    """One operation on one config, as requested: `operation` is not checked yet."""

    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config as DescribeConfigs returns it. Without synonyms it is a default; kind None: unknown."""

    name: str
    value: str
    synonyms: tuple[Synonym, ...] = ()
    kind: ConfigType | None = None
    read_only: bool = False
    meaning: str = ""

    @property
    def source(self) -> ConfigSource:
        """Where the value comes from."""
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT

    @property
    def sensitive(self) -> bool:
        """Whether the value must not be shown. Like Kafka's, it is not if its type is unknown."""
        return self.kind in (ConfigType.PASSWORD, None)


class Resource(ABC):
    """The resources of one type. All methods raise KafkaError for an unknown name."""

    TYPE: ClassVar[ConfigResourceType]

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    @abstractmethod
    def names(self) -> list[str]:
        """The names of all resources."""

    @abstractmethod
    def entries(self, name: str) -> Iterable[ConfigEntry]:
        """All configs of a resource, sorted by name."""

    @abstractmethod
    def current(self, name: str) -> Mapping[str, str]:
        """The configs that are set on a resource."""

    @abstractmethod
    def check(self, name: str, configs: Mapping[str, str]) -> None:
        """Raise KafkaError unless exactly these configs could be set."""

    @abstractmethod
    def put(self, name: str, configs: Mapping[str, str]) -> None:
        """Set exactly these configs. Raises KafkaError as `check` does, and KAFKA_STORAGE_ERROR."""

    @abstractmethod
    def rule(self, config: str) -> ConfigRule | None:
        """The rule for a config's values; None if there is no config of that name."""

    @abstractmethod
    def default(self, config: str) -> str:
        """The value of a known config where it is not set."""

    def replace(self, name: str, configs: Mapping[str, str], *, validate_only: bool) -> None:
        """AlterConfigs: set exactly these configs. Raises KafkaError."""
        (self.check if validate_only else self.put)(name, configs)

    def change(self, name: str, changes: Iterable[ConfigChange], *, validate_only: bool) -> None:
        """IncrementalAlterConfigs: make all of these changes or none. Raises KafkaError."""
        configs = dict(self.current(name))
        for change in changes:
            operation = _operation_of(change)
            if operation is AlterConfigOp.DELETE or change.value is None:
                configs.pop(change.name, None)
            elif operation is AlterConfigOp.SET:
                configs[change.name] = change.value
            else:
                configs[change.name] = self._list_changed(change, operation, configs.get(change.name))
        for config, value in configs.items():
            if len(value) > MAX_VALUE:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"{config}: its value would have {len(value)} characters, at most {MAX_VALUE} are taken",
                )
        self.replace(name, configs, validate_only=validate_only)

    def _list_changed(self, change: ConfigChange, operation: AlterConfigOp, before: str | None) -> str:
        rule = self.rule(change.name)
        if rule is None or rule.kind is not ConfigType.LIST:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{change.name}: {operation.name} is for lists, which this config is not",
            )
        had = _items(self.default(change.name) if before is None else before)
        given = _items(change.value or "")
        if operation is AlterConfigOp.APPEND:
            return ",".join([*had, *(item for item in dict.fromkeys(given) if item not in had)])
        return ",".join(item for item in had if item not in given)


def _operation_of(change: ConfigChange) -> AlterConfigOp:
    """The operation of a change. Raises KafkaError INVALID_REQUEST if there is none of that number."""
    try:
        return AlterConfigOp(change.operation)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{change.name}: unknown operation {change.operation}"
        ) from None


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text.strip() else []
