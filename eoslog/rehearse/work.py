"""What a rehearsal finds out, a row for each promise, and its work on the cluster under scratch names."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NamedTuple, TypeVar

import pyarrow as pa

from eoslog.client.admin import groups, transaction_states, transactions
from eoslog.client.admin.topics import EARLIEST, LATEST, list_offsets
from eoslog.client.records.fetch import fetch
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.errors import ProduceFailed
from eoslog.protocol.encode import encode_batches
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition

# -- rows ------------------------------------------------------------------------------------------
# What a rehearsal finds out: a row for each promise that the commit protocol relies on. Pure.


class Verdict(Enum):
    """Whether a promise holds. NOTE: nothing depends on it, but it is good to know."""

    HOLDS = "holds"
    NOTE = "note"
    FAILS = "fails"
    UNKNOWN = "unknown"


class Row(NamedTuple):
    """One promise: its name, the verdict, what was seen, and what to do."""

    name: str
    verdict: Verdict
    what: str
    do: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """The row for programs."""
        return {
            "row": self.name,
            "verdict": self.verdict.value,
            "what": self.what,
            "do": list(self.do),
        }

    def lines(self) -> Iterable[str]:
        """The row for people."""
        yield f"{self.verdict.value:7}  {self.name}: {self.what}"
        yield from (f"         {line}" for line in self.do)


class DoesNotHold(Exception):
    """A check has seen a promise broken. `do`: what to do about it, a line each."""

    def __init__(self, what: str, *do: str) -> None:
        super().__init__(what)
        self.do = do


class NotFoundOut(Exception):
    """A check could not see whether a promise holds."""


ALL_HOLD, SOME_FAIL, NOT_FOUND_OUT = 0, 1, 2


def exit_status(rows: Iterable[Row]) -> int:
    """0 all holds, 1 something does not, 2 something could not be found out."""
    found = {row.verdict for row in rows}
    if Verdict.FAILS in found:
        return SOME_FAIL
    return NOT_FOUND_OUT if Verdict.UNKNOWN in found or not found else ALL_HOLD


def summary(rows: Iterable[Row]) -> str:
    """How many rows have which verdict."""
    verdicts = [row.verdict for row in rows]
    words = {
        Verdict.HOLDS: "hold",
        Verdict.FAILS: "do not hold",
        Verdict.UNKNOWN: "could not be found out",
        Verdict.NOTE: "to note",
    }
    counts = ((verdicts.count(verdict), text) for verdict, text in words.items())
    return ", ".join(f"{count} {text}" for count, text in counts if count)


# -- work ------------------------------------------------------------------------------------------
# What the checks do on the cluster, under scratch names: transactions, rows, offsets, and looks at them.


PREFIX = "eoslog-rehearsal-"
"""How the names of every rehearsal begin: rights can be given for it once."""


class NotOurs(Exception):
    """A name that this rehearsal did not make: it must not be touched."""


class ScratchNames(NamedTuple):
    """The names of the run `token`, which no other run has."""

    token: str

    @property
    def stem(self) -> str:
        """What every name of this run is, or begins with, before a full stop."""
        return f"{PREFIX}{self.token}"

    def name(self, word: str) -> str:
        """The topic, group or transactional id of one check."""
        return f"{self.stem}.{word}"

    def sink(self, word: str) -> Sink:
        """The sink of one check."""
        return Sink(self.name(word))

    def check(self, name: str) -> str:
        """The name. Raises NotOurs if it is not one of this run."""
        if not name.startswith(f"{self.stem}."):
            raise NotOurs(f"{name} is not a name of the rehearsal {self.stem}")
        return name


T = TypeVar("T")

PARTITIONS = (0, 1)
TIMEOUTS_MS = (60_000, 15_000, 5_000, 2_000)
"""Time-outs of scratch transactions: the first that the brokers grant (transaction.max.timeout.ms)."""
PATIENCE_S = 10.0
"""How long markers may take until rows that are committed can be read."""
_LOOK_S = 0.02
_BATCH_BYTES = 1 << 16


@dataclass(frozen=True)
class Work:
    """One run's cluster and names. `patience_s`: how long to wait for what has to come. `timeout_ms`: of its
    transactions. `decisions`: the topic that keeps decisions (option decision.topic)."""

    cluster: Cluster
    names: ScratchNames
    patience_s: float = PATIENCE_S
    timeout_ms: int = TIMEOUTS_MS[0]
    decisions: str = ANCHOR

    @property
    def place(self) -> TopicPartition:
        """Where probes keep offsets: on the topic that keeps decisions."""
        return self.decisions, 0

    def open(self, word: str, timeout_ms: int | None = None) -> Participant:
        """Acquire a transactional id; nothing is open yet. Raises KafkaError."""
        name = self.names.check(word if word.startswith(self.names.stem) else self.names.name(word))
        timeout_ms = timeout_ms or self.timeout_ms
        return Participant(name, transactions.init_producer_id(self.cluster, name, timeout_ms))

    def write(self, who: Participant, place: TopicPartition, rows: Sequence[str]) -> None:
        """Write rows in the transaction, a batch each, and wait for every answer. Raises ProduceFailed,
        KafkaError."""
        with self.producer(who) as producer:
            self.send(producer, place, rows)

    def producer(self, who: Participant) -> Producer:
        """A producer of the transaction, which counts on from batch to batch."""
        return Producer(self.cluster, identity=who.identity, transactional_id=self.names.check(who.name))

    def send(self, producer: Producer, place: TopicPartition, rows: Sequence[str]) -> None:
        """As `write`, by a producer that goes on."""
        topic, partition = self.names.check(place[0]), place[1]
        for row in rows:
            values, now_ms = pa.array([row.encode()], pa.binary()), int(time.time() * 1000)
            (batch,) = encode_batches(None, values, None, now_ms, codec=0, max_batch_bytes=_BATCH_BYTES)
            producer.send(topic, partition, batch)
        producer.flush()

    def end(self, who: Participant, *, commit: bool) -> ProducerIdentity:
        """EndTxn. Raises KafkaError."""
        return transactions.end_txn(self.cluster, self.names.check(who.name), who.identity, commit)

    def stage(self, who: Participant, group: str, offsets: dict[TopicPartition, tuple[int, str]]) -> None:
        """TxnOffsetCommit. Raises KafkaError."""
        name, group = self.names.check(who.name), self.names.check(group)
        transactions.commit_offsets(self.cluster, name, who.identity, group, offsets)

    def offset(self, group: str, place: TopicPartition) -> tuple[int, str] | None:
        """A group's committed offset and metadata. Raises StillPending while a transaction is about to change
        it, once patience is over."""
        found = groups.fetch_committed(
            self.cluster, group, [place], require_stable=True, pending_ms=self.patience_s * 1000
        )
        return found.get(place)

    def describe(self, name: str) -> transaction_states.TransactionDescription | None:
        """The coordinator's description of a transactional id."""
        return transaction_states.describe(self.cluster, [name])[name]

    def rows(self, topic: str, *, committed: bool = True) -> Counter[str]:
        """The rows that a reader sees now, and how often each. Raises what fetch raises."""
        places = [(topic, partition) for partition in PARTITIONS]
        starts = list_offsets(self.cluster, dict.fromkeys(places, EARLIEST), committed=False)
        ends = list_offsets(self.cluster, dict.fromkeys(places, LATEST), committed=committed)
        found: Counter[str] = Counter()
        for place in places:
            if starts[place] >= ends[place]:
                continue
            read = partial(fetch, self.cluster, *place, starts[place], ends[place], committed=committed)
            for records in read():
                found.update(value.decode() for value in records.value.to_pylist())
        return found

    def held(self, topic: str) -> dict[TopicPartition, tuple[int, int]]:
        """The partitions where readers of committed data are held back: last stable offset and end."""
        wanted = dict.fromkeys(((topic, partition) for partition in PARTITIONS), LATEST)
        stable = list_offsets(self.cluster, wanted, committed=True)
        ends = list_offsets(self.cluster, wanted, committed=False)
        return {place: (stable[place], ends[place]) for place in wanted if stable[place] < ends[place]}

    def ongoing(self, prefix: str) -> tuple[str, ...]:
        """Transactional ids with this prefix whose transaction is open."""
        found = transaction_states.list_transactions(self.cluster, self.names.check(prefix), ["Ongoing"])
        return tuple(one.transactional_id for one in found)

    def check_readable(self, topic: str, when: str = "every transaction has ended") -> None:
        """Wait until nothing holds readers back. Raises DoesNotHold."""
        held = until(lambda: self.held(topic), lambda found: not found, self.patience_s)
        if held:
            (name, number), (stable, end) = next(iter(held.items()))
            raise DoesNotHold(
                f"{when}: readers are held back on {len(held)} of {len(PARTITIONS)} partitions for more than "
                f"{self.patience_s:g} s (last stable offset of {name}-{number}: {stable}, its end: {end}). A "
                "marker is missing, or is not seen"
            )

    def check_rows(self, topic: str, expected: Iterable[str], when: str) -> None:
        """Raise DoesNotHold unless a reader of committed data sees exactly these rows, each once."""
        found, wanted = self.rows(topic), Counter(expected)
        lost, extra = wanted - found, found - wanted
        if lost or extra:
            parts = [f"{sum(lost.values())} of {sum(wanted.values())} rows are missing"] if lost else []
            parts += [f"{sum(extra.values())} rows too many can be read ({min(extra)!r})"] if extra else []
            raise DoesNotHold(f"{when}: {' and '.join(parts)}")


def until(look: Callable[[], T], good: Callable[[T], bool], seconds: float) -> T:
    """Look until it is good, or the time is over. Returns what was seen last."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if good(seen) or time.monotonic() >= deadline:
            return seen
        time.sleep(_LOOK_S)


FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""With what a cluster may refuse a producer that has been replaced, or whose transaction has ended."""


def refused(attempt: Callable[[], object], what: str) -> str:
    """The name of the error with which the cluster refused what it must refuse. Raises DoesNotHold if it did
    it, and what else the attempt raises."""
    try:
        attempt()
    except (KafkaError, ProduceFailed) as error:
        if error.code not in FENCED:
            raise
        return ErrorCode(error.code).name
    raise DoesNotHold(what)
