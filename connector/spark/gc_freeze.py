"""Hides long-lived objects from Python's cycle collector (gc.freeze).

Spark's Python processes run a full collection after every task and every call from the driver. With the
libraries that a data source needs (PyArrow, NumPy, PySpark) each collection took about 20 ms of CPU: most of
what a small micro-batch cost in Python. The objects that exist when Spark first calls us (modules, classes,
tables) live as long as the process, so they are frozen and not scanned again; later ones are collected as
usual.

Only in processes that Spark starts itself: a notebook or a user's program, which may also create a writer,
may have its own reference cycles at that moment, and they would never be freed. And only after many new
imports, since each freeze also keeps the garbage that has not been collected yet.
"""

import gc
import os
import sys

DAEMON = "pyspark.daemon"
"""The module that Spark starts for each kind of Python process, to fork such processes."""

_MANY = 20
"""The number of new modules that makes a freeze worthwhile. The first task of a process imports NumPy for us
and pandas for PySpark, the latter after our call."""

_seen: tuple[int, int] = (-1, 0)


def freeze_imports() -> None:
    """Freeze if the process has many new modules. Call at each call from Spark. A fork counts from 0."""
    global _seen
    known = _seen[1] if _seen[0] == os.getpid() else 0
    if len(sys.modules) >= known + _MANY and is_sparks():
        _seen = (os.getpid(), len(sys.modules))
        gc.freeze()


def is_sparks() -> bool:
    """Whether Spark started this process as one of its own: `python -m pyspark.daemon`, or similar."""
    started = getattr(sys.modules.get("__main__"), "__spec__", None)
    return started is not None and started.name.startswith("pyspark.")
