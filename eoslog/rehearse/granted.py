"""The rights that the rehearsal needs, and those that brokers say this user has (KIP-430)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from eoslog.client.admin.groups import commit_plain
from eoslog.client.wire.cluster import METADATA_MAX, Cluster, at_coordinator
from eoslog.commands.acls import by_resource, kafka_acls
from eoslog.connector.options.rights import (
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    ID,
    READ,
    TOPIC,
    TWO_PHASE_COMMIT,
    WRITE,
    Right,
    needed,
    under,
)
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.protocol import errors
from eoslog.protocol.acls import AclOperation
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.typed import DESCRIBE_CLUSTER, DESCRIBE_GROUPS, METADATA
from eoslog.rehearse.work import PREFIX, TIMEOUTS_MS, ScratchNames, Work

if TYPE_CHECKING:
    from eoslog.client.wire.connection import BrokerConnection
    from eoslog.protocol.typed import DescribeGroupsRequestDraft, DescribeGroupsResponse, MetadataRequestDraft

CLUSTER, CREATE, DELETE, CLUSTER_ACTION = "Cluster", "Create", "Delete", "ClusterAction"
_NOT_TOLD = -(2**31)
_OPERATIONS = {READ: AclOperation.READ, WRITE: AclOperation.WRITE, CREATE: AclOperation.CREATE,
               DELETE: AclOperation.DELETE, DESCRIBE: AclOperation.DESCRIBE,
               DESCRIBE_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
               CLUSTER_ACTION: AclOperation.CLUSTER_ACTION}  # fmt: skip

BROKERS_CONFIGS = Right(DESCRIBE_CONFIGS, CLUSTER, "", False, "the brokers' time-outs")
SEALS = Right(TWO_PHASE_COMMIT, ID, PREFIX, True, "two-phase commit")
REPAIRS = Right(CLUSTER_ACTION, CLUSTER, "", False, "to write markers that a broker has lost")
_ALL_BITS = -1

Granted = Mapping[tuple[str, str], int]
"""(resource, name) -> the operations that are allowed, as bits. A resource that is not told of is missing."""


class NeededRights(NamedTuple):
    """What a query needs, under scratch names, and what only the rehearsal does."""

    query: tuple[Right, ...]
    rehearsal: tuple[Right, ...]


def rights_needed(names: ScratchNames, decisions: str) -> NeededRights:
    """The rights that the sink and the source of the scratch names need, for all rehearsals at once.
    `decisions`: the topic that keeps decisions."""
    name, cluster = names.name("kills"), {"kafka.bootstrap.servers": "scratch:9092"}
    sink = {**cluster, "topic": name, "transactional.id": name,
            "kafka.group.id": names.name("group"), "decision.topic": decisions}  # fmt: skip
    found = needed(
        source_options({**cluster, "subscribe": name}, stream=True),
        sink_options(sink, stream=True),
        stream=True,
    )
    query = under(
        (right._replace(why="") for right in found.rights if not right.optional), PREFIX, topics=True
    )
    mine = (
        Right(CREATE, TOPIC, PREFIX, True, "its topics"),
        Right(DELETE, TOPIC, PREFIX, True, "to remove its topics"),
        Right(DESCRIBE_CONFIGS, TOPIC, PREFIX, True, "how long topics keep rows"),
        Right(DELETE, GROUP, PREFIX, True, "to remove its groups"),
    )
    return NeededRights(query, mine)


def missing(rights: Iterable[Right], granted: Granted, names: Mapping[str, str]) -> Iterator[Right]:
    """The rights that are told to be missing. `names`: the scratch name of each resource that was asked."""
    for right in rights:
        name = names.get(right.resource, "") if right.prefixed else right.name
        bits = granted.get((right.resource, name))
        if bits is not None and not bits >> _OPERATIONS[right.operation] & 1:
            yield right


def acl_lines(rights: Iterable[Right], principal: str, address: str) -> tuple[str, ...]:
    """The rights as lines of kafka-acls.sh, one a resource."""
    return tuple(kafka_acls(principal, together, address) for together in by_resource(list(rights)))


def topic_rights(cluster: Cluster, topic: str) -> int | None:
    """The operations that are allowed on a topic. None: the broker does not tell, or does not show it."""
    body: MetadataRequestDraft = {
        "topics": [{"name": topic}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }
    for found in cluster.ask_any(METADATA, body, METADATA_MAX)["topics"]:
        if found["error_code"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return 0
        return None if found["error_code"] else _told(found["topic_authorized_operations"])
    return None


def group_rights(work: Work, group: str) -> int | None:
    """The same for a group. It is made: nothing is told of a group that does not exist."""
    cluster = work.cluster
    try:
        commit_plain(cluster, group, {work.place: (0, "")})
    except errors.GroupAuthorizationFailed:
        return _ALL_BITS & ~(1 << AclOperation.READ)
    except errors.TopicAuthorizationFailed:
        return None

    def ask(connection: BrokerConnection) -> DescribeGroupsResponse:
        body: DescribeGroupsRequestDraft = {"groups": [group], "include_authorized_operations": True}
        return connection.call(DESCRIBE_GROUPS, body)

    (found,) = at_coordinator(cluster, "group", group, ApiKey.DESCRIBE_GROUPS, ask)["groups"]
    return None if found["error_code"] else _told(found["authorized_operations"])


def cluster_rights(cluster: Cluster) -> int | None:
    """The same for the cluster; 0 without the right Describe on it."""
    answer = cluster.any_broker().call(DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": True})
    return None if answer["error_code"] else _told(answer["cluster_authorized_operations"])


def may_acquire(work: Work) -> tuple[int, int]:
    """The same for transactional ids, of which no broker tells: one is acquired. And the time-out that the
    brokers grant."""
    for timeout_ms in TIMEOUTS_MS:
        try:
            work.open("rights", timeout_ms)
        except errors.TransactionalIdAuthorizationFailed:
            return 0, timeout_ms
        except errors.InvalidTransactionTimeout:
            if timeout_ms == TIMEOUTS_MS[-1]:
                raise
        else:
            break
    return _ALL_BITS, timeout_ms


def _told(bits: int) -> int | None:
    return None if bits == _NOT_TOLD else bits
