"""An application for test_spark_connect.py: a copy through its own Spark Connect server, in batches of 30.

Arguments: bootstrap servers, the source's topic, the sink's topic. Its checkpoint is a relative path.
"""

import sys

from pyspark.sql import SparkSession

from tests.spark_session import all_available


def main(bootstrap: str, first: str, second: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    kafka = {"kafka.bootstrap.servers": bootstrap}
    source = {**kafka, "subscribe": first, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    stream = spark.readStream.format("eoslog").options(**source).load().select("value")
    sink = {**kafka, "topic": second, "checkpointLocation": "./checkpoint"}
    query = all_available(stream.writeStream.format("eoslog").options(**sink))
    query.awaitTermination()
    copied = spark.read.format("eoslog").options(**kafka).option("subscribe", second).load()
    print(f"copied {copied.count()} as {type(spark).__module__}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
