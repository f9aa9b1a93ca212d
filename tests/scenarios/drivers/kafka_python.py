"""kafka-python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

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
    Refused,
    name_of,
)

QUICK = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 100, "retry_backoff_ms": 20}
_STRATEGIES = {
    "range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor,
}  # fmt: skip


def refused(error: BaseException) -> Refused:
    """Kafka's name of an error, or its class."""
    code = getattr(error, "errno", None)
    name = name_of(code) if isinstance(code, int) and code > 0 else type(error).__name__
    return Refused(name, str(error))


class Calls:
    """Turns kafka-python's exceptions into Refused."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, KafkaError):
            raise refused(error) from error


calls = Calls()


def at(place: Place) -> TopicPartition:
    """kafka-python's name of a partition."""
    return TopicPartition(*place)


class _Delivery(Delivery):
    def __init__(self, future: Any) -> None:
        self._future = future

    def result(self, timeout: float = TIMEOUT) -> tuple[int, int]:
        with calls:
            found = self._future.get(timeout)
        return found.partition, found.offset


class _Producer(Producer):
    def __init__(self, **config: Any) -> None:
        self._producer = KafkaProducer(**config)

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
        with calls:
            return _Delivery(
                self._producer.send(
                    topic, value, key=key, headers=list(headers), partition=partition, timestamp_ms=timestamp
                )
            )

    def flush(self) -> None:
        with calls:
            self._producer.flush(TIMEOUT)

    def init(self) -> None:
        with calls:
            self._producer.init_transactions()

    def begin(self) -> None:
        with calls:
            self._producer.begin_transaction()

    def commit(self) -> None:
        with calls:
            self._producer.commit_transaction()

    def abort(self) -> None:
        with calls:
            self._producer.abort_transaction()

    def send_offsets(self, offsets: Mapping[Place, int], consumer: Consumer) -> None:
        assert isinstance(consumer, _Consumer)
        with calls:
            self._producer.send_offsets_to_transaction(
                {at(place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()},
                consumer.native.group_metadata(),
            )

    def close(self) -> None:
        self._producer.close(timeout=0)


class _Consumer(Consumer):
    patience = 0.5
    """A join that ends between two polls is thrown away and begun anew (join_group_async begins one whenever
    the last is done); when the leader does so, the group rebalances again. Longer polls make that rare."""

    def __init__(self, **config: Any) -> None:
        self.native = KafkaConsumer(**config)
        self._reset = config["auto_offset_reset"]

    def assign(self, positions: Mapping[Place, int | None]) -> None:
        self.native.assign([at(place) for place in positions])
        for place, offset in positions.items():
            if offset is not None:
                self.native.seek(at(place), offset)

    def subscribe(self, topics: list[str]) -> None:
        """And look at the topics before the first join.

        A leader that joins before it knows them joins again when it does, and forgets that it has to as soon
        as it has assigned (_perform_assignment): should a poll end just then, it never takes the join in,
        sends no heartbeats, and stays out of the group for good.
        """
        self.native.subscribe(topics)
        self.native.topics()

    def poll(self, timeout: float = 0.2) -> list[Record]:
        with calls:
            found = self.native.poll(int(timeout * 1000))
        return [
            Record(
                one.topic, one.partition, one.offset, one.key, one.value, tuple(one.headers or ()),
                one.timestamp,
            )
            for records in found.values()
            for one in records
        ]  # fmt: skip

    def assignment(self) -> frozenset[Place]:
        return frozenset(Place(*one) for one in self.native.assignment())

    def commit(self, offsets: Mapping[Place, int]) -> None:
        with calls:
            self.native.commit({
                at(place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()
            })  # fmt: skip

    def committed(self, places: Iterable[Place]) -> dict[Place, int | None]:
        with calls:
            return {place: self.native.committed(at(place)) for place in places}

    def position(self, place: Place) -> int:
        with calls:
            return int(self.native.position(at(place)))

    def seek(self, place: Place, offset: int) -> None:
        self.native.seek(at(place), offset)

    def pause(self, place: Place) -> None:
        self.native.pause(at(place))

    def resume(self, place: Place) -> None:
        self.native.resume(at(place))

    def ends(self, place: Place) -> tuple[int, int]:
        one = at(place)
        with calls:
            return self.native.beginning_offsets([one])[one], self.native.end_offsets([one])[one]

    def at_time(self, place: Place, timestamp: int) -> int | None:
        with calls:
            found = self.native.offsets_for_times({at(place): timestamp})[at(place)]
        return None if found is None else int(found.offset)

    def close(self) -> None:
        self.native.close(autocommit=False, timeout_ms=5000)


class KafkaPython(Client):
    """kafka-python."""

    name = "kafka-python"
    features = frozenset({
        "roundrobin", "sticky", "cooperative-sticky", "static", "static-fencing",
        "group-metadata", "configs", "broker-configs",
        "create-partitions", "delete-records", "groups", "group-offsets", "alter-offsets", "delete-offsets",
        "list-offsets", "late-timestamps", "transactions", "log-dirs", "features", "quorum", "elect",
        "reassign", "version",
    })  # fmt: skip
    fenced = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})

    def producer(self, bootstrap: str, **options: Any) -> Producer:
        compression = options.get("compression", "none")
        config: dict[str, Any] = {
            "bootstrap_servers": bootstrap, **QUICK, "max_block_ms": int(TIMEOUT * 1000),
            "enable_idempotence": options.get("idempotent", True), "acks": options.get("acks", "all"),
            "compression_type": None if compression == "none" else compression,
        }  # fmt: skip
        if config["acks"] != "all":
            config["acks"] = int(config["acks"])
        if "transactional_id" in options:
            config["transactional_id"] = options["transactional_id"]
            config["transaction_timeout_ms"] = options.get("transaction_timeout_ms", 60_000)
        for name in ("delivery_timeout_ms", "request_timeout_ms"):
            if name in options:
                config[name] = options[name]
        return _Producer(**config)

    def consumer(self, bootstrap: str, **options: Any) -> Consumer:
        session = options.get("session_ms", SESSION_MS)
        config: dict[str, Any] = {
            "bootstrap_servers": bootstrap, **QUICK, "enable_auto_commit": False,
            "group_id": options.get("group"), "client_id": options.get("client_id", "scenario"),
            "auto_offset_reset": options.get("reset", "earliest"),
            "isolation_level": "read_committed" if options.get("committed", True) else "read_uncommitted",
            "session_timeout_ms": session, "heartbeat_interval_ms": HEARTBEAT_MS,
            "partition_assignment_strategy": [_STRATEGIES[options.get("strategy", "range")]],
            "fetch_max_wait_ms": 100,
        }  # fmt: skip
        if options.get("instance"):
            config["group_instance_id"] = options["instance"]
        return _Consumer(**config)

    def admin(self, bootstrap: str) -> Admin:
        from tests.scenarios.drivers.kafka_python_admin import KafkaPythonAdmin

        return KafkaPythonAdmin(bootstrap)
