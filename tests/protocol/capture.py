"""Capture record batches as other clients write them, for the files in `captures/`.

    python -m tests.protocol.capture HOST:PORT [--kafka-jars DIR]

produces known records to a running broker, with confluent-kafka and every codec, and (given Kafka's own
jars) with Kafka's console producer, and writes the bytes of the partition, fetched raw, to
`captures/<client>-<codec>.bin`. The broker must create topics on first use.
"""

import argparse
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
FOLDER = Path(__file__).parent / "captures"

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]


def rows(codec: str) -> list[Row]:
    """What is sent by confluent-kafka: key, value, headers, timestamp."""
    times = [1_700_000_000_000 + (37 * i * i) % 1000 - 500 for i in range(30)]  # up and down
    plain: list[Row] = [(b"key-%d" % i, b"value " * (3 * i), [], times[i]) for i in range(20)]
    plain += [
        (None, b"no key", [], times[20]),
        (b"no value", None, [], times[21]),
        (None, None, [], times[22]),
    ]
    plain += [(b"", b"", [("empty", b""), ("none", None)], times[23])]
    plain += [(b"k", b"v" * size, [], times[24]) for size in (63, 64, 8191, 8192)]
    plain += [(b"h", b"v", [("a", b"1"), ("ü", b"\x00\xff"), ("a", b"2")], 1)]
    if codec != "none":  # beyond the blocks of snappy and LZ4
        plain += [
            (b"large", b"".join(b"%d of a long row, " % (i * i % 97) for i in range(5_000)), [], times[29])
        ]
    return plain


JavaRow = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def java_rows(codec: str) -> list[JavaRow]:
    """What is sent by Kafka's console producer, which sets the time itself."""
    plain: list[JavaRow] = [(b"key-%d" % i, b"value " * (3 * i + 1), []) for i in range(20)]
    long = b"".join(b"%d of a long row, " % (i * i % 97) for i in range(5_000))
    return [
        *plain,
        (None, b"no key", [("a", b"1")]),
        (b"no value", None, []),
        (b"h", b"v", [("a", b"1"), ("b", b"2")]),
        (b"last", b"short" if codec == "none" else long, []),
    ]


def produce(broker: str, topic: str, codec: str) -> None:
    producer = confluent_producer(broker, {"compression.type": codec, "enable.idempotence": True})
    send(producer, topic, rows(codec))
    producer.flush()


def produce_transactions(broker: str, topic: str) -> None:
    producer = confluent_producer(broker, {"transactional.id": topic})
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        send(producer, topic, rows("none")[:5])
        producer.flush()
        end()


def confluent_producer(broker: str, options: dict[str, Any]) -> Any:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": broker, "linger.ms": 1000, "batch.size": 500_000, **options})


def send(producer: Any, topic: str, chosen: list[Row]) -> None:
    for key, value, headers, timestamp in chosen:
        # librdkafka takes the time itself where it is given 0
        producer.produce(topic, value, key, partition=0, timestamp=timestamp, headers=headers)


def produce_java(broker: str, topic: str, codec: str, jars: Path) -> None:
    lines = []
    for key, value, headers in java_rows(codec):
        texts = ["NULL" if part is None else part.decode() for part in (key, value)]
        named = ",".join(f"{name}:{(content or b'').decode()}" for name, content in headers)
        lines.append("\t".join([named or "NULL", *texts]))
    command = [
        "java", "-cp", f"{jars}/*", "org.apache.kafka.tools.ConsoleProducer",
        "--bootstrap-server", broker, "--topic", topic, "--compression-codec", codec,
        "--command-property", "linger.ms=2000", "--command-property", "batch.size=500000",
        "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true",
        "--reader-property", "null.marker=NULL",
    ]  # fmt: skip
    subprocess.run(command, input="\n".join(lines) + "\n", text=True, check=True)


def fetch_all(broker: str, topic: str) -> bytes:
    """The partition's bytes. An answer ends with a segment, and old times make a broker roll segments."""
    data, offset = b"", 0
    while more := fetch(broker, topic, offset):
        data += more
        offset = next_offset(data)
    return data


def next_offset(data: bytes) -> int:
    at = offset = 0
    while at < len(data):
        base, length = struct.unpack_from(">qi", data, at)
        offset = base + struct.unpack_from(">i", data, at + 23)[0] + 1
        at += 12 + length
    return offset


def fetch(broker: str, topic: str, offset: int) -> bytes:
    """One Fetch request of version 4, written by hand."""
    host, port = broker.rsplit(":", 1)
    name = struct.pack(">h", len(topic)) + topic.encode()
    partition = struct.pack(">iiqi", 1, 0, offset, 10_000_000)
    body = struct.pack(">iiiibi", -1, 500, 1, 10_000_000, 0, 1) + name + partition
    header = struct.pack(">hhih", 1, 4, 7, 7) + b"capture"
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(struct.pack(">i", len(header + body)) + header + body)
        stream = connection.makefile("rb")
        answer = stream.read(struct.unpack(">i", stream.read(4))[0])
    at = 4 + 4 + 4 + len(name) + 4 + 4  # correlation, throttle, topics, name, partitions, index
    error, _high_watermark, _stable, aborted = struct.unpack_from(">hqqi", answer, at)
    if error:
        raise SystemExit(f"Fetch of {topic}: error {error}")
    at += 22 + 16 * max(aborted, 0)
    (size,) = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + size]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("broker", metavar="HOST:PORT")
    parser.add_argument("--kafka-jars", type=Path, metavar="DIR")
    options = parser.parse_args()
    run = int(time.time())  # topics of an earlier run stay out of the way
    for codec in CODECS:
        produce(options.broker, f"capture-{codec}-{run}", codec)
        save(options.broker, f"confluent-{codec}", f"capture-{codec}-{run}")
        if options.kafka_jars:
            produce_java(options.broker, f"capture-java-{codec}-{run}", codec, options.kafka_jars)
            save(options.broker, f"java-{codec}", f"capture-java-{codec}-{run}")
    produce_transactions(options.broker, f"capture-transactions-{run}")
    time.sleep(1)  # the last marker follows the answer to EndTxn
    save(options.broker, "confluent-transactions", f"capture-transactions-{run}")


def save(broker: str, name: str, topic: str) -> None:
    data = fetch_all(broker, topic)
    (FOLDER / f"{name}.bin").write_bytes(data)
    print(f"{name}: {len(data)} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
