"""The APIs that eoslog speaks: their keys, and from these their names and the modules of their schemas."""

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
    """Kafka's numbers of the APIs that eoslog speaks."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


@dataclass(frozen=True)
class Api(Generic[Request, RequestDraft, Response, ResponseDraft]):
    """One API: its messages, in all versions that eoslog can speak.

    `typed/apis.py` has the types of the messages, as read and as written. The schemas are in the module with
    the API's name, which is imported when the API is first used: a Spark process uses a dozen APIs.
    """

    key: ApiKey

    @cached_property
    def name(self) -> str:
        """Kafka's spelling: "InitProducerId"."""
        return "".join(word.capitalize() for word in self.key.name.split("_"))

    @cached_property
    def request(self) -> Schema[Request, RequestDraft]:
        """The schema of requests."""
        found: Schema[Request, RequestDraft] = import_module(self._module).REQUEST
        return found

    @cached_property
    def response(self) -> Schema[Response, ResponseDraft]:
        """The schema of responses."""
        found: Schema[Response, ResponseDraft] = import_module(self._module).RESPONSE
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

    @property
    def _module(self) -> str:
        return f"eoslog.protocol.messages.{self.key.name.lower()}"


APIS: dict[ApiKey, Api] = {key: Api(key) for key in ApiKey}
