"""The driver's stderr, for log lines of a background process.

If a file that the shell opened (`2> log`) were opened again by its name in /proc, it would have two write
positions, and the driver's next line would overwrite ours. So the driver's own descriptor is used
(pidfd_getfd, Linux 5.6). If the system does not allow that, the file is opened again, and the driver may
overwrite a line.
"""

import contextlib
import ctypes
import os

_PIDFD_GETFD = 438
"""The number of the system call, the same on all of Linux's architectures."""


def stderr_of(pid: int) -> int | None:
    """A descriptor of that process's stderr; None if there is no way to get one."""
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
