"""`eoslog-python`: the Python that Spark is to start, without Spark's zip on its path (docs/starts.md).

Spark puts `pyspark.zip` before everything else on PYTHONPATH, and what is imported from a zip is compiled at
every start. Where the very same PySpark is installed as a folder, the zip goes from PYTHONPATH; then this
process becomes the Python that eoslog is installed in, with the same arguments.
"""

import os
import sys
from collections.abc import Mapping

from eoslog.spark_daemon import prefer_installed
from eoslog.warm.ask import hand_over


def main() -> None:
    """As `python`, for PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON."""
    hand_over(sys.argv[1:])
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], environment(os.environ, sys.path))


def environment(given: Mapping[str, str], path: list[str]) -> dict[str, str]:
    """What Python is started with: `given`, but without Spark's zip where `path` has the same PySpark."""
    entries = given.get("PYTHONPATH", "").split(os.pathsep)
    found = [*entries, *path]
    prefer_installed(found)
    return {**given, "PYTHONPATH": os.pathsep.join(entry for entry in entries if entry in found)}
