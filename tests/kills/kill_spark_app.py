"""The Spark application of a soak: queries are started and stopped as it is told on its standard input.

Each command has the number of a query's life (kit/spark_app.py). Arguments: master, folder.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tests.kills.kill_noted import OF, STEPS, NotedSource
from tests.kills.kill_query import BATCH, MARK
from tests.kit.spark_app import Queries, lines, session
from tests.spark_session import QUICK_START

_SETTINGS = {
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    "spark.task.maxFailures": "4",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.python.worker.idleTimeoutSeconds": "0",
}
TRIGGER = "300 milliseconds"


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


def main(master: str, place: str) -> None:
    spark = session(master, "soak-kill", "ERROR", _SETTINGS)
    spark.dataSource.register(NotedSource)
    queries = Queries(Path(place))
    for told in lines():
        if "name" in told:
            queries.start(told["life"], partial(start, spark, told))
        else:
            queries.stop(told["life"])


if __name__ == "__main__":
    main(*sys.argv[1:])
