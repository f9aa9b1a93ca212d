"""kafka-python's KafkaAdminClient."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import kafka
from kafka import KafkaAdminClient
from kafka.admin import AbortTransactionSpec, AlterConfigOp, ConfigResource, ConfigResourceType, OffsetSpec
from kafka.protocol.consumer.offsets import IsolationLevel
from kafka.structs import OffsetAndMetadata

from tests.scenarios.drivers.base import Admin, GroupView, Place, Refused, TransactionView, name_of
from tests.scenarios.drivers.kafka_python import QUICK, at, calls, refused


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
