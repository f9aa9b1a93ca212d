"""The process that edits a checkpoint, or takes an edit back, as its notes name it."""

from __future__ import annotations

from socket import gethostname
from typing import NamedTuple

from eoslog.connector.spark.processes import ProcessIdentity, lives, this_process


class Editor(NamedTuple):
    """`started`: when, as the system counts it, for a pid may be used again."""

    host: str
    pid: int
    started: str

    @classmethod
    def this(cls) -> Editor:
        """This process."""
        return cls(gethostname(), *this_process())

    @property
    def works_here(self) -> bool:
        """Whether it is another process of this machine, and lives."""
        known = ProcessIdentity(self.pid, self.started)
        return not self.elsewhere and known != this_process() and lives(known)

    @property
    def elsewhere(self) -> bool:
        """Whether it is on another machine: whether it lives cannot be seen."""
        return self.host != gethostname()
