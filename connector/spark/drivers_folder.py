"""Where a relative path among a query's options leads: from the working folder of Spark's JVM.

Python processes of classic Spark work in that folder too. Those of Spark Connect do not: each session has a
folder of its own for what its client sends, and its Python processes work there.
"""

import os
import re

from eoslog.connector.spark.longlived import is_sparks
from eoslog.connector.spark.processes import driver_process


def as_spark_takes(location: str) -> str:
    """The path from the root, of a relative one in a process that Spark started; all else as it is.

    Where the system does not tell a process's folder (macOS, or a JVM of another user), the path stays
    relative."""
    if os.path.isabs(location) or re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", location) or not is_sparks():
        return location
    try:
        return os.path.join(os.readlink(f"/proc/{driver_process().pid}/cwd"), location)
    except OSError:
        return location
