"""Fills a data folder with logs that were compacted and trimmed, for Kafka's own tools to read.

`make dump-segments` runs DumpLogSegments over them. Transactions, committed and aborted, tombstones, every
codec, committed offsets; then compaction, retention by size, and deleted records.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from eoslog.testing import EmbeddedBroker

EAGER = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "0",
    "log.cleaner.delete.retention.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.bytes": "16384",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.segment.bytes": "2048",
    "transaction.state.log.segment.bytes": "2048",
}
TOPICS = {
    "compacted": {"cleanup.policy": "compact"},
    "both": {"cleanup.policy": "compact,delete", "retention.bytes": "60000"},
    "trimmed": {"retention.bytes": "40000"},
    "deleted": {},
}


def write(bootstrap: str, codec: str, number: int, random: Random) -> None:
    """Some transactions over all topics, with offsets committed in them; every third is aborted."""
    producer = Producer({
        "bootstrap.servers": bootstrap, "transactional.id": f"writer-{number}", "compression.type": codec,
    })  # fmt: skip
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-{number}"})
    producer.init_transactions(20)
    for turn in range(12):
        producer.begin_transaction()
        for topic in TOPICS:
            for _ in range(12):
                value = None if random.random() < 0.15 else random.randbytes(random.randint(10, 300))
                producer.produce(topic, value, b"key-%d" % random.randrange(25))
        position = [TopicPartition("trimmed", 0, turn)]
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 20)
        if turn % 3 == 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    consumer.close()


def quiet(folder: Path, size: Callable[[Path], int]) -> None:
    """Wait until the logs do not change any more."""
    before, since = -1, time.monotonic()
    while time.monotonic() - since < 3:
        now = size(folder)
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(0.1)


def log_bytes(folder: Path) -> int:
    """Bytes of all segments of a data folder."""
    return sum(path.stat().st_size for path in folder.glob("*/*.log") if path.exists())


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder to fill")
    folder: Path = parser.parse_args().data
    with EmbeddedBroker(folder, config=EAGER) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics([NewTopic(t, 1, 1, config=c) for t, c in TOPICS.items()]).values():
            made.result(20)
        random = Random(1)
        for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
            write(broker.bootstrap, codec, number, random)
            quiet(folder, log_bytes)
        place = TopicPartition("deleted", 0, 300)
        admin.delete_records([place])[place].result(20)
        quiet(folder, log_bytes)
    print(f"{log_bytes(folder)} bytes of logs in {folder}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
