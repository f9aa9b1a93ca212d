"""What Spark pickles says in which jar eoslog is, for processes that did not get the jar.

A client of Spark Connect can bring the jar (`spark.addArtifacts`). Spark's planners then import from it. But
the process of a streaming source looks for it in a folder that never exists (PythonStreamingSourceRunner of
Spark 4.2 and 4.3). So a pickle's first step puts the jar on sys.path, and only the next one imports eoslog.

An executor gets the jar from Spark, into a folder of the session's below its own, and Spark does not tell the
tasks of a Python data source of that folder (4.2 and 4.3). On an executor's machine the driver's path leads
nowhere, so the first step also looks into the folders where a task works.
"""

from operator import itemgetter
from os import fspath
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex

from eoslog.version import home_archive


def reduce_with_jar(value: object, protocol: SupportsIndex) -> Any:
    """`__reduce_ex__` of what Spark sends. If eoslog came from a folder, this is Python's own."""
    jar = home_archive()
    if jar is None:
        return object.__reduce_ex__(value, protocol)
    return _LAST, ((_Jar(jar), _Blank(type(value))),), value.__getstate__()


_LAST = itemgetter(-1)
"""Of the two steps' results: the object. Python's own, so that it can be loaded before eoslog."""


_ON_PATH = (
    "[__import__('pyspark.worker_util', fromlist=['add_path']).add_path(__import__('os').path.abspath(jar))"
    " for jar in [{path!r}, *__import__('glob').glob({sent!r})]]"
)


class _Jar(NamedTuple):
    """Loaded, it is on sys.path. What loads it has no eoslog yet, so it is told as an expression."""

    path: Path

    def __reduce__(self) -> Any:
        return eval, (_ON_PATH.format(path=fspath(self.path), sent=f"*/{self.path.name}"),)


class _Blank(NamedTuple):
    """Loaded, it is an object of the class, without its state."""

    kind: type

    def __reduce__(self) -> Any:
        return blank, (self.kind,)


def blank(kind: type) -> object:
    """An object whose state will follow."""
    return object.__new__(kind)
