"""SIGKILL to a Spark application: to every process of the session that it was started as."""

import os
import signal
from pathlib import Path


def kill_session(leader: int) -> None:
    """All of them, and whoever asks for it last."""
    for pid in sorted(_session(leader), key=lambda pid: pid == os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _session(leader: int) -> set[int]:
    found = set()
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdecimal() and os.getsid(int(path.name)) == leader:
                found.add(int(path.name))
        except ProcessLookupError:
            continue
    return found
