"""A broker in a thread of this process: it has its own event loop, and needs no new interpreter and imports.

To kill it means: its disk is dead (see `disk`), its connections are cut, its loop stops where it is. Nothing
in its memory is saved, as after SIGKILL. It logs to this process's logging.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from eoslog.broker.config import BrokerConfig, ConfigError
from eoslog.broker.main import Node, StartError
from eoslog.testing.process import BrokerFailed, StartSettings
from eoslog.testing.rules import Switchboard

Outcome = Future[Any]


class Thread:
    """One life of a broker."""

    def __init__(self, settings: StartSettings, commands: list[dict[str, Any]]) -> None:
        """Start and wait until it is ready. `commands`: faults to begin with. Raises BrokerFailed."""
        begun = time.monotonic()
        self._timeout = settings.timeout
        self._board = Switchboard(settings.data)
        self._loop = asyncio.new_event_loop()
        for command in commands:
            self._board.carry_out(command)
        try:
            self._node = Node(
                BrokerConfig.from_options(settings.options()), self._board.fs, self._board.requests
            )
            self._thread = threading.Thread(target=self._loop.run_forever, name="eoslog-broker", daemon=True)
            self._thread.start()
            self._within(self._node.start())
        except (StartError, ConfigError) as error:
            self._end()
            raise BrokerFailed(f"the broker did not start: {error}") from error
        self._board.cut = self._node.server.cut
        self.port = self._node.port
        self.ready_after = time.monotonic() - begun

    @property
    def pid(self) -> int:
        """This process."""
        return os.getpid()

    def _within(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(self._timeout)

    def _at_once(self, action: Callable[[], Any]) -> Any:
        """Run `action` on the loop, between two of its callbacks."""
        outcome: Outcome = Future()

        def act() -> None:
            try:
                outcome.set_result(action())
            except Exception as error:
                outcome.set_exception(error)

        self._loop.call_soon_threadsafe(act)
        return outcome.result(self._timeout)

    def send(self, command: dict[str, Any]) -> Any:
        """See `RunningBroker.send`."""
        return self._at_once(lambda: self._board.carry_out(command))

    def lose(self, keep: str, seed: int) -> None:
        """See `RunningBroker.lose`."""
        self._die(lambda: self._board.carry_out({"do": "lose", "keep": keep, "seed": seed}))

    def kill(self) -> None:
        """See `RunningBroker.kill`."""
        self._die(self._board.fs.die)

    def _die(self, how: Callable[[], Any]) -> None:
        def die() -> None:
            how()
            self._node.server.abandon()
            self._loop.set_exception_handler(lambda loop, context: None)  # a killed broker logs nothing
            for task in asyncio.all_tasks(self._loop):
                task.cancel()

        self._at_once(die)
        self._end(dead=True)

    def stop(self, number: signal.Signals) -> int:
        """See `RunningBroker.stop`. No signal is sent, as it would reach this process."""
        try:
            self._within(self._node.finish())
            self._within(self._node.close())
        except StartError as error:
            raise BrokerFailed(f"the broker did not end in order: {error}") from error
        finally:
            self._end()
        return 0

    def _end(self, dead: bool = False) -> None:
        """Stop the loop and wait for its threads."""
        if not self._loop.is_running():
            self._loop.close()
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(self._timeout)
        if self._thread.is_alive():
            raise BrokerFailed(f"the broker's thread did not end within {self._timeout} s")
        if dead:
            self._node.broker.flush.abandon()
        self._loop.close()

    def output(self) -> str:
        """See `RunningBroker.output`. Empty: the output is in this process's logging."""
        return ""
