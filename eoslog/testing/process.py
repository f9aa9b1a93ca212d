"""A broker as a process: starts it, sends it faults, kills it, and keeps its output."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

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


class RunningBroker(Protocol):
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


def _environment() -> dict[str, str]:
    """Our environment, with the eoslog that this process uses first on the path, whatever the current
    directory is.
    """
    home = str(Path(__file__).parents[2])
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))}


class BrokerProcess:
    """One life of a broker, as `eoslog.testing.child`. It ends with this one, by no signal to its group."""

    def __init__(self, settings: StartSettings, commands: list[dict[str, Any]] | None) -> None:
        """Start and wait for the ready line. `commands`: faults to begin with; None: without faults.

        Raises BrokerFailed with what the broker printed.
        """
        self._timeout = settings.timeout
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `_ended`
        self._said = ""
        self._channel: socket.socket | None = None
        begun = time.monotonic()
        self._process = self._start(settings, commands)
        line = self._first_line()
        found = READY.match(line)
        if not found:
            self._process.kill()
            status = self._process.wait()
            raise BrokerFailed(f"the broker did not start (exit status {status}): {line}{self._ended()}")
        self.ready_after = time.monotonic() - begun
        self.port = int(found[2])

    def _start(self, settings: StartSettings, commands: list[dict[str, Any]] | None) -> subprocess.Popen[str]:
        ours, theirs = socket.socketpair()
        with theirs:
            child = ["-m", "eoslog.testing.child", str(theirs.fileno())]
            process = subprocess.Popen(
                [sys.executable, *child, *(settings.arguments() if commands is None else ())],
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                env=_environment(),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C, and a notebook's interrupt of a cell, are for us alone
            )
        self._channel = ours
        self._channel.settimeout(self._timeout)
        if commands is not None:
            self._write({"options": settings.options(), "commands": commands})
        return process

    def _first_line(self) -> str:
        assert self._process.stdout is not None
        watch = select.poll()  # select() refuses descriptors from 1,024 on
        watch.register(self._process.stdout, select.POLLIN)
        return self._process.stdout.readline() if watch.poll(self._timeout * 1000) else ""

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send(self, command: dict[str, Any]) -> Any:
        """Have the broker carry out a command about faults. Returns its answer. Raises BrokerFailed."""
        self._write(command)
        answer = json.loads(self._line())
        if "error" in answer:
            raise BrokerFailed(f"{command}: {answer['error']}")
        return answer["answer"]

    def _write(self, order: dict[str, Any]) -> None:
        assert self._channel is not None
        try:
            self._channel.sendall(json.dumps(order).encode() + b"\n")
        except OSError as error:
            raise BrokerFailed(f"the broker is gone: {error}; {self.output()}") from error

    def _line(self) -> bytes:
        assert self._channel is not None
        data = b""
        while not data.endswith(b"\n"):
            more = self._channel.recv(1 << 16)
            if not more:
                raise BrokerFailed(f"the broker is gone: {self.output()}")
            data += more
        return data

    def lose(self, keep: str, seed: int) -> None:
        """Make it lose its power; see `EmbeddedBroker.lose_unsynced`."""
        self._write({"do": "lose", "keep": keep, "seed": seed})
        self._wait("a power loss")

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._wait("SIGKILL")

    def stop(self, number: signal.Signals) -> int:
        """End it with a signal. Returns the exit status."""
        self._process.send_signal(number)
        return self._wait(number.name)

    def _wait(self, what: str) -> int:
        try:
            return self._process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise BrokerFailed(f"the broker did not end after {what}: {self.output()}") from None
        finally:
            self._ended()

    def output(self) -> str:
        """What it has written to standard error; at most the first MiB."""
        if not self._errors.closed:
            # Not seek and read: the broker writes at the file position that it shares with us.
            self._said = os.pread(self._errors.fileno(), 1 << 20, 0).decode(errors="replace")
        return self._said

    def _ended(self) -> str:
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._channel is not None:
            self._channel.close()
        said = self.output()
        self._errors.close()
        return said
