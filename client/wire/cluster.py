"""A cluster as one client sees it: leaders of partitions, coordinators, and connections.

Two kinds of connection: shared ones for calls that send and wait (`leader`, `coordinator`), and ones that a
caller takes for a while to have several requests in flight (`take`, `give_back`).
What is known about the cluster is kept until a caller finds it wrong and calls `forget_*`.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from eoslog.client.wire.config import Address, ClientConfig
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.retry import API_TIMEOUT, Backoff, retrying
from eoslog.errors import BrokerUnreachable, ConnectionLost, EoslogError, RefusedByBroker, UnknownTopic
from eoslog.protocol import errors
from eoslog.protocol.apis import APIS, Api, ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import Given
from eoslog.protocol.typed import FIND_COORDINATOR, METADATA

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        FindCoordinatorRequestDraft,
        FindCoordinatorResponse,
        FindCoordinatorResponseCoordinator,
        MetadataRequestDraft,
        MetadataResponse,
    )


METADATA_MAX = 12  # names topics; later versions add nothing that is used here


@dataclass(frozen=True)
class TopicInfo:
    """A topic: `leaders` maps each partition to its leader's node id, -1 while there is none; `epochs` to the
    leader's epoch, -1 if the broker sends none.

    `topic_id` is in the form of Kafka's tools; None if the broker sends none. A topic that was deleted and
    created again has another one (KIP-516).
    """

    name: str
    leaders: dict[int, int]
    internal: bool = False
    topic_id: str | None = None
    epochs: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterMetadata:
    """One answer about the cluster. `errors`: codes of the topics that could not be described."""

    nodes: dict[int, Address]
    topics: dict[str, TopicInfo]
    errors: dict[str, int] = field(default_factory=dict)
    cluster_id: str | None = None


def no_partition(info: TopicInfo, partition: int) -> UnknownTopic:
    """The message about a partition that a topic does not have."""
    have = ", ".join(map(str, sorted(info.leaders)))
    return UnknownTopic(
        f"topic {info.name!r} has no partition {partition}, but {have}: check assign or the offsets given"
    )


def read_metadata(answer: MetadataResponse) -> ClusterMetadata:
    """Read a broker's answer. Raises KafkaError."""
    if answer["error_code"]:
        raise RefusedByBroker(answer["error_code"], "the broker could not answer Metadata")
    topics, errors = {}, {}
    for topic in answer["topics"]:
        name = topic["name"] or ""  # null for an unknown id alone, and none is asked for
        if topic["error_code"]:
            errors[name] = topic["error_code"]
        else:
            leaders = {p["partition_index"]: p["leader_id"] for p in topic["partitions"]}
            epochs = {p["partition_index"]: p["leader_epoch"] for p in topic["partitions"]}
            number = topic["topic_id"]
            topic_id = urlsafe_b64encode(number).decode().rstrip("=") if any(number) else None
            topics[name] = TopicInfo(name, leaders, topic["is_internal"], topic_id, epochs)
    nodes = {broker["node_id"]: (broker["host"], broker["port"]) for broker in answer["brokers"]}
    return ClusterMetadata(nodes, topics, errors, answer["cluster_id"])


T = TypeVar("T")
RequestDraft = TypeVar("RequestDraft")
Response = TypeVar("Response")

CoordinatorKind = Literal["group", "transaction"]
_KIND_CODE = {"group": 0, "transaction": 1}

_MOVED = (errors.NotCoordinator, errors.CoordinatorNotAvailable, errors.CoordinatorLoadInProgress)
_NOBODY = (ConnectionRefusedError, socket.gaierror)
"""The errors if nothing listens at an address, or no name server knows it."""
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_UNKNOWN_PATIENCE_MS = 1_000
"""How long a topic may be unknown before that is final: brokers learn of a new topic after a moment."""
_CREATION_PATIENCE_MS = 5_000
"""The same, if asking for the topic makes the broker create it."""


