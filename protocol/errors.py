"""Kafka's error codes as exceptions: each has a class of its name, as `errors.UnstableOffsetCommit`.

The table of the codes is exported here too: code that raises an error names its code.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from eoslog.protocol.error_codes import ErrorCode, ErrorInfo, ErrorKind, info

__all__ = ["ErrorCode", "ErrorInfo", "ErrorKind", "KafkaError", "info"]


class KafkaError(Exception):
    """An error code as an exception, with what failed and where in `message`. Can be pickled.

    As OSError does with numbers, `KafkaError(code, message)` makes an instance of the code's own class. A
    subclass that is not for one code makes an instance of both classes. A code missing in the table becomes
    UNKNOWN_SERVER_ERROR, and the message has its number.
    """

    code: ErrorCode
    message: str
    _made_as: ClassVar[type[KafkaError]]

    def __new__(cls, code: int, *_: object) -> Self:
        """Make an instance, also of the class of its code."""
        made: Any = cls
        both: type[Self] = _both(made, _known(code))
        return super().__new__(both)

    def __init__(self, code: int, message: str = "") -> None:
        self.code = _known(code)
        if self.code != code:
            message = f"error code {code}: {message}" if message else f"error code {code}"
        self.message = message
        super().__init__(self.code, message)

    def __reduce__(self) -> tuple[Any, ...]:
        """Make it again as it was made: a class that joins two classes cannot be found by name."""
        return (self._made_as, *super().__reduce__()[1:])

    def __str__(self) -> str:
        where = f"{self.message}: " if self.message else ""
        return f"{where}{self.code.name} ({int(self.code)}): {self.code.meaning}"

    @property
    def kind(self) -> ErrorKind:
        """What can be done after the error."""
        return self.code.kind

    @property
    def retriable(self) -> bool:
        """Whether the same request may be sent again."""
        return self.code.kind is ErrorKind.RETRIABLE


KafkaError._made_as = KafkaError


def _known(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


@cache
def class_of(code: ErrorCode) -> type[KafkaError]:
    """The class of a code, made on first use: a process meets only a few codes."""
    name = "".join(word.capitalize() for word in code.name.split("_"))
    return type(name, (KafkaError,), {"__module__": __name__, "__doc__": code.meaning})


@cache
def _both(cls: Any, code: ErrorCode) -> Any:
    """The class of an error with this code that is made by calling `cls`."""
    own = class_of(code)
    if issubclass(own, cls) or issubclass(cls, own):
        return own if cls is KafkaError else cls
    named = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls, own), {**named, "_made_as": cls})


if TYPE_CHECKING:  # the classes of all codes but NONE
    # fmt: off
    UnknownServerError: type[KafkaError]
    OffsetOutOfRange: type[KafkaError]
    CorruptMessage: type[KafkaError]
    UnknownTopicOrPartition: type[KafkaError]
    InvalidFetchSize: type[KafkaError]
    LeaderNotAvailable: type[KafkaError]
    NotLeaderOrFollower: type[KafkaError]
    RequestTimedOut: type[KafkaError]
    BrokerNotAvailable: type[KafkaError]
    ReplicaNotAvailable: type[KafkaError]
    MessageTooLarge: type[KafkaError]
    StaleControllerEpoch: type[KafkaError]
    OffsetMetadataTooLarge: type[KafkaError]
    NetworkException: type[KafkaError]
    CoordinatorLoadInProgress: type[KafkaError]
    CoordinatorNotAvailable: type[KafkaError]
    NotCoordinator: type[KafkaError]
    InvalidTopicException: type[KafkaError]
    RecordListTooLarge: type[KafkaError]
    NotEnoughReplicas: type[KafkaError]
    NotEnoughReplicasAfterAppend: type[KafkaError]
    InvalidRequiredAcks: type[KafkaError]
    IllegalGeneration: type[KafkaError]
    InconsistentGroupProtocol: type[KafkaError]
    InvalidGroupId: type[KafkaError]
    UnknownMemberId: type[KafkaError]
    InvalidSessionTimeout: type[KafkaError]
    RebalanceInProgress: type[KafkaError]
    InvalidCommitOffsetSize: type[KafkaError]
    TopicAuthorizationFailed: type[KafkaError]
    GroupAuthorizationFailed: type[KafkaError]
    ClusterAuthorizationFailed: type[KafkaError]
    InvalidTimestamp: type[KafkaError]
    UnsupportedSaslMechanism: type[KafkaError]
    IllegalSaslState: type[KafkaError]
    UnsupportedVersion: type[KafkaError]
    TopicAlreadyExists: type[KafkaError]
    InvalidPartitions: type[KafkaError]
    InvalidReplicationFactor: type[KafkaError]
    InvalidReplicaAssignment: type[KafkaError]
    InvalidConfig: type[KafkaError]
    NotController: type[KafkaError]
    InvalidRequest: type[KafkaError]
    UnsupportedForMessageFormat: type[KafkaError]
    PolicyViolation: type[KafkaError]
    OutOfOrderSequenceNumber: type[KafkaError]
    DuplicateSequenceNumber: type[KafkaError]
    InvalidProducerEpoch: type[KafkaError]
    InvalidTxnState: type[KafkaError]
    InvalidProducerIdMapping: type[KafkaError]
    InvalidTransactionTimeout: type[KafkaError]
    ConcurrentTransactions: type[KafkaError]
    TransactionCoordinatorFenced: type[KafkaError]
    TransactionalIdAuthorizationFailed: type[KafkaError]
    SecurityDisabled: type[KafkaError]
    OperationNotAttempted: type[KafkaError]
    KafkaStorageError: type[KafkaError]
    LogDirNotFound: type[KafkaError]
    SaslAuthenticationFailed: type[KafkaError]
    UnknownProducerId: type[KafkaError]
    ReassignmentInProgress: type[KafkaError]
    DelegationTokenAuthDisabled: type[KafkaError]
    DelegationTokenNotFound: type[KafkaError]
    DelegationTokenOwnerMismatch: type[KafkaError]
    DelegationTokenRequestNotAllowed: type[KafkaError]
    DelegationTokenAuthorizationFailed: type[KafkaError]
    DelegationTokenExpired: type[KafkaError]
    InvalidPrincipalType: type[KafkaError]
    NonEmptyGroup: type[KafkaError]
    GroupIdNotFound: type[KafkaError]
    FetchSessionIdNotFound: type[KafkaError]
    InvalidFetchSessionEpoch: type[KafkaError]
    ListenerNotFound: type[KafkaError]
    TopicDeletionDisabled: type[KafkaError]
    FencedLeaderEpoch: type[KafkaError]
    UnknownLeaderEpoch: type[KafkaError]
    UnsupportedCompressionType: type[KafkaError]
    StaleBrokerEpoch: type[KafkaError]
    OffsetNotAvailable: type[KafkaError]
    MemberIdRequired: type[KafkaError]
    PreferredLeaderNotAvailable: type[KafkaError]
    GroupMaxSizeReached: type[KafkaError]
    FencedInstanceId: type[KafkaError]
    EligibleLeadersNotAvailable: type[KafkaError]
    ElectionNotNeeded: type[KafkaError]
    NoReassignmentInProgress: type[KafkaError]
    GroupSubscribedToTopic: type[KafkaError]
    InvalidRecord: type[KafkaError]
    UnstableOffsetCommit: type[KafkaError]
    ThrottlingQuotaExceeded: type[KafkaError]
    ProducerFenced: type[KafkaError]
    ResourceNotFound: type[KafkaError]
    DuplicateResource: type[KafkaError]
    UnacceptableCredential: type[KafkaError]
    InconsistentVoterSet: type[KafkaError]
    InvalidUpdateVersion: type[KafkaError]
    FeatureUpdateFailed: type[KafkaError]
    PrincipalDeserializationFailure: type[KafkaError]
    SnapshotNotFound: type[KafkaError]
    PositionOutOfRange: type[KafkaError]
    UnknownTopicId: type[KafkaError]
    DuplicateBrokerRegistration: type[KafkaError]
    BrokerIdNotRegistered: type[KafkaError]
    InconsistentTopicId: type[KafkaError]
    InconsistentClusterId: type[KafkaError]
    TransactionalIdNotFound: type[KafkaError]
    FetchSessionTopicIdError: type[KafkaError]
    IneligibleReplica: type[KafkaError]
    NewLeaderElected: type[KafkaError]
    OffsetMovedToTieredStorage: type[KafkaError]
    FencedMemberEpoch: type[KafkaError]
    UnreleasedInstanceId: type[KafkaError]
    UnsupportedAssignor: type[KafkaError]
    StaleMemberEpoch: type[KafkaError]
    MismatchedEndpointType: type[KafkaError]
    UnsupportedEndpointType: type[KafkaError]
    UnknownControllerId: type[KafkaError]
    UnknownSubscriptionId: type[KafkaError]
    TelemetryTooLarge: type[KafkaError]
    InvalidRegistration: type[KafkaError]
    TransactionAbortable: type[KafkaError]
    InvalidRecordState: type[KafkaError]
    ShareSessionNotFound: type[KafkaError]
    InvalidShareSessionEpoch: type[KafkaError]
    FencedStateEpoch: type[KafkaError]
    InvalidVoterKey: type[KafkaError]
    DuplicateVoter: type[KafkaError]
    VoterNotFound: type[KafkaError]
    InvalidRegularExpression: type[KafkaError]
    RebootstrapRequired: type[KafkaError]
    StreamsInvalidTopology: type[KafkaError]
    StreamsInvalidTopologyEpoch: type[KafkaError]
    StreamsTopologyFenced: type[KafkaError]
    ShareSessionLimitReached: type[KafkaError]
    GroupDeletionFailed: type[KafkaError]
    StreamsTopologyDescriptionUpdateFailed: type[KafkaError]
    ControllerIdNotRegistered: type[KafkaError]
    # fmt: on
else:

    def __getattr__(name: str) -> type[KafkaError]:
        code = ErrorCode.__members__.get(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper())
        if code is None or class_of(code).__name__ != name:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return class_of(code)
