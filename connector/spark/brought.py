"""What Spark pickles says in which jar eoslog is, for processes that did not get the jar.

A client of Spark Connect can bring the jar (`spark.addArtifacts`). Spark's planners then import from it. But
the process of a streaming source looks for it in a folder that never exists (PythonStreamingSourceRunner of
Spark 4.2 and 4.3). So a pickle's first step puts the jar on sys.path, by a function of PySpark's, and only
the next one imports eoslog. On a machine that does not have the path, the step does no harm.
"""

from operator import itemgetter
from os import fspath
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex

from pyspark.worker_util import add_path

from eoslog.version.home import home_archive


def reduce_with_jar(value: object, protocol: SupportsIndex) -> Any:
    """`__reduce_ex__` of what Spark sends. If eoslog came from a folder, this is Python's own."""
    jar = home_archive()
    if jar is None:
        return object.__reduce_ex__(value, protocol)
    return _LAST, ((_Jar(jar), _Blank(type(value))),), value.__getstate__()


_LAST = itemgetter(-1)
"""Of the two steps' results: the object. Python's own, so that it can be loaded before eoslog."""


class _Jar(NamedTuple):
    """Loaded, it is on sys.path."""

    path: Path

    def __reduce__(self) -> Any:
        return add_path, (fspath(self.path),)


class _Blank(NamedTuple):
    """Loaded, it is an object of the class, without its state."""

    kind: type

    def __reduce__(self) -> Any:
        return blank, (self.kind,)


def blank(kind: type) -> object:
    """An object whose state will follow."""
    return object.__new__(kind)
