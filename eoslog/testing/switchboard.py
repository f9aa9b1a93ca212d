"""The broker's side of faults on demand: carries out what `faults.Faults` sends, in the broker's process.

Commands and answers are plain values, so that they can be sent through a pipe. All calls come from the event
loop's thread; those about the disk take its lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eoslog.testing.disk import DiskRule, FaultyFileSystem
from eoslog.testing.rules import Armed, FaultRule, RequestFaults
from eoslog.testing.unsynced import Keep

Command = dict[str, Any]


class Switchboard:
    """The faults of one life of a broker."""

    def __init__(self, data: str) -> None:
        """`data`: the broker's data directory."""
        self.fs = FaultyFileSystem(data)
        self.requests = RequestFaults()
        self._full = 0  # the number of the fault that makes the disk full, the last one
        self.cut: Callable[[], int] = lambda: 0
        """Cuts all connections; set once the broker is listening."""

    def carry_out(self, command: Command) -> Any:
        """Carry out `command`. Returns a plain value."""
        what = command["do"]
        return getattr(self, f"_{what}")(**{name: value for name, value in command.items() if name != "do"})

    def _arm(self, **rule: Any) -> None:
        self.requests.armed[rule["number"]] = Armed(FaultRule(**rule))

    def _arm_disk(self, **rule: Any) -> None:
        self.fs.rules[rule["number"]] = DiskRule(**rule)

    def _disarm(self, number: int) -> None:
        self.requests.armed.pop(number, None)
        self.fs.rules.pop(number, None)
        if number == self._full:
            self.fs.full_after(None)

    def _disarm_all(self) -> None:
        self.requests.armed.clear()
        self.fs.rules.clear()
        self.fs.full_after(None)

    def _happened(self, number: int) -> int:
        if number in self.requests.armed:
            return self.requests.armed[number].happened
        if number == self._full:
            return self.fs.refused
        rule = self.fs.rules.get(number)
        return 0 if rule is None else rule.happened

    def _disk_full(self, number: int, size: int) -> None:
        self._full = number
        self.fs.full_after(size)

    def _cut(self) -> int:
        return self.cut()

    def _lose(self, keep: str, seed: int) -> int:
        return self.fs.lose_power(Keep(keep), seed)
