"""What a broker under test is made of, and what one life of it can do, in a process or in a thread."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

READY = re.compile(r"eoslog broker ready at (\S+):(\d+) ")


class BrokerFailed(RuntimeError):
    """The broker ended, or was not ready in time; the text has what it said."""


@dataclass(frozen=True)
class Settings:
    """How to start. `config`: broker options by Kafka's names; `timeout`: seconds to be ready, or to end."""

    data: str
    host: str
    port: int
    flush: str
    log_level: str
    config: Mapping[str, str]
    timeout: float

    def options(self) -> dict[str, str]:
        """All of it as broker options."""
        return {
            "log.dirs": self.data,
            "listen.host": self.host,
            "listen.port": str(self.port),
            "flush.mode": self.flush,
            "logging.level": self.log_level,
            **self.config,
        }

    def arguments(self) -> list[str]:
        """All of it as arguments of `eoslog broker`."""
        arguments = ["--data", self.data, "--flush", self.flush, "--log-level", self.log_level]
        if not self.config.get("listeners"):  # they say where to listen
            arguments += ["--listen", f"{self.host}:{self.port}"]
        for name, value in self.config.items():
            arguments += ["--config", f"{name}={value}"]
        return arguments


class Life(Protocol):
    """A broker from its ready line to its end. Whoever makes one has waited for the ready line."""

    port: int
    ready_after: float

    @property
    def pid(self) -> int:
        """The id of the process it is in."""

    def send(self, command: dict[str, Any]) -> Any:
        """Carry out a command of faults (see `switchboard`)."""

    def lose(self, keep: str, seed: int) -> None:
        """Lose the power."""

    def kill(self) -> None:
        """End without a moment to save anything."""

    def stop(self, number: signal.Signals) -> int:
        """End in order; answers the exit status."""

    def output(self) -> str:
        """What it has logged."""
