"""What the rules ask of the outside world: one command for each request, and the possible answers.

A rule is a generator: it yields a command and receives an answer: the command's result, `Refused`
(the cluster said no: nothing was done), or `Unknown` (no answer within the time-out: it may or may
not have been done, once or more often). The code that runs the generators (runner.py, and the model
in the tests) does not interpret answers; the rules do no waiting.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from eoslog.connector.commit.decision import Stored
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.messages import TopicPartition
from eoslog.connector.commit.names import Participant
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity

T = TypeVar("T")


class Refused(NamedTuple):
    """The cluster's no: an error code of the protocol and its text."""

    code: int
    text: str

    def __str__(self) -> str:
        return self.text


class Unknown(NamedTuple):
    """No answer within the time-out that `text` names."""

    text: str

    def __str__(self) -> str:
        return self.text


Failure = Refused | Unknown
FENCED = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""Refusals that say: somebody else has taken this transactional id over."""
Offsets = Mapping[TopicPartition, tuple[int, str]]
"""(topic, partition) -> (offset, metadata)"""


class NotOffered(NamedTuple):
    """The cluster does not keep transactions for this client (KIP-939): nothing was done."""

    text: str

    def __str__(self) -> str:
        return self.text


class Sealed(NamedTuple):
    """A participant is sealed: only `holder` can end its transaction, and no time-out does.

    `wrote` is the identity that wrote the transaction; None: nothing was open, and nothing is.
    """

    holder: ProducerIdentity
    wrote: ProducerIdentity | None


class Description(NamedTuple):
    """A transaction as its coordinator sees it (DescribeTransactions). Times in ms, by its clock."""

    state: str
    identity: ProducerIdentity
    timeout_ms: int
    start_ms: int


class Command(Generic[T]):
    """Base of the commands; T is the result's type."""


Rules = Generator[Command[Any], Any, T]


@dataclass(frozen=True)
class Acquire(Command[ProducerIdentity]):
    """InitProducerId on the sink's own id: fences older drivers, ends their open decision.

    `current`: only if this is its identity still, else refused.
    """

    name: str
    current: ProducerIdentity | None = None


@dataclass(frozen=True)
class FetchStored(Command[Stored]):
    """OffsetFetch(require_stable) of every partition of the anchor topic, each asked by its number.

    By number, because an answer for "all partitions" leaves out those that hold nothing but a
    pending offset: a first decision on its way would look like no decision. Offsets that stay pending for
    long are told by Refused(UNSTABLE_OFFSET_COMMIT), so that who asks can find out why (own.py).
    """

    group: str


@dataclass(frozen=True)
class StageOffsets(Command[None]):
    """TxnOffsetCommit in the sink's own transaction; refused if any partition is refused.

    `epochs`: leader epochs of the offsets, where they are known. `of_source`: partitions that the cluster
    does not have any more are left out and warned of; nobody can commit an offset for them.
    """

    sink: Participant
    group: str
    offsets: Offsets
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    of_source: bool = False


@dataclass(frozen=True)
class CommitOffsets(Command[None]):
    """OffsetCommit outside of any transaction."""

    group: str
    offsets: Offsets


@dataclass(frozen=True)
class End(Command[Mapping[str, "ProducerIdentity | Failure"]]):
    """EndTxn on each participant; the result holds each one's new identity or failure, by name."""

    commit: bool
    participants: tuple[Participant, ...]


@dataclass(frozen=True)
class Seal(Command[Mapping[str, "Sealed | NotOffered | Failure"]]):
    """InitProducerId with enable2Pc and keepPreparedTxn on each participant; the answers by name.

    Mind: where nothing is open any more it starts anew, and what became of the last transaction
    cannot be read afterwards. So it is never sent to a participant whose commit may have to be proven.
    """

    participants: tuple[Participant, ...]


@dataclass(frozen=True)
class AskOngoing(Command[None]):
    """ListTransactions is sent to every broker, and its answer read by the next ListOngoing that is `asked`:
    nobody waits for it, nor for its sending."""

    prefix: str


@dataclass(frozen=True)
class ListOngoing(Command[tuple[str, ...]]):
    """ListTransactions on every broker: ids in state Ongoing that start with the prefix. `asked`: the answer
    to the last AskOngoing may be taken, so what has been opened since may be missing."""

    prefix: str
    asked: bool = False


@dataclass(frozen=True)
class Describe(Command[Mapping[str, "Description | None"]]):
    """DescribeTransactions; None for an id that its coordinator does not know."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class AwaitMarkers(Command[tuple[str, ...]]):
    """DescribeTransactions until all markers of these transactions are written, which are ended; the ids of
    those whose markers have not come in time."""

    names: tuple[str, ...]


class Held(NamedTuple):
    """A participant's transaction that is open on a partition although it is committed."""

    place: TopicPartition
    participant: Participant
    coordinator_epoch: int


@dataclass(frozen=True)
class FindHeld(Command[tuple[Held, ...]]):
    """DescribeProducers: which participants are open on which of the places, markers given time to come."""

    places: tuple[TopicPartition, ...]
    participants: tuple[Participant, ...]


@dataclass(frozen=True)
class FindOwn(Command[tuple[Held, ...]]):
    """DescribeProducers of every partition of the anchor topic: where a transaction of the sink's producer
    id is open, under whatever epoch, markers given time to come."""

    name: str
    producer_id: int


@dataclass(frozen=True)
class WriteMarkers(Command[None]):
    """WriteTxnMarkers, one for each: of a commit, or of an abort."""

    held: tuple[Held, ...]
    commit: bool = True


@dataclass(frozen=True)
class TransactionVersion(Command[int]):
    """The level of transaction.version that the cluster works by; no request."""


@dataclass(frozen=True)
class Clock(Command[int]):
    """Milliseconds of a clock of this machine that goes on while a process or the machine stands still; no
    request."""


def ask(command: Command[T]) -> Rules[T | Failure]:
    """The answer, whatever it is."""
    answer: T | Failure = yield command
    return answer


def demand(command: Command[T], otherwise: str, fault: type[CommitFault] = CommitFault) -> Rules[T]:
    """The result; a failure raises `fault`: what could not be done and why."""
    answer = yield from ask(command)
    if isinstance(answer, (Refused, Unknown)):
        raise fault(f"{otherwise}: {answer}. When that is mended, start the query again")
    return answer
