"""Deadlines of many groups on the event loop: one timer for each group, for its earliest deadline.

A deadline that moves later, as a session's does with every heartbeat, does not move the timer. The timer then
finds nothing due when it fires, and is set again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from eoslog.broker.coordinator.groups.consumer_group_state import Timer

if TYPE_CHECKING:
    from eoslog.broker.ports import Clock

Key = tuple[Timer, str]


class GroupDeadlines:
    """The deadlines of members, by group. `on_due` is called with a group that has one due."""

    def __init__(self, clock: Clock, on_due: Callable[[str], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._deadlines: dict[str, dict[Key, int]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def now_ms(self) -> int:
        """The time that deadlines are compared with: monotonic, in ms."""
        return int(self._clock.monotonic() * 1000)

    def update(self, group_id: str, changes: Mapping[Key, int | None]) -> None:
        """Set deadlines of a group; None removes one. Call on the event loop."""
        deadlines = self._deadlines.setdefault(group_id, {})
        for key, deadline in changes.items():
            if deadline is None:
                deadlines.pop(key, None)
            else:
                deadlines[key] = deadline
        if not deadlines:
            self.drop(group_id)
        elif changes:
            self._arm(group_id, min(deadlines.values()))

    def drop(self, group_id: str) -> None:
        """Remove all deadlines of a group."""
        self._deadlines.pop(group_id, None)
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer.cancel()

    def due(self, group_id: str) -> list[Key]:
        """The deadlines of a group that have passed."""
        now = self.now_ms()
        return [key for key, deadline in self._deadlines.get(group_id, {}).items() if deadline <= now]

    def look_again(self, group_id: str, delay_s: float) -> None:
        """Call `on_due` for this group after `delay_s`, whatever its deadlines are."""
        self._set_timer(group_id, asyncio.get_running_loop().time() + delay_s)

    def close(self) -> None:
        """Stop all timers."""
        for group_id in list(self._timers):
            self.drop(group_id)

    def _arm(self, group_id: str, deadline: int) -> None:
        # One more millisecond, since `now_ms` is rounded down.
        delay = max(deadline - self._clock.monotonic() * 1000, 0) / 1000 + 0.001
        when = asyncio.get_running_loop().time() + delay
        timer = self._timers.get(group_id)
        if timer is None or when < timer.when():
            self._set_timer(group_id, when)

    def _set_timer(self, group_id: str, when: float) -> None:
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer.cancel()
        self._timers[group_id] = asyncio.get_running_loop().call_at(when, self._fire, group_id)

    def _fire(self, group_id: str) -> None:
        del self._timers[group_id]
        if self.due(group_id):
            self._on_due(group_id)
        elif self._deadlines.get(group_id):
            self._arm(group_id, min(self._deadlines[group_id].values()))
