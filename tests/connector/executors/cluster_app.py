"""A Spark application that runs one query after another, as a test tells it: spark_application.py starts it,
and a line of JSON on its standard input is a command. Answers go to answers.jsonl in the probe's folder.

Arguments: master, Spark settings as JSON.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.connector.spark_probe import ProbeSource
from tests.spark_session import QUICK_START

_SMALL = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "700m",
    "spark.executor.extraJavaOptions": QUICK_START,  # the driver has it from the environment
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",  # a task has some rows before its last ones
    "spark.task.maxFailures": "4",
}


def session(master: str, settings: dict[str, str]) -> SparkSession:
    """A session of the settings' kind."""
    builder = SparkSession.builder.master(master).appName("eoslog-executors")
    for name, value in (_SMALL | settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    if "spark.log.level" in settings:  # at the start, PySpark's shell still keeps back what is below WARN
        spark.sparkContext.setLogLevel(settings["spark.log.level"])
    spark.dataSource.register(ProbeSource)
    return spark


def run(spark: SparkSession, command: dict[str, Any]) -> dict[str, Any]:
    """A query from its start to its end; what it raised, if it did."""
    try:
        write(rows(spark, command), command)
    except Exception as error:  # whatever it is: the test judges it
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": None}


def rows(spark: SparkSession, command: dict[str, Any]) -> DataFrame:
    """The source's rows; `shuffle`: through a shuffle by value; `noise`: with a mark of their own in each
    run, so that no batch replays equally."""
    reader = spark.readStream if "checkpoint" in command else spark.read
    frame: DataFrame = (
        reader.format("eoslog")
        .option("kafka.bootstrap.servers", command["bootstrap"])
        .option("subscribe", command["source"])
        .option("startingOffsets", "earliest")
        .options(**command.get("read", {}))
        .load()
        .select("key", "value")
    )
    if command.get("noise"):
        frame = frame.select(
            "key", F.concat(F.col("value").cast("string"), F.lit("@"), F.expr("uuid()")).alias("value")
        )
    return frame.repartition(2, "value") if command.get("shuffle") else frame


def write(frame: DataFrame, command: dict[str, Any]) -> None:
    """Write them: as a stream if there is a checkpoint, until all is written. `explain`: print the plan."""
    options = {
        "kafka.bootstrap.servers": command["bootstrap"],
        "topic": command["target"],
        "kafka.max.request.size": "5000",  # the sink sends as soon as it has rows
        **command.get("write", {}),
    }
    if "checkpoint" not in command:
        frame.write.format("eoslog_probe").mode("append").options(**options).save()
        if command.get("explain"):
            frame.explain(extended=True)
        return
    writer = frame.writeStream.format("eoslog_probe").options(**options)
    query = writer.option("checkpointLocation", command["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()
    if command.get("explain"):
        query.explain(extended=True)


def stages(spark: SparkSession, ids: list[int]) -> dict[str, Any]:
    """The newest attempt of each stage, from 0."""
    tracker = spark.sparkContext.statusTracker()
    found = {number: tracker.getStageInfo(number) for number in ids}
    return {"attempts": {str(n): info.currentAttemptId for n, info in found.items() if info is not None}}


def main(master: str, settings: str) -> None:
    spark = session(master, json.loads(settings))
    answers = Path(os.environ["EOSLOG_PROBE"]) / "answers.jsonl"
    for line in sys.stdin:
        command = json.loads(line)
        answer = stages(spark, command["stages"]) if "stages" in command else run(spark, command)
        with answers.open("a") as file:
            file.write(json.dumps(answer) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
