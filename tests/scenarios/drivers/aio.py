"""aiokafka, driven from a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

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

_STRATEGIES = {
    "range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}  # fmt: skip


class _Loop:
    """The event loop that all of aiokafka's objects live on."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="aiokafka", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Any], timeout: float = TIMEOUT) -> Any:
        """Await `work` there. Raises Refused."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(timeout)
        except KafkaError as error:
            raise _refused(error) from error
        except TimeoutError:
            future.cancel()
            raise Refused("NO_ANSWER", f"within {timeout} s") from None


_loop: _Loop | None = None


def _run(work: Coroutine[Any, Any, Any], timeout: float = TIMEOUT) -> Any:
    global _loop
    _loop = _loop or _Loop()
    return _loop.run(work, timeout)


def _refused(error: BaseException) -> Refused:
    code = getattr(error, "errno", None)
    name = name_of(code) if isinstance(code, int) and code > 0 else type(error).__name__
    return Refused(name, str(error))


def _check(code: int) -> None:
    if code:
        raise Refused(name_of(code))


def _at(place: Place) -> TopicPartition:
    return TopicPartition(*place)


class _Delivery(Delivery):
    def __init__(self, future: Any) -> None:
        self._future = future

    def result(self, timeout: float = TIMEOUT) -> tuple[int, int]:
        async def wait() -> Any:
            return await self._future

        found = _run(wait(), timeout)
        return found.partition, found.offset


class _Producer(Producer):
    def __init__(self, **config: Any) -> None:
        async def make() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(**config)
            if config.get("transactional_id") is None:
                await producer.start()
            return producer

        self._producer = _run(make())
        self._started = config.get("transactional_id") is None

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
        return _Delivery(
            _run(
                self._producer.send(
                    topic, value, key=key, partition=partition, headers=list(headers), timestamp_ms=timestamp
                )
            )
        )

    def flush(self) -> None:
        _run(self._producer.flush())

    def init(self) -> None:
        _run(self._producer.start())
        self._started = True

    def begin(self) -> None:
        _run(self._producer.begin_transaction())

    def commit(self) -> None:
        _run(self._producer.commit_transaction())

    def abort(self) -> None:
        _run(self._producer.abort_transaction())

    def send_offsets(self, offsets: Mapping[Place, int], consumer: Consumer) -> None:
        """By the group's name only: aiokafka knows nothing of KIP-447."""
        assert isinstance(consumer, _Consumer)
        places = {_at(place): OffsetAndMetadata(offset, "") for place, offset in offsets.items()}
        _run(self._producer.send_offsets_to_transaction(places, consumer.group))

    def close(self) -> None:
        async def stop() -> None:
            try:
                await asyncio.wait_for(self._producer.stop(), 3)
            except (TimeoutError, KafkaError, asyncio.CancelledError):
                return  # of no matter: what is left of it ends with the loop

        if self._started:
            _run(stop())


class _Consumer(Consumer):
    def __init__(self, **config: Any) -> None:
        self.group = config.get("group_id")

        async def make() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(**config)
            await consumer.start()
            return consumer

        self.native = _run(make())

    def assign(self, positions: Mapping[Place, int | None]) -> None:
        async def assign() -> None:
            self.native.assign([_at(place) for place in positions])
            for place, offset in positions.items():
                if offset is not None:
                    self.native.seek(_at(place), offset)

        _run(assign())

    def subscribe(self, topics: list[str]) -> None:
        async def subscribe() -> None:
            self.native.subscribe(topics)

        _run(subscribe())

    def poll(self, timeout: float = 0.2) -> list[Record]:
        found = _run(self.native.getmany(timeout_ms=int(timeout * 1000)))
        return [
            Record(
                one.topic, one.partition, one.offset, one.key, one.value, tuple(one.headers), one.timestamp
            )
            for records in found.values()
            for one in records
        ]

    def assignment(self) -> frozenset[Place]:
        return frozenset(Place(*one) for one in self.native.assignment())

    def commit(self, offsets: Mapping[Place, int]) -> None:
        _run(self.native.commit({_at(place): offset for place, offset in offsets.items()}))

    def committed(self, places: Iterable[Place]) -> dict[Place, int | None]:
        return {place: _run(self.native.committed(_at(place))) for place in places}

    def position(self, place: Place) -> int:
        return int(_run(self.native.position(_at(place))))

    def seek(self, place: Place, offset: int) -> None:
        async def seek() -> None:
            self.native.seek(_at(place), offset)

        _run(seek())

    def pause(self, place: Place) -> None:
        async def pause() -> None:
            self.native.pause(_at(place))

        _run(pause())

    def resume(self, place: Place) -> None:
        async def resume() -> None:
            self.native.resume(_at(place))

        _run(resume())

    def ends(self, place: Place) -> tuple[int, int]:
        at = _at(place)
        return _run(self.native.beginning_offsets([at]))[at], _run(self.native.end_offsets([at]))[at]

    def at_time(self, place: Place, timestamp: int) -> int | None:
        found = _run(self.native.offsets_for_times({_at(place): timestamp}))[_at(place)]
        return None if found is None else int(found.offset)

    def close(self) -> None:
        async def stop() -> None:
            try:
                await asyncio.wait_for(self.native.stop(), 5)
            except (TimeoutError, KafkaError, asyncio.CancelledError):
                return  # of no matter: what is left of it ends with the loop

        _run(stop())


