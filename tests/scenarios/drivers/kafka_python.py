"""kafka-python: its producer and consumer, and KafkaAdminClient."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AbortTransactionSpec, AlterConfigOp, ConfigResource, ConfigResourceType, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from kafka.protocol.consumer.offsets import IsolationLevel
from kafka.structs import OffsetAndMetadata

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
    TransactionView,
    name_of,
)

# -- KafkaAdminClient ----------------------------------------------------------------------------
# kafka-python's KafkaAdminClient.


def _by_text(outcome: object) -> Refused:
    """Of an outcome that is only a text: "[Error 40] ..." or the name of an error's class."""
    text = str(outcome)
    if found := re.match(r"\[Error (\d+)\]", text):
        return Refused(name_of(int(found[1])), text)
    kind = getattr(kafka.errors, text.split(":")[0], None)
    return Refused(text) if kind is None else refused(kind())


class KafkaPythonAdmin(Admin):
    def __init__(self, bootstrap: str) -> None:
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap, **QUICK)

    def close(self) -> None:
        self._admin.close()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replicas: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        how = {"num_partitions": partitions, "replication_factor": replicas, "configs": dict(configs or {})}
        with calls:
            self._admin.create_topics({name: how}, validate_only=validate_only)

    def delete_topic(self, name: str) -> None:
        with calls:
            self._admin.delete_topics([name])

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def partitions(self, topic: str) -> list[int]:
        [found] = self._admin.describe_topics([topic])
        if found["error_code"]:
            raise Refused(name_of(found["error_code"]))
        return sorted(one["partition_index"] for one in found["partitions"])

    def cluster(self) -> tuple[str, int, list[tuple[int, int]]]:
        found = self._admin.describe_cluster()
        nodes = [(one["broker_id"], one["port"]) for one in found["brokers"]]
        return found["cluster_id"], found["controller_id"], nodes

    def create_partitions(self, topic: str, total: int) -> None:
        with calls:
            self._admin.create_partitions({topic: total})

    def configs(self, topic: str) -> dict[str, tuple[str | None, bool]]:
        return self._configs(ConfigResourceType.TOPIC, topic)

    def broker_configs(self, node: int) -> dict[str, tuple[str | None, bool]]:
        return self._configs(ConfigResourceType.BROKER, str(node))

    def _configs(self, kind: ConfigResourceType, name: str) -> dict[str, tuple[str | None, bool]]:
        with calls:
            found = self._admin.describe_configs([ConfigResource(kind, name)], config_filter="all")
        entries = found[kind.name.lower()][name]
        return {
            option: (entry["value"], entry["config_source"] == "DEFAULT_CONFIG")
            for option, entry in entries.items()
        }

    def alter_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        operations = {
            name: (AlterConfigOp.DELETE, None) if value is None else (AlterConfigOp.SET, value)
            for name, value in changes.items()
        }
        self._alter(ConfigResourceType.TOPIC, topic, operations)

    def alter_broker_config(self, name: str, option: str, value: str) -> None:
        self._alter(ConfigResourceType.BROKER, name, {option: (AlterConfigOp.SET, value)})

    def version(self) -> tuple[int, ...]:
        """The broker's version, inferred from the versions of its APIs."""
        return tuple(self._admin.get_broker_version_data(1).broker_version)

    def _alter(self, kind: ConfigResourceType, name: str, operations: Any) -> None:
        with calls:
            done = self._admin.alter_configs([ConfigResource(kind, name, operations)], raise_on_unknown=False)
        [outcome] = done[kind.name.lower()].values()
        if outcome != "OK":
            raise _by_text(outcome)

    def delete_records(self, place: Place, before: int) -> int:
        with calls:
            found = self._admin.delete_records({at(place): before})
        return int(found[at(place)]["low_watermark"])

    def list_offsets(self, place: Place, spec: str | int, *, committed: bool = False) -> int:
        asked = {
            "earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST,
            "max-timestamp": OffsetSpec.MAX_TIMESTAMP,
        }  # fmt: skip
        what = asked[spec] if isinstance(spec, str) else spec
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        with calls:
            found = self._admin.list_partition_offsets({at(place): what}, isolation_level=level)
        return int(found[at(place)].offset)

    def groups(self) -> dict[str, str]:
        with calls:
            return {one["group_id"]: one["group_state"] for one in self._admin.list_groups()}

    def group(self, name: str) -> GroupView:
        with calls:
            found = self._admin.describe_groups([name])[name]
        if found["error"]:
            raise _by_text(found["error"])
        members = {one["client_id"]: _assigned(one["member_assignment"]) for one in found["members"]}
        return GroupView(found["group_state"], found["protocol_data"], members)

    def delete_group(self, name: str) -> None:
        with calls:
            found = self._admin.delete_groups([name])[name]
        if found != "OK":
            raise _by_text(found)

    def group_offsets(self, name: str) -> dict[Place, int]:
        with calls:
            found = self._admin.list_group_offsets({name: None})[name]
        return {Place(*at): one.offset for at, one in found.items()}

    def alter_offsets(self, name: str, offsets: Mapping[Place, int]) -> None:
        with calls:
            found = self._admin.alter_group_offsets(
                name, {at(place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
            )
        _each(found)

    def delete_offsets(self, name: str, places: Iterable[Place]) -> None:
        with calls:
            found = self._admin.delete_group_offsets(name, [at(place) for place in places])
        _each(found)

    def transactions(self) -> dict[str, str]:
        with calls:
            found = self._admin.list_transactions()
        return {one.transactional_id: str(one.state.value) for node in found.values() for one in node}

    def transaction(self, name: str) -> TransactionView:
        with calls:
            one = self._admin.describe_transactions([name])[name]
        return TransactionView(
            one.state.value, one.producer_id, one.producer_epoch, one.transaction_timeout_ms,
            frozenset(Place(*at) for at in one.topic_partitions),
        )  # fmt: skip

    def producers(self, place: Place) -> dict[int, tuple[int, int, int]]:
        with calls:
            found = self._admin.describe_producers([at(place)])[at(place)]
        return {
            one.producer_id: (one.producer_epoch, one.last_sequence, one.current_transaction_start_offset)
            for one in found.active_producers
        }

    def abort_transaction(self, place: Place, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        with calls:
            self._admin.abort_transaction(
                AbortTransactionSpec(at(place), producer_id, epoch, coordinator_epoch)
            )

    def log_dirs(self, topic: str) -> dict[Place, int]:
        with calls:
            found = self._admin.describe_log_dirs([topic])
        return {
            Place(one["name"], part["partition_index"]): part["partition_size"]
            for broker in found
            for folder in broker["log_dirs"]
            for one in folder["topics"]
            for part in one["partitions"]
        }

    def features(self) -> dict[str, tuple[int, int]]:
        with calls:
            found = self._admin.describe_features()
        return {name: one["finalized"] for name, one in found.items() if "finalized" in one}

    def quorum(self) -> tuple[int, list[int]]:
        with calls:
            found = self._admin.describe_metadata_quorum()
        part = found["topics"][0]["partitions"][0]
        return part["leader_id"], [one["replica_id"] for one in part["current_voters"]]

    def elect(self, place: Place) -> None:
        with calls:
            found = self._admin.elect_leaders(0, {place.topic: [place.partition]}, raise_errors=False)
        [one] = found.replica_election_results
        if code := one.partition_result[0].error_code:
            raise Refused(name_of(code))

    def reassignments(self) -> dict[Place, Any]:
        with calls:
            return {Place(*at): how for at, how in self._admin.list_partition_reassignments().items()}


def _assigned(assignment: Any) -> frozenset[Place]:
    if not assignment:
        return frozenset()
    assigned = assignment["assigned_partitions"] if isinstance(assignment, dict) else assignment.assignment
    return frozenset(
        Place(one["topic"], number) if isinstance(one, dict) else Place(one[0], number)
        for one in assigned
        for number in (one["partitions"] if isinstance(one, dict) else one[1])
    )


def _each(outcome: Mapping[Any, Any]) -> None:
    for error in outcome.values():
        if error is not kafka.errors.NoError:
            raise refused(error())


# -- the client ----------------------------------------------------------------------------------
# kafka-python.

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
        from tests.scenarios.drivers.kafka_python import KafkaPythonAdmin

        return KafkaPythonAdmin(bootstrap)
