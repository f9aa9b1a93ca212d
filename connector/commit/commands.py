"""What the rules ask of the outside world: one command for each request, and the possible answers.

A rule is a generator. It yields a command and receives an answer: the command's result, `Refused` (the
cluster refused, and nothing was done), or `Unknown` (no answer within the time-out: the command may have been
carried out once, more than once or not at all). The code that runs the generators (runner.py, and the model
in the tests) does not interpret answers. The rules do not wait.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from eoslog.connector.commit.decision import (
    Stored,
    following,
    lacks_chunks,
    newest_of,
    of_newest,
)
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.places import PartitionState, Place, Places, Seen
from eoslog.connector.commit.saved_state import Saved, Saving, TaskContents, Written
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition

T = TypeVar("T")


class Refused(NamedTuple):
    """The cluster refused: the protocol's error code and its text."""

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
"""Refusals that mean: another client has taken over this transactional id."""
Offsets = Mapping[TopicPartition, tuple[int, str]]
"""(topic, partition) -> (offset, metadata)"""
Staged = tuple[tuple[str, tuple[TopicPartition, ...]], ...]
"""Groups, and the partitions of which offsets are staged."""


class NotOffered(NamedTuple):
    """The cluster does not offer this client two-phase commit (KIP-939): nothing was done."""

    text: str

    def __str__(self) -> str:
        return self.text


class Sealed(NamedTuple):
    """A participant is sealed: only `holder` can end its transaction, and it does not time out.

    `wrote`: the identity that wrote the transaction. None: no transaction was open, and none is.
    """

    holder: ProducerIdentity
    wrote: ProducerIdentity | None


class Description(NamedTuple):
    """A transaction as its coordinator sees it (DescribeTransactions). Times in ms, by its clock. `places`:
    where it has written; if it has ended, where its markers are due. `elsewhere`, of a sink's own id: who had
    it last keeps decisions on another topic than this driver (run/runner.py). `used`, of the same: the sink
    had decided when it was acquired."""

    state: str
    identity: ProducerIdentity
    timeout_ms: int
    start_ms: int
    places: tuple[TopicPartition, ...] = ()
    elsewhere: bool = False
    used: bool = False


class Listed(NamedTuple):
    """Transactional ids. `ongoing`: with an open transaction; `due`: one that has ended, and its markers are
    not written everywhere."""

    ongoing: tuple[str, ...]
    due: tuple[str, ...] = ()


class Command(Generic[T]):
    """Base of the commands; T is the result's type."""


Rules = Generator[Command[Any], Any, T]


@dataclass(frozen=True)
class Acquire(Command[ProducerIdentity]):
    """InitProducerId on the sink's own id: fences older drivers and ends their open decision.

    `current`: refused unless this is still the id's identity. `used`: as in Description, which keeps it
    until the next Acquire.
    """

    name: str
    current: ProducerIdentity | None = None
    used: bool = False


@dataclass(frozen=True)
class FetchStored(Command[Stored]):
    """OffsetFetch(require_stable) of every partition of the anchor topic, each requested by its number.

    By number, because an answer for "all partitions" leaves out partitions that have only a pending offset: a
    first decision on its way would look like no decision. If offsets stay pending for long, the answer is
    Refused(UNSTABLE_OFFSET_COMMIT), so that the rules can find out why (sink_transaction.py). `everywhere`:
    also on which other topics the group has decisions; for when the sink is acquired and nothing is pending.
    `stable` False: what was committed last, whatever is pending.
    """

    group: str
    everywhere: bool = False
    stable: bool = True


@dataclass(frozen=True)
class GroupExists(Command[bool]):
    """DescribeGroups: whether the cluster has the group, also if it shows this user none of its offsets."""

    group: str


@dataclass(frozen=True)
class StageOffsets(Command[None]):
    """TxnOffsetCommit in the sink's own transaction; refused if any partition is refused.

    `epochs`: leader epochs of the offsets, where known. `of_source`: these are source offsets; partitions
    that the cluster no longer has are left out with a warning, because it takes no offset for them.
    """

    sink: Participant
    group: str
    offsets: Offsets
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    of_source: bool = False


@dataclass(frozen=True)
class SaveState(Command[Written]):
    """Records in the sink's own transaction, as of the query's state. `last`: the query's last save."""

    sink: Participant
    saving: Saving
    last: Saved | None
    contents: TaskContents


@dataclass(frozen=True)
class CommitOffsets(Command[None]):
    """OffsetCommit outside of any transaction."""

    group: str
    offsets: Offsets


@dataclass(frozen=True)
class End(Command[Mapping[str, "ProducerIdentity | Failure"]]):
    """EndTxn on each participant. The result has each one's new identity or failure, by name."""

    commit: bool
    participants: tuple[Participant, ...]


@dataclass(frozen=True)
class Seal(Command[Mapping[str, "Sealed | NotOffered | Failure"]]):
    """InitProducerId with enable2Pc and keepPreparedTxn on each participant. The result has answers by name.

    If no transaction is open, this request starts the id afresh, and the last transaction's outcome can no
    longer be read. So it is never sent to a participant whose commit may have to be proven.
    """

    participants: tuple[Participant, ...]


@dataclass(frozen=True)
class AskOngoing(Command[None]):
    """Send ListTransactions to every broker without waiting. The next ListOngoing with `asked` reads the
    answers."""

    prefix: str


@dataclass(frozen=True)
class ListOngoing(Command[Listed]):
    """ListTransactions on every broker: ids that start with the prefix, of transactions that readers wait
    for. `asked`: the answers to the last AskOngoing will do, so what was opened since may be missing."""

    prefix: str
    asked: bool = False


