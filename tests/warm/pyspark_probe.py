"""What a worker of PySpark's daemon is, told by itself: `-m pyspark.daemon pyspark_probe`."""

import json
import os
import random
import signal
import sys
from typing import IO


def main(infile: IO[bytes], outfile: IO[bytes]) -> None:
    """One JSON line."""
    import numpy as np

    from eoslog.connector.spark import gc_freeze, processes

    umask = os.umask(0)
    os.umask(umask)
    spec = sys.modules["__main__"].__spec__
    told = {
        "parent": os.getppid(),
        "grandparent": processes.parent_of(os.getppid()).pid,
        "driver": processes.driver_process().pid,
        "environment": dict(os.environ),
        "arguments": sys.argv[1:],
        "folder": os.getcwd(),
        "umask": umask,
        "threads": len(os.listdir("/proc/self/task")),
        "main": spec.name if spec else None,
        "is_sparks": gc_freeze.is_sparks(),
        "pandas": "pandas" in sys.modules,
        "numbers": [float(np.random.rand()), random.random()],
        "interrupts": signal.getsignal(signal.SIGINT) == signal.default_int_handler,
        "descriptors": sorted(
            os.readlink(f"/proc/self/fd/{one}").partition(":")[0]
            for one in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{one}")
        ),
        "path": sys.path,
        "pyspark": sys.modules["pyspark"].__file__,
    }
    outfile.write(json.dumps(told).encode() + b"\n")
