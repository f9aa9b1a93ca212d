"""Finds the driver's JVM from its Python processes, and the parent of a process."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from eoslog.connector.spark.gc_freeze import DAEMON


class ProcessIdentity(NamedTuple):
    """A process, identified by pid and start time, since pids are reused."""

    pid: int
    started: str


_told: ProcessIdentity | None = None
"""The driver's JVM, if a fork of a warm process has set it (eoslog/warm)."""


def driver_is(pid: int) -> None:
    """Set the driver's JVM, for a process that the JVM did not start itself, and for its forks."""
    global _told
    _told = identity_of(pid)


def identity_of(pid: int) -> ProcessIdentity:
    """The process that has this pid now."""
    return ProcessIdentity(pid, _started(pid))


def python_of_sources(environment: Mapping[str, str]) -> str:
    """The Python that Spark's driver starts to find and plan data sources, and for the source of a stream,
    whatever the settings are (Spark's PythonUtils.defaultPythonExec)."""
    return environment.get("PYSPARK_DRIVER_PYTHON", environment.get("PYSPARK_PYTHON", "python3"))


@cache
def driver_process() -> ProcessIdentity:
    """The driver's JVM. It starts Python processes itself, or starts a daemon for each kind of work, which
    forks them."""
    if _told is not None:
        return _told
    parent = parent_of(os.getpid())
    return parent_of(parent.pid) if _is_forked_by_daemon() else parent


def this_process() -> ProcessIdentity:
    """The process that asks."""
    return identity_of(os.getpid())


def lives(process: ProcessIdentity) -> bool:
    """Whether the process is still alive."""
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # alive, and another user's
    return _started(process.pid) == process.started


_STREAM = "stream executio"
"""How the system shows the name of Spark's threads that run streaming queries: it has 15 characters."""


def stream_threads(jvm: ProcessIdentity) -> list[ProcessIdentity]:
    """The threads of a JVM that run streaming queries, by number and start time. Empty: the system does not
    show them (not Linux, or another user's)."""
    found = []
    with suppress(OSError):
        for number in os.listdir(f"/proc/{jvm.pid}/task"):
            with suppress(OSError):  # it has just ended
                if Path(f"/proc/{jvm.pid}/task/{number}/comm").read_text().strip() == _STREAM:
                    found.append(ProcessIdentity(int(number), _thread_started(jvm, int(number))))
    return found


def thread_lives(jvm: ProcessIdentity, thread: ProcessIdentity) -> bool:
    """Whether a thread of the JVM is still alive."""
    return _thread_started(jvm, thread.pid) == thread.started


def _thread_started(jvm: ProcessIdentity, number: int) -> str:
    try:
        return Path(f"/proc/{jvm.pid}/task/{number}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "ended"


def _is_forked_by_daemon() -> bool:
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and main.name == DAEMON


def parent_of(pid: int) -> ProcessIdentity:
    """The parent of a process."""
    try:
        # The fields after the command's closing bracket begin with the 3rd; the 4th is the parent.
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):  # not Linux
        parent = int(_ps(pid, "ppid") or os.getppid())
    return identity_of(parent)


def _started(pid: int) -> str:
    """When the process was started; "" if that is unknown, or if the process is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except (OSError, IndexError):
        return _ps(pid, "lstart")


def _ps(pid: int, field: str) -> str:
    try:
        done = subprocess.run(["ps", "-o", f"{field}=", "-p", str(pid)], capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip()
