"""Runs a driver's life up to its n-th command, as if the driver was killed before it sent it. Pure.

A driver that is killed right after a command leaves the cluster as one that is killed before the next. So
halts before each command, and after the last, are all there are. The halted driver can be let go on later:
then it sends that command late, as a driver does that was suspended, or a request that was held up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from eoslog.connector.commit.commands import (
    Command,
    End,
    Perform,
    ReadClock,
    Refused,
    Rules,
    Seal,
    TransactionVersion,
    Unknown,
)

T = TypeVar("T")
NO_REQUEST = (ReadClock, TransactionVersion)
"""Commands that the cluster does not see."""


@dataclass
class HaltedRun(Generic[T]):
    """A driver's run, which halts before a command. `sent`: the commands that it has sent so far.
    `ended`: with `result`."""

    rules: Rules[T]
    perform: Perform
    sent: list[Command[Any]]
    halted_before: Command[Any] | None = None
    ended: bool = False
    result: T | None = None
    _waits: Command[Any] | None = None

    @classmethod
    def of(cls, rules: Rules[T], perform: Perform) -> HaltedRun[T]:
        """A run that has not begun."""
        return cls(rules, perform, [])

    def run(self, commands: int | None = None) -> HaltedRun[T]:
        """Go on for so many commands (None: to the end). Raises what the rules raise."""
        answer: Any = None
        if self._waits is not None:
            answer, self.halted_before = self._answer(self._waits, None), None
        while True:
            try:
                command = self.rules.send(answer)
            except StopIteration as done:
                self.ended, self.result, self._waits = True, done.value, None
                return self
            self._waits = command
            answer = self._answer(command, commands)
            if self.halted_before is not None:
                return self

    def _answer(self, command: Command[Any], commands: int | None) -> Any:
        """The command's answer, one request after another. None, and halted_before, if the time has come."""
        if isinstance(command, NO_REQUEST):
            return self.perform(command)
        singles = _singles(command)
        answers: dict[str, Any] = {}
        for single in singles:
            if commands is not None and len(self.sent) >= commands:
                self.halted_before = single
                return None
            self.sent.append(single)
            answer = self.perform(single)
            if len(singles) == 1 or isinstance(answer, (Refused, Unknown)):
                return answer
            answers |= answer
        return answers


def _singles(command: Command[Any]) -> list[Command[Any]]:
    """One command for each transaction that is ended or sealed."""
    if isinstance(command, (End, Seal)) and len(command.participants) > 1:
        return [replace(command, participants=(one,)) for one in command.participants]
    return [command]
