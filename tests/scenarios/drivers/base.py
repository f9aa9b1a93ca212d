"""What a scenario may ask of a client. Each stock client has a driver that answers it with its own means.

Errors of a client come out as `Refused` with Kafka's name of the error, so that scenarios can compare them.
Times are in milliseconds where the name says so, else in seconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from eoslog.protocol.errors import ErrorCode

TIMEOUT = 20.0
"""Seconds that any one call of a client may take."""

SESSION_MS = 2_000
HEARTBEAT_MS = 200


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True)
class Record:
    """What a consumer sees. `timestamp` in ms; `headers` as (name, value or None)."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = -1


@dataclass(frozen=True)
class GroupView:
    """A group as an admin client describes it; `members` maps client ids to what they are assigned."""

    state: str
    protocol: str
    members: Mapping[str, frozenset[Place]]


@dataclass(frozen=True)
class TransactionView:
    """A transaction as an admin client describes it."""

    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    places: frozenset[Place]


class Refused(Exception):
    """The client said no. `name`: Kafka's name of the error, or the client's own if it never left it."""

    def __init__(self, name: str, text: str = "") -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


def name_of(code: int) -> str:
    """Kafka's name of an error code."""
    return ErrorCode(code).name


class Delivery(ABC):
    """What becomes of one record that was sent."""

    @abstractmethod
    def result(self, timeout: float = TIMEOUT) -> tuple[int, int]:
        """Partition and offset. Raises Refused."""


class Closing(ABC):
    """Something of a client that must be closed."""

    @abstractmethod
    def close(self) -> None:
        """Free it; says goodbye to the broker where the client does so."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Producer(Closing):
    """A producer; the five calls of a transaction need a transactional id."""

    @abstractmethod
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
        """Hand a record to the client."""

    @abstractmethod
    def flush(self) -> None:
        """Wait until every record handed over is answered."""

    @abstractmethod
    def init(self) -> None:
        """Make the transactional id this producer's."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction."""

    @abstractmethod
    def commit(self) -> None:
        """Commit it. Raises Refused."""

    @abstractmethod
    def abort(self) -> None:
        """Abort it. Raises Refused."""

    @abstractmethod
    def send_offsets(self, offsets: Mapping[Place, int], consumer: Consumer) -> None:
        """Commit a group's offsets in the transaction, as the member that `consumer` is."""


class Consumer(Closing):
    """A consumer, with or without a group."""

    patience = 0.05
    """Seconds a poll should be given while members of a group are polled in turn."""

    @abstractmethod
    def assign(self, positions: Mapping[Place, int | None]) -> None:
        """Read these partitions from these offsets (None: from what is committed, else auto.offset.reset)."""

    @abstractmethod
    def subscribe(self, topics: list[str]) -> None:
        """Read these topics as a member of the group."""

    @abstractmethod
    def poll(self, timeout: float = 0.2) -> list[Record]:
        """Records that are there, or come within the time-out. Raises Refused."""

    @abstractmethod
    def assignment(self) -> frozenset[Place]:
        """What the group gave this member."""

    @abstractmethod
    def commit(self, offsets: Mapping[Place, int]) -> None:
        """Commit offsets of the group. Raises Refused."""

    @abstractmethod
    def committed(self, places: Iterable[Place]) -> dict[Place, int | None]:
        """What the group has committed, None where nothing."""

    @abstractmethod
    def position(self, place: Place) -> int:
        """The next offset to read."""

    @abstractmethod
    def seek(self, place: Place, offset: int) -> None:
        """Go on from there."""

    @abstractmethod
    def pause(self, place: Place) -> None:
        """Deliver nothing of it until `resume`."""

    @abstractmethod
    def resume(self, place: Place) -> None:
        """Deliver it again."""

    @abstractmethod
    def ends(self, place: Place) -> tuple[int, int]:
        """First offset and end as this consumer's isolation level sees it."""

    @abstractmethod
    def at_time(self, place: Place, timestamp: int) -> int | None:
        """First offset with that timestamp (ms) or a later one; None if there is none."""


class Admin(Closing):
    """Administration. What a client's admin does not have raises AttributeError: scenarios name what they
    need (see `Client.features`)."""

    @abstractmethod
    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replicas: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Make a topic. Raises Refused."""

    @abstractmethod
    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises Refused."""

    @abstractmethod
    def topics(self) -> set[str]:
        """Names of all topics."""

    @abstractmethod
    def partitions(self, topic: str) -> list[int]:
        """Numbers of a topic's partitions. Raises Refused for an unknown one."""

    @abstractmethod
    def cluster(self) -> tuple[str, int, list[tuple[int, int]]]:
        """Cluster id, controller, and (id, port) of each node."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the admin client of {type(self).__name__} has no {name}")


class Client(ABC):
    """A stock client: makes the three things above."""

    name: str
    features: frozenset[str]
    """What not every client has: see the names in `FEATURES`."""
    fenced: frozenset[str]
    """Names of the errors by which this client says that another producer has taken its place."""

    @abstractmethod
    def producer(self, bootstrap: str, **options: Any) -> Producer:
        """A producer. Options: transactional_id, idempotent (default True), acks, compression,
        transaction_timeout_ms, delivery_timeout_ms, linger_ms (of those with record-errors)."""

    @abstractmethod
    def consumer(self, bootstrap: str, **options: Any) -> Consumer:
        """A consumer. Options: group, committed (True: read_committed), reset (earliest or latest), strategy,
        instance, protocol (classic or consumer), client_id, session_ms, assignor (of protocol consumer)."""

    @abstractmethod
    def admin(self, bootstrap: str) -> Admin:
        """An admin client."""


FEATURES = {
    "roundrobin": "group strategy roundrobin",
    "sticky": "group strategy sticky",
    "cooperative-sticky": "group strategy cooperative-sticky (KIP-429)",
    "static": "static members (KIP-345)",
    "static-fencing": "says who it is in heartbeats and commits too, so that a static member can be fenced",
    "group-metadata": "says which member it is when it commits offsets in a transaction (KIP-447)",
    "consumer-protocol": "group.protocol=consumer (KIP-848)",
    "configs": "describe and alter configs of topics",
    "broker-configs": "describe and alter the configs of a broker",
    "version": "infers the broker's version from its APIs",
    "create-partitions": "add partitions to a topic",
    "delete-records": "delete the records before an offset",
    "groups": "list, describe and delete groups",
    "group-offsets": "read a group's offsets as admin",
    "alter-offsets": "alter a group's offsets as admin",
    "delete-offsets": "delete a group's offsets as admin",
    "list-offsets": "list offsets as admin",
    "transactions": "list and describe transactions, describe producers, abort a transaction (KIP-664)",
    "null-headers": "headers without a value",
    "log-dirs": "describe log directories",
    "features": "describe features",
    "quorum": "describe the metadata quorum",
    "elect": "elect leaders",
    "reassign": "list reassignments",
    "fence": "fence producers as admin (KIP-360)",
    "remove-members": "remove members from a group as admin",
    "record-errors": "says which records of a refused batch were wrong (KIP-467)",
    "late-timestamps": "list the offset of the largest timestamp (KIP-734)",
}
"""What only some clients have, by name."""
