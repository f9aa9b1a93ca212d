"""confluent-kafka (librdkafka)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import ConsumerGroupState, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.connector.brokers import EARLIEST, LATEST, MAX_TIMESTAMP
from tests.scenarios.drivers.base import (
    HEARTBEAT_MS,
    SESSION_MS,
    TIMEOUT,
    Admin,
    Client,
    Consumer,
    Delivery,
    GroupView,
    Place,
    Producer,
    Record,
    Refused,
    name_of,
)

# No re-bootstrap, which librdkafka begins when all brokers are down, here always: it may hang afterwards
# (librdkafka issue 5511, seen with 2.16). And look for a broker that was cut off often.
_COMMON: dict[str, str | int | float | bool] = {
    "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20,
    "metadata.recovery.strategy": "none",
}  # fmt: skip


def _refused(error: KafkaError) -> Refused:
    code = error.code()
    return Refused(name_of(code) if code >= 0 else error.name(), error.str())


class _Calls:
    """Turns librdkafka's exceptions into Refused."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, KafkaException):
            raise _refused(error.args[0]) from error


_calls = _Calls()


class _Delivery(Delivery):
    def __init__(self, producer: confluent_kafka.Producer) -> None:
        self._producer, self._done = producer, threading.Event()
        self._error: KafkaError | None = None
        self._place = (-1, -1)

    def answered(self, error: KafkaError | None, message: Any) -> None:
        self._error = error
        if error is None:
            self._place = (message.partition(), message.offset())
        self._done.set()

    def result(self, timeout: float = TIMEOUT) -> tuple[int, int]:
        left = timeout
        while not self._done.is_set() and left > 0:
            with _calls:
                self._producer.poll(0.05)
            left -= 0.05
        if not self._done.is_set():
            raise Refused("NO_ANSWER", f"no delivery report within {timeout} s")
        if self._error is not None:
            raise _refused(self._error)
        return self._place


class _Producer(Producer):
    def __init__(self, config: dict[str, Any]) -> None:
        self._producer = confluent_kafka.Producer(config)

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
        delivery = _Delivery(self._producer)
        more: dict[str, Any] = {} if timestamp is None else {"timestamp": timestamp}
        if partition is not None:
            more["partition"] = partition
        with _calls:
            self._producer.produce(
                topic, value, key=key, headers=list(headers), on_delivery=delivery.answered, **more
            )
        return delivery

    def flush(self) -> None:
        with _calls:
            assert self._producer.flush(TIMEOUT) == 0, "records without an answer"

    def init(self) -> None:
        with _calls:
            self._producer.init_transactions(TIMEOUT)

    def begin(self) -> None:
        with _calls:
            self._producer.begin_transaction()

    def commit(self) -> None:
        with _calls:
            self._producer.commit_transaction(TIMEOUT)

    def abort(self) -> None:
        with _calls:
            self._producer.abort_transaction(TIMEOUT)

    def send_offsets(self, offsets: Mapping[Place, int], consumer: Consumer) -> None:
        assert isinstance(consumer, _Consumer)
        places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        with _calls:
            self._producer.send_offsets_to_transaction(
                places, consumer.native.consumer_group_metadata(), TIMEOUT
            )

    def close(self) -> None:
        self._producer.purge()
        with contextlib.suppress(KafkaException):  # says again that it was fenced
            self._producer.flush(0)


