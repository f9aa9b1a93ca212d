"""Hides long-lived objects from Python's cycle collector (gc.freeze).

Spark's Python processes run a full collection after every task and every call of the driver's. With the
libraries that a data source needs (PyArrow, NumPy, PySpark) each collection took about 20 ms of CPU: most of
what a small micro-batch cost in Python. The objects that exist when Spark first calls us (modules, classes,
tables) live as long as the process, so they are frozen and not scanned again; later ones are collected as
usual.

Only in processes that Spark starts itself: a notebook or a user's program, in which a writer may be made too,
may hold reference cycles of its own at that moment, and they would never be freed. And only after many
imports since the last time: each freeze also keeps the garbage that has not been collected yet.
"""

import gc
import os
import sys

DAEMON = "pyspark.daemon"
"""What Spark starts for each kind of Python process, to fork them."""

_MANY = 20
"""So many new modules are worth a freeze. The first task of a process imports NumPy for us and pandas for
PySpark, the latter after our call."""

_seen: tuple[int, int] = (-1, 0)


def freeze_imports() -> None:
    """Called when Spark calls us. Does nothing while few modules are new in the process; a fork counts from
    0."""
    global _seen
    known = _seen[1] if _seen[0] == os.getpid() else 0
    if len(sys.modules) >= known + _MANY and is_sparks():
        _seen = (os.getpid(), len(sys.modules))
        gc.freeze()


def is_sparks() -> bool:
    """Whether Spark started this process as one of its own: `python -m pyspark.daemon`, or the like."""
    started = getattr(sys.modules.get("__main__"), "__spec__", None)
    return started is not None and started.name.startswith("pyspark.")