@dataclass(frozen=True)
class Describe(Command[Mapping[str, "Description | None"]]):
    """DescribeTransactions; None for an id that its coordinator does not know."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class AwaitMarkers(Command[tuple[str, ...]]):
    """DescribeTransactions until all markers of these transactions, which have ended, are written. The result
    has the ids of transactions whose markers were not written in time."""

    names: tuple[str, ...]


class HeldBack(NamedTuple):
    """A participant's transaction that a partition still has open although it has ended."""

    place: TopicPartition
    participant: Participant
    coordinator_epoch: int


@dataclass(frozen=True)
class FindHeld(Command[tuple[HeldBack, ...]]):
    """DescribeProducers: where participants are open. Partitions are asked again until late markers have had
    time to arrive."""

    places: tuple[TopicPartition, ...]
    participants: tuple[Participant, ...]


@dataclass(frozen=True)
class FindOwn(Command[tuple[HeldBack, ...]]):
    """DescribeProducers of every partition of the anchor topic: where a transaction of the sink's producer id
    is open, under any epoch. Partitions are asked again until late markers have had time to arrive."""

    name: str
    producer_id: int


@dataclass(frozen=True)
class AskOpen(Command[None]):
    """Send DescribeProducers and ListOffsets to the partitions' leaders without waiting, and OffsetFetch to
    the groups' coordinators. The next FindOpen and FindSettled read the answers."""

    places: tuple[TopicPartition, ...]
    staged: Staged = ()


@dataclass(frozen=True)
class FindOpen(Command[Mapping[TopicPartition, PartitionState]]):
    """DescribeProducers and ListOffsets: where each log begins, and which transactions are open there.
    `late`: brokers that let nobody end a transaction on a partition alone are asked for those, too."""

    places: tuple[TopicPartition, ...]
    late: bool = False


@dataclass(frozen=True)
class FindSettled(Command[tuple[str, ...]]):
    """OffsetFetch(require_stable) of offsets that are staged: the groups of which none is pending any more.
    Brokers that let nobody end a transaction on a partition alone are not asked."""

    staged: Staged


@dataclass(frozen=True)
class WriteMarkers(Command[None]):
    """WriteTxnMarkers: a commit or an abort marker for each held transaction."""

    held: tuple[HeldBack, ...]
    commit: bool = True


@dataclass(frozen=True)
class LookAt(Command[Mapping[Place, Seen]]):
    """Fetch at places in the log: how the transactions have ended that have written there."""

    places: Places


@dataclass(frozen=True)
class FindBehind(Command[tuple[str, ...]]):
    """Fetch behind these places: rows of the sink that readers see there, a text for each partition. `since`:
    its run that has written there; only its rows and those of later runs count."""

    sink: str
    places: Places
    since: ProducerIdentity


@dataclass(frozen=True)
class FindTopics(Command[Mapping[str, "str | None"]]):
    """Metadata: the id of each of these topics that there is. None: brokers report no ids."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class TransactionVersion(Command[int]):
    """The level of transaction.version that is in effect on the cluster; no request."""


@dataclass(frozen=True)
class ReadClock(Command[int]):
    """Milliseconds of a clock of this machine that also runs while a process or the machine is suspended; no
    request."""


Perform = Callable[[Command[Any]], Any]
"""Carries a command out. Returns its answer."""
Around = Callable[[Perform, Command[Any]], Any]
"""Has a command carried out, and does something of its own before or after."""


def run_rules(rules: Rules[T], perform: Perform, *around: Around) -> T:
    """Run the rules to their end; each command goes through `around`, the first one outermost, to `perform`.
    Returns the rules' result, and raises what they raise."""
    for one in reversed(around):
        perform = partial(one, perform)
    answer: Any = None
    while True:
        try:
            command = rules.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result
        answer = perform(command)


def ask(command: Command[T]) -> Rules[T | Failure]:
    """The answer: the result or a failure."""
    answer: T | Failure = yield command
    return answer


def look_up(group: str, everywhere: bool = False, *, stable: bool = True) -> Rules["Stored | Failure"]:
    """FetchStored of a sink's group; and, for a decision that had no room there, of those that follow it."""
    first = yield from ask(FetchStored(group, everywhere, stable))
    while not isinstance(first, (Refused, Unknown)):
        chunks, number = dict(first.chunks), 1
        while lacks_chunks(chunks):
            more = yield from ask(FetchStored(following(group, number), stable=stable))
            if isinstance(more, Refused) and more.code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                return Unknown(str(more))  # what the sink's group alone says does not hold for this one
            if isinstance(more, (Refused, Unknown)):
                return more
            found = of_newest(chunks, more.chunks)
            if not found:
                break
            chunks |= {number * more.anchors + at: chunk for at, chunk in found.items()}
            number += 1
        if not lacks_chunks(chunks):
            return first._replace(chunks=chunks)
        again = yield from ask(FetchStored(group, everywhere, stable))
        if isinstance(again, Stored) and newest_of(again.chunks) == newest_of(chunks):
            return first._replace(chunks=chunks)  # it is damaged, which decode says
        first = again  # another driver has decided since
    return first


def demand(command: Command[T], otherwise: str, fault: type[CommitFault] = CommitFault) -> Rules[T]:
    """The result. Raises `fault` for a failure: what could not be done and why."""
    answer = yield from ask(command)
    if isinstance(answer, (Refused, Unknown)):
        raise fault(f"{otherwise}: {answer}. Fix that, then start the query again")
    return answer
