"""The Spark session of all tests that share one, and what every Spark that the tests start is given."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of every JVM: a test's Spark lives for a minute, and a thorough compiler would take half of its
processor time (37 s of a file of eleven tests; 21 s without)."""

_ROOT = Path(__file__).parents[1]


def set_environment() -> None:
    """Processes that Spark and the tests start find the packages as this one does, and start quickly."""
    path = os.environ.get("PYTHONPATH", "")
    if str(_ROOT) not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_ROOT), path)))
    python = str(Path(sys.executable).with_name("eoslog-python"))  # as the docs recommend; others have none
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for jvm in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):  # that of the launcher, that of the driver
        os.environ.setdefault(jvm, QUICK_START)


def all_available(writer: Any) -> Any:
    """Start a query that reads all that is there now in batches of maxOffsetsPerTrigger, and ends; a
    DataStreamWriter in, a StreamingQuery out. A PySpark before 4.2 reads one batch with the trigger
    availableNow: there, another trigger does it."""
    from eoslog.connector.spark.versions import TELLS_STARTS

    if TELLS_STARTS:
        return writer.trigger(availableNow=True).start()
    query = writer.trigger(processingTime="0 seconds").start()

    def stop() -> None:
        with contextlib.suppress(Exception):  # whoever awaits the query's end gets it
            query.processAllAvailable()
            query.stop()

    threading.Thread(target=stop, daemon=True).start()
    return query


@contextmanager
def small_session() -> Iterator["SparkSession"]:
    """A small local session; what a page's own `getOrCreate()` finds."""
    from pyspark.sql import SparkSession  # not before a test needs it: half a second

    session = (
        SparkSession.builder.master("local[2]")
        .appName("eoslog-tests")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.metricsEnabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
