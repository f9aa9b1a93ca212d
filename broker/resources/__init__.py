"""What has configs, by the resource types of DescribeConfigs and AlterConfigs: topics, brokers and groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from eoslog.broker.config import LISTENER_PREFIX, OVERRIDES, kafka_options, option_table
from eoslog.broker.config.config_def import INT32_MAX, ConfigError, ConfigRule, ConfigType, rule_of, text_of
from eoslog.broker.config.options import ListenerOption
from eoslog.broker.config.topics import TOPIC_CONFIGS
from eoslog.broker.core.dynamic_options import EVERY_BROKER
from eoslog.broker.security.listeners import names_of, option_of_listener
from eoslog.broker.topics.topics import Topic, check_name
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.broker.config import BrokerConfig
    from eoslog.broker.core.broker import Broker

# -- any resource ----------------------------------------------------------------------------------
# What all resources with configs have in common: how a config is described, how changes are combined.


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


# -- brokers ---------------------------------------------------------------------------------------
# The broker's options as configs: under its id those of this broker, under "" those of all brokers.


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


# -- the configs of groups -------------------------------------------------------------------------
# The table of group configs (Kafka's GroupConfig): what can be set for a single group (KIP-848).


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One line. `option`, `lowest` and `highest` are broker options: the default and the bounds."""

    rule: ConfigRule
    option: str
    lowest: str
    highest: str
    meaning: str


_LINES = (
    GroupConfig(
        ConfigRule("consumer.session.timeout.ms", ConfigType.INT, 1, INT32_MAX),
        "group.consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
        "how long a member may send no heartbeat before it is removed from the group",
    ),
    GroupConfig(
        ConfigRule("consumer.heartbeat.interval.ms", ConfigType.INT, 1, INT32_MAX),
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
        "how often members should send heartbeats",
    ),
)

GROUP_CONFIGS: dict[str, GroupConfig] = {line.rule.name: line for line in _LINES}
"""All group configs by name."""


def group_values(config: BrokerConfig, configs: Mapping[str, str]) -> dict[str, int]:
    """The value of every group config of a group that sets `configs`.

    Raises ConfigError naming a config that is unknown or does not fit.
    """
    unknown = sorted(configs.keys() - GROUP_CONFIGS.keys())
    if unknown:
        raise ConfigError(f"unknown group config {unknown[0]}")
    values = {}
    for name, line in GROUP_CONFIGS.items():
        if name not in configs:
            values[name] = config.value(line.option)
            continue
        values[name] = line.rule.parse(configs[name])
        low, high = config.value(line.lowest), config.value(line.highest)
        if not low <= values[name] <= high:
            raise line.rule.wrong(values[name], f"between {low} and {high} ({line.lowest}, {line.highest})")
    if values["consumer.session.timeout.ms"] <= values["consumer.heartbeat.interval.ms"]:
        raise ConfigError(
            f"consumer.session.timeout.ms={values['consumer.session.timeout.ms']}: must be larger than "
            f"consumer.heartbeat.interval.ms={values['consumer.heartbeat.interval.ms']}"
        )
    return values


# -- groups ----------------------------------------------------------------------------------------
# The configs of single groups (KIP-848). A group need not exist to have configs.


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


# -- topics ----------------------------------------------------------------------------------------
# The configs of topics.


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


# -- by its type -----------------------------------------------------------------------------------
# What has configs, by the resource types of DescribeConfigs and AlterConfigs: one file a type.


_ALL: dict[int, type[Resource]] = {
    ConfigResourceType.TOPIC: TopicResource,
    ConfigResourceType.BROKER: BrokerResource,
    ConfigResourceType.GROUP: GroupResource,
}


def resource_of(broker: Broker, kind: int) -> Resource:
    """The resources of a type. Raises KafkaError INVALID_REQUEST for a type that has none."""
    if kind not in _ALL:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {kind} have no configs here")
    return _ALL[kind](broker)
