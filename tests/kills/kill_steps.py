"""What each process of a soak is doing at this moment, told where its murderer can read it.

A process notes its step in a small file that it has mapped into its memory: that costs nothing, and what
stands there when it dies is what it was doing. The file's name says who it is; a pid alone may be another's
by now, so the time of its start stands beside it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
from dataclasses import dataclass
from pathlib import Path

_SIZE = 128
LIMBO = "?"
"""The step of a process that has told none yet."""


def _born(pid: int) -> str:
    """When a process started, in the kernel's ticks; "" if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


_mine: dict[int, Steps] = {}


class Steps:
    """This process's own note. `kind`: driver, task, ...; `of`: its query."""

    @classmethod
    def of_process(cls, folder: Path, kind: str, of: str) -> Steps:
        """The same one at each call, but for a fork, which makes its own."""
        if os.getpid() not in _mine:
            _mine[os.getpid()] = cls(folder, kind, of)
        return _mine[os.getpid()]

    def __init__(self, folder: Path, kind: str, of: str) -> None:
        self._path = folder / f"{kind}.{of}.{os.getpid()}.{_born(os.getpid())}"
        draft = folder / f".{os.getpid()}"
        draft.write_bytes(b" " * _SIZE)
        with draft.open("r+b") as file:
            self._text = mmap.mmap(file.fileno(), _SIZE)
        self.note(LIMBO)
        draft.rename(self._path)

    def note(self, step: str) -> None:
        """This is what is done from now on."""
        self._text[:] = step.encode()[:_SIZE].ljust(_SIZE)

    def over(self) -> None:
        """The process comes to its end."""
        self._path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Victim:
    """A process that has a note."""

    path: Path
    kind: str
    of: str
    pid: int
    born: str

    @property
    def alive(self) -> bool:
        """Whether it is there, and no other one under its pid."""
        return _born(self.pid) == self.born

    def step(self) -> str:
        """What it does, or did when it died."""
        with contextlib.suppress(FileNotFoundError):
            return self.path.read_text().strip()
        return LIMBO

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; whether it was there to get it."""
        if not self.alive:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False

    def kill(self) -> str | None:
        """SIGKILL; what it was doing, None if it was dead already or came to its end by itself."""
        if not self.send(signal.SIGKILL) or not self.path.exists():
            return None
        step = self.step()
        self.path.unlink(missing_ok=True)
        return step


def victims(folder: Path, kind: str | None = None, of: str | None = None) -> list[Victim]:
    """Those that live, in order of their names; notes of the dead are removed."""
    found = []
    for path in sorted(folder.glob("[a-z]*.*.*.*")):
        its_kind, its_query, pid, born = path.name.split(".")
        one = Victim(path, its_kind, its_query, int(pid), born)
        if not one.alive:
            path.unlink(missing_ok=True)
        elif kind in (None, its_kind) and of in (None, its_query):
            found.append(one)
    return found
