"""A Spark application for test_guard.py: a notebook's session, in which one query after another
starts, copies what is there, and ends.

Arguments: bootstrap, source topic, target topic, folder of checkpoints. A file `start-<n>` in the probe's
folder asks for queries up to number n, and `ended-<n>` says that they have ended; `leave` ends it all.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.kit.program import until

FOLDER = Path(os.environ["EOSLOG_PROBE"])


def main(bootstrap: str, source: str, target: str, checkpoints: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "700m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    number = 0
    while (wanted := asked()) is not None:
        while number < wanted:
            one(spark, bootstrap, source, target, f"{checkpoints}/{number}", stops=number % 2 == 0)
            number += 1
        (FOLDER / f"ended-{number}").touch()


def asked() -> int | None:
    """The next number of queries that is asked for and not done; None: leave."""

    def found() -> tuple[int | None] | None:
        if (FOLDER / "leave").exists():
            return (None,)
        numbers = [int(path.name.removeprefix("start-")) for path in FOLDER.glob("start-*")]
        open_ones = [one for one in numbers if not (FOLDER / f"ended-{one}").exists()]
        return (open_ones[0],) if open_ones else None

    return until(found, "an order", 600)[0]  # type: ignore[no-any-return]


def one(
    spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: str, *, stops: bool
) -> None:
    """A query that ends by itself, or is stopped when it has copied what is there."""
    broker = {"kafka.bootstrap.servers": bootstrap}
    given = {"subscribe": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("eoslog").options(**broker, **given).load().select("value")
    written = rows.writeStream.format("eoslog").options(**broker, topic=target)
    stored = written.option("checkpointLocation", checkpoint)
    if stops:
        query = stored.trigger(processingTime="100 milliseconds").start()
        query.processAllAvailable()
        query.stop()
    else:
        assert stored.trigger(availableNow=True).start().awaitTermination(120)


if __name__ == "__main__":
    main(*sys.argv[1:])
