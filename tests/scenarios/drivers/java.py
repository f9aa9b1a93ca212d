"""Kafka's own Java clients: KafkaProducer, KafkaConsumer and Admin, in a JVM reached by py4j."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from tests.scenarios.apache_kafka import JARS, check
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
)

# -- the JVM -------------------------------------------------------------------------------------
# A Java virtual machine with Kafka's classes, reached by py4j: one a test process, ended with it.

_OPTIONS = [
    "-Xmx512m", "-XX:TieredStopAtLevel=1",
    "--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
]  # fmt: skip


@cache
def java() -> Any:
    """The gateway's `jvm`. Raises KafkaMissing if Java or Kafka's jars are not there."""
    check()
    [bridge] = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port = launch_gateway(jarpath=str(bridge), classpath=f"{JARS}/*", javaopts=_OPTIONS, die_on_exit=True)
    parameters = GatewayParameters(port=port, auto_convert=True)
    return JavaGateway(gateway_parameters=parameters).jvm


def refused(error: Py4JJavaError) -> Refused:
    """Kafka's name of the error at the bottom of a Java exception, or the class of an unnamed one."""
    thrown = error.java_exception
    errors, api = java().org.apache.kafka.common.protocol.Errors, "org.apache.kafka.common.errors."
    while thrown.getCause() is not None and not _named(errors, thrown):
        thrown = thrown.getCause()
    kind = str(thrown.getClass().getName())
    name = str(errors.forException(thrown).name()) if _named(errors, thrown) else kind.removeprefix(api)
    return Refused(name, str(thrown.toString()))


def _named(errors: Any, thrown: Any) -> bool:
    return str(errors.forException(thrown).name()) != "UNKNOWN_SERVER_ERROR"