class _Admin(Admin):
    def __init__(self, bootstrap: str) -> None:
        async def make() -> AIOKafkaAdminClient:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            return admin

        self._admin = _run(make())

    def close(self) -> None:
        _run(self._admin.close())

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replicas: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        new = NewTopic(name, partitions, replicas, topic_configs=dict(configs or {}))
        done = _run(self._admin.create_topics([new], validate_only=validate_only))
        _check(done.topic_errors[0][1])

    def delete_topic(self, name: str) -> None:
        _check(_run(self._admin.delete_topics([name])).topic_error_codes[0][1])

    def topics(self) -> set[str]:
        return set(_run(self._admin.list_topics()))

    def partitions(self, topic: str) -> list[int]:
        [found] = _run(self._admin.describe_topics([topic]))
        _check(found["error_code"])
        return sorted(one["partition"] for one in found["partitions"])

    def cluster(self) -> tuple[str, int, list[tuple[int, int]]]:
        found = _run(self._admin.describe_cluster())
        return found["cluster_id"], found["controller_id"], [
            (one["node_id"], one["port"]) for one in found["brokers"]
        ]  # fmt: skip

    def create_partitions(self, topic: str, total: int) -> None:
        _run(self._admin.create_partitions({topic: NewPartitions(total)}))

    def configs(self, topic: str) -> dict[str, tuple[str | None, bool]]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        [answer] = _run(self._admin.describe_configs([resource]))
        [found] = answer.to_object()["resources"]
        _check(found["error_code"])
        return {
            one["config_names"]: (one["config_value"], one["config_source"] == 5)
            for one in found["config_entries"]
        }

    def alter_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """The whole set of the topic's own configs, not single changes (AlterConfigs, key 33)."""
        values = {name: value for name, value in changes.items() if value is not None}
        answers = _run(self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, values)]))
        _check(answers[0].to_object()["resources"][0]["error_code"])

    def delete_records(self, place: Place, before: int) -> int:
        return int(_run(self._admin.delete_records({_at(place): RecordsToDelete(before)}))[_at(place)])

    def groups(self) -> dict[str, str]:
        return {name: "" for name, _ in _run(self._admin.list_consumer_groups())}

    def group(self, name: str) -> GroupView:
        [answer] = _run(self._admin.describe_consumer_groups([name]))
        code, _, state, _, protocol, members, *_ = answer.groups[0]
        _check(code)
        views = {one[-4]: _assigned(one[-1]) for one in members}
        return GroupView(state, protocol, views)

    def group_offsets(self, name: str) -> dict[Place, int]:
        found = _run(self._admin.list_consumer_group_offsets(name))
        return {Place(*at): one.offset for at, one in found.items()}


def _assigned(assignment: bytes) -> frozenset[Place]:
    if not assignment:
        return frozenset()
    decoded = ConsumerProtocolMemberAssignment.decode(assignment)
    return frozenset(Place(topic, number) for topic, numbers in decoded.assignment for number in numbers)


class AioKafka(Client):
    """aiokafka."""

    name = "aiokafka"
    features = frozenset({
        "roundrobin", "sticky", "static", "configs", "create-partitions", "delete-records",
        "group-offsets", "null-headers",
    })  # fmt: skip
    fenced = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "ProducerFenced"})

    def producer(self, bootstrap: str, **options: Any) -> Producer:
        compression = options.get("compression", "none")
        config: dict[str, Any] = {
            "bootstrap_servers": bootstrap, "retry_backoff_ms": 20,
            "enable_idempotence": options.get("idempotent", True), "acks": options.get("acks", "all"),
            "compression_type": None if compression == "none" else compression,
        }  # fmt: skip
        if isinstance(config["acks"], str) and config["acks"].isdigit():
            config["acks"] = int(config["acks"])
        if "transactional_id" in options:
            config["transactional_id"] = options["transactional_id"]
            config["transaction_timeout_ms"] = options.get("transaction_timeout_ms", 60_000)
        if "request_timeout_ms" in options:
            config["request_timeout_ms"] = options["request_timeout_ms"]
        return _Producer(**config)

    def consumer(self, bootstrap: str, **options: Any) -> Consumer:
        session = options.get("session_ms", SESSION_MS)
        config: dict[str, Any] = {
            "bootstrap_servers": bootstrap, "enable_auto_commit": False, "retry_backoff_ms": 20,
            "group_id": options.get("group"), "client_id": options.get("client_id", "scenario"),
            "auto_offset_reset": options.get("reset", "earliest"),
            "isolation_level": "read_committed" if options.get("committed", True) else "read_uncommitted",
            "session_timeout_ms": session, "heartbeat_interval_ms": HEARTBEAT_MS,
            "partition_assignment_strategy": [_STRATEGIES[options.get("strategy", "range")]],
            "fetch_max_wait_ms": 100, "rebalance_timeout_ms": 10_000,
        }  # fmt: skip
        if options.get("instance"):
            config["group_instance_id"] = options["instance"]
        return _Consumer(**config)

    def admin(self, bootstrap: str) -> Admin:
        return _Admin(bootstrap)