class Cluster:
    """Connections to one cluster. Not thread-safe: give each thread its own."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.reached = False
        self.compacted: set[str] = set()  # topics known to be compacted; see gaps.py
        self.cluster_id: str | None = None
        """From the brokers' last answer; None: not asked yet, or not in the answer."""
        self._nodes: dict[int, Address] = {}
        self._topics: dict[str, tuple[TopicInfo, float]] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], Address] = {}
        self._shared: dict[Address, BrokerConnection] = {}
        self._idle: dict[Address, list[BrokerConnection]] = {}
        self._features: dict[str, int] = {}
        self.retries = 0
        """How many requests have failed in a way that passes, and were sent again."""
        self._refused: dict[
            str, float
        ] = {}  # what this user has no optional right to, and when that was said
        self._disturbed = False
        self._asked: Address | None = None
        self._doubted: Address | None = None
        """The broker that was asked last about the cluster, and the one whose answer turned out wrong."""

    # -- optional rights ----------------------------------------------------------------------

    def may_ask(self, what: str) -> bool:
        """Whether to ask for what needs an optional right: not for kafka.metadata.max.age.ms after a refusal,
        since each is a line in the brokers' log."""
        refused = self._refused.get(what)
        return refused is None or time.monotonic() - refused > self.config.metadata_max_age_ms / 1000

    def note_right(self, what: str, *, has: bool) -> None:
        """Remember whether the brokers gave it."""
        self._refused.pop(what, None)
        if not has:
            self._refused[what] = time.monotonic()

    # -- leaders and coordinators -------------------------------------------------------------

    def metadata(self, topics: Iterable[str] | None, *, create: bool = False) -> ClusterMetadata:
        """Ask a broker about `topics` (None: all). `create`: brokers that auto-create topics may do so."""
        body: MetadataRequestDraft = {
            "topics": None if topics is None else [{"name": name} for name in topics],
            "allow_auto_topic_creation": create,
        }
        found = read_metadata(self.ask_any(METADATA, body, METADATA_MAX))
        self._nodes, self.cluster_id = found.nodes, found.cluster_id
        now = time.monotonic()
        self._topics.update({name: (info, now) for name, info in found.topics.items()})
        return found

    def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """A topic, from memory if that is fresh. Raises UnknownTopic, KafkaError, BrokerUnreachable."""
        known = self.remembered(name)
        if known is not None:
            return known
        backoff = Backoff(self.config, _CREATION_PATIENCE_MS if create else _UNKNOWN_PATIENCE_MS)
        while True:
            found = self.metadata([name], create=create)
            if name in found.topics:
                return found.topics[name]
            error = RefusedByBroker(
                found.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"topic {name}"
            )
            if error.code == ErrorCode.INVALID_TOPIC_EXCEPTION or not error.retriable:
                raise error
            if backoff.over and error.code not in _UNKNOWN:
                raise error  # it exists but is not ready: the caller knows how long to wait
            if backoff.over:
                raise UnknownTopic(
                    f"topic {name!r} does not exist on {self._names()} ({error.code.name}): "
                    "check the name, or create the topic first"
                ) from error
            backoff.pause(error)

    def remembered(self, name: str) -> TopicInfo | None:
        """A topic from metadata no older than kafka.metadata.max.age.ms; None: a broker must be asked."""
        known, since = self._topics.get(name, (None, 0.0))
        fresh = time.monotonic() - since < self.config.metadata_max_age_ms / 1000
        return known if fresh else None

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic. Asks a broker each time: a topic may have grown."""
        return sorted(self.describe(topic).leaders)

    def describe(self, topic: str) -> TopicInfo:
        """A topic. Asks a broker each time."""
        self.forget_topic(topic)
        return self.topic(topic)

    def leader_address(self, topic: str, partition: int, *, create: bool = False) -> Address:
        """The address of a partition's leader; KafkaError LEADER_NOT_AVAILABLE while there is none."""
        info = self.topic(topic, create=create)
        if partition not in info.leaders:
            info = self._grown(topic, partition)
        node = info.leaders[partition]
        if node not in self._nodes:
            self.forget_topic(topic)
            raise RefusedByBroker(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader just now"
            )
        return self._nodes[node]

    def _grown(self, topic: str, partition: int) -> TopicInfo:
        """A topic that has more partitions than is remembered: brokers learn of a new one after a moment.
        Raises UnknownTopic."""
        backoff = Backoff(self.config, _UNKNOWN_PATIENCE_MS)
        while partition not in (info := self.describe(topic)).leaders:
            missing = no_partition(info, partition)
            if backoff.over:
                raise missing
            backoff.pause(missing)
        return info

    def address(self, node: int) -> Address | None:
        """A broker's address, from the last answer about the cluster; None: it had no such broker."""
        return self._nodes.get(node)

    def leader(self, topic: str, partition: int) -> BrokerConnection:
        """The shared connection to a partition's leader."""
        return self._share(self.leader_address(topic, partition))

    def coordinator(self, kind: CoordinatorKind, key: str) -> BrokerConnection:
        """The shared connection to the coordinator of a group or a transactional id."""
        return self.coordinators(kind, [key])[key]

    def coordinators(self, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, BrokerConnection]:
        """As `coordinator`, for several keys; in one request if the broker can (FindCoordinator 4)."""
        wanted = list(keys)
        unknown = [key for key in wanted if (kind, key) not in self._coordinators]
        if unknown:
            self._find_coordinators(kind, unknown)
        return {key: self._share(self._coordinators[kind, key]) for key in wanted}

    def coordinator_address(self, kind: CoordinatorKind, key: str) -> Address:
        """The address of the coordinator of a group or a transactional id."""
        if (kind, key) not in self._coordinators:
            self._find_coordinators(kind, [key])
        return self._coordinators[kind, key]

    def brokers(self) -> list[BrokerConnection]:
        """A shared connection to every broker of the cluster."""
        self.metadata([])
        return self.known_brokers()

    def known_brokers(self) -> list[BrokerConnection]:
        """A shared connection to every broker in the last answer about the cluster."""
        return [self._share(address) for address in self.known_addresses()]

    def known_addresses(self) -> list[Address]:
        """The addresses of the brokers in the last answer about the cluster."""
        return sorted(set(self._nodes.values()))

    def any_broker(self) -> BrokerConnection:
        """A shared connection to any broker that answers."""
        return self._any()

    def transaction_version(self) -> int:
        """The finalized level of transaction.version: 2 and above means KIP-890's protocol (TV2)."""
        if not self.reached:
            self._any()
        return self._features.get("transaction.version", 0)

    # -- failures -----------------------------------------------------------------------------

    def forget_topic(self, topic: str) -> None:
        """Ask about a topic again when it is needed next."""
        self._topics.pop(topic, None)

    def forget_coordinator(self, kind: CoordinatorKind, *keys: str) -> None:
        """Look for coordinators again when they are needed next."""
        for key in keys:
            self._coordinators.pop((kind, key), None)

    def note(self, error: Exception) -> None:
        """Remember a failure after which requests in flight may not have been carried out, and after which
        another broker is to be asked: a restarted broker may return outdated metadata for a while."""
        self.retries += 1
        moved = isinstance(error, _MOVED)
        self._disturbed |= not isinstance(error, KafkaError) or moved
        if moved:
            self._doubted = self._asked
        if not isinstance(error, KafkaError):
            self._topics.clear()  # as in disturbed()

    def disturbed(self) -> bool:
        """Whether a broker was lost or a coordinator moved since the last call of this. Either a request has
        shown that, or a broker has closed an idle connection."""
        ended = [connection for connection in self._shared.values() if connection.ended]
        for connection in ended:
            connection.close()
        if ended:
            self._topics.clear()  # if a broker was started again, leaders have other epochs now
        found, self._disturbed = self._disturbed or bool(ended), False
        return found

    # -- connections --------------------------------------------------------------------------

    def take(self, address: Address) -> BrokerConnection:
        """A connection for the caller alone, until it gives it back."""
        return self.idle(address) or self._connect(address)

    def take_new(self, address: Address) -> BrokerConnection:
        """As `take`, but one that is opened now: given back it is one more that is idle."""
        return self._connect(address)

    def idle(self, address: Address) -> BrokerConnection | None:
        """As `take`, but only if an idle connection is open; else None."""
        idle = self._idle.get(address, [])
        while idle:
            connection = idle.pop()
            if not connection.closed:
                return connection
        return None

    def give_back(self, connection: BrokerConnection) -> None:
        """Keep the connection for the next taker; one with answers still to come is closed instead."""
        if connection.closed or connection.waiting:
            connection.close()
        else:
            self._idle.setdefault((connection.host, connection.port), []).append(connection)

    def close(self) -> None:
        """Close every connection that is not taken."""
        for connection in (*self._shared.values(), *(c for idle in self._idle.values() for c in idle)):
            connection.close()
        self._shared.clear()
        self._idle.clear()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _share(self, address: Address) -> BrokerConnection:
        connection = self._shared.get(address)
        if connection is None or connection.closed or connection.waiting:
            if connection is not None:
                connection.close()  # it has unread answers: it cannot be used again
            connection = self._shared[address] = self._connect(address)
        return connection

    def _connect(self, address: Address) -> BrokerConnection:
        """A new connection to a known broker. ConnectionLost if it does not answer."""
        try:
            return self._opened(BrokerConnection(*address, self.config))
        except BrokerUnreachable as error:
            raise ConnectionLost(
                f"no connection to broker {error}; the cluster gives this address: check that it can be "
                "reached from here (advertised.listeners)"
            ) from error

    def _opened(self, connection: BrokerConnection) -> BrokerConnection:
        self.reached = True
        self._features = connection.features
        return connection

    def meet(self) -> None:
        """Make first contact, at the start of a query. Raises BrokerUnreachable; if nothing listens, after
        first_contact_timeout_ms."""
        if not self.reached:
            self._any(nobody_until=time.monotonic() + self.config.first_contact_timeout_ms / 1000)

    def _any(self, nobody_until: float = math.inf) -> BrokerConnection:
        """A shared connection to any broker, but preferably not to the one whose answer was wrong. On first
        contact, tries for request_timeout_ms; if nothing listens at any address, until `nobody_until`
        (monotonic clock)."""
        usable = {at: c for at, c in self._shared.items() if not c.closed and not c.waiting}
        for address, connection in usable.items():
            if address != self._doubted:
                self._asked = address
                return connection
        backoff = Backoff(self.config, self.config.request_timeout_ms)
        addresses = list(dict.fromkeys((*self.config.bootstrap, *self._nodes.values())))
        addresses.sort(key=lambda address: address == self._doubted)
        failures: dict[Address, str] = {}
        while True:
            nobody = True
            for index, address in enumerate(addresses):
                self._asked = address
                if address in usable:
                    return usable[address]
                left = (backoff.deadline - time.monotonic()) * 1000 / (len(addresses) - index)
                try:
                    connection = BrokerConnection(*address, self.config, timeout_ms=max(1, int(left)))
                except BrokerUnreachable as error:
                    nobody = nobody and isinstance(error.__cause__, _NOBODY)
                    if address not in failures or not _ran_out(error):
                        failures[address] = str(error)  # a try cut short says less
                    continue
                self._shared[address] = self._opened(connection)
                return connection
            patience = self.config.request_timeout_ms, "kafka.request.timeout.ms"
            if nobody and time.monotonic() >= nobody_until:
                patience = self.config.first_contact_timeout_ms, "first.contact.timeout.ms"
            elif not (self.reached or backoff.over):
                backoff.pause(BrokerUnreachable("; ".join(failures.values())))
                continue
            raise BrokerUnreachable(
                f"no broker reached within {patience[0]} ms ({patience[1]}): {'; '.join(failures.values())}; "
                f"check {self.config.bootstrap_origin} and that a broker runs there"
            )

    def ask_any(
        self, api: Api[Any, RequestDraft, Response, Any], body: Given[RequestDraft], max_version: int
    ) -> Response:
        """Ask any broker that answers. An idle connection may be dead: then one more try is made."""
        try:
            return self._any().call(api, body, max_version=max_version)
        except ConnectionLost as error:
            self.note(error)
            return self._any().call(api, body, max_version=max_version)

    def _find_coordinators(self, kind: CoordinatorKind, keys: list[str]) -> None:
        connection = self._any()
        version = connection.pick(ApiKey.FIND_COORDINATOR)
        for body in _coordinator_requests(kind, keys, version):
            answer = connection.call(FIND_COORDINATOR, body, version=version)
            answers: dict[str, FindCoordinatorResponse | FindCoordinatorResponseCoordinator] = (
                {one["key"]: one for one in answer["coordinators"]} if version >= 4 else {body["key"]: answer}
            )
            for key, found in answers.items():
                if found["error_code"]:
                    what = f"no coordinator of {kind} {key!r}"
                    raise RefusedByBroker(found["error_code"], found["error_message"] or what)
                self._coordinators[kind, key] = (found["host"], found["port"])

    def _names(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self.config.bootstrap)


