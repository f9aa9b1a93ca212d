"""An application of its own: foreachBatch writes a batch without a token, says so, and never returns."""

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame

from tests.spark_session import small_session

if __name__ == "__main__":
    bootstrap, source, target, checkpoint, done = sys.argv[1:]

    def write(batch: DataFrame, _: int) -> None:
        writer = batch.write.format("eoslog").mode("append").option("topic", target)
        writer.option("kafka.bootstrap.servers", bootstrap).save()
        Path(done).touch()
        time.sleep(600)

    with small_session() as session:
        frame = session.readStream.format("eoslog").option("subscribe", source)
        frame = frame.option("kafka.bootstrap.servers", bootstrap).option("startingOffsets", "earliest")
        stream = frame.option("maxOffsetsPerTrigger", 1000).load().select("key", "value").writeStream
        stream.foreachBatch(write).option("checkpointLocation", checkpoint).start().awaitTermination()
