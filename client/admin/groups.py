"""What brokers report about consumer groups of both protocols: classic and KIP-848."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eoslog.client.wire.cluster import Cluster, at_coordinator
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.retry import check, retrying
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.internal_topics.coordinator_records import assigned_partitions
from eoslog.protocol.topic_partitions import TopicPartition, by_topic
from eoslog.protocol.typed import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_DELETE,
)

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        OffsetDeleteRequestPartitionDraft,
        OffsetDeleteRequestTopicDraft,
        OffsetDeleteResponse,
    )


WITHOUT_MEMBERS = ("Empty", "Dead")


@dataclass(frozen=True)
class ListedGroup:
    """One entry of ListGroups. `kind` is classic, consumer or another type of group, "" if not given."""

    group: str
    state: str
    kind: str
    protocol: str


@dataclass(frozen=True)
class DescribedMember:
    """A member of a group, with the partitions assigned to it."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition]


@dataclass(frozen=True)
class DescribedGroup:
    """A group as its coordinator describes it."""

    group: str
    state: str
    kind: str
    assignor: str
    members: list[DescribedMember] = field(default_factory=list)


def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """All groups of all brokers, by name. Raises KafkaError."""

    def ask(connection: BrokerConnection) -> list[ListedGroup]:
        answer = connection.call(LIST_GROUPS, {"states_filter": [], "types_filter": []}
                                 if connection.pick(ApiKey.LIST_GROUPS) >= 5 else {})  # fmt: skip
        check(answer["error_code"], f"ListGroups on {connection.host}:{connection.port}")
        return [
            ListedGroup(g["group_id"], g["group_state"], g["group_type"], g["protocol_type"])
            for g in answer["groups"]
        ]

    def attempt() -> list[ListedGroup]:
        return [listed for connection in cluster.brokers() for listed in ask(connection)]

    return sorted(retrying(cluster, "ListGroups", attempt), key=lambda listed: listed.group)


def describe_group(cluster: Cluster, group: str) -> DescribedGroup:
    """One group of either protocol; its state is Dead if it does not exist. Raises KafkaError."""

    def attempt(connection: BrokerConnection) -> DescribedGroup:
        found = _describe_consumer(connection, group)
        return found if found is not None else _describe_classic(connection, group)

    return at_coordinator(cluster, "group", group, ApiKey.DESCRIBE_GROUPS, attempt)


def _describe_consumer(connection: BrokerConnection, group: str) -> DescribedGroup | None:
    """A group of KIP-848; None for another group, or if the broker has no such groups."""
    if ApiKey.CONSUMER_GROUP_DESCRIBE not in connection.versions:
        return None
    answer = connection.call(CONSUMER_GROUP_DESCRIBE, {"group_ids": [group]})
    (found,) = answer["groups"]
    if found["error_code"] in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    check(found["error_code"], f"group {group}: {found['error_message'] or 'refused'}")
    members = [
        DescribedMember(
            member["member_id"], member["instance_id"], member["client_id"], member["client_host"],
            [
                (topic["topic_name"], partition)
                for topic in member["assignment"]["topic_partitions"]
                for partition in topic["partitions"]
            ],
        )
        for member in found["members"]
    ]  # fmt: skip
    return DescribedGroup(group, found["group_state"], "consumer", found["assignor_name"], members)


def _describe_classic(connection: BrokerConnection, group: str) -> DescribedGroup:
    answer = connection.call(DESCRIBE_GROUPS, {"groups": [group]})
    (found,) = answer["groups"]
    if found["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND:
        return DescribedGroup(group, "Dead", "classic", "")
    check(found["error_code"], f"group {group}: {found['error_message'] or 'refused'}")
    members = [
        DescribedMember(
            member["member_id"], member["group_instance_id"], member["client_id"], member["client_host"],
            assigned_partitions(found["protocol_type"], member["member_assignment"]),
        )
        for member in found["members"]
    ]  # fmt: skip
    return DescribedGroup(group, found["group_state"], "classic", found["protocol_data"], members)


def delete_group(cluster: Cluster, group: str) -> None:
    """Delete a group and its offsets. Raises KafkaError, such as NON_EMPTY_GROUP."""

    def attempt(connection: BrokerConnection) -> None:
        answer = connection.call(DELETE_GROUPS, {"groups_names": [group]})
        (done,) = answer["results"]
        check(done["error_code"], f"group {group}")

    at_coordinator(cluster, "group", group, ApiKey.DELETE_GROUPS, attempt)


def delete_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """Delete a group's offsets of these partitions. Returns the error of each that was refused."""
    rows: Iterator[tuple[str, int, OffsetDeleteRequestPartitionDraft]] = (
        (topic, number, {"partition_index": number}) for topic, number in partitions
    )
    topics: list[OffsetDeleteRequestTopicDraft] = [
        {"name": topic, "partitions": parts} for topic, parts in by_topic(rows)
    ]

    def attempt(connection: BrokerConnection) -> OffsetDeleteResponse:
        answer = connection.call(OFFSET_DELETE, {"group_id": group, "topics": topics})
        check(answer["error_code"], f"group {group}")
        return answer

    answer = at_coordinator(cluster, "group", group, ApiKey.OFFSET_DELETE, attempt)
    return {
        (topic["name"], part["partition_index"]): KafkaError(
            part["error_code"], f"{topic['name']}-{part['partition_index']} of group {group}"
        )
        if part["error_code"]
        else None
        for topic in answer["topics"]
        for part in topic["partitions"]
    }
