"""Relative paths in a query's options: they start at the working folder of Spark's JVM.

Python processes of classic Spark have the same working folder. Those of Spark Connect do not: each session
has its own folder for what its client sends, and its Python processes work there.
"""

import os
import re

from eoslog.connector.spark.gc_freeze import is_sparks
from eoslog.connector.spark.processes import driver_process


def is_relative(location: str) -> bool:
    """Whether a path starts at a working folder: it is no URI, and not absolute."""
    return not os.path.isabs(location) and re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", location) is None


def as_spark_takes(location: str) -> str:
    """Make a relative path absolute, in a process that Spark started. All other paths stay as they are.

    If the system does not give a process's folder (macOS, or a JVM of another user), the path stays relative.
    """
    if not is_relative(location) or not is_sparks():
        return location
    try:
        return os.path.join(os.readlink(f"/proc/{driver_process().pid}/cwd"), location)
    except OSError:
        return location
