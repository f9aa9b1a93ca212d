"""Clients for tests: a raw one that speaks any version, and short ways to use confluent-kafka."""

import socket
import struct
import time
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import decode_response, encode_request

# A broker that was killed is back in a moment: look for it often. And no re-bootstrap, which librdkafka
# begins when all brokers are down, here always: it puts the broker's handle away but goes on to wait for
# it as the group coordinator, so send_offsets_to_transaction hangs (librdkafka issue 5511, seen with 2.16).
QUICK = {
    "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20,
    "metadata.recovery.strategy": "none",
}  # fmt: skip


class Wire:
    """One blocking connection; requests by API key and version."""

    def __init__(self, host: str, port: int, timeout: float = 60.0) -> None:
        self.socket = socket.create_connection((host, port), timeout)
        self._number = 0

    def call(self, key: ApiKey, version: int, /, **body: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        self.send(key, version, **body)
        return self.receive(key, version)

    def send(self, key: ApiKey, version: int, /, **body: Any) -> None:
        """Send only."""
        self._number += 1
        self.socket.sendall(b"".join(encode_request(key, version, self._number, "wire", body)))

    def receive(self, key: ApiKey, version: int) -> dict[str, Any]:
        """Receive the next answer, which must be one to `key`."""
        (size,) = struct.unpack(">i", self.exactly(4))
        message: dict[str, Any] = decode_response(key, version, self.exactly(size))[1]
        return message

    def exactly(self, size: int) -> bytes:
        """So many bytes; ConnectionError if the other side closes before."""
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("closed by the broker")
            data += more
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def create(bootstrap: str, topic: str, partitions: int = 1, /, **config: str) -> None:
    """Make a topic and wait for it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
    admin.create_topics([new])[topic].result(10)


def read_all(
    bootstrap: str, topic: str, isolation: str = "read_committed", timeout: float = 60
) -> list[Message]:
    """Every record of a topic up to each partition's end, in order within a partition."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
        "enable.partition.eof": True, "auto.offset.reset": "earliest", "isolation.level": isolation, **QUICK,
        "fetch.wait.max.ms": 20,  # an end is told by an empty answer: not half a second later
    })  # fmt: skip
    try:
        partitions = consumer.list_topics(topic, timeout).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found, ended, deadline = [], set[int | None](), time.monotonic() + timeout
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, f"no end of {topic} within {timeout} s"
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(error)
        return found
    finally:
        consumer.close()


def numbers(messages: list[Message]) -> dict[int, list[int]]:
    """The values as integers, by partition."""
    found: dict[int, list[int]] = {}
    for message in messages:
        partition, value = message.partition(), message.value()
        assert partition is not None and value is not None
        found.setdefault(partition, []).append(int(value))
    return found