def _coordinator_requests(
    kind: CoordinatorKind, keys: list[str], version: int
) -> list[FindCoordinatorRequestDraft]:
    code = _KIND_CODE[kind]
    if version >= 4:
        return [{"key_type": code, "coordinator_keys": keys}]
    return [{"key": key, "key_type": code} for key in keys]


def _ran_out(error: BaseException | None) -> bool:
    """Whether the failure was caused by a time-out."""
    while error is not None and not isinstance(error, TimeoutError):
        error = error.__cause__
    return error is not None


_clusters: dict[tuple[int, int, ClientConfig], Cluster] = {}


def shared_cluster(config: ClientConfig) -> Cluster:
    """This thread's cluster for `config`, created at the first call.

    A cluster is for one thread. The process id is part of the key, because processes are forked: a child that
    used its parent's sockets would share the connection with it.
    """
    key = (os.getpid(), threading.get_ident(), config)
    cluster = _clusters.get(key)
    if cluster is None:
        cluster = _clusters[key] = Cluster(config)
    return cluster


def close_shared(config: ClientConfig) -> None:
    """Close this thread's cluster for `config`, if there is one."""
    cluster = _clusters.pop((os.getpid(), threading.get_ident(), config), None)
    if cluster is not None:
        cluster.close()


def at_coordinator(
    cluster: Cluster,
    kind: CoordinatorKind,
    key: str,
    api: ApiKey,
    attempt: Callable[[BrokerConnection], T],
    *,
    option: str = API_TIMEOUT,
    least_ms: int = 0,
) -> T:
    """The result of `attempt` at the coordinator of a group or a transactional id, which is looked up again
    if it has moved. See `retrying`."""
    return retrying(
        cluster,
        f"{APIS[api].name} of {'group ' if kind == 'group' else ''}{key!r}",
        lambda: attempt(cluster.coordinator(kind, key)),
        option=option,
        least_ms=least_ms,
        forget=lambda: cluster.forget_coordinator(kind, key),
        api=api,
    )


def ask_controller(
    cluster: Cluster,
    api: Api[Any, RequestDraft, Response, Any],
    body: Given[RequestDraft],
    failed: Callable[[Response], int],
    max_version: int | None = None,
) -> Response:
    """The controller's answer. `failed` gives an answer's first error code, which shows a wrong broker.

    Any broker of a KRaft cluster forwards the request; an older one answers NOT_CONTROLLER.
    """

    def attempt() -> Response:
        for connection in [cluster.any_broker(), *cluster.brokers()]:
            answer = connection.call(api, body, max_version=max_version)
            if failed(answer) != ErrorCode.NOT_CONTROLLER:
                return answer
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "no broker says that it is the controller")

    return retrying(cluster, api.name, attempt)


def not_allowed(what: str, right: str) -> EoslogError:
    """The error for a user who lacks a right on the cluster."""
    return EoslogError(f"{what} need the right {right} on the cluster, which this user does not have")
