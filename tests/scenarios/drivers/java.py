"""Kafka's own Java client: KafkaProducer, KafkaConsumer and (in java_admin) Admin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.scenarios.drivers.base import (
    HEARTBEAT_MS,
    SESSION_MS,
    TIMEOUT,
    Admin,
    Client,
    Consumer,
    Delivery,
    Place,
    Producer,
    Record,
)
from tests.scenarios.drivers.jvm import calls, future, java, java_list, java_map, listed, millis, properties

_QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}
_SERIAL = "org.apache.kafka.common.serialization."
_ASSIGNORS = {
    "range": "Range", "roundrobin": "RoundRobin", "sticky": "Sticky",
    "cooperative-sticky": "CooperativeSticky",
}  # fmt: skip


def at(place: Place) -> Any:
    """A Java TopicPartition."""
    return java().org.apache.kafka.common.TopicPartition(place.topic, place.partition)


def place_of(one: Any) -> Place:
    """Ours of a Java TopicPartition."""
    return Place(one.topic(), one.partition())


def offsets_of(offsets: Mapping[Place, int]) -> Any:
    """A Java map of TopicPartition to OffsetAndMetadata."""
    metadata = java().org.apache.kafka.clients.consumer.OffsetAndMetadata
    return java_map({at(place): metadata(offset) for place, offset in offsets.items()})


class _Delivery(Delivery):
    def __init__(self, sent: Any) -> None:
        self._sent = sent

    def result(self, timeout: float = TIMEOUT) -> tuple[int, int]:
        found = future(self._sent, timeout)
        return found.partition(), found.offset()


class _Producer(Producer):
    def __init__(self, config: dict[str, Any]) -> None:
        with calls:
            self._producer = java().org.apache.kafka.clients.producer.KafkaProducer(properties(config))

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = 0,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp: int | None = None,
    ) -> Delivery:
        package = java().org.apache.kafka
        record = package.clients.producer.ProducerRecord(topic, partition, timestamp, key, value)
        for name, content in headers:
            record.headers().add(
                package.common.header.internals.RecordHeader(name, content)
                if content is not None
                else _null_header(name)
            )
        with calls:
            return _Delivery(self._producer.send(record))

    def flush(self) -> None:
        with calls:
            self._producer.flush()

    def init(self) -> None:
        with calls:
            self._producer.initTransactions()

    def begin(self) -> None:
        with calls:
            self._producer.beginTransaction()

    def commit(self) -> None:
        with calls:
            self._producer.commitTransaction()

    def abort(self) -> None:
        with calls:
            self._producer.abortTransaction()

    def send_offsets(self, offsets: Mapping[Place, int], consumer: Consumer) -> None:
        assert isinstance(consumer, _Consumer)
        with calls:
            self._producer.sendOffsetsToTransaction(offsets_of(offsets), consumer.native.groupMetadata())

    def close(self) -> None:
        with calls:
            self._producer.close(millis(0))


def _null_header(name: str) -> Any:
    """A header without a value; by the constructor of buffers, since null alone would fit two of them."""
    buffer = java().java.nio.charset.StandardCharsets.UTF_8.encode(name)
    return java().org.apache.kafka.common.header.internals.RecordHeader(buffer, None)


class _Consumer(Consumer):
    def __init__(self, config: dict[str, Any]) -> None:
        with calls:
            self.native = java().org.apache.kafka.clients.consumer.KafkaConsumer(properties(config))

    def assign(self, positions: Mapping[Place, int | None]) -> None:
        with calls:
            self.native.assign(java_list(at(place) for place in positions))
            for place, offset in positions.items():
                if offset is not None:
                    self.native.seek(at(place), offset)

    def subscribe(self, topics: list[str]) -> None:
        with calls:
            self.native.subscribe(java_list(topics))

    def poll(self, timeout: float = 0.2) -> list[Record]:
        with calls:
            found = self.native.poll(millis(timeout))
            if found.isEmpty():
                return []
            return [_record(one) for at in listed(found.partitions()) for one in listed(found.records(at))]

    def assignment(self) -> frozenset[Place]:
        return frozenset(place_of(one) for one in listed(self.native.assignment()))

    def commit(self, offsets: Mapping[Place, int]) -> None:
        with calls:
            self.native.commitSync(offsets_of(offsets), millis(TIMEOUT))

    def committed(self, places: Iterable[Place]) -> dict[Place, int | None]:
        places = list(places)
        with calls:
            found = self.native.committed(java().java.util.HashSet(java_list(at(p) for p in places)))
        metadata = {place: found.get(at(place)) for place in places}
        return {place: None if one is None else one.offset() for place, one in metadata.items()}

    def position(self, place: Place) -> int:
        with calls:
            return int(self.native.position(at(place)))

    def seek(self, place: Place, offset: int) -> None:
        with calls:
            self.native.seek(at(place), offset)

    def pause(self, place: Place) -> None:
        self.native.pause(java_list([at(place)]))

    def resume(self, place: Place) -> None:
        self.native.resume(java_list([at(place)]))

    def ends(self, place: Place) -> tuple[int, int]:
        asked = java_list([at(place)])
        with calls:
            low = self.native.beginningOffsets(asked).get(at(place))
            return low, self.native.endOffsets(asked).get(at(place))

    def at_time(self, place: Place, timestamp: int) -> int | None:
        with calls:
            found = self.native.offsetsForTimes(java_map({at(place): timestamp})).get(at(place))
        return None if found is None else int(found.offset())

    def close(self) -> None:
        with calls:
            self.native.close(millis(2))


def _record(one: Any) -> Record:
    headers = tuple((header.key(), header.value()) for header in one.headers().toArray())
    return Record(
        one.topic(), one.partition(), one.offset(), one.key(), one.value(), headers, one.timestamp()
    )


class Java(Client):
    """org.apache.kafka:kafka-clients."""

    name = "java"
    features = frozenset({
        "roundrobin", "sticky", "cooperative-sticky",
        "static", "consumer-protocol", "configs",
        "broker-configs", "create-partitions", "delete-records", "groups", "group-offsets", "alter-offsets",
        "delete-offsets", "list-offsets", "late-timestamps", "transactions", "log-dirs", "features", "quorum",
        "elect", "reassign", "null-headers", "static-fencing",
            "group-metadata", "fence", "remove-members",
    })  # fmt: skip
    fenced = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})

    def producer(self, bootstrap: str, **options: Any) -> Producer:
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap, **_QUICK, "linger.ms": 0, "max.block.ms": int(TIMEOUT * 1000),
            "key.serializer": _SERIAL + "ByteArraySerializer",
            "value.serializer": _SERIAL + "ByteArraySerializer",
            "enable.idempotence": options.get("idempotent", True), "acks": options.get("acks", "all"),
            "compression.type": options.get("compression", "none"),
        }  # fmt: skip
        if "transactional_id" in options:
            config["transactional.id"] = options["transactional_id"]
            config["transaction.timeout.ms"] = options.get("transaction_timeout_ms", 60_000)
        return _Producer(config)

    def consumer(self, bootstrap: str, **options: Any) -> Consumer:
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap, **_QUICK, "enable.auto.commit": False,
            "key.deserializer": _SERIAL + "ByteArrayDeserializer",
            "value.deserializer": _SERIAL + "ByteArrayDeserializer",
            "client.id": options.get("client_id", "scenario"), "fetch.max.wait.ms": 100,
            "auto.offset.reset": options.get("reset", "earliest"),
            "isolation.level": "read_committed" if options.get("committed", True) else "read_uncommitted",
        }  # fmt: skip
        if options.get("group"):
            config["group.id"] = options["group"]
        if options.get("instance"):
            config["group.instance.id"] = options["instance"]
        if options.get("protocol") == "consumer":
            config["group.protocol"] = "consumer"
            if options.get("assignor"):
                config["group.remote.assignor"] = options["assignor"]
        else:
            kind = _ASSIGNORS[options.get("strategy", "range")]
            config["partition.assignment.strategy"] = f"org.apache.kafka.clients.consumer.{kind}Assignor"
            config["session.timeout.ms"] = options.get("session_ms", SESSION_MS)
            config["heartbeat.interval.ms"] = HEARTBEAT_MS
        return _Consumer(config)

    def admin(self, bootstrap: str) -> Admin:
        from tests.scenarios.drivers.java_admin import JavaAdmin

        return JavaAdmin(bootstrap)
