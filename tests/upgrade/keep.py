"""Makes what `test_upgrade.py` opens: a broker's data directory and a query's checkpoint of one version.

`PYTHONPATH=SOURCES python tests/upgrade/keep.py NAME` keeps those of the version in SOURCES. It uses what
every version has: Spark's API, stock clients, `eoslog` commands and EmbeddedBroker.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

KEPT = Path(__file__).parent / "kept"
SMALL = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
ROWS = 10


def fill(bootstrap: str) -> None:
    """Rows of a transaction that was committed and of one that was aborted, one that stays open, a group."""
    eoslog("topics", "create", "orders", "copies", "--partitions", "2", bootstrap=bootstrap)
    eoslog("topics", "create", "latest", "--config", "cleanup.policy=compact", bootstrap=bootstrap)
    write(bootstrap, "first", "orders", range(ROWS), "commit")
    write(bootstrap, "first", "orders", range(100, 110), "abort")
    write(bootstrap, "second", "latest", range(3), "commit")
    write(bootstrap, "open", "latest", range(200, 203), "leave")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)
    consumer.close()


def write(bootstrap: str, name: str, topic: str, rows: range, end: str) -> None:
    """Write rows in a transaction of this transactional id, and end it."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for row in rows:
        producer.produce(topic, str(row), key=str(row), partition=row % 2 if topic == "orders" else 0)
    if producer.flush(30):
        raise SystemExit("rows were not acknowledged")
    if end == "commit":
        producer.commit_transaction(30)
    elif end == "abort":
        producer.abort_transaction(30)


def copy(bootstrap: str, checkpoint: Path, accepted: str = "") -> None:
    """Run a query that copies all of `orders` to `copies` in small micro-batches, and end it. `accepted`: the
    option start.accepted."""
    from pyspark.sql import SparkSession

    import eoslog

    servers = {"kafka.bootstrap.servers": bootstrap}
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    eoslog.register(spark)
    place = {"subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "5"}
    rows = spark.readStream.format("eoslog").options(**servers, **place).load().select("key", "value")
    into = {"topic": "copies", "transactional.id": "copy", "checkpointLocation": str(checkpoint)}
    if accepted:
        into["start.accepted"] = accepted
    query = rows.writeStream.format("eoslog").options(**servers, **into).start()
    query.processAllAvailable()
    query.stop()
    spark.stop()


def eoslog(*arguments: str, bootstrap: str) -> str:
    """Run a command of this version; what it prints."""
    command = [sys.executable, "-m", "eoslog", *arguments, "--bootstrap-server", bootstrap]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Keep a directory NAME."""
    from eoslog.testing import EmbeddedBroker

    with tempfile.TemporaryDirectory() as made:
        place = Path(made) / "kept"
        with EmbeddedBroker(place / "data", config=SMALL) as broker:
            fill(broker.bootstrap)
            copy(broker.bootstrap, place / "checkpoint")
            broker.kill()
        with tarfile.open(KEPT / f"{sys.argv[1]}.tar.xz", "w:xz") as file:
            file.add(place, ".")


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    main()
