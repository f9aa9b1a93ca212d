"""An application for test_spark_connect.py: a copy through its own Spark Connect server, in batches of 30.

Arguments: bootstrap servers, the source's topic, the sink's topic. Its checkpoint is a relative path.
"""

import sys
import urllib.request

from pyspark.sql import SparkSession

from eoslog import metrics
from tests.kit.program import until
from tests.spark_session import all_available


def main(bootstrap: str, first: str, second: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    served = metrics.serve(spark, "127.0.0.1:0")
    kafka = {"kafka.bootstrap.servers": bootstrap}
    source = {**kafka, "subscribe": first, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    stream = spark.readStream.format("eoslog").options(**source).load().select("value")
    sink = {**kafka, "topic": second, "checkpointLocation": "./checkpoint"}
    query = all_available(stream.writeStream.format("eoslog").options(**sink))
    query.awaitTermination()
    until(
        lambda: (
            "eoslog_query_running{" in scraped(served) and "} 0.0" in line(served, "eoslog_query_running{")
        )
    )
    print(line(served, "eoslog_query_rows_read_total"), flush=True)
    served.close()
    copied = spark.read.format("eoslog").options(**kafka).option("subscribe", second).load()
    print(f"copied {copied.count()} as {type(spark).__module__}", flush=True)


def scraped(served: metrics.Served) -> str:
    with urllib.request.urlopen("http://{}:{}/metrics".format(*served.address)) as answer:
        return str(answer.read(), "utf-8")


def line(served: metrics.Served, metric: str) -> str:
    return next(line for line in scraped(served).splitlines() if line.startswith(metric))


if __name__ == "__main__":
    main(*sys.argv[1:])
