"""Starts Spark's Python workers sooner: spark.python.daemon.module=eoslog.spark_daemon (docs/starts.md).

Spark begins each kind of Python process by a daemon, which forks as many as it wants. This is PySpark's
daemon, with two things done before its first fork:

- Spark puts `pyspark.zip` before everything else on the path, and what is imported from a zip is compiled
  each time. Where the same PySpark is installed as a folder, the zip goes from the path.
- What its workers import in any case is imported once. Nothing of it starts a thread, which a fork would
  lose: NumPy and Arrow do, so workers import them.
"""

import gc
import importlib
import os
import sys

from eoslog.warm.ask import hand_over

_VERSION = "pyspark/version.py"
_SOURCE = "eoslog.connector.reader"
_SINKS = "eoslog.connector.writer", "eoslog.connector.batch_writer"
_PRELOADED = {
    "pyspark.sql.worker.lookup_data_sources": (),
    "pyspark.sql.worker.create_data_source": ("eoslog.connector.source", "eoslog.connector.spark_columns"),
    "pyspark.sql.worker.write_into_data_source": _SINKS,
    "pyspark.sql.worker.commit_data_source_write": _SINKS,
    "pyspark.sql.worker.python_streaming_sink_runner": _SINKS,
    "pyspark.worker": (_SOURCE, *_SINKS),
}
"""By the module that a daemon's workers run, which is imported as well. Of others nothing is known: PySpark's
plan_data_source_read imports Arrow."""


def main() -> None:
    """As `python -m pyspark.daemon`, with the same arguments."""
    hand_over(["-m", "eoslog.spark_daemon", *sys.argv[1:]])
    prefer_installed(sys.path)
    from pyspark import daemon

    worker = sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker"
    if worker in _PRELOADED:
        for module in (worker, *_PRELOADED[worker]):
            importlib.import_module(module)
    gc.freeze()
    daemon.manager()


def prefer_installed(path: list[str]) -> None:
    """Take PySpark's zip from the path where a folder on it holds the very same version."""
    for archive in [entry for entry in path if os.path.basename(entry) == "pyspark.zip"]:
        if any(_is_same(archive, folder) for folder in path):
            path.remove(archive)


def _is_same(archive: str, folder: str) -> bool:
    import zipfile

    installed = os.path.join(folder, _VERSION)
    if not os.path.isfile(installed) or not zipfile.is_zipfile(archive):
        return False
    with zipfile.ZipFile(archive) as packed, open(installed, "rb") as file:
        return packed.read(_VERSION) == file.read()


if __name__ == "__main__":
    main()
