"""The levels of the broker's loggers as configs (KIP-412): changed at once, forgotten at a restart."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn

from eoslog.broker.config.base import Rule
from eoslog.broker.resources.base import (
    Change,
    Entry,
    Operation,
    Resource,
    ResourceType,
    Source,
    Synonym,
    operation_of,
)
from eoslog.broker.resources.brokers import check_node
from eoslog.protocol.errors import ErrorCode, KafkaError

ROOT = "root"
LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
"""Kafka's names of levels."""


class LoggerResource(Resource):
    """The loggers of this broker, by its id; each logger is a config."""

    TYPE = ResourceType.BROKER_LOGGER

    def names(self) -> list[str]:
        """See `Resource.names`."""
        return [str(self.broker.node_id)]

    def entries(self, name: str) -> Iterator[Entry]:
        """See `Resource.entries`."""
        for logger, level in sorted(self.current(name).items()):
            yield Entry(logger, level, (Synonym(logger, level, Source.BROKER_LOGGER),))

    def current(self, name: str) -> Mapping[str, str]:
        """Every logger's level in effect."""
        check_node(name, self.broker.node_id)
        return {logger: _level(_logger(logger).getEffectiveLevel()) for logger in _loggers()}

    def change(self, name: str, changes: Iterable[Change], *, validate_only: bool) -> None:
        """See `Resource.change`; a DELETE gives a logger the level of the one above it again."""
        check_node(name, self.broker.node_id)
        wanted = [(change.name, _judged(change)) for change in changes]
        if not validate_only:
            for logger, level in wanted:
                _logger(logger).setLevel(level)

    def check(self, name: str, configs: Mapping[str, str]) -> NoReturn:
        """Loggers can only be changed one by one."""
        raise KafkaError(ErrorCode.INVALID_REQUEST, "levels of loggers change by IncrementalAlterConfigs")

    def put(self, name: str, configs: Mapping[str, str]) -> NoReturn:
        """As `check`."""
        self.check(name, configs)

    def rule(self, config: str) -> Rule | None:
        """No logger's level is a list."""
        return None

    def default(self, config: str) -> str:
        """See `Resource.default`."""
        return _level(logging.WARNING)


def _judged(change: Change) -> int:
    """The level that a change gives its logger. Raises KafkaError."""
    operation = operation_of(change)
    if change.name not in _loggers():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no logger {change.name}")
    if operation is Operation.SET:
        if change.value not in LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{change.name}: {change.value!r} is no level, those are {', '.join(LEVELS)}",
            )
        return LEVELS[change.value]
    if operation is Operation.DELETE and change.name != ROOT:
        return logging.NOTSET
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name}: {operation.name} is not for this logger")


def _loggers() -> list[str]:
    known = logging.root.manager.loggerDict
    return [ROOT, *(name for name, logger in known.items() if isinstance(logger, logging.Logger))]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level(number: int) -> str:
    """Kafka's name of a level: the one at or below it."""
    return next((name for name, level in LEVELS.items() if number >= level), "TRACE")
