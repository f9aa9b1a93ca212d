"""Calls that several commands make: to the controller, to a group's coordinator, and about all topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.retry import check, retrying
from eoslog.errors import EoslogError
from eoslog.protocol import errors
from eoslog.protocol.apis import Api
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import Given
from eoslog.protocol.typed import METADATA

if TYPE_CHECKING:
    from eoslog.protocol.typed import MetadataRequestDraft, MetadataResponsePartition


T = TypeVar("T")
RequestDraft = TypeVar("RequestDraft")
Response = TypeVar("Response")

_BY_NAME = 12  # the newest version of Metadata here; it can ask for topics by name


@dataclass(frozen=True)
class DescribedTopic:
    """A topic as Metadata describes it; `partitions` has its partitions' messages, by number."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: dict[int, MetadataResponsePartition]


def again(cluster: Cluster, what: str, attempt: Callable[[], T]) -> T:
    """The result of `attempt`, retried while its failures may be temporary. Raises KafkaError,
    RetriesExhausted.
    """
    return retrying(cluster, what, attempt, final=(errors.UnknownTopicOrPartition,))


def topics(cluster: Cluster, names: Iterable[str] | None = None) -> dict[str, DescribedTopic]:
    """The topics of these names, or all. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, which names one."""
    body: MetadataRequestDraft = {
        "topics": None if names is None else [{"name": name} for name in names],
        "allow_auto_topic_creation": False,
    }

    def attempt() -> dict[str, DescribedTopic]:
        answer = cluster.any_broker().call(METADATA, body, max_version=_BY_NAME)
        found = {}
        for topic in answer["topics"]:
            name = topic["name"] or ""  # null only for an unknown id, and this asks by name
            check(topic["error_code"], f"topic {name}")
            partitions = {part["partition_index"]: part for part in topic["partitions"]}
            found[name] = DescribedTopic(
                name, topic["topic_id"], topic["is_internal"], dict(sorted(partitions.items()))
            )
        return dict(sorted(found.items()))

    return again(cluster, "Metadata", attempt)


def ask_controller(
    cluster: Cluster,
    api: Api[Any, RequestDraft, Response, Any],
    body: Given[RequestDraft],
    failed: Callable[[Response], int],
) -> Response:
    """The controller's answer. `failed` gives an answer's first error code, which shows a wrong broker.

    Any broker of a KRaft cluster forwards the request; an older one answers NOT_CONTROLLER.
    """

    def attempt() -> Response:
        for connection in [cluster.any_broker(), *cluster.brokers()]:
            answer = connection.call(api, body)
            if failed(answer) != ErrorCode.NOT_CONTROLLER:
                return answer
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "no broker says that it is the controller")

    return again(cluster, api.name, attempt)


def not_allowed(what: str, right: str) -> EoslogError:
    """The error for a user who lacks a right on the cluster."""
    return EoslogError(f"{what} need the right {right} on the cluster, which this user does not have")


def at_coordinator(cluster: Cluster, group: str, what: str, attempt: Callable[[BrokerConnection], T]) -> T:
    """The result of `attempt` at a group's coordinator, which is looked up again if it has moved."""
    return retrying(
        cluster,
        f"{what} of group {group}",
        lambda: attempt(cluster.coordinator("group", group)),
        forget=lambda: cluster.forget_coordinator("group", group),
    )
