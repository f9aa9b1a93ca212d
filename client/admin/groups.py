"""Consumer groups of both protocols: what brokers report of them, and their committed offsets."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

from eoslog.client.wire.cluster import Cluster, at_coordinator
from eoslog.client.wire.config import Address
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.retry import check, retrying
from eoslog.errors import ConnectionLost, EoslogError
from eoslog.protocol import errors
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.internal_topics.coordinator_records import assigned_partitions
from eoslog.protocol.topic_partitions import TopicPartition, by_topic
from eoslog.protocol.typed import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
)

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        OffsetCommitRequestDraft,
        OffsetCommitRequestPartitionDraft,
        OffsetCommitRequestTopicDraft,
        OffsetDeleteRequestPartitionDraft,
        OffsetDeleteRequestTopicDraft,
        OffsetDeleteResponse,
        OffsetFetchRequestDraft,
        OffsetFetchRequestTopicDraft,
        OffsetFetchResponse,
    )

# -- groups ----------------------------------------------------------------------------------------
# What brokers report about consumer groups of both protocols: classic and KIP-848.


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


# -- committed offsets -----------------------------------------------------------------------------
# Committed offsets of a consumer group, read and written outside of transactions.


logger = logging.getLogger(__name__)

Epochs = Mapping[TopicPartition, int]

_FETCH_MAX = 7  # one group a request, topics by name
_REQUIRE_STABLE = 7
_COMMIT_MAX = 9  # topics by name
_MOST_BYTES = 800_000
"""A broker appends the offsets of a request as one batch, of at most message.max.bytes (1 MB)."""
_OFFSET_BYTES = 100  # of an offset beside its names and metadata
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


Staged = Sequence[tuple[str, Sequence[TopicPartition]]]
"""Groups, with the partitions whose offsets are about to change."""


class StillPending(Exception):
    """A transaction has been about to change a group's offsets for longer than the caller waits."""


class CommittedOffset(NamedTuple):
    """A committed offset, its metadata, and the leader epoch of the record before it (-1: unknown)."""

    offset: int
    metadata: str
    leader_epoch: int


def fetch_committed(
    cluster: Cluster,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool = True,
    least_ms: int = 0,
    pending_ms: float | None = None,
) -> dict[TopicPartition, tuple[int, str]]:
    """Offset and metadata of each partition that has a commit: see `fetch_with_epochs`."""
    found = fetch_with_epochs(
        cluster,
        group,
        partitions,
        require_stable=require_stable,
        least_ms=least_ms,
        pending_ms=pending_ms,
    )
    return {tp: (offset, metadata) for tp, (offset, metadata, _) in found.items()}


def fetch_with_epochs(
    cluster: Cluster,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool = True,
    least_ms: int = 0,
    pending_ms: float | None = None,
) -> dict[TopicPartition, CommittedOffset]:
    """The offset of each partition that has a commit; `partitions` None: all that have one.

    `require_stable` waits for transactions that are about to change the answer (KIP-447), for `least_ms` at
    least, and needs OffsetFetch 7. Name the partitions if that matters: if asked for all, Kafka leaves out a
    partition whose first commit is still pending, and answers without waiting for it. `pending_ms`: the
    longest wait for such transactions, from the first answer that reports one. Raises KafkaError,
    RetriesExhausted, StillPending (with `pending_ms`).
    """
    topics: list[OffsetFetchRequestTopicDraft] | None = None
    since = 0.0
    if partitions is not None:
        topics = _named(partitions)
    body: OffsetFetchRequestDraft = {"group_id": group, "topics": topics, "require_stable": require_stable}

    def attempt(connection: BrokerConnection) -> dict[TopicPartition, CommittedOffset]:
        nonlocal since
        try:
            return ask(connection)
        except errors.UnstableOffsetCommit as error:
            if pending_ms is None:
                raise
            since = since or time.monotonic()
            waited = time.monotonic() - since
            if waited * 1000 < pending_ms:
                raise
            raise StillPending(f"{error}, for {waited:.1f} s") from error

    def ask(connection: BrokerConnection) -> dict[TopicPartition, CommittedOffset]:
        version = connection.pick(
            ApiKey.OFFSET_FETCH, max_version=_FETCH_MAX, min_version=_REQUIRE_STABLE if require_stable else 2
        )
        answer = connection.call(OFFSET_FETCH, body, version=version)
        check(answer["error_code"], f"OffsetFetch of group {group!r}")
        return _committed(answer, group)

    return at_coordinator(cluster, "group", group, ApiKey.OFFSET_FETCH, attempt, least_ms=least_ms)


