"""The settings of a broker under test, and what one life of it can do, in a process or in a thread."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

READY = re.compile(r"eoslog broker ready at (\S+):(\d+) ")


class BrokerFailed(RuntimeError):
    """The broker ended, or was not ready in time; the text has what it printed."""


@dataclass(frozen=True)
class StartSettings:
    """How to start a broker. `config`: options by Kafka's names. `timeout`: seconds to become ready, or to
    end.
    """

    data: str
    host: str
    port: int
    flush: str
    log_level: str
    config: Mapping[str, str]
    timeout: float

    def options(self) -> dict[str, str]:
        """All settings as broker options."""
        return {
            "log.dirs": self.data,
            "listen.host": self.host,
            "listen.port": str(self.port),
            "flush.mode": self.flush,
            "logging.level": self.log_level,
            **self.config,
        }

    def arguments(self) -> list[str]:
        """All settings as arguments of `eoslog broker`."""
        arguments = ["--data", self.data, "--flush", self.flush, "--log-level", self.log_level]
        if not self.config.get("listeners"):  # they set the address themselves
            arguments += ["--listen", f"{self.host}:{self.port}"]
        for name, value in self.config.items():
            arguments += ["--config", f"{name}={value}"]
        return arguments


class BrokerProcess(Protocol):
    """A broker from its ready line to its end. Its constructor has waited for the ready line."""

    port: int
    ready_after: float

    @property
    def pid(self) -> int:
        """The id of the process it is in."""

    def send(self, command: dict[str, Any]) -> Any:
        """Carry out a command about faults (see `switchboard`)."""

    def lose(self, keep: str, seed: int) -> None:
        """Lose the power."""

    def kill(self) -> None:
        """End without saving anything."""

    def stop(self, number: signal.Signals) -> int:
        """End in order. Returns the exit status."""

    def output(self) -> str:
        """What it has logged."""
