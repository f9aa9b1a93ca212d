"""A Spark application of a history: lines of JSON on its standard input tell it what to start and to stop.

How each thing ended goes to answers.jsonl in the folder: {"id": ..., "said": null or the error's text}.
Argument: the folder.
"""

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.histories.spark_source import HistorySource

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "500m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.metricsEnabled": "false",
}
FORMAT = HistorySource.name()


def session() -> SparkSession:
    """With the source registered."""
    builder = SparkSession.builder.master("local[2]").appName("histories")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(HistorySource)
    return spark


def start(spark: SparkSession, told: dict[str, Any]) -> StreamingQuery:
    """Rows are marked with their pipeline's name. With a token: by foreachBatch and df.write."""
    name = told["source_name"]
    spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", str(name is not None).lower())
    reader = spark.readStream if name is None else spark.readStream.name(name)
    rows = reader.format(FORMAT).options(**told["source"]).load()
    rows = rows.selectExpr(f"cast(concat('{told['mark']}:', cast(value as string)) as binary) as value")
    checkpoint, sink = Path(told["checkpoint"]), told["sink"]
    write = rows.writeStream
    if told["told"]:
        write = write.option("checkpointLocation", str(checkpoint))
    else:
        spark.conf.set("spark.sql.streaming.checkpointLocation", str(checkpoint.parent))
        write = write.queryName(checkpoint.name)
    if told["token"] is None:
        write = write.format(FORMAT).options(**sink)
    else:

        def each(batch: DataFrame, number: int) -> None:
            token = {"write.token": f"{told['token']}-{number}"}
            batch.write.format(FORMAT).options(**sink, **token).mode("append").save()

        write = write.foreachBatch(each)
    return (write.trigger(availableNow=True) if told["now"] else write).start()


def write(spark: SparkSession, told: dict[str, Any]) -> None:
    """df.write of rows in as many partitions as they are told in."""
    rows = [(value.encode(),) for part in told["rows"] for value in part]
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, len(told["rows"])), "value binary")
    frame.write.format(FORMAT).options(**told["sink"]).mode("append").save()


class Application:
    """What runs in it, by number."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._answers = spark, folder / "answers.jsonl"
        self._queries: dict[int, StreamingQuery] = {}
        self._lock = threading.Lock()

    def obey(self, told: dict[str, Any]) -> None:
        """Starts are done here, where the session is active; what takes long is done beside."""
        if told["do"] == "stop":
            self._beside(lambda: self._stop(told["id"]))
        elif told["do"] == "write":
            self._beside(lambda: self._answered(told["id"], lambda: write(self._spark, told)))
        else:
            try:
                query = self._queries[told["id"]] = start(self._spark, told)
            except Exception as error:
                self._say(told["id"], error)
            else:
                self._beside(lambda: self._answered(told["id"], query.awaitTermination))

    def _stop(self, number: int) -> None:
        query = self._queries.get(number)
        if query is None:
            self._spark.sparkContext.cancelAllJobs()
        else:
            query.stop()

    def _beside(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()

    def _answered(self, number: int, work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as error:
            self._say(number, error)
        else:
            self._say(number, None)

    def _say(self, number: int, error: Exception | None) -> None:
        said = None if error is None else f"{type(error).__name__}: {error}"
        with self._lock, self._answers.open("a") as file:
            file.write(json.dumps({"id": number, "said": said}) + "\n")


def main(place: str) -> None:
    """Until the standard input ends."""
    folder = Path(place)
    application = Application(session(), folder)
    (folder / "ready").touch()
    for line in sys.stdin:
        application.obey(json.loads(line))


if __name__ == "__main__":
    main(sys.argv[1])