class PendingFetch:
    """OffsetFetch of offsets that an open transaction is about to commit, sent to the groups' coordinators on
    connections of its own, and not answered."""

    def __init__(self, cluster: Cluster, staged: Staged, *, wait: bool = True) -> None:
        """`wait` False: only over idle connections. Raises KafkaError, EoslogError."""
        self._cluster = cluster
        self._taken: dict[Address, BrokerConnection] = {}
        self._asked: list[tuple[str, BrokerConnection]] = []
        try:
            for group, partitions in staged:
                if cluster.coordinator("group", group).ends_together:
                    continue  # nobody ends a transaction there on a partition alone
                address = cluster.coordinator_address("group", group)
                if address not in self._taken:
                    connection = cluster.take_new(address) if wait else cluster.idle(address)
                    if connection is None:
                        raise ConnectionLost("no idle connection")
                    self._taken[address] = connection
                self._ask(self._taken[address], group, partitions)
        except BaseException:
            self.drop()
            raise

    def _ask(self, connection: BrokerConnection, group: str, partitions: Iterable[TopicPartition]) -> None:
        version = connection.pick(ApiKey.OFFSET_FETCH, max_version=_FETCH_MAX, min_version=_REQUIRE_STABLE)
        topics = _named(partitions)
        body: OffsetFetchRequestDraft = {"group_id": group, "topics": topics, "require_stable": True}
        connection.ask(OFFSET_FETCH, body, version=version)
        self._asked.append((group, connection))

    @classmethod
    def ahead(cls, cluster: Cluster, staged: Staged) -> Self | None:
        """Ask if that takes no waiting; else None. settled_groups reads the answers."""
        try:
            return cls(cluster, staged, wait=False)
        except (EoslogError, KafkaError) as error:
            logger.debug("pending offsets are looked at later: %s", error)
            return None

    def settled(self) -> tuple[str, ...]:
        """The groups of which none is pending. Raises KafkaError, ConnectionLost."""
        found = []
        try:
            for group, connection in self._asked:
                answer = connection.answer(OFFSET_FETCH)
                check(answer["error_code"], f"OffsetFetch of group {group!r}")
                codes = {part["error_code"] for topic in answer["topics"] for part in topic["partitions"]}
                for code in codes - {ErrorCode.UNSTABLE_OFFSET_COMMIT}:
                    check(code, f"OffsetFetch of group {group!r}")
                if ErrorCode.UNSTABLE_OFFSET_COMMIT not in codes:
                    found.append(group)
        finally:
            self.drop()
        return tuple(found)

    def drop(self) -> None:
        """Give the connections back; one that still waits for an answer is closed."""
        for connection in self._taken.values():
            self._cluster.give_back(connection)
        self._taken, self._asked = {}, []


def settled_groups(cluster: Cluster, staged: Staged, *, ahead: PendingFetch | None = None) -> tuple[str, ...]:
    """The groups of which no offset is pending any more that a transaction was about to commit: somebody has
    ended it on the groups' partition alone. One marker ends all of a group. `ahead`: the same, asked earlier.
    Raises KafkaError, RetriesExhausted."""

    def attempt() -> tuple[str, ...]:
        nonlocal ahead
        asked, ahead = ahead, None
        return (asked or PendingFetch(cluster, staged)).settled()

    groups = [group for group, _ in staged]
    return retrying(
        cluster,
        "OffsetFetch",
        attempt,
        forget=lambda: cluster.forget_coordinator("group", *groups),
        api=ApiKey.OFFSET_FETCH,
    )


