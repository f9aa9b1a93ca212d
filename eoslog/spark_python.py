"""`eoslog-python`: the Python that Spark is to start: PYSPARK_PYTHON=eoslog-python (docs/starts.md).

A process that Spark starts for itself becomes a fork of a warm process (eoslog.warm), if possible. Any other
call runs the Python in which eoslog is installed, with the same arguments, and with PySpark from its folder.
"""

import os
import sys
from collections.abc import Mapping

from eoslog.warm.ask import hand_over
from eoslog.warm.sparks_zip import prefer_installed

ASKED = ("-X", "eoslog.asked")
"""Means nothing to Python. With it a start does not ask again (packaging/eoslog.pth)."""


def main() -> None:
    """Behave like `python`."""
    hand_over(sys.argv[1:])
    command = [sys.executable, *(ASKED if sys.argv[1:2] == ["-m"] else ()), *sys.argv[1:]]
    os.execve(sys.executable, command, environment(os.environ, sys.path))


def environment(given: Mapping[str, str], path: list[str]) -> dict[str, str]:
    """Python's environment: `given`, but without Spark's zip if `path` has the same PySpark."""
    entries = given.get("PYTHONPATH", "").split(os.pathsep)
    found = [*entries, *path]
    prefer_installed(found)
    return {**given, "PYTHONPATH": os.pathsep.join(entry for entry in entries if entry in found)}
