"""What a user of an installed eoslog runs, as a script or in a notebook: a copy of a topic as a stream, and a
look at the result. It has nothing but PySpark and eoslog, wherever that came from.

Its argument is a plan in JSON:
  notebook             code that makes the session and registers eoslog; without it the session is made here
  register             code that registers eoslog, if users are told to
  bootstrap, source, target, checkpoint, limit
  trigger              the trigger of the copy, if it is not {"processingTime": "0 seconds"}
  notes                a file: the sink notes there which modules and connections its processes use
  sessions             how many sessions to start, one after another, in this Python
  result               where to write what it found
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def session(plan: dict[str, Any]) -> SparkSession:
    names: dict[str, Any] = {}
    if "notebook" in plan:
        exec(plan["notebook"], names)
    else:
        names["spark"] = SparkSession.builder.getOrCreate()
        exec(plan.get("register", ""), names)
    spark: SparkSession = names["spark"]
    spark.sparkContext.setLogLevel("WARN")
    return spark


def copy(spark: SparkSession, plan: dict[str, Any], sink: str) -> None:
    rows = (
        spark.readStream.format("eoslog")
        .option("kafka.bootstrap.servers", plan["bootstrap"])
        .option("subscribe", plan["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", plan["limit"])
        .load()
    )
    query = (
        rows.select("key", "value")
        .writeStream.format(sink)
        .option("kafka.bootstrap.servers", plan["bootstrap"])
        .option("topic", plan["target"])
        .option("checkpointLocation", plan["checkpoint"])
        .options(**({"notes": plan["notes"]} if plan.get("notes") else {}))
        .trigger(**plan.get("trigger", {"processingTime": "0 seconds"}))
        .start()
    )
    if "trigger" not in plan:  # PySparks before 4.2 read one batch with availableNow
        query.processAllAvailable()
        query.stop()
    query.awaitTermination()


def read(spark: SparkSession, plan: dict[str, Any]) -> DataFrame:
    return (
        spark.read.format("eoslog")
        .option("kafka.bootstrap.servers", plan["bootstrap"])
        .option("subscribe", plan["target"])
        .load()
    )


def witness() -> type:
    """format("witness"): the sink of "eoslog", which notes what each of its processes has."""
    from eoslog.client.wire.cluster import shared_cluster
    from eoslog.connector.data_source import EoslogDataSource
    from eoslog.connector.options.sink_options import sink_options
    from eoslog.connector.run import run_memory
    from eoslog.connector.sink import task_writer
    from eoslog.connector.sink.stream_writer import StreamWriter

    class WitnessWriter(StreamWriter):
        notes = ""

        def note(self, **what: Any) -> None:
            cluster = shared_cluster(self._options.client)
            known = {
                "pid": os.getpid(),
                "file": task_writer.__file__,
                "cluster": id(cluster),
                "met": cluster.reached,
            }
            with Path(self.notes).open("a") as file:  # short lines do not mix
                file.write(json.dumps(known | what) + "\n")

        def _begin(self) -> Any:
            take = run_memory.take

            def taken(*key: str) -> Any:
                run = take(*key)
                self.note(at="begin", remembered=run is not None)
                return run

            run_memory.take = taken
            try:
                return super()._begin()
            finally:
                run_memory.take = take

        def write(self, iterator: Any) -> Any:
            self.note(at="task")
            message: Any = super().write(iterator)
            self.note(at="written", name=getattr(getattr(message.report, "participant", None), "name", None))
            return message

    class Witness(EoslogDataSource):
        @classmethod
        def name(cls) -> str:
            return "witness"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            notes = self.options.pop("notes")
            writer = WitnessWriter(sink_options(self.options, stream=True), schema)
            writer.notes = notes
            return writer

    return Witness


def look(spark: SparkSession, plan: dict[str, Any]) -> dict[str, Any]:
    import eoslog

    sink = "eoslog"
    if plan.get("notes"):
        spark.dataSource.register(witness())
        sink = "witness"
    copy(spark, plan, sink)
    counted = read(spark, plan).agg(F.count("*"), F.countDistinct("value")).first()
    assert counted is not None
    once_more = read(spark, plan).select("key", "value").limit(5)
    once_more.write.format("eoslog").mode("append").option("topic", plan["target"] + "-batch").option(
        "kafka.bootstrap.servers", plan["bootstrap"]
    ).save()
    return {
        "rows": counted[0],
        "distinct": counted[1],
        "eoslog": eoslog.__file__,
        "spark": pyspark.__version__,
    }


def main() -> None:
    plan = json.loads(sys.argv[1])
    found = []
    for _ in range(plan.get("sessions", 1)):
        spark = session(plan)
        found.append(look(spark, plan))
        spark.stop()
    Path(plan["result"]).write_text(json.dumps({"sessions": found}))


if __name__ == "__main__":
    main()