class _Consumer(Consumer):
    def __init__(self, config: dict[str, Any]) -> None:
        self.native = confluent_kafka.Consumer(config)
        self._starts: dict[Place, int] = {}

    def assign(self, positions: Mapping[Place, int | None]) -> None:
        self._starts = {place: offset for place, offset in positions.items() if offset is not None}
        with _calls:
            self.native.assign([
                TopicPartition(*place, confluent_kafka.OFFSET_STORED if offset is None else offset)
                for place, offset in positions.items()
            ])  # fmt: skip

    def subscribe(self, topics: list[str]) -> None:
        with _calls:
            self.native.subscribe(topics)

    def poll(self, timeout: float = 0.2) -> list[Record]:
        found = []
        message = self.native.poll(timeout)
        while message is not None:
            if (error := message.error()) is None:
                found.append(_record(message))
            elif not error.retriable() and error.code() not in (
                KafkaError._TRANSPORT,
                KafkaError._ALL_BROKERS_DOWN,
            ):
                raise _refused(error)
            message = self.native.poll(0)
        return found

    def assignment(self) -> frozenset[Place]:
        return frozenset(Place(one.topic, one.partition) for one in self.native.assignment())

    def commit(self, offsets: Mapping[Place, int]) -> None:
        places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        with _calls:
            for done in self.native.commit(offsets=places, asynchronous=False):
                if done.error is not None:
                    raise _refused(done.error)

    def committed(self, places: Iterable[Place]) -> dict[Place, int | None]:
        with _calls:
            found = self.native.committed([TopicPartition(*place) for place in places], TIMEOUT)
        return {Place(one.topic, one.partition): one.offset if one.offset >= 0 else None for one in found}

    def position(self, place: Place) -> int:
        """librdkafka names a position only once it has read something."""
        offset = int(self.native.position([TopicPartition(*place)])[0].offset)
        return offset if offset >= 0 else self._starts.get(place, offset)

    def seek(self, place: Place, offset: int) -> None:
        self._starts[place] = offset
        with _calls:
            self.native.seek(TopicPartition(*place, offset))

    def pause(self, place: Place) -> None:
        self.native.pause([TopicPartition(*place)])

    def resume(self, place: Place) -> None:
        self.native.resume([TopicPartition(*place)])

    def ends(self, place: Place) -> tuple[int, int]:
        with _calls:
            low, high = self.native.get_watermark_offsets(TopicPartition(*place), TIMEOUT)
        return int(low), int(high)

    def at_time(self, place: Place, timestamp: int) -> int | None:
        with _calls:
            [found] = self.native.offsets_for_times([TopicPartition(*place, timestamp)], TIMEOUT)
        return found.offset if found.offset >= 0 else None

    def close(self) -> None:
        self.native.close()


def _record(message: Any) -> Record:
    return Record(
        message.topic(), message.partition(), message.offset(), message.key(), message.value(),
        tuple(message.headers() or ()), message.timestamp()[1],
    )  # fmt: skip


