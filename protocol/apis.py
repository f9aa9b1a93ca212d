"""The APIs that eoslog speaks: their keys, and from these their names and the files of their schemas."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic

from eoslog.protocol.schema import Schema

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Request = TypeVar("Request", default=Any)
    RequestDraft = TypeVar("RequestDraft", default=Any)
    Response = TypeVar("Response", default=Any)
    ResponseDraft = TypeVar("ResponseDraft", default=Any)
else:
    from typing import TypeVar

    Request, RequestDraft = TypeVar("Request"), TypeVar("RequestDraft")
    Response, ResponseDraft = TypeVar("Response"), TypeVar("ResponseDraft")


class ApiKey(IntEnum):
    """Kafka's numbers of the APIs that eoslog speaks, and the files of `messages/` with their schemas."""

    file: str

    def __new__(cls, key: int, file: str = "") -> ApiKey:
        """Make a member of the table. `ApiKey(3)` looks one up; ValueError for a key that is not spoken."""
        member = int.__new__(cls, key)
        member._value_ = key
        member.file = file
        return member

    PRODUCE = 0, "records"
    FETCH = 1, "records"
    LIST_OFFSETS = 2, "records"
    METADATA = 3, "cluster"
    OFFSET_COMMIT = 8, "offsets"
    OFFSET_FETCH = 9, "offsets"
    FIND_COORDINATOR = 10, "cluster"
    JOIN_GROUP = 11, "groups"
    HEARTBEAT = 12, "groups"
    LEAVE_GROUP = 13, "groups"
    SYNC_GROUP = 14, "groups"
    DESCRIBE_GROUPS = 15, "groups"
    LIST_GROUPS = 16, "groups"
    SASL_HANDSHAKE = 17, "connections"
    API_VERSIONS = 18, "connections"
    CREATE_TOPICS = 19, "topics"
    DELETE_TOPICS = 20, "topics"
    DELETE_RECORDS = 21, "records"
    INIT_PRODUCER_ID = 22, "transactions"
    OFFSET_FOR_LEADER_EPOCH = 23, "records"
    ADD_PARTITIONS_TO_TXN = 24, "transactions"
    ADD_OFFSETS_TO_TXN = 25, "transactions"
    END_TXN = 26, "transactions"
    WRITE_TXN_MARKERS = 27, "transactions"
    TXN_OFFSET_COMMIT = 28, "transactions"
    DESCRIBE_ACLS = 29, "access"
    CREATE_ACLS = 30, "access"
    DELETE_ACLS = 31, "access"
    DESCRIBE_CONFIGS = 32, "configs"
    ALTER_CONFIGS = 33, "configs"
    ALTER_REPLICA_LOG_DIRS = 34, "cluster"
    DESCRIBE_LOG_DIRS = 35, "cluster"
    SASL_AUTHENTICATE = 36, "connections"
    CREATE_PARTITIONS = 37, "topics"
    DELETE_GROUPS = 42, "groups"
    ELECT_LEADERS = 43, "cluster"
    INCREMENTAL_ALTER_CONFIGS = 44, "configs"
    ALTER_PARTITION_REASSIGNMENTS = 45, "cluster"
    LIST_PARTITION_REASSIGNMENTS = 46, "cluster"
    OFFSET_DELETE = 47, "offsets"
    DESCRIBE_CLIENT_QUOTAS = 48, "configs"
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, "access"
    ALTER_USER_SCRAM_CREDENTIALS = 51, "access"
    DESCRIBE_QUORUM = 55, "cluster"
    UPDATE_FEATURES = 57, "cluster"
    DESCRIBE_CLUSTER = 60, "cluster"
    DESCRIBE_PRODUCERS = 61, "transactions"
    DESCRIBE_TRANSACTIONS = 65, "transactions"
    LIST_TRANSACTIONS = 66, "transactions"
    CONSUMER_GROUP_HEARTBEAT = 68, "groups"
    CONSUMER_GROUP_DESCRIBE = 69, "groups"
    LIST_CONFIG_RESOURCES = 74, "configs"
    DESCRIBE_TOPIC_PARTITIONS = 75, "topics"


@dataclass(frozen=True)
class Api(Generic[Request, RequestDraft, Response, ResponseDraft]):
    """One API: its messages, in all versions that eoslog can speak.

    `typed.pyi` has the types of the messages, as read and as written. A file of schemas is imported when one
    of its APIs is first used: a Spark process uses a dozen APIs.
    """

    key: ApiKey

    @cached_property
    def name(self) -> str:
        """Kafka's spelling: "InitProducerId"."""
        return "".join(word.capitalize() for word in self.key.name.split("_"))

    @cached_property
    def request(self) -> Schema[Request, RequestDraft]:
        """The schema of requests."""
        found: Schema[Request, RequestDraft] = self._schema("REQUEST")
        return found

    @cached_property
    def response(self) -> Schema[Response, ResponseDraft]:
        """The schema of responses."""
        found: Schema[Response, ResponseDraft] = self._schema("RESPONSE")
        return found

    @property
    def min_version(self) -> int:
        """The lowest version that eoslog can speak."""
        return self.request.versions.first

    @property
    def max_version(self) -> int:
        """The highest version that eoslog can speak."""
        return self.request.versions.last

    @cached_property
    def flexible_from(self) -> int:
        """The first version with compact lengths and tagged fields (KIP-482)."""
        return self.request.flexible_from

    def _schema(self, of: str) -> Any:
        return getattr(import_module(f"eoslog.protocol.messages.{self.key.file}"), f"{self.key.name}_{of}")


APIS: dict[ApiKey, Api] = {key: Api(key) for key in ApiKey}
