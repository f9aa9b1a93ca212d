"""Subscriptions to the metrics of clients (KIP-714): kept and told, but no client is asked for metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from eoslog.broker.config import ConfigError
from eoslog.broker.config.base import Kind, Rule, text_of
from eoslog.broker.resources.base import Entry, Resource, ResourceType, Source, Synonym
from eoslog.protocol.errors import ErrorCode, KafkaError

_TABLE: dict[str, tuple[Rule, Any, str]] = {
    "interval.ms": (
        Rule("interval.ms", Kind.INT, 100, 3_600_000),
        300_000,
        "how often a client sends metrics",
    ),
    "match": (Rule("match", Kind.LIST), (), "which clients, as NAME=PATTERN"),
    "metrics": (Rule("metrics", Kind.LIST), (), "prefixes of the names of the metrics wanted; *: all"),
}
_NO_EFFECT = ". Without effect here: clients are not asked for metrics"
_MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


class ClientMetricsResource(Resource):
    """Subscriptions by name."""

    TYPE = ResourceType.CLIENT_METRICS

    def names(self) -> list[str]:
        """See `Resource.names`."""
        return self.broker.configs.names("client-metrics")

    def entries(self, name: str) -> Iterator[Entry]:
        """See `Resource.entries`."""
        configs = self.current(name)
        for config, (rule, _, meaning) in _TABLE.items():
            value = configs.get(config, self.default(config))
            own = (Synonym(config, value, Source.CLIENT_METRICS),) if config in configs else ()
            yield Entry(config, value, own, rule.kind, meaning=meaning + _NO_EFFECT)

    def current(self, name: str) -> Mapping[str, str]:
        """See `Resource.current`."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a subscription's name must not be empty")
        return self.broker.configs.get("client-metrics", name)

    def check(self, name: str, configs: Mapping[str, str]) -> None:
        """See `Resource.check`."""
        self.current(name)
        for config, text in configs.items():
            if config not in _TABLE:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown client metrics config {config}")
            try:
                value = _TABLE[config][0].parse(text)
            except ConfigError as error:
                out_of_bounds = text.strip().lstrip("-").isdecimal()
                code = ErrorCode.INVALID_REQUEST if out_of_bounds else ErrorCode.INVALID_CONFIG
                raise KafkaError(code, str(error)) from error
            if config == "match":
                for pattern in value:
                    _check_pattern(pattern)

    def put(self, name: str, configs: Mapping[str, str]) -> None:
        """See `Resource.put`."""
        self.check(name, configs)
        self.broker.configs.put("client-metrics", name, configs)

    def rule(self, config: str) -> Rule | None:
        """See `Resource.rule`."""
        return _TABLE[config][0] if config in _TABLE else None

    def default(self, config: str) -> str:
        """See `Resource.default`."""
        return text_of(_TABLE[config][1])


def _check_pattern(pattern: str) -> None:
    name, equals, wanted = pattern.partition("=")
    try:
        re.compile(wanted)
    except re.error:
        equals = ""
    if not equals or name.strip() not in _MATCHED:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"match: {pattern!r} is no NAME=PATTERN with one of the names {', '.join(_MATCHED)}",
        )
