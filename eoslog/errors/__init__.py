"""The errors of the client and of the connector, and what the reader of a message can do about each.

A broker's error code is raised as `RefusedByBroker`. The other classes are for errors without a code:
options, sockets, time-outs, lost data. Every class pickles with its message, because Spark sends errors from
Python workers to the driver.
"""

import logging

from eoslog.errors.pages import see
from eoslog.protocol.errors import ErrorCode, KafkaError

__all__ = [
    "AuthenticationRefused",
    "BrokerUnreachable",
    "ConnectionLost",
    "DataLoss",
    "EoslogError",
    "OffsetsGone",
    "OptionError",
    "ProduceFailed",
    "RefusedByBroker",
    "RetriesExhausted",
    "SchemaError",
    "ShadowLost",
    "TopicRecreated",
    "UnknownTopic",
    "UnsupportedByBroker",
    "WrongCluster",
]


class EoslogError(Exception):
    """Base of the errors that have no code of a broker."""


class OptionError(EoslogError, ValueError):
    """An option is missing, malformed or contradicts another one; the message names it."""


class SchemaError(EoslogError, ValueError):
    """The DataFrame, or the given schema, does not fit the source or the sink."""


class BrokerUnreachable(EoslogError, ConnectionError):
    """No connection could be made within the time-out; the message names the addresses."""


class AuthenticationRefused(EoslogError):
    """Credentials, certificates or mechanism are refused, and another try would not help. The message says
    which, and contains no secret."""


class ConnectionLost(EoslogError, ConnectionError):
    """A connection broke or stayed silent: the outcome of its requests in flight is unknown."""


class RetriesExhausted(EoslogError, TimeoutError):
    """A retriable failure lasted longer than the named time-out."""


class UnsupportedByBroker(EoslogError):
    """The broker does not serve an API, or no version of it that this client supports."""


_SUGGEST = "(eoslog acls suggest prints all rights that a query with its options needs)"
ADVICE: dict[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the client's user needs the rights Read and Describe on topics "
    "that are read, Write and Describe on those that are written, and, for a sink, Read on "
    "__consumer_offsets, or on another topic that decision.topic names if the cluster hides that one "
    f"{_SUGGEST}",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the client's user needs the right Read on the group of "
    "kafka.group.id, and a sink on the group that has the name of its transactional.id, on "
    "<transactional.id>/offsets unless commit.source.offsets=false, and, for a batch of very many tasks or "
    "topics, on groups that begin with <transactional.id>/ "
    f"{_SUGGEST}",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the client's user needs the right Write on its "
    "transactional.id and on those that begin with <transactional.id>/; with write.token on those that begin "
    f"with <transactional.id>: {_SUGGEST}",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the client's user needs a right on the cluster: see the "
    "operation in this message",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "lower kafka.transaction.timeout.ms, or have the brokers' "
    "transaction.max.timeout.ms raised",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "a sink needs 4096 characters: have the brokers' "
    "offset.metadata.max.bytes raised",
    ErrorCode.MESSAGE_TOO_LARGE: "raise the topic's max.message.bytes, lower kafka.batch.size, or send "
    "smaller rows",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise the topic's segment.bytes or lower kafka.batch.size",
    ErrorCode.INVALID_TIMESTAMP: "see the topic's message.timestamp.type and message.timestamp.after.max.ms",
    ErrorCode.INVALID_RECORD: "see the topic's cleanup.policy: compacted topics need keys",
    ErrorCode.INVALID_PRODUCER_EPOCH: "another producer took over, or the transaction timed out "
    "(kafka.transaction.timeout.ms); start the query again",
    ErrorCode.PRODUCER_FENCED: "another run uses the same transactional.id: stop one of the two",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "check the topic's name",
    ErrorCode.UNSUPPORTED_VERSION: "the brokers are too old for this, or it is switched off there",
    ErrorCode.KAFKA_STORAGE_ERROR: "a broker's disk failed: see its log",
    ErrorCode.UNKNOWN_SERVER_ERROR: "see the broker's log; then start the query again",
}
"""What a user of Spark can do about a broker's refusal. Codes that pass by themselves have no advice."""


class RefusedByBroker(KafkaError):
    """A broker refused a request. The message says which, for what, why, and what to do."""

    def __str__(self) -> str:
        advice = ADVICE.get(self.code)
        return f"{super().__str__()}; {advice}" if advice else super().__str__()


class ShadowLost(EoslogError):
    """The query that a stream shadows was set back: its batches are not the shadow's any more."""


class UnknownTopic(EoslogError):
    """The broker does not know a topic (or a partition of it)."""


class ProduceFailed(EoslogError):
    """Records were refused; the message names topic-partition, size and the broker's reason."""

    def __init__(self, message: str, topic: str = "", partition: int = -1, code: int = -1) -> None:
        super().__init__(message)
        self.topic, self.partition, self.code = topic, partition, code

    def __reduce__(self) -> tuple[type["ProduceFailed"], tuple[str, str, int, int]]:
        return type(self), (str(self), self.topic, self.partition, self.code)


class OffsetsGone(EoslogError):
    """Records of a planned range are not in the log.

    `earliest`, `latest`: the partition's bounds at that time, -1 if unknown. `behind`: the first offset after
    records that are missing in the middle of the log, else -1.
    """

    def __init__(self, message: str, earliest: int = -1, latest: int = -1, behind: int = -1) -> None:
        super().__init__(message)
        self.earliest, self.latest, self.behind = earliest, latest, behind

    def __reduce__(self) -> tuple[type["OffsetsGone"], tuple[str, int, int, int]]:
        return type(self), (str(self), self.earliest, self.latest, self.behind)


class TopicRecreated(EoslogError):
    """A topic of a planned range has been deleted, and another topic has its name now."""


class WrongCluster(EoslogError):
    """The offsets of a checkpoint are not of the cluster that answers."""


class DataLoss(EoslogError):
    """A query would skip records silently, and failOnDataLoss is true."""


def report_loss(fail: bool, what: str) -> None:
    """Records that a query should have read are gone: raise DataLoss, or warn if failOnDataLoss is false."""
    if fail:
        raise DataLoss(
            f"{what}. To continue with the records that are there (of a topic that was created again: from "
            "its beginning), set failOnDataLoss to false"
        )
    logging.getLogger("eoslog").warning(
        f"%s. failOnDataLoss is false: continuing without them. {see('dataloss')}", what
    )
