"""An application for test_spark_python.py: a write, a read, and a stream of some batches."""

import sys

from pyspark.sql import SparkSession


def main(bootstrap: str, folder: str, small: str, first: str, second: str) -> None:
    settings: dict[str, bool | float | int | str | None]
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    kafka = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as value")
    rows.write.format("eoslog").options(**kafka).option("topic", first).mode("append").save()
    source = {**kafka, "subscribe": first, "startingOffsets": "earliest", "small.batch.max.offsets": small}
    stream = spark.readStream.format("eoslog").options(**source).option("maxOffsetsPerTrigger", "30").load()
    sink = {**kafka, "topic": second, "checkpointLocation": f"{folder}/checkpoint"}
    query = stream.select("value").writeStream.format("eoslog").options(**sink)
    query.trigger(availableNow=True).start().awaitTermination(240)
    copied = spark.read.format("eoslog").options(**kafka).option("subscribe", second).load()
    print(f"copied {copied.count()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
