"""An application for test_spark_python.py: a copy, and what its Python workers say of themselves."""

import json
import os
import sys
import zipimport
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession


def look(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker: where its PySpark is from, who its forefathers are, its parent's threads."""
    import pyspark

    from eoslog.connector.spark import processes

    for _ in rows:
        pass
    parent = Path(f"/proc/{os.getppid()}")
    threads = next(
        line for line in (parent / "status").read_text().splitlines() if line.startswith("Threads:")
    )
    said = {
        "pyspark": pyspark.__file__,
        "threads": int(threads.split()[1]),
        "grandparent": processes.parent_of(os.getppid()).pid,
        "driver": processes.driver_process().pid,
        "archives": [
            Path(entry).name
            for entry, finder in sys.path_importer_cache.items()
            if isinstance(finder, zipimport.zipimporter)
        ],
    }
    yield pa.RecordBatch.from_pydict({"said": [json.dumps(said)]})


def main(bootstrap: str, folder: str, first: str, second: str, master: str) -> None:
    settings: dict[str, bool | float | int | str | None]
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = SparkSession.builder.master(master).config(map=settings)
    session = spark.getOrCreate()
    kafka = {"kafka.bootstrap.servers": bootstrap}
    rows = session.range(0, 100, 1, 2).selectExpr("cast(id as string) as value")
    rows.write.format("eoslog").options(**kafka).option("topic", first).mode("append").save()
    source = {**kafka, "subscribe": first, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    stream = session.readStream.format("eoslog").options(**source).load().select("value")
    sink = {**kafka, "topic": second, "checkpointLocation": f"{folder}/checkpoint"}
    query = stream.writeStream.format("eoslog").options(**sink).trigger(availableNow=True).start()
    query.awaitTermination(240)
    copied = session.read.format("eoslog").options(**kafka).option("subscribe", second).load()
    said = session.range(0, 1, 1, 1).mapInArrow(look, "said string").collect()[0].said
    print("told " + json.dumps({"copied": copied.count(), **json.loads(said)}), flush=True)
    if sys.stdin.read(1) == "k":  # until the test has looked at its processes
        os.kill(os.getpid(), 9)


if __name__ == "__main__":
    main(*sys.argv[1:])