class Calls:
    """Turns Java's exceptions into Refused."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Py4JJavaError):
            raise refused(error) from error


calls = Calls()


def properties(config: dict[str, Any]) -> Any:
    """A java.util.Properties."""
    made = java().java.util.Properties()
    for name, value in config.items():
        made.put(name, str(value).lower() if isinstance(value, bool) else str(value))
    return made


def millis(seconds: float) -> Any:
    """A java.time.Duration."""
    return java().java.time.Duration.ofMillis(int(seconds * 1000))


def future(one: Any, seconds: float) -> Any:
    """Wait for a Java future. Raises Refused."""
    with calls:
        return one.get(int(seconds * 1000), java().java.util.concurrent.TimeUnit.MILLISECONDS)


def java_map(entries: dict[Any, Any]) -> Any:
    """A java.util.HashMap."""
    made = java().java.util.HashMap()
    for key, value in entries.items():
        made.put(key, value)
    return made


def java_list(entries: Any) -> Any:
    """A java.util.ArrayList."""
    made = java().java.util.ArrayList()
    for one in entries:
        made.add(one)
    return made


def static(kind: str, name: str, argument: object) -> Any:
    """Call a static method that has a namesake of the instances, which hides it from py4j."""
    found = [
        one
        for one in java().java.lang.Class.forName(kind).getMethods()
        if one.getName() == name and one.getParameterCount() == 1
    ]
    return found[0].invoke(None, java_list([argument]).toArray())


def listed(entries: Any) -> list[Any]:
    """A Java collection as a list."""
    return list(java().java.util.ArrayList(entries))


def mapped(entries: Any) -> dict[Any, Any]:
    """A Java map as a dict."""
    return {one: entries.get(one) for one in listed(entries.keySet())}


# -- Admin ---------------------------------------------------------------------------------------
# Kafka's Java Admin.

_QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}


def _wait(one: Any) -> Any:
    return future(one, TIMEOUT)


class JavaAdmin(Admin):
    """org.apache.kafka.clients.admin.Admin."""

    def __init__(self, bootstrap: str) -> None:
        self._package = java().org.apache.kafka.clients.admin
        self._admin = self._package.AdminClient.create(properties({"bootstrap.servers": bootstrap, **_QUICK}))

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
        new = self._package.NewTopic(name, partitions, replicas).configs(java_map(dict(configs or {})))
        how = self._package.CreateTopicsOptions().validateOnly(validate_only)
        _wait(self._admin.createTopics(java_list([new]), how).all())

    def delete_topic(self, name: str) -> None:
        _wait(self._admin.deleteTopics(java_list([name])).all())

    def topics(self) -> set[str]:
        return set(listed(_wait(self._admin.listTopics().names())))

    def partitions(self, topic: str) -> list[int]:
        found = _wait(self._admin.describeTopics(java_list([topic])).allTopicNames()).get(topic)
        return [one.partition() for one in listed(found.partitions())]

    def cluster(self) -> tuple[str, int, list[tuple[int, int]]]:
        found = self._admin.describeCluster()
        nodes = [(node.id(), node.port()) for node in listed(_wait(found.nodes()))]
        return _wait(found.clusterId()), _wait(found.controller()).id(), nodes

    def create_partitions(self, topic: str, total: int) -> None:
        new = self._package.NewPartitions.increaseTo(total)
        _wait(self._admin.createPartitions(java_map({topic: new})).all())

    def _resource(self, kind: str, name: str) -> Any:
        config = java().org.apache.kafka.common.config
        return config.ConfigResource(config.ConfigResource.Type.valueOf(kind), name)

    def configs(self, topic: str) -> dict[str, tuple[str | None, bool]]:
        return self._configs("TOPIC", topic)

    def broker_configs(self, node: int) -> dict[str, tuple[str | None, bool]]:
        return self._configs("BROKER", str(node))

    def _configs(self, kind: str, name: str) -> dict[str, tuple[str | None, bool]]:
        resource = self._resource(kind, name)
        found = _wait(self._admin.describeConfigs(java_list([resource])).all()).get(resource)
        return {one.name(): (one.value(), one.isDefault()) for one in listed(found.entries())}

    def alter_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        self._alter(self._resource("TOPIC", topic), changes)

    def alter_broker_config(self, name: str, option: str, value: str) -> None:
        self._alter(self._resource("BROKER", name), {option: value})

    def _alter(self, resource: Any, changes: Mapping[str, str | None]) -> None:
        kinds, entry = self._package.AlterConfigOp.OpType, self._package.ConfigEntry
        operations = [
            self._package.AlterConfigOp(entry(name, value or ""), kinds.valueOf("SET" if value else "DELETE"))
            for name, value in changes.items()
        ]
        _wait(self._admin.incrementalAlterConfigs(java_map({resource: java_list(operations)})).all())

    def delete_records(self, place: Place, before: int) -> int:
        what = static("org.apache.kafka.clients.admin.RecordsToDelete", "beforeOffset", before)
        found = self._admin.deleteRecords(java_map({at(place): what})).lowWatermarks()
        return int(_wait(found.get(at(place))).lowWatermark())

    def list_offsets(self, place: Place, spec: str | int, *, committed: bool = False) -> int:
        specs = self._package.OffsetSpec
        asked = {"earliest": specs.earliest, "latest": specs.latest, "max-timestamp": specs.maxTimestamp}
        what = asked[spec]() if isinstance(spec, str) else specs.forTimestamp(spec)
        level = java().org.apache.kafka.common.IsolationLevel
        how = self._package.ListOffsetsOptions(
            level.valueOf("READ_COMMITTED" if committed else "READ_UNCOMMITTED")
        )
        found = self._admin.listOffsets(java_map({at(place): what}), how).partitionResult(at(place))
        return int(_wait(found).offset())

    def groups(self) -> dict[str, str]:
        found = listed(_wait(self._admin.listGroups().all()))
        return {one.groupId(): one.groupState().get().toString() for one in found}

    def group(self, name: str) -> GroupView:
        found = _wait(self._admin.describeConsumerGroups(java_list([name])).all()).get(name)
        members = {
            one.clientId(): frozenset(place_of(part) for part in listed(one.assignment().topicPartitions()))
            for one in listed(found.members())
        }
        return GroupView(found.groupState().toString(), found.partitionAssignor(), members)

    def delete_group(self, name: str) -> None:
        _wait(self._admin.deleteConsumerGroups(java_list([name])).all())

    def group_offsets(self, name: str) -> dict[Place, int]:
        found = _wait(self._admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata())
        return {place_of(one): metadata.offset() for one, metadata in mapped(found).items()}

    def alter_offsets(self, name: str, offsets: Mapping[Place, int]) -> None:
        _wait(self._admin.alterConsumerGroupOffsets(name, offsets_of(offsets)).all())

    def delete_offsets(self, name: str, places: Iterable[Place]) -> None:
        asked = java().java.util.HashSet(java_list(at(place) for place in places))
        _wait(self._admin.deleteConsumerGroupOffsets(name, asked).all())

    def transactions(self) -> dict[str, str]:
        found = listed(_wait(self._admin.listTransactions().all()))
        return {one.transactionalId(): one.state().toString() for one in found}

    def transaction(self, name: str) -> TransactionView:
        one = _wait(self._admin.describeTransactions(java_list([name])).all()).get(name)
        return TransactionView(
            one.state().toString(), one.producerId(), one.producerEpoch(), one.transactionTimeoutMs(),
            frozenset(place_of(part) for part in listed(one.topicPartitions())),
        )  # fmt: skip

    def producers(self, place: Place) -> dict[int, tuple[int, int, int]]:
        found = _wait(self._admin.describeProducers(java_list([at(place)])).all()).get(at(place))
        return {
            one.producerId(): (
                one.producerEpoch(), one.lastSequence(), one.currentTransactionStartOffset().orElse(-1),
            )
            for one in listed(found.activeProducers())
        }  # fmt: skip

    def abort_transaction(self, place: Place, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        what = self._package.AbortTransactionSpec(at(place), producer_id, epoch, coordinator_epoch)
        _wait(self._admin.abortTransaction(what).all())

    def fence(self, name: str) -> None:
        _wait(self._admin.fenceProducers(java_list([name])).all())

    def log_dirs(self, topic: str) -> dict[Place, int]:
        _, node, _ = self.cluster()
        found = _wait(self._admin.describeLogDirs(java_list([node])).allDescriptions()).get(node)
        return {
            place_of(part): replica.size()
            for folder in mapped(found).values()
            for part, replica in mapped(folder.replicaInfos()).items()
        }

    def features(self) -> dict[str, tuple[int, int]]:
        found = _wait(self._admin.describeFeatures().featureMetadata()).finalizedFeatures()
        return {name: (one.minVersionLevel(), one.maxVersionLevel()) for name, one in mapped(found).items()}

    def quorum(self) -> tuple[int, list[int]]:
        found = _wait(self._admin.describeMetadataQuorum().quorumInfo())
        return found.leaderId(), [one.replicaId() for one in listed(found.voters())]

    def elect(self, place: Place) -> None:
        kind = java().org.apache.kafka.common.ElectionType.PREFERRED
        asked = java().java.util.HashSet(java_list([at(place)]))
        _wait(self._admin.electLeaders(kind, asked).all())

    def reassignments(self) -> dict[Place, Any]:
        found = mapped(_wait(self._admin.listPartitionReassignments().reassignments()))
        return {place_of(part): str(how.toString()) for part, how in found.items()}

    def remove_members(self, name: str, instances: Iterable[str]) -> None:
        members = java_list(self._package.MemberToRemove(one) for one in instances)
        options = self._package.RemoveMembersFromConsumerGroupOptions(members)
        _wait(self._admin.removeMembersFromConsumerGroup(name, options).all())


# -- the client ----------------------------------------------------------------------------------
# Kafka's own Java client: KafkaProducer, KafkaConsumer and Admin.

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
        from tests.scenarios.drivers.java import JavaAdmin

        return JavaAdmin(bootstrap)
