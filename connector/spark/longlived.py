"""Takes what a process keeps for good out of the sight of Python's cycle collector.

Spark's Python processes run a full collection after every task and every call of the driver's. With the
libraries that a data source needs (PyArrow, NumPy, PySpark) each took about 20 ms of CPU: most of what a
small micro-batch cost in Python. What is there when a process comes to us (modules, classes, tables) stays as
long as it lives, so it need not be looked at again (gc.freeze); what is made later is collected as ever.

Only in the processes that Spark starts for itself: a notebook or a program of the user's, in which a writer
may be made as well, holds rings of objects of its own at that moment, which would never be freed. And only
when much has been imported since the last time: each time keeps what is garbage just then.
"""

import gc
import os
import sys

DAEMON = "pyspark.daemon"
"""What Spark starts for each kind of Python process, to fork them."""

_MANY = 20
"""Modules that are worth it. The first task of a process imports NumPy for us and pandas for PySpark, the
latter behind our call."""

_seen: tuple[int, int] = (-1, 0)


def freeze_imports() -> None:
    """For where Spark calls in. Does nothing while few modules are new in the process; a fork counts anew."""
    global _seen
    known = _seen[1] if _seen[0] == os.getpid() else 0
    if len(sys.modules) >= known + _MANY and is_sparks():
        _seen = (os.getpid(), len(sys.modules))
        gc.freeze()


def is_sparks() -> bool:
    """Whether Spark started this process as one of its own: `python -m pyspark.daemon`, or the like."""
    started = getattr(sys.modules.get("__main__"), "__spec__", None)
    return started is not None and started.name.startswith("pyspark.")
