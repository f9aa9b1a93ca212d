"""Clients for tests: a raw one that speaks any version, filled requests, short ways to use confluent-kafka,
commands.
"""

import json
import socket
import struct
import time
from typing import Any, Self

from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from eoslog.cli import main
from eoslog.protocol.apis import APIS, Api, ApiKey
from eoslog.protocol.fields import Array, Blob, Fixed, Struct, Text, Type
from eoslog.protocol.frames import decode_response, encode_request
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import EmbeddedBroker

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


# -- filled requests -----------------------------------------------------------------------------
# A request with something in every field, for each API and version.


def value(kind: Type, name: str = "") -> Any:
    """Something of this type, one element in each list; names that mean something get what fits them."""
    if name in FITTING:
        return FITTING[name]
    match kind:
        case Array():
            return [value(kind.of)]
        case Blob():
            return RECORDS if kind.is_records else b"bytes"
        case Text():
            return "fuzz"
        case Fixed():
            return kind.default
    raise TypeError(f"{name}: {kind}")


RECORDS = encode_records([(b"k", b"v")], int(time.time() * 1000))
FITTING: dict[str, Any] = {
    "acks": -1, "max_bytes": 1 << 20, "partition_max_bytes": 1 << 20, "timestamp": -1, "session_epoch": -1,
    "replica_id": -1, "session_timeout_ms": 6000, "member_id": "", "group_instance_id": None,
    "current_leader_epoch": -1, "num_partitions": 1, "replication_factor": 1, "assignments": [],
    "transactional_id_pattern": "f.*", "state_filters": [], "states_filter": [], "types_filter": [],
    "endpoint_type": 1, "key_type": 0, "transaction_timeout_ms": 1000, "producer_id": -1,
    "producer_epoch": -1,
}  # fmt: skip


def bodies() -> list[tuple[Api, int, dict[str, Any]]]:
    """A request with something in every field, for each API and version served."""
    return [
        (api, version, carried(api.request.struct, version))
        for api in sorted(APIS.values(), key=lambda api: api.key == ApiKey.DELETE_TOPICS)
        for version in range(api.min_version, api.max_version + 1)
    ]


def carried(struct: Struct, version: int) -> dict[str, Any]:
    """A value for each field that this version carries."""
    found: dict[str, Any] = {}
    for field in struct.fields:
        if version not in field.versions:
            continue
        match field.type:
            case Struct() as inner:
                found[field.name] = carried(inner, version)
            case Array(of=Struct() as inner) if field.name not in FITTING:
                found[field.name] = [carried(inner, version)]
            case kind:
                found[field.name] = value(kind, field.name)
    return found


# -- commands ------------------------------------------------------------------------------------
# Runs a command in this process against a broker, and reads what it printed.


def run(broker: EmbeddedBroker, *arguments: str, input: str | None = None) -> Result:
    """The command's result; a fault of its own, that is no error it told, is raised."""
    result = CliRunner().invoke(
        main, [*arguments, "--bootstrap-server", broker.bootstrap, "--timeout", "20"], input=input
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def ok(broker: EmbeddedBroker, *arguments: str, input: str | None = None) -> str:
    """What a command that succeeds prints."""
    result = run(broker, *arguments, input=input)
    assert result.exit_code == 0, result.output
    return result.stdout


def failure(broker: EmbeddedBroker, *arguments: str) -> str:
    """What a command that fails says on standard error."""
    result = run(broker, *arguments)
    assert result.exit_code == 1, result.output
    return result.stderr


def document(broker: EmbeddedBroker, *arguments: str) -> Any:
    """What a command prints with --json."""
    return json.loads(ok(broker, *arguments, "--json"))
