"""What can go wrong on the connector's side, and what the reader of the message can do about it.

Broker error codes travel as `eoslog.protocol.errors.KafkaError`; the classes here are for all that
has no code: options, sockets, time-outs, data that is gone. Every class pickles with its message,
because Spark carries errors from Python workers to the driver.
"""

import logging


class EoslogError(Exception):
    """Base of the connector's own errors."""


class OptionError(EoslogError, ValueError):
    """An option is missing, malformed or contradicts another one; the message names it."""


class SchemaError(EoslogError, ValueError):
    """The DataFrame or the schema asked for does not fit the source or the sink."""


class BrokerUnreachable(EoslogError, ConnectionError):
    """No connection could be made within the time-out; the message names the addresses."""


class AuthenticationRefused(EoslogError):
    """Client and broker do not trust each other: credentials, certificates or mechanism. Trying again is no
    use; the message says which and holds no secret."""


class ConnectionLost(EoslogError, ConnectionError):
    """A connection broke or stayed silent: the outcome of requests under way is unknown."""


class RetriesExhausted(EoslogError, TimeoutError):
    """A retriable failure outlasted the named time-out."""


class UnsupportedByBroker(EoslogError):
    """The broker does not serve an API, or no version of it that this client speaks."""


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
    """Records of a planned range are no longer in the log, or never were.

    `earliest` and `latest` are the partition's bounds when that was found out, -1 when unknown.
    """

    def __init__(self, message: str, earliest: int = -1, latest: int = -1) -> None:
        super().__init__(message)
        self.earliest, self.latest = earliest, latest

    def __reduce__(self) -> tuple[type["OffsetsGone"], tuple[str, int, int]]:
        return type(self), (str(self), self.earliest, self.latest)


class TopicMadeAnew(EoslogError):
    """A topic of a planned range was deleted since, and another one has its name now."""


class WrongCluster(EoslogError):
    """The offsets of a checkpoint are of another cluster than the one that answers."""


class DataLoss(EoslogError):
    """A query would skip records silently, and failOnDataLoss is true."""


def report_loss(fail: bool, what: str) -> None:
    """Records a query should have read are gone: raise DataLoss, or warn where failOnDataLoss is false."""
    if fail:
        raise DataLoss(f"{what}. To go on without them, set failOnDataLoss to false")
    logging.getLogger("eoslog").warning("%s. failOnDataLoss is false: going on without them", what)
