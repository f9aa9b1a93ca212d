"""Lets code wait for a partition: for records to become durable, or for any change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from eoslog.protocol.errors import KafkaError


class AppendWaiters:
    """Waiters by offset, and callbacks. All on the event loop's thread."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._callbacks: dict[Callable[[], None], None] = {}

    def wait(self, offset: int) -> asyncio.Future[None]:
        """A future that is done when `passed` is called with a higher offset. Needs the running loop."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, future))
        return future

    def passed(self, mark: int) -> None:
        """Release those who wait for an offset below `mark`, and call all callbacks."""
        if self._waiting:
            done = [future for offset, future in self._waiting if offset < mark]
            self._waiting = [entry for entry in self._waiting if entry[0] >= mark]
            for future in done:
                if not future.done():
                    future.set_result(None)
        self.stir()

    def refuse(self, error: KafkaError) -> None:
        """Raise the error for all who wait, and call all callbacks."""
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)
        self.stir()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each change from now on."""
        self._callbacks[callback] = None

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        """Stop calling `callback`. Does nothing if it was not subscribed."""
        self._callbacks.pop(callback, None)

    def stir(self) -> None:
        """Call all callbacks."""
        for callback in tuple(self._callbacks):
            callback()
