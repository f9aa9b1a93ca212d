"""A Spark application for test_crash_table.py: copies a topic, a few rows a batch, until all is copied.

Arguments: bootstrap, source topic, target topic, checkpoint, version of the offset log. With 2 the source and
the sink have names.
"""

import sys

from pyspark.sql import SparkSession

from tests.connector.spark_probe import ProbeSource
from tests.spark_session import all_available


def main(bootstrap: str, source: str, target: str, checkpoint: str, version: str = "1") -> None:
    spark = (
        SparkSession.builder.master("local[2,4]")  # a task may be tried four times
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "700m")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "500")  # a task has some before its last
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(ProbeSource)
    has_names = version == "2"
    for kind in ("Source", "Sink"):
        spark.conf.set(f"spark.sql.streaming.queryEvolution.enable{kind}Evolution", has_names)
    reader = spark.readStream.name("source") if has_names else spark.readStream
    rows = (
        reader.format("eoslog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 4000)
        .load()
    )
    writer = rows.select("key", "value").writeStream
    if has_names:
        writer._jwrite = writer._jwrite.name("sink")  # PySpark 4.3 has no method for it
    query = all_available(
        writer.format("eoslog_probe")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.max.request.size", 5000)  # and has sent them
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