class _Admin(Admin):
    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **_COMMON})

    def close(self) -> None:
        return None

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replicas: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        new = NewTopic(name, partitions, replicas, config=dict(configs or {}))
        self._one(self._admin.create_topics([new], validate_only=validate_only))

    def _one(self, futures: dict[Any, Any]) -> Any:
        [future] = futures.values()
        with _calls:
            return future.result(TIMEOUT)

    def delete_topic(self, name: str) -> None:
        self._one(self._admin.delete_topics([name]))

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=TIMEOUT).topics)

    def partitions(self, topic: str) -> list[int]:
        found = self._one(self._admin.describe_topics(confluent_kafka.TopicCollection([topic])))
        return [one.id for one in found.partitions]

    def cluster(self) -> tuple[str, int, list[tuple[int, int]]]:
        with _calls:
            found = self._admin.describe_cluster().result(TIMEOUT)
        return found.cluster_id, found.controller.id, [(node.id, node.port) for node in found.nodes]

    def create_partitions(self, topic: str, total: int) -> None:
        self._one(self._admin.create_partitions([NewPartitions(topic, total)]))

    def configs(self, topic: str) -> dict[str, tuple[str | None, bool]]:
        return self._configs(ConfigResource(ResourceType.TOPIC, topic))

    def broker_configs(self, node: int) -> dict[str, tuple[str | None, bool]]:
        return self._configs(ConfigResource(ResourceType.BROKER, str(node)))

    def _configs(self, resource: ConfigResource) -> dict[str, tuple[str | None, bool]]:
        found = self._one(self._admin.describe_configs([resource]))
        return {name: (entry.value, entry.is_default) for name, entry in found.items()}

    def alter_broker_config(self, name: str, option: str, value: str) -> None:
        self._alter(ResourceType.BROKER, name, {option: value})

    def alter_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        self._alter(ResourceType.TOPIC, topic, changes)

    def _alter(self, kind: ResourceType, name: str, changes: Mapping[str, str | None]) -> None:
        entries = [
            ConfigEntry(
                option, value or "",
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for option, value in changes.items()
        ]  # fmt: skip
        resource = ConfigResource(kind, name, incremental_configs=entries)
        self._one(self._admin.incremental_alter_configs([resource]))

    def delete_records(self, place: Place, before: int) -> int:
        found = self._one(self._admin.delete_records([TopicPartition(*place, before)]))
        return int(found.low_watermark)

    def list_offsets(self, place: Place, spec: str | int, *, committed: bool = False) -> int:
        asked = {
            "earliest": EARLIEST, "latest": LATEST,
            "max-timestamp": MAX_TIMESTAMP,
        }  # fmt: skip
        what = asked[spec] if isinstance(spec, str) else OffsetSpec.for_timestamp(spec)
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        found = self._one(self._admin.list_offsets({TopicPartition(*place): what}, isolation_level=level))
        return int(found.offset)

    def groups(self) -> dict[str, str]:
        with _calls:
            found = self._admin.list_consumer_groups().result(TIMEOUT)
        return {one.group_id: _state(one.state) for one in found.valid}

    def group(self, name: str) -> GroupView:
        found = self._one(self._admin.describe_consumer_groups([name]))
        members = {
            one.client_id: frozenset(
                Place(part.topic, part.partition) for part in one.assignment.topic_partitions
            )
            for one in found.members
        }
        return GroupView(_state(found.state), found.partition_assignor, members)

    def delete_group(self, name: str) -> None:
        self._one(self._admin.delete_consumer_groups([name]))

    def group_offsets(self, name: str) -> dict[Place, int]:
        found = self._one(
            self._admin.list_consumer_group_offsets([confluent_kafka.ConsumerGroupTopicPartitions(name)])
        )
        return {Place(one.topic, one.partition): one.offset for one in found.topic_partitions}

    def alter_offsets(self, name: str, offsets: Mapping[Place, int]) -> None:
        places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        asked = confluent_kafka.ConsumerGroupTopicPartitions(name, places)
        for one in self._one(self._admin.alter_consumer_group_offsets([asked])).topic_partitions:
            if one.error is not None:
                raise _refused(one.error)


def _state(state: ConsumerGroupState) -> str:
    return "".join(word.capitalize() for word in state.name.split("_"))


class Confluent(Client):
    """confluent-kafka."""

    name = "confluent-kafka"
    features = frozenset({
        "roundrobin", "cooperative-sticky",
        "static", "consumer-protocol", "configs", "broker-configs",
        "create-partitions", "delete-records", "groups", "group-offsets", "alter-offsets", "list-offsets",
        "null-headers", "late-timestamps", "static-fencing",
        "group-metadata", "record-errors",
    })  # fmt: skip
    fenced = frozenset({"_FENCED"})

    def producer(self, bootstrap: str, **options: Any) -> Producer:
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap, **_COMMON, "linger.ms": options.get("linger_ms", 0),
            "enable.idempotence": options.get("idempotent", True), "acks": options.get("acks", "all"),
            "compression.type": options.get("compression", "none"),
        }  # fmt: skip
        if "transactional_id" in options:
            config["transactional.id"] = options["transactional_id"]
            config["transaction.timeout.ms"] = options.get("transaction_timeout_ms", 60_000)
        if "delivery_timeout_ms" in options:
            config["message.timeout.ms"] = options["delivery_timeout_ms"]
        if "request_timeout_ms" in options:
            config["socket.timeout.ms"] = max(options["request_timeout_ms"], 100)
            config["request.timeout.ms"] = options["request_timeout_ms"]
        return _Producer(config)

    def consumer(self, bootstrap: str, **options: Any) -> Consumer:
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap, **_COMMON, "enable.auto.commit": False,
            "group.id": options.get("group") or "no-group",
            "client.id": options.get("client_id", "scenario"),
            "auto.offset.reset": options.get("reset", "earliest"),
            "isolation.level": "read_committed" if options.get("committed", True) else "read_uncommitted",
            "fetch.wait.max.ms": 100,
        }  # fmt: skip
        if options.get("instance"):
            config["group.instance.id"] = options["instance"]
        if options.get("protocol") == "consumer":
            config["group.protocol"] = "consumer"
            if options.get("assignor"):
                config["group.remote.assignor"] = options["assignor"]
        else:
            config["partition.assignment.strategy"] = options.get("strategy", "range")
            config["session.timeout.ms"] = options.get("session_ms", SESSION_MS)
            config["heartbeat.interval.ms"] = HEARTBEAT_MS
        return _Consumer(config)

    def admin(self, bootstrap: str) -> Admin:
        return _Admin(bootstrap)