def at_once(
    group: str, offsets: Mapping[TopicPartition, tuple[int, str]]
) -> Iterator[dict[TopicPartition, tuple[int, str]]]:
    """The offsets in parts of which a broker takes each in one request."""
    part: dict[TopicPartition, tuple[int, str]] = {}
    size = 0
    for place, (offset, metadata) in offsets.items():
        more = _OFFSET_BYTES + len(f"{group}{place[0]}{metadata}".encode())
        if part and size + more > _MOST_BYTES:
            yield part
            part, size = {}, 0
        part[place] = (offset, metadata)
        size += more
    yield part


def rows_of(
    offsets: Mapping[TopicPartition, tuple[int, str]], epochs: Epochs | None = None
) -> list[OffsetCommitRequestTopicDraft]:
    """Offsets in the form that commit requests have."""
    known = epochs or {}
    rows: Iterator[tuple[str, int, OffsetCommitRequestPartitionDraft]] = (
        (
            t,
            p,
            {
                "partition_index": p,
                "committed_offset": offset,
                "committed_leader_epoch": known.get((t, p), -1),
                "committed_metadata": metadata,
            },
        )
        for (t, p), (offset, metadata) in offsets.items()
    )
    return [{"name": topic, "partitions": parts} for topic, parts in by_topic(rows)]


def commit_plain(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, tuple[int, str]],
    epochs: Epochs | None = None,
) -> None:
    """Commit offsets of a group without members, outside of transactions. KafkaError if one is refused.

    `epochs`: the leader epoch of the record before each offset, if known.
    """
    for part in at_once(group, offsets):
        _commit_at_once(cluster, group, {"group_id": group, "topics": rows_of(part, epochs)})


def _commit_at_once(cluster: Cluster, group: str, body: OffsetCommitRequestDraft) -> None:
    def attempt(connection: BrokerConnection) -> None:
        answer = connection.call(OFFSET_COMMIT, body, max_version=_COMMIT_MAX)
        for topic in answer["topics"]:
            for part in topic["partitions"]:
                name = f"{topic['name']}-{part['partition_index']}"
                check(part["error_code"], f"OffsetCommit of {name} to group {group!r}")

    at_coordinator(cluster, "group", group, ApiKey.OFFSET_COMMIT, attempt)


def _named(partitions: Iterable[TopicPartition]) -> list[OffsetFetchRequestTopicDraft]:
    rows = ((topic, number, number) for topic, number in partitions)
    return [{"name": topic, "partition_indexes": numbers} for topic, numbers in by_topic(rows)]


def _committed(answer: OffsetFetchResponse, group: str) -> dict[TopicPartition, CommittedOffset]:
    found = {}
    for topic in answer["topics"]:
        for part in topic["partitions"]:
            where = (topic["name"], part["partition_index"])
            check(part["error_code"], f"OffsetFetch of {where[0]}-{where[1]} in group {group!r}")
            if part["committed_offset"] >= 0:
                epoch = part["committed_leader_epoch"]
                found[where] = CommittedOffset(part["committed_offset"], part["metadata"] or "", epoch)
    return found


def gone(cluster: Cluster, places: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Those of the partitions that the cluster does not have. Raises KafkaError, BrokerUnreachable."""
    wanted = set(places)
    found = cluster.metadata({topic for topic, _ in wanted})
    unknown = {topic for topic, code in found.errors.items() if code in _UNKNOWN}
    return {
        (t, p) for t, p in wanted if t in unknown or (t in found.topics and p not in found.topics[t].leaders)
    }
