"""Imports PySpark from its folder instead of Spark's archives.

Modules imported from a zip are compiled at every start. And each worker reads the directories of all archives
on its path again when Spark tells it where its files are (`setup_spark_files` of pyspark.worker_util); before
PySpark 4.3 so does each task. With pyspark.zip and the jar of Spark's core, which has no Python in it, that
takes 240 ms of CPU.
"""

import os
import sys

_VERSION = "pyspark/version.py"


def prefer_installed(path: list[str]) -> None:
    """Remove PySpark's zip from the path if a folder on the path has the very same version. Remove Spark's
    own jar too, which is there for the PySpark of a Spark that has no zip. This process looks into neither
    again.
    """
    same = [entry for entry in path if _is_zip(entry) and any(_is_same(entry, folder) for folder in path)]
    if not same:
        return
    gone = [entry for entry in path if entry in same or _is_core(entry)]
    path[:] = [entry for entry in path if entry not in gone]
    within = tuple(f"{entry}{os.sep}" for entry in gone)
    for known in [one for one in sys.path_importer_cache if one in gone or one.startswith(within)]:
        del sys.path_importer_cache[known]


def _is_zip(entry: str) -> bool:
    return os.path.basename(entry) == "pyspark.zip"


def _is_core(entry: str) -> bool:
    name = os.path.basename(entry)
    return name.startswith("spark-core_") and name.endswith(".jar")


def _is_same(archive: str, folder: str) -> bool:
    import zipfile

    installed = os.path.join(folder, _VERSION)
    if not os.path.isfile(installed) or not zipfile.is_zipfile(archive):
        return False
    with zipfile.ZipFile(archive) as packed, open(installed, "rb") as file:
        return packed.read(_VERSION) == file.read()
