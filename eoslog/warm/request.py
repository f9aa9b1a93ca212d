"""The request to a warm process, and whether a fork may replace the process that Spark wanted. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

SOURCE_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
DAEMON = "pyspark.daemon"
RUNS = (DAEMON, SOURCE_RUNNER)
"""Modules that a fork may run: Spark's own processes, never a user's program."""

_LOOKS = ("pyspark.sql.worker.lookup_data_sources", SOURCE_RUNNER)

_ITS_OWN = frozenset({
    "PYSPARK_EXECUTOR_MEMORY_MB", "PYSPARK_PLANNER_MEMORY_MB", "PYSPARK_SPARK_SESSION_UUID",
    "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE", "PYTHON_FAULTHANDLER_DIR",
    "PYTHON_TRACEBACK_DUMP_INTERVAL_SECONDS", "PYTHON_UDF_BATCH_SIZE", "PYTHON_UNIX_DOMAIN_ENABLED",
    "PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_SOCK_DIR",
    "PYTHON_WORKER_FACTORY_SOCK_PATH", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE",
    "SPARK_HIDE_TRACEBACK", "SPARK_JOB_ARTIFACT_UUID", "SPARK_LOCAL_DIRS", "SPARK_PIPELINED_UDF",
    "SPARK_PIPELINED_UDF_QUEUE_DEPTH",
    "SPARK_PYTHON_RUNTIME", "SPARK_REUSE_WORKER", "SPARK_SIMPLIFIED_TRACEBACK",
    "SPARK_TRACEBACK_WITH_LOCALS",
})  # fmt: skip
"""Variables that Spark's JVM sets for each of its Python processes (PythonRunner, PythonWorkerFactory): they
are read when a process works, never by an import.
"""

_THREADS = "OMP_NUM_THREADS"
"""NumPy reads it once. Spark sets it to spark.task.cpus for tasks, and for nothing else."""
_WITHOUT_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Without it, Arrow's jemalloc has a thread of its own."""


class Request(NamedTuple):
    """A process that Spark wanted: `module` as for `python -m`, its arguments, and what it would inherit."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    umask: int
    ignores_interrupts: bool

    def worker(self) -> str:
        """The module that does the work: a daemon's argument, or the module itself."""
        if self.module != DAEMON:
            return self.module
        return self.arguments[0] if self.arguments else "pyspark.worker"

    def name(self) -> str:
        """The name for `ps -o comm` and `top`: the worker's, cut to the 15 letters that are possible."""
        worker = self.worker()
        if worker == "pyspark.worker":
            return worker
        return worker.rpartition(".")[2].removeprefix("python_")[:15]

    def encode(self) -> bytes:
        """The request as bytes to send."""
        return json.dumps(self).encode()


def begins(request: Request) -> bool:
    """Whether Spark looks for Python data sources with this process, or runs one of a stream."""
    return request.worker() in _LOOKS


def decode(message: bytes) -> Request:
    """The request in a message. Raises ValueError or TypeError if it is not valid."""
    found = Request(*json.loads(message))
    kinds = str, list, dict, str, int, bool
    if not all(isinstance(value, kind) for value, kind in zip(found, kinds, strict=True)):
        raise TypeError("fields of wrong types")
    return found


def differences(warm: Request, wanted: Request) -> list[str]:
    """What a fork of `warm` would have different from `wanted`; empty if it may replace that process."""
    found = []
    if wanted.module not in RUNS:
        found.append(f"it would run {wanted.module}")
    if wanted.folder != warm.folder:
        found.append("its working directory")
    if has_threads(wanted.environment):
        found.append(f"{_THREADS}={wanted.environment[_THREADS]}")
    ours, theirs = _inherited(warm.environment), _inherited(wanted.environment)
    return found + sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


def has_threads(environment: Mapping[str, str]) -> bool:
    """Whether NumPy gets threads, which a fork would lose: spark.task.cpus is above 1."""
    return environment.get(_THREADS, "1") != "1"


def _inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that an import may have read. Spark repeats entries on PYTHONPATH."""
    found = {name: value for name, value in environment.items() if name not in _ITS_OWN and name != _THREADS}
    if "PYTHONPATH" in found:
        found["PYTHONPATH"] = ":".join(dict.fromkeys(found["PYTHONPATH"].split(":")))
    return found


def for_imports(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a warm process imports: no library starts a thread."""
    return {**_WITHOUT_THREADS, **environment, _THREADS: "1"}


def begun_with(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that `for_imports` was given, except for the number of threads, which is never
    compared.
    """
    return {name: value for name, value in environment.items() if _WITHOUT_THREADS.get(name) != value}
