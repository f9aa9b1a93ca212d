"""`eoslog.register(spark)`: `format("eoslog")` for a session whose Python got eoslog from a jar.

If pip has installed eoslog, Spark finds it by itself and this changes nothing. A jar reaches only the driver
unless Spark is told more. The connector must be a real module in every Python process of the application: its
connections, and the names of its transactions, are in modules (connector/sink/task_writer.py), and classes
sent by value would each have their own. So the jar itself is passed on, and classes are sent by name.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from eoslog.version import home_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RegistrationError(RuntimeError):
    """This session cannot get format("eoslog"); the message says why, and what to do."""


def register(spark: SparkSession) -> None:
    """Make `format("eoslog")` known to a session, and the session to the calling thread: Spark looks there
    for the source of a write, and a program's own thread has none. Repeated calls do no harm.

    Raises EnvironmentUnfit (an ImportError) if the driver's Python lacks a library or has too old a Spark.
    Raises RegistrationError (a RuntimeError) for a session of Spark Connect to which no jar can be brought,
    a jar that is gone, or a Spark whose Python lacks eoslog.
    """
    archive = home_archive()
    if archive is not None and not archive.is_file():  # a stopped session deleted its copy
        archive = _move_to(archive)
    from eoslog.connector.spark.libraries import check_versions

    check_versions()
    if not hasattr(spark, "sparkContext"):
        bring(spark, archive)
    elif archive is not None:
        hand_on(spark, archive)
    elif wrong := _what_sparks_python_lacks():
        raise RegistrationError(wrong)
    from pyspark.errors import PySparkException

    from eoslog.connector.data_source import EoslogDataSource

    try:
        spark.dataSource.register(EoslogDataSource)
    except PySparkException as error:  # PySpark 4.0, where Spark has found it by itself
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    if hasattr(spark, "sparkContext"):
        spark.createDataFrame([], "nothing INT")  # starts no job; it makes the session that of this thread


def watch_pythons() -> None:
    """Warn, at the import of eoslog, if Spark would start a Python that lacks it (other_python.py).

    Does nothing in a program that has not imported PySpark, in a client of Spark Connect, in processes of
    Spark or of eoslog itself, and if eoslog comes from a jar, which `register` hands on.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    ours = main is not None and main.name.split(".")[0] in ("pyspark", "eoslog")
    connects = "SPARK_REMOTE" in os.environ or "pyspark.sql.connect.session" in sys.modules
    if "pyspark" not in sys.modules or ours or connects or home_archive() is not None:
        return
    from eoslog.other_python import warn_if_other  # not before: most processes need none of its imports

    warn_if_other()


def _what_sparks_python_lacks() -> str:
    from eoslog.connector.spark.processes import python_of_sources
    from eoslog.other_python import what_it_lacks

    return what_it_lacks(python_of_sources(os.environ), os.environ)


def bring(spark: SparkSession, archive: Path | None) -> None:
    """Send the archive to a server of Spark Connect, for this session alone. Spark's planners and tasks
    import from it, and tell others where it is (connector/spark/brought.py). Raises RegistrationError
    without one.
    """
    if archive is None:
        raise RegistrationError(
            "this session is one of Spark Connect, and its server has a Python of its own: install eoslog "
            'with pip there, then Spark finds format("eoslog") by itself, without eoslog.register; or start '
            "this program with PYTHONPATH=eoslog_2.13-VERSION.jar, and eoslog.register takes the jar there"
        )
    spark.addArtifacts(os.fspath(archive), pyfile=True)


def hand_on(spark: SparkSession, archive: Path) -> None:
    """Have every Python process of the application import from the archive: planners, sources and tasks.

    With --packages and spark.jars.packages Spark has done half of it: tasks and planners look for the jar
    among the files of the application. But the process of a streaming source looks for these files in a
    folder that never exists (PythonStreamingSourceRunner of Spark 4.2 and 4.3). So PYTHONPATH names the jar
    for the driver's processes; on another machine that path does not exist, and does no harm.
    """
    context = spark.sparkContext
    if archive.name not in (context._python_includes or ()):
        context.addPyFile(str(archive))
    entries = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    if str(archive) not in entries:
        context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(archive), *entries]))


def _move_to(gone: Path) -> Path:
    """Let modules imported from an archive use another copy of it. Raises RegistrationError."""
    copies = [Path(entry) for entry in sys.path if Path(entry).name == gone.name]
    found = next((path for path in copies if path.is_file()), None)
    if found is None:
        raise RegistrationError(
            f"eoslog was imported from {gone}, which is gone, and this session has no copy of it: "
            "start it with the same spark.jars.packages, or restart Python"
        )
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "eoslog" and hasattr(module, "__path__"):
            module.__path__ = [_under(path, gone, found) for path in module.__path__]
    sys.modules["eoslog"].__loader__ = __import__("zipimport").zipimporter(os.fspath(found))
    return found


def _under(path: str, old: Path, new: Path) -> str:
    return os.fspath(new / Path(path).relative_to(old)) if Path(path).is_relative_to(old) else path
