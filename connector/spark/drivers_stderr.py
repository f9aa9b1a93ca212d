"""The driver's stderr, for a process that belongs to nobody and has something to say.

Opened anew by its name in /proc, a file that the shell opened (`2> log`) would have two places to write at:
the driver's next line would go over ours. So the very descriptor is asked for (pidfd_getfd, Linux 5.6). Where
the system does not give it away, a file is opened anew all the same: a line of ours may be spoilt then.
"""

import contextlib
import ctypes
import os

_PIDFD_GETFD = 438
"""The number of the system call, the same on all machines that Linux runs on."""


def stderr_of(pid: int) -> int | None:
    """A descriptor of where that process's errors go; None: it cannot be had."""
    found = _the_same(pid)
    if found is None:
        with contextlib.suppress(OSError):
            found = os.open(f"/proc/{pid}/fd/2", os.O_WRONLY | os.O_APPEND)
    return found


def _the_same(pid: int) -> int | None:
    try:
        process = os.pidfd_open(pid)
    except (OSError, AttributeError):  # another system, or an older one
        return None
    try:
        found: int = ctypes.CDLL(None).syscall(_PIDFD_GETFD, process, 2, 0)
    finally:
        os.close(process)
    return found if found >= 0 else None
