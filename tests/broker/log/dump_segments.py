"""Reads every file of a broker's log folder with Kafka's own DumpLogSegments; any complaint is a failure.

`make dump-segments` gets Kafka's tools and runs this over what the demo left. `make dump-upkept` lets it
fill the folder first (--fill) with logs that were compacted and trimmed: transactions, committed and
aborted, tombstones, every codec, committed offsets; then compaction, retention by size, and deleted
records.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from eoslog.testing import EmbeddedBroker

# -- reading ---------------------------------------------------------------------------------------

TOOL = "org.apache.kafka.tools.DumpLogSegments"
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
COMPLAINTS = re.compile(
    r"exception|error|mismatch|corrupt|invalid|isvalid: false|Could not|not found|Non-sequential"
    r"|Found .* bytes|Misaligned|no messages",
    re.IGNORECASE,
)
FILES_PER_CALL = 200
DECODERS = {"__consumer_offsets": "--offsets-decoder", "__transaction_state": "--transaction-log-decoder"}


def groups(data: Path) -> dict[str | None, list[Path]]:
    """The log files by the decoder that Kafka's tool needs for them."""
    found: dict[str | None, list[Path]] = {}
    for path in sorted(data.glob("*/*")):
        if path.suffix in SUFFIXES:
            topic = path.parent.name.rsplit("-", 1)[0]
            decoder = DECODERS.get(topic) if path.suffix == ".log" else None
            found.setdefault(decoder, []).append(path)
    return found


def dump(kafka: Path, files: list[Path], decoder: str | None) -> tuple[int, list[str]]:
    """Runs the tool over the files; returns the number of lines printed and the complaints among them."""
    names = ",".join(str(f) for f in files)
    command = ["java", "-cp", f"{kafka}/*", TOOL, "--deep-iteration", "--files", names]
    if decoder is not None:
        command.append(decoder)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines() + [line for line in done.stderr.splitlines() if "SLF4J" not in line]
    bad = [line for line in lines if COMPLAINTS.search(line) and "isvalid: true" not in line]
    if done.returncode != 0:
        bad.append(f"exit status {done.returncode}")
    return len(lines), bad


# -- logs that were compacted and trimmed ----------------------------------------------------------

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


def quiet(folder: Path) -> None:
    """Wait until the logs do not change any more."""
    before, since = -1, time.monotonic()
    while time.monotonic() - since < 3:
        now = log_bytes(folder)
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(0.1)


def log_bytes(folder: Path) -> int:
    """Bytes of all segments of a data folder."""
    return sum(path.stat().st_size for path in folder.glob("*/*.log") if path.exists())


def fill(folder: Path) -> None:
    """Fill a data folder with such logs."""
    with EmbeddedBroker(folder, config=EAGER) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics([NewTopic(t, 1, 1, config=c) for t, c in TOPICS.items()]).values():
            made.result(20)
        random = Random(1)
        for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
            write(broker.bootstrap, codec, number, random)
            quiet(folder)
        place = TopicPartition("deleted", 0, 300)
        admin.delete_records([place])[place].result(20)
        quiet(folder)
    print(f"{log_bytes(folder)} bytes of logs in {folder}")


def main() -> int:
    """Command line; exit status 0 only if the tool read every file without a complaint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", type=Path, required=True, help="folder with Kafka's jars")
    parser.add_argument("--data", type=Path, required=True, help="the broker's data folder")
    parser.add_argument(
        "--fill", action="store_true", help="first fill it with logs that are compacted and trimmed"
    )
    args = parser.parse_args()
    if args.fill:
        fill(args.data)
    files = lines = 0
    complaints: list[str] = []
    for decoder, paths in groups(args.data).items():
        for at in range(0, len(paths), FILES_PER_CALL):
            count, bad = dump(args.kafka, paths[at : at + FILES_PER_CALL], decoder)
            lines += count
            complaints += bad
        files += len(paths)
        print(f"{len(paths)} files read with {decoder or 'no decoder'}")
    print(f"{files} files, {lines} lines, {len(complaints)} complaints")
    for line in complaints[:20]:
        print("  " + line)
    return 0 if files and not complaints else 1


if __name__ == "__main__":
    sys.exit(main())
