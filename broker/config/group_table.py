"""The table of group configs (Kafka's GroupConfig): what can be set for a single group (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eoslog.broker.config.config_def import INT32_MAX, ConfigError, ConfigRule, ConfigType

if TYPE_CHECKING:
    from eoslog.broker.config import BrokerConfig


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
