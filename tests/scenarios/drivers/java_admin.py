"""Kafka's Java Admin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.scenarios.drivers.base import TIMEOUT, Admin, GroupView, Place, TransactionView
from tests.scenarios.drivers.java import at, offsets_of, place_of
from tests.scenarios.drivers.jvm import future, java, java_list, java_map, listed, mapped, properties, static

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
