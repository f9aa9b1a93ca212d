"""Takes what a process keeps for good out of the sight of Python's cycle collector.

Spark's Python processes run a full collection after every task and every call of the driver's. With the
libraries that a data source needs (PyArrow, NumPy, PySpark) each took about 20 ms of CPU: most of what a
small micro-batch cost in Python. What is there when a process comes to us (modules, classes, tables) stays as
long as it lives, so it need not be looked at again (gc.freeze); what is made later is collected as ever.
"""

import gc
import os

_CALLS = 2
"""The first call spares the collection behind it; the second knows what the first has imported."""

_seen: tuple[int, int] = (-1, 0)


def settle() -> None:
    """For where Spark calls in. Does nothing after the second call in a process; a fork counts anew."""
    global _seen
    process, calls = _seen if _seen[0] == os.getpid() else (os.getpid(), 0)
    if calls < _CALLS:
        _seen = (process, calls + 1)
        gc.freeze()
