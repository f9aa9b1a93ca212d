"""The Spark application of a soak: queries are started and stopped as it is told on its standard input.

A line of JSON is a command. How a query ended goes to answers.jsonl in the folder, under its life's number.
Arguments: master, folder.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tests.kills.kill_noted import OF, STEPS, NotedSource
from tests.kills.kill_query import BATCH, MARK
from tests.spark_session import QUICK_START

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "700m",
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    "spark.task.maxFailures": "4",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.python.worker.idleTimeoutSeconds": "0",
}
TRIGGER = "300 milliseconds"


def session(master: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("soak-kill")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(NotedSource)
    return spark


def rows(spark: SparkSession, job: dict[str, Any]) -> DataFrame:
    """The source with the query's own header. `dedup` reads a topic that has every row twice."""
    read = spark.readStream.format("eoslog_noted").options(**job["read"]).load()
    found = read.select("key", "value", "headers")
    if job["kind"] == "spark-dedup":
        found = found.dropDuplicates(["key", "value", "headers"])
    mark = F.array(F.struct(F.lit(MARK).alias("key"), F.lit(job["name"]).cast("binary").alias("value")))
    headers = F.when(F.col("headers").isNull(), mark).otherwise(F.concat("headers", mark))
    return found.withColumn("headers", headers)


def start(spark: SparkSession, job: dict[str, Any]) -> StreamingQuery:
    """Streams by the sink; `tokens` by `foreachBatch` and a token for each batch."""
    given = {**job["write"], STEPS: job["steps"], OF: job["name"]}
    job["read"] |= {STEPS: job["steps"], OF: job["name"], "maxOffsetsPerTrigger": str(BATCH)}
    writer = rows(spark, job).writeStream.option("checkpointLocation", job["checkpoint"])
    writer = writer.trigger(processingTime=TRIGGER)
    if job["kind"] != "spark-tokens":
        return writer.format("eoslog_noted").options(**given).start()

    def write(batch_rows: DataFrame, batch: int) -> None:
        options = given | {"write.token": f"{Path(job['checkpoint']).name}-{batch}"}
        batch_rows.write.format("eoslog_noted").options(**options).mode("append").save()

    return writer.foreachBatch(write).start()


class Application:
    """Its queries by the numbers of their lives."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._answers = spark, folder / "answers.jsonl"
        self._queries: dict[int, StreamingQuery] = {}
        self._lock = threading.Lock()

    def obey(self, command: dict[str, Any]) -> None:
        """Start a query here, where the session is active, and wait for its end elsewhere; or stop it."""
        if "name" not in command:
            self._apart(self._stop, command["life"])
            return
        life = command["life"]
        try:
            self._queries[life] = start(self._spark, command)
        except Exception as error:  # whatever it is: the soak judges it
            self._tell(life, error)
        else:
            self._apart(self._wait, life)

    def _apart(self, work: Callable[[int], None], life: int) -> None:
        threading.Thread(target=work, args=(life,), daemon=True).start()

    def _wait(self, life: int) -> None:
        try:
            self._queries[life].awaitTermination()
            self._tell(life, None)
        except Exception as error:
            self._tell(life, error)

    def _tell(self, life: int, error: Exception | None) -> None:
        said = "stopped" if error is None else f"{type(error).__name__}: {error}"
        with self._lock, self._answers.open("a") as file:
            file.write(json.dumps({"life": life, "said": said}) + "\n")

    def _stop(self, life: int) -> None:
        query = self._queries.get(life)
        if query is not None:
            query.stop()


def main(master: str, place: str) -> None:
    folder = Path(place)
    application = Application(session(master), folder)
    (folder / "ready").touch()
    for line in sys.stdin:
        application.obey(json.loads(line))


if __name__ == "__main__":
    main(*sys.argv[1:])
