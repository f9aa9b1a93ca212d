"""A million keys of state, saved and restored: make state-million.

A query counts by key, in RocksDB; each record of the topic has a key of its own. Its checkpoint is lost. The
command that restores it runs in a process of its own; its time and the most memory that it had are measured,
and the query is started with it once more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from eoslog import register
from eoslog.testing import EmbeddedBroker
from tests.audit.auditkit import cluster_at, create, fill, split
from tests.audit.million import MEGABYTES, measured
from tests.connector.brokers import Kafka
from tests.spark_session import set_environment, small_session

BATCHES, VALUE_BYTES = 10, 20
_STORE = "spark.sql.streaming.stateStore"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def start(
    spark: SparkSession, bootstrap: str, checkpoint: Path, a_batch: int, *, saved: bool
) -> StreamingQuery:
    """The query, until all is read."""
    given = {"kafka.bootstrap.servers": bootstrap}
    read = spark.readStream.format("eoslog").options(**given, subscribe="orders")
    rows = read.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", a_batch).load()
    timed = rows.withColumn("at", F.timestamp_seconds(F.lit(1))).withWatermark("at", "1 day")
    counted = timed.groupBy("key", F.window("at", "1 day")).count()
    options = given | {"topic": "counts", "transactional.id": f"counts-{saved}"}
    options |= {"state.topic": "state"} if saved else {}
    written = counted.selectExpr("cast(count as string) as value")
    sink = written.writeStream.format("eoslog").options(**options)
    return sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def run(spark: SparkSession, bootstrap: str, records: int, folder: Path) -> bool:
    """With and without state.topic; then lost, restored, and run again."""
    a_batch = records // BATCHES
    took = {}
    for saved in (False, True):
        began = time.monotonic()
        query = start(spark, bootstrap, folder / f"{saved}", a_batch, saved=saved)
        query.awaitTermination()
        took[saved] = time.monotonic() - began
    last = query.recentProgress[-1]["batchId"]
    shutil.rmtree(folder / "True")
    given = ["checkpoint", "restore", str(folder / "True"), "--transactional-id", "counts-True"]
    said, status, cost = measured([*given, "--bootstrap-server", bootstrap, "--json"])
    size = said["bytes"] if status == 0 else 0
    load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
    print(f"{records:,} keys: {took[False]:.0f} s without state.topic, {took[True]:.0f} s with it")
    memory = f"at most {cost.megabytes:.0f} MB of memory"
    print(f"restored: {size / 1e6:.0f} MB in {cost.seconds:.1f} s, {memory} ({load})")
    start(spark, bootstrap, folder / "True", a_batch, saved=True).awaitTermination()
    return status == 0 and said["decided"] == last and cost.megabytes < MEGABYTES


def main() -> int:
    """Exit status 0 if the checkpoint is restored with no more memory than other commands may have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    records = parser.parse_args().records
    set_environment()
    with (
        EmbeddedBroker() as broker,
        small_session() as spark,
        tempfile.TemporaryDirectory(prefix="keys-", ignore_cleanup_errors=True) as folder,
    ):
        register(spark)
        spark.conf.set(f"{_STORE}.providerClass", _ROCKSDB)
        spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        kafka = Kafka(broker.bootstrap)
        kafka.topic(2, name="counts")
        kafka.topic(name="state", cleanup_policy="compact")
        with cluster_at(broker.bootstrap) as cluster:
            create(cluster, "orders")
            fill(cluster, "orders", split(records), VALUE_BYTES)
        fine = run(spark, broker.bootstrap, records, Path(folder))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
