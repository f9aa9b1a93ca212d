"""The one table of Kafka's error codes: what each means, and what the side that gets it can do."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple


class ErrorKind(Enum):
    """What can be done after an error, and what happens to the transaction of a transactional producer."""

    NONE = "none"
    RETRIABLE = "retriable"
    """The same request may succeed later or at another broker, and doing it again is safe."""
    ABORTABLE = "abortable"
    """This request cannot succeed; its transaction must be aborted, then the producer can continue."""
    FATAL = "fatal"
    """Neither helps: the caller must stop or change the request."""


_NONE, _RETRY, _ABORT, _FATAL = ErrorKind


class ErrorCode(IntEnum):
    """Kafka's error codes by name; each carries its kind and a short meaning."""

    kind: ErrorKind
    meaning: str

    def __new__(cls, code: int, kind: ErrorKind = ErrorKind.FATAL, meaning: str = "") -> ErrorCode:
        """Make a member of the table. `ErrorCode(3)` looks one up; ValueError for an unknown code."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.kind = kind
        member.meaning = meaning
        return member

    UNKNOWN_SERVER_ERROR = -1, _FATAL, "the broker failed in a way it has no name for; its log has more"
    NONE = 0, _NONE, "no error"
    OFFSET_OUT_OF_RANGE = 1, _FATAL, "the offset lies outside what the partition still holds"
    CORRUPT_MESSAGE = 2, _RETRY, "a batch is damaged: its CRC is wrong, or it is no valid batch"
    UNKNOWN_TOPIC_OR_PARTITION = (
        3,
        _RETRY,
        "the broker does not have this topic or partition (not yet, or no longer)",
    )
    INVALID_FETCH_SIZE = 4, _FATAL, "the fetch size makes no sense"
    LEADER_NOT_AVAILABLE = 5, _RETRY, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, _RETRY, "the broker asked does not lead (or follow) this partition"
    REQUEST_TIMED_OUT = 7, _RETRY, "the broker could not finish within the request's time-out"
    BROKER_NOT_AVAILABLE = 8, _FATAL, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, _RETRY, "the replica is not available for this partition"
    MESSAGE_TOO_LARGE = 10, _ABORT, "a batch is larger than max.message.bytes allows"
    STALE_CONTROLLER_EPOCH = 11, _FATAL, "another controller has taken over"
    OFFSET_METADATA_TOO_LARGE = 12, _ABORT, "the metadata string of a committed offset is too long"
    NETWORK_EXCEPTION = 13, _RETRY, "the connection was lost before the answer came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, _RETRY, "the coordinator is still reading its log"
    COORDINATOR_NOT_AVAILABLE = 15, _RETRY, "the coordinator is not available yet"
    NOT_COORDINATOR = 16, _RETRY, "the broker asked does not coordinate this group or transactional id"
    INVALID_TOPIC_EXCEPTION = 17, _FATAL, "the topic name is not legal, or the topic is internal"
    RECORD_LIST_TOO_LARGE = 18, _ABORT, "a batch is larger than a log segment"
    NOT_ENOUGH_REPLICAS = (
        19,
        _RETRY,
        "fewer replicas are in sync than min.insync.replicas asks for; nothing was written",
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        _RETRY,
        "written, but to fewer replicas than min.insync.replicas asks for",
    )
    INVALID_REQUIRED_ACKS = 21, _FATAL, "acks must be -1, 0 or 1"
    ILLEGAL_GENERATION = 22, _ABORT, "the group has moved on to another generation"
    INCONSISTENT_GROUP_PROTOCOL = 23, _FATAL, "the member's protocols do not fit those of the group"
    INVALID_GROUP_ID = 24, _FATAL, "the group id is not legal"
    UNKNOWN_MEMBER_ID = 25, _ABORT, "the group does not know this member"
    INVALID_SESSION_TIMEOUT = 26, _FATAL, "the session time-out is outside the broker's limits"
    REBALANCE_IN_PROGRESS = 27, _FATAL, "the group is rebalancing; the member has to join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, _FATAL, "the offsets to commit take too many bytes"
    TOPIC_AUTHORIZATION_FAILED = 29, _ABORT, "no permission for this topic"
    GROUP_AUTHORIZATION_FAILED = 30, _ABORT, "no permission for this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, _FATAL, "no permission for this operation on the cluster"
    INVALID_TIMESTAMP = 32, _ABORT, "a record's timestamp is too far from the broker's time"
    UNSUPPORTED_SASL_MECHANISM = 33, _FATAL, "the broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, _FATAL, "this request has no place in the present state of the SASL exchange"
    UNSUPPORTED_VERSION = 35, _FATAL, "the broker does not speak this version of the API"
    TOPIC_ALREADY_EXISTS = 36, _FATAL, "a topic of this name exists already"
    INVALID_PARTITIONS = 37, _FATAL, "the number of partitions is not legal"
    INVALID_REPLICATION_FACTOR = (
        38,
        _FATAL,
        "the replication factor is not legal, or there are too few brokers for it",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, _FATAL, "the assignment of replicas is not legal"
    INVALID_CONFIG = 40, _FATAL, "a configuration key or value is not legal"
    NOT_CONTROLLER = 41, _RETRY, "the broker asked is not the controller"
    INVALID_REQUEST = 42, _FATAL, "the request contradicts itself or the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, _FATAL, "the partition's message format cannot do this"
    POLICY_VIOLATION = 44, _FATAL, "a policy of the cluster forbids this"
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        _ABORT,
        "a batch's sequence number does not follow the producer's last one; a batch may be missing",
    )
    DUPLICATE_SEQUENCE_NUMBER = 46, _FATAL, "a batch of this sequence number was already written"
    INVALID_PRODUCER_EPOCH = (
        47,
        _FATAL,
        "the producer's epoch is old: a newer instance took over, or its transaction timed out",
    )
    INVALID_TXN_STATE = 48, _FATAL, "the transaction is not in a state that allows this"
    INVALID_PRODUCER_ID_MAPPING = 49, _FATAL, "the producer id is not the one of this transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, _FATAL, "the transaction time-out is outside the broker's limits"
    CONCURRENT_TRANSACTIONS = 51, _RETRY, "the last operation on this transactional id has not ended yet"
    TRANSACTION_COORDINATOR_FENCED = 52, _FATAL, "a newer coordinator has taken over this transaction"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, _FATAL, "no permission for this transactional id"
    SECURITY_DISABLED = 54, _FATAL, "the cluster has no security switched on"
    OPERATION_NOT_ATTEMPTED = 55, _ABORT, "not tried, because another part of the same request failed"
    KAFKA_STORAGE_ERROR = 56, _RETRY, "the broker's disk failed"
    LOG_DIR_NOT_FOUND = 57, _FATAL, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, _FATAL, "wrong credentials"
    UNKNOWN_PRODUCER_ID = 59, _ABORT, "the partition remembers nothing of this producer id"
    REASSIGNMENT_IN_PROGRESS = 60, _FATAL, "the partition is being moved"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, _FATAL, "the cluster has no delegation tokens switched on"
    DELEGATION_TOKEN_NOT_FOUND = 62, _FATAL, "no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, _FATAL, "the token belongs to someone else"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        _FATAL,
        "tokens cannot be asked for over this kind of connection",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, _FATAL, "no permission for this delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, _FATAL, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, _FATAL, "this type of principal is not supported"
    NON_EMPTY_GROUP = 68, _FATAL, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, _ABORT, "no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, _RETRY, "the broker does not know this fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, _RETRY, "the fetch session is at another epoch"
    LISTENER_NOT_FOUND = 72, _RETRY, "the leader has no listener of the name the client used"
    TOPIC_DELETION_DISABLED = 73, _FATAL, "the cluster does not allow deleting topics"
    FENCED_LEADER_EPOCH = 74, _RETRY, "the client's leader epoch is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, _RETRY, "the client's leader epoch is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        _FATAL,
        "this version of the API cannot carry the partition's compression",
    )
    STALE_BROKER_EPOCH = 77, _FATAL, "the broker has registered again since then"
    OFFSET_NOT_AVAILABLE = 78, _RETRY, "the new leader does not know its high watermark yet"
    MEMBER_ID_REQUIRED = 79, _FATAL, "join again with the member id given in the answer"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _RETRY, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, _FATAL, "the group is full"
    FENCED_INSTANCE_ID = 82, _ABORT, "another member has taken over this group.instance.id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _RETRY, "no replica may become leader"
    ELECTION_NOT_NEEDED = 84, _RETRY, "the partition has the right leader already"
    NO_REASSIGNMENT_IN_PROGRESS = 85, _FATAL, "the partition is not being moved"
    GROUP_SUBSCRIBED_TO_TOPIC = (
        86,
        _FATAL,
        "the group is subscribed to this topic, its offsets cannot be deleted",
    )
    INVALID_RECORD = 87, _ABORT, "a record breaks a rule of the topic; nothing of the batch was written"
    UNSTABLE_OFFSET_COMMIT = (
        88,
        _RETRY,
        "offsets of an open transaction are pending; ask again when it has ended",
    )
    THROTTLING_QUOTA_EXCEEDED = 89, _RETRY, "a quota is used up; ask again later"
    PRODUCER_FENCED = 90, _FATAL, "a newer instance with the same transactional id has taken over"
    RESOURCE_NOT_FOUND = 91, _FATAL, "no such resource"
    DUPLICATE_RESOURCE = 92, _FATAL, "the request names the same resource twice"
    UNACCEPTABLE_CREDENTIAL = 93, _FATAL, "the new credential is not acceptable"
    INCONSISTENT_VOTER_SET = 94, _FATAL, "sender and receiver do not agree on the voters"
    INVALID_UPDATE_VERSION = 95, _FATAL, "the feature version is not legal"
    FEATURE_UPDATE_FAILED = 96, _FATAL, "the features could not be changed"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, _FATAL, "the principal of a forwarded request could not be read"
    SNAPSHOT_NOT_FOUND = 98, _FATAL, "no such snapshot"
    POSITION_OUT_OF_RANGE = 99, _FATAL, "the position is outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, _RETRY, "the broker has no topic of this id (deleted, or created again)"
    DUPLICATE_BROKER_REGISTRATION = 101, _FATAL, "another broker has registered under this id"
    BROKER_ID_NOT_REGISTERED = 102, _FATAL, "no broker has registered under this id"
    INCONSISTENT_TOPIC_ID = 103, _RETRY, "the topic's id in the log and in the request differ"
    INCONSISTENT_CLUSTER_ID = 104, _FATAL, "the cluster id in the request is another cluster's"
    TRANSACTIONAL_ID_NOT_FOUND = 105, _FATAL, "the coordinator knows nothing of this transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, _RETRY, "the fetch session mixes topic names and topic ids"
    INELIGIBLE_REPLICA = 107, _FATAL, "a replica may not be in the ISR"
    NEW_LEADER_ELECTED = 108, _FATAL, "changed, but the partition has a new leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, _FATAL, "the offset has been moved to tiered storage"
    FENCED_MEMBER_EPOCH = (
        110,
        _FATAL,
        "the member's epoch is fenced; it has to give up its partitions and join again",
    )
    UNRELEASED_INSTANCE_ID = 111, _FATAL, "this group.instance.id still belongs to another member"
    UNSUPPORTED_ASSIGNOR = 112, _FATAL, "the group does not offer this assignor"
    STALE_MEMBER_EPOCH = 113, _ABORT, "the member's epoch is old; its next heartbeat brings the new one"
    MISMATCHED_ENDPOINT_TYPE = 114, _FATAL, "the request reached the wrong kind of endpoint"
    UNSUPPORTED_ENDPOINT_TYPE = 115, _FATAL, "this kind of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, _FATAL, "no such controller"
    UNKNOWN_SUBSCRIPTION_ID = 117, _FATAL, "the telemetry subscription is not the current one"
    TELEMETRY_TOO_LARGE = 118, _FATAL, "the telemetry is too large"
    INVALID_REGISTRATION = 119, _FATAL, "the controller refuses the broker's registration"
    TRANSACTION_ABORTABLE = (
        120,
        _ABORT,
        "the transaction cannot be committed; after an abort the transactional id can be used again",
    )
    INVALID_RECORD_STATE = 121, _FATAL, "the record is not in a state that allows this acknowledgement"
    SHARE_SESSION_NOT_FOUND = 122, _RETRY, "no such share session"
    INVALID_SHARE_SESSION_EPOCH = 123, _RETRY, "the share session is at another epoch"
    FENCED_STATE_EPOCH = 124, _FATAL, "the state epoch is fenced"
    INVALID_VOTER_KEY = 125, _FATAL, "the voter's key is not the receiver's"
    DUPLICATE_VOTER = 126, _FATAL, "it is a voter already"
    VOTER_NOT_FOUND = 127, _FATAL, "it is no voter"
    INVALID_REGULAR_EXPRESSION = 128, _FATAL, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = (
        129,
        _FATAL,
        "the client's metadata is useless; it has to start from its bootstrap servers again",
    )
    STREAMS_INVALID_TOPOLOGY = 130, _FATAL, "the topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, _FATAL, "the topology's epoch is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, _FATAL, "the topology's epoch is old"
    SHARE_SESSION_LIMIT_REACHED = 133, _RETRY, "the broker has too many share sessions"
    GROUP_DELETION_FAILED = 134, _FATAL, "a group could not be deleted; its own message says why"
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = (
        135,
        _FATAL,
        "the topology description could not be changed; the message says why",
    )
    CONTROLLER_ID_NOT_REGISTERED = 136, _FATAL, "no such controller has registered"


class ErrorInfo(NamedTuple):
    """One row of the table."""

    code: int
    name: str
    kind: ErrorKind
    retriable: bool
    meaning: str


def info(code: int) -> ErrorInfo:
    """The row of `code`. A code of newer brokers that is missing in this table counts as fatal."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return ErrorInfo(
            code, f"ERROR_{code}", ErrorKind.FATAL, False, "an error code that is not known here"
        )
    return ErrorInfo(code, known.name, known.kind, known.kind is ErrorKind.RETRIABLE, known.meaning)
