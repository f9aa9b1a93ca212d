"""A real broker for tests: a subprocess on a port of its own, with a directory that outlives kills.

with EmbeddedBroker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    broker.kill()       # SIGKILL, as a crash
    broker.restart()    # the same directory, the same port
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import eoslog

_READY = re.compile(r"eoslog broker ready at (\S+):(\d+) ")


class BrokerFailed(RuntimeError):
    """The broker ended, or was not ready in time; the text has what it said."""


def _environment() -> dict[str, str]:
    """Ours, with the eoslog that this process uses first on the path, whatever the current directory is."""
    home = str(Path(eoslog.__file__).parent.parent)
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))}


class EmbeddedBroker:
    """Runs `python -m eoslog broker`. A context manager; `start` and `stop` do the same by hand."""

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        port: int = 0,
        flush: str = "fsync",
        config: dict[str, str] | None = None,
        log_level: str = "warning",
        timeout: float = 20.0,
    ) -> None:
        """`data`: a directory to use and keep; by default a temporary one that goes with the context.

        `config`: broker options by Kafka's names. `timeout`: seconds to become ready or to stop.
        """
        self._temporary = data is None
        self.data = Path(data if data is not None else tempfile.mkdtemp(prefix="eoslog-"))
        self.host, self.port = "127.0.0.1", port
        self._options = ["--flush", flush, "--log-level", log_level]
        for name, value in (config or {}).items():
            self._options += ["--config", f"{name}={value}"]
        self._timeout = timeout
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] | None = None
        self._said = ""
        self.ready_after = 0.0
        """Seconds from the start of the process to its ready line, of the latest start."""

    @property
    def bootstrap(self) -> str:
        """host:port, for a client's bootstrap.servers."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker. Raises BrokerFailed if none runs."""
        return self._running().pid

    def start(self) -> Self:
        """Start and wait for the ready line. Raises BrokerFailed with what the broker printed."""
        if self._process is not None:
            raise BrokerFailed("the broker runs already")
        command = [sys.executable, "-m", "eoslog", "broker", "--data", str(self.data)]
        command += ["--listen", f"{self.host}:{self.port}", *self._options]
        begun = time.monotonic()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `_ended`
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=_environment()
        )
        line = self._first_line(self._process)
        found = _READY.match(line)
        if not found:
            self._process.kill()
            status = self._process.wait()
            raise BrokerFailed(f"the broker did not start (exit status {status}): {line}{self._ended()}")
        self.ready_after = time.monotonic() - begun
        self.port = int(found[2])
        return self

    def _first_line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], self._timeout)
        return process.stdout.readline() if readable else ""

    def kill(self) -> None:
        """SIGKILL: the process has no moment to save anything."""
        self._end(signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it in an orderly way; answers the exit status, 0 after a clean end."""
        return self._end(number)

    def restart(self) -> Self:
        """Start again on the same directory and port; stops the broker first if it runs."""
        if self._process is not None:
            self.stop()
        return self.start()

    def output(self) -> str:
        """What the broker has written to standard error since its latest start; at most the first MiB."""
        if self._errors is not None:
            # Not seek and read: the broker writes at the file position that it shares with us.
            self._said = os.pread(self._errors.fileno(), 1 << 20, 0).decode(errors="replace")
        return self._said

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise BrokerFailed("no broker runs")
        return self._process

    def _end(self, number: signal.Signals) -> int:
        process = self._running()
        process.send_signal(number)
        try:
            return process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerFailed(f"the broker did not end after {number.name}: {self.output()}") from None
        finally:
            self._ended()

    def _ended(self) -> str:
        process, self._process = self._running(), None
        if process.stdout is not None:
            process.stdout.close()
        said = self.output()
        if self._errors is not None:
            self._errors.close()
            self._errors = None
        return said

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BrokerFailed:
            self._remove_temporary()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._end(signal.SIGKILL if kind else signal.SIGTERM)
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary:
            shutil.rmtree(self.data, ignore_errors=True)
