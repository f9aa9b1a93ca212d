"""A real broker for tests: in a process or a thread, on a port of its own. Its directory survives kills."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import weakref
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from eoslog.testing.faults import Faults
from eoslog.testing.process import BrokerFailed, BrokerProcess, RunningBroker, StartSettings

_RUNNING: set[EmbeddedBroker] = set()
"""Those of this process. They live on when nothing names them: a notebook's cell may be run again."""

_TRIES = 50
"""Ports that are tried before the system is asked for one."""


class EmbeddedBroker:
    """A broker for one test: a context manager, or by hand `start` and `stop`.

    `data`: a directory to keep; by default a temporary one. `flush`: fsync or os. `config`: broker options.
    `timeout`: seconds to become ready or to stop. `in_thread`: run in a thread of this process. `faults`:
    allow faults; a broker in a thread always does.
    """

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        port: int = 0,
        flush: str = "fsync",
        config: Mapping[str, str] | None = None,
        log_level: str = "warning",
        timeout: float = 20.0,
        in_thread: bool = False,
        faults: bool = False,
    ) -> None:
        self._temporary = data is None
        self.data = Path(data if data is not None else tempfile.mkdtemp(prefix="eoslog-"))
        self.host, self.port = "127.0.0.1", port
        self._flush, self._log_level, self._config = flush, log_level, dict(config or {})
        self._timeout, self._in_thread, self._faulty = timeout, in_thread, faults or in_thread
        self._life: RunningBroker | None = None
        self._latest: RunningBroker | None = None
        self._waiting: list[dict[str, Any]] = []
        self.ready_after = 0.0
        """Seconds from the beginning of the latest start until it was ready."""

    @property
    def bootstrap(self) -> str:
        """host:port, for a client's bootstrap.servers."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker. Raises BrokerFailed if none runs."""
        return self._running().pid

    @cached_property
    def faults(self) -> Faults:
        """The faults to cause. Raises BrokerFailed if it allows none."""
        if not self._faulty:
            raise BrokerFailed("this broker runs without faults: use EmbeddedBroker(faults=True)")
        return Faults(self._send)

    def _send(self, command: dict[str, Any]) -> Any:
        if self._life is not None:
            return self._life.send(command)
        self._waiting.append(command)
        return 0

    def start(self) -> Self:
        """Start and wait until it is ready. Raises BrokerFailed with what the broker printed."""
        if self._life is not None:
            raise BrokerFailed("the broker is running already")
        if not self.port and sys.platform == "linux" and not self._config.get("listeners"):
            self._keep_port()
        settings = StartSettings(
            str(self.data), self.host, self.port, self._flush, self._log_level, self._config, self._timeout
        )
        commands, self._waiting = self._waiting, []
        try:
            self._life = self._latest = self._born(settings, commands)
        except BrokerFailed as error:
            self._name_the_first(error)
            raise
        _RUNNING.add(self)
        self.port, self.ready_after = self._life.port, self._life.ready_after
        return self

    def _name_the_first(self, error: BrokerFailed) -> None:
        """Raise BrokerFailed if another broker of this process has the port or the directory."""
        for one in _RUNNING:
            if one.port == self.port or one.data.resolve() == self.data.resolve():
                raise BrokerFailed(
                    f"an EmbeddedBroker of this process runs there already, at {one.bootstrap} on "
                    f"{one.data} as process {one.pid}. Use that one, or stop() it. "
                    f'A cell that is run twice begins with: if "broker" not in globals(). {error}'
                ) from error

    def _keep_port(self) -> None:
        """Take a free port, which stays ours while no broker runs: no other program's connection gets it.

        The broker may listen there too: a socket with SO_REUSEADDR that does not listen lets it, on Linux.
        """
        with socket.socket() as keeper:
            _bind(keeper, self.host)
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.port = keeper.getsockname()[1]
            weakref.finalize(self, os.close, keeper.detach())

    def _born(self, settings: StartSettings, commands: list[dict[str, Any]]) -> RunningBroker:
        if self._in_thread:
            from eoslog.testing.thread import Thread

            return Thread(settings, commands)
        return BrokerProcess(settings, commands if self._faulty else None)

    def kill(self) -> None:
        """Kill it with SIGKILL, or the like in a thread."""
        self._ended().kill()

    def lose_unsynced(self, keep: Literal["nothing", "some"] = "nothing", seed: int = 0) -> None:
        """Cut the power: the broker dies, and its files lose what was not synced. `start` turns it on.

        With keep="some" a random part of that has reached the disk, the same for the same `seed`: of each
        file the first few writes, the next one torn; of each directory the first few changes. Needs
        `faults=True`.
        """
        if not self._faulty:
            raise BrokerFailed("this broker cannot lose its power: use EmbeddedBroker(faults=True)")
        self._ended().lose(keep, seed)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop it in an orderly way. Returns the exit status, 0 after a clean end."""
        return self._ended().stop(number)

    def restart(self) -> Self:
        """Stop it if it runs, and start again on the same directory and port."""
        if self._life is not None:
            self.stop()
        return self.start()

    def output(self) -> str:
        """What it has written to standard error since its latest start, at most the first MiB. Empty in a
        thread, which logs to this process's logging.
        """
        return "" if self._latest is None else self._latest.output()

    def _running(self) -> RunningBroker:
        if self._life is None:
            raise BrokerFailed("no broker runs")
        return self._life

    def _ended(self) -> RunningBroker:
        life, self._life = self._running(), None
        _RUNNING.discard(self)
        return life

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BrokerFailed:
            self._remove_temporary()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._life is not None:
                self.kill() if kind else self.stop()
        finally:
            self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary:
            shutil.rmtree(self.data, ignore_errors=True)


def _bind(keeper: socket.socket, host: str) -> None:
    """Bind to a free port below those that the system hands out; to any free port if there is none.

    A client that outlives its broker looks for it on and on. On a port that the system hands out it would
    find another program one day: Spark takes the first who connects for the Python worker it has started.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first = int(file.read().split()[0])
    ports = range(max(first // 2, 1024), first)
    for port in random.SystemRandom().sample(ports, min(_TRIES, len(ports))):
        try:
            return keeper.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    keeper.bind((host, 0))
