"""A Spark application of a history: lines of JSON on its standard input tell it what to start and to stop.

Each has a number (kit/spark_app.py). Argument: the folder.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.histories.spark_source import HistorySource
from tests.kit.spark_app import Queries, lines, session

_SETTINGS = {"spark.driver.memory": "500m", "spark.sql.streaming.metricsEnabled": "false"}
FORMAT = HistorySource.name()


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
            if number in told["left_out"]:
                return
            token = {"write.token": f"{told['token']}-{number}"}
            batch.write.format(FORMAT).options(**sink, **token).mode("append").save()

        write = write.foreachBatch(each)
    return (write.trigger(availableNow=True) if told["now"] else write).start()


def write(spark: SparkSession, told: dict[str, Any]) -> None:
    """df.write of rows in as many partitions as they are told in."""
    rows = [(value.encode(),) for part in told["rows"] for value in part]
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, len(told["rows"])), "value binary")
    frame.write.format(FORMAT).options(**told["sink"]).mode("append").save()


def main(place: str) -> None:
    """Until the standard input ends."""
    spark = session("local[2]", "histories", "OFF", _SETTINGS)
    spark.dataSource.register(HistorySource)
    queries = Queries(Path(place))
    for told in lines():
        if told["do"] == "stop":
            queries.stop(told["id"], spark.sparkContext.cancelAllJobs)
        elif told["do"] == "write":
            queries.run(told["id"], partial(write, spark, told))
        else:
            queries.start(told["id"], partial(start, spark, told))


if __name__ == "__main__":
    main(sys.argv[1])
