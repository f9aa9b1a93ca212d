"""What the commit protocol relies on, one promise at a time, each with a topic of its own.

A probe returns what it saw, or raises DoesNotHold. What the client raises says whether a promise is broken,
or unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from eoslog.client.admin.groups import StillPending
from eoslog.client.admin.transaction_states import TransactionDescription
from eoslog.connector.commit.commands import Description, NotOffered, Refused, Seal, Unknown, ask
from eoslog.connector.commit.decision import METADATA_LIMIT
from eoslog.connector.commit.finish import is_aborted
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.connector.run.runner import Runner
from eoslog.errors import (
    AuthenticationRefused,
    BrokerUnreachable,
    ConnectionLost,
    EoslogError,
    ProduceFailed,
    RetriesExhausted,
)
from eoslog.protocol.batch import CorruptBatch
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import NEVER_MS, ProducerIdentity
from eoslog.protocol.schema import ProtocolError
from eoslog.rehearse.work import PARTITIONS, DoesNotHold, NotFoundOut, Row, Verdict, Work, refused, until

ROWS = ["first", "second"]
OPEN, COMMITTED, ABORTED = ("Ongoing",), ("CompleteCommit",), ("CompleteAbort", "Empty")


class Probe(NamedTuple):
    """A promise, and how to see whether it holds. `word`: of its scratch names. `optional`: eoslog does
    without it, so a cluster that does not offer it does not fail."""

    name: str
    word: str
    look: Callable[[Work, str], str]


def written(work: Work, word: str, rows: list[str] = ROWS) -> tuple[Participant, str]:
    """A transaction with rows on both partitions, and its topic."""
    topic, who = work.names.name(word), work.open(word)
    for partition in PARTITIONS:
        work.write(who, (topic, partition), [f"{row} of {partition}" for row in rows])
    return who, topic


def both(rows: list[str] = ROWS) -> list[str]:
    """The rows that `written` has written."""
    return [f"{row} of {partition}" for partition in PARTITIONS for row in rows]


def open_rows_are_hidden(work: Work, word: str) -> str:
    """A reader of committed data sees nothing of an open transaction."""
    who, topic = written(work, word)
    held = work.held(topic)
    if len(held) < len(PARTITIONS):
        raise DoesNotHold(
            f"the last stable offset is the end on {len(PARTITIONS) - len(held)} partitions where a "
            "transaction is open"
        )
    work.check_rows(topic, [], "a transaction is open")
    work.end(who, commit=False)
    return "nothing of an open transaction can be read, the last stable offset waits for it"


def committed_rows_are_readable(work: Work, word: str) -> str:
    """After a commit every row can be read on every partition, and nothing is held back."""
    who, topic = written(work, word)
    work.end(who, commit=True)
    work.check_readable(topic)
    work.check_rows(topic, both(), "a transaction was committed")
    return f"each row once, on each of {len(PARTITIONS)} partitions; a marker on each"


def aborted_rows_stay_hidden(work: Work, word: str) -> str:
    """After an abort no row can be read, and nothing is held back; rows that come after it are refused."""
    who, topic = work.open(word), work.names.name(word)
    with work.producer(who) as producer:
        for partition in PARTITIONS:
            work.send(producer, (topic, partition), ROWS)
        work.end(who, commit=False)
        work.check_readable(topic)
        work.check_rows(topic, [], "a transaction was aborted")
        late = partial(work.send, producer, (topic, 0), ["late"])  # the next in sequence
        code = refused(late, "a row that came after the abort of its transaction was taken")
    new = work.open(word)
    work.write(new, (topic, 0), ["of the next one"])
    work.end(new, commit=True)
    work.check_readable(topic)
    work.check_rows(topic, ["of the next one"], "a row came after the abort of its transaction")
    return f"no row of an aborted transaction can be read, and it holds nobody back; late rows: {code}"


def retries_are_written_once(work: Work, word: str) -> str:
    """A batch that is sent again under the same sequence numbers is in the log once."""
    who, topic = written(work, word)
    for partition in PARTITIONS:  # a producer that knows of no answer begins with the same sequence number
        work.write(who, (topic, partition), [f"{row} of {partition}" for row in ROWS])
    work.end(who, commit=True)
    work.check_readable(topic)
    work.check_rows(topic, both(), "a batch was sent twice, as after a lost answer")
    return "a batch that was sent twice is in the log once"


def replaced_producer_cannot_write(work: Work, word: str) -> str:
    """A producer that was replaced can neither write, nor commit offsets, nor end the transaction of its
    successor."""
    idle = work.open(word)
    old, topic = written(work, word)
    group = work.names.name(f"{word}-group")
    new = work.open(word)
    if len({idle.identity, old.identity, new.identity}) < 3:
        raise DoesNotHold(
            f"a new producer of {new.name} got the identity of an older one: {idle.identity}, "
            f"{old.identity}, {new.identity}"
        )
    _after_replaced(work, topic)
    work.write(new, (topic, 0), ["of the new one"])
    what = "a producer that was replaced"
    codes = {
        refused(lambda: work.write(old, (topic, 0), ["of the old one"]), f"{what} could still write"),
        refused(partial(work.stage, old, group, {work.place: (1, "")}), f"{what} could still stage offsets"),
        refused(lambda: work.end(old, commit=True), f"{what} could still commit"),
    }
    work.end(new, commit=True)
    work.check_readable(topic)
    work.check_rows(topic, ["of the new one"], f"{what} tried to write")
    return f"it can neither write, nor commit, nor stage offsets ({', '.join(sorted(codes))})"


def _after_replaced(work: Work, topic: str) -> None:
    """InitProducerId must have aborted what the old producer had open."""
    work.check_readable(topic)
    work.check_rows(topic, [], "a new producer has replaced one with an open transaction")


def new_producer_aborts(work: Work, word: str) -> str:
    """InitProducerId ends what a dead producer left: rows and offsets."""
    who, topic = written(work, word)
    group = work.names.name(f"{word}-group")
    work.stage(who, group, {work.place: (7, "never")})
    work.open(word)
    _after_replaced(work, topic)
    found = stored_offset(work, group, "its transaction was aborted")
    if found is not None:
        raise DoesNotHold(f"offset {found[0]} of an aborted transaction counts as committed")
    return "its rows and offsets are aborted when the next producer comes"


def offsets_commit_with_it(work: Work, word: str) -> str:
    """Offsets and their metadata count when their transaction is committed, as a whole, and not before."""
    who = work.open(word)
    group, metadata = work.names.name(word), "m" * METADATA_LIMIT
    work.stage(who, group, {work.place: (5, metadata)})
    try:
        found = replace(work, patience_s=0.0).offset(group, work.place)
    except StillPending:
        pass
    else:
        seen = "not told to be pending" if found is None else "visible"
        raise DoesNotHold(
            f"the offset of an open transaction is {seen}: nobody sees that a decision is on its way"
        )
    work.end(who, commit=True)
    found = stored_offset(work, group, "its transaction was committed")
    if found != (5, metadata):
        seen = "gone" if found is None else f"{found[0]} with {len(found[1])} characters"
        raise DoesNotHold(f"offset 5 with {METADATA_LIMIT} characters was committed, and is {seen}")
    return f"pending until the end, then there, with {METADATA_LIMIT} characters of metadata"


def stored_offset(work: Work, group: str, when: str) -> tuple[int, str] | None:
    """The group's offset, when nothing is pending. Raises DoesNotHold if that does not come to pass."""
    try:
        return work.offset(group, work.place)
    except StillPending as pending:
        raise DoesNotHold(f"an offset stays pending although {when}: {pending}") from pending


def ends_are_final(work: Work, word: str) -> str:
    """A repeated end gets the same answer, and another end is refused."""
    who, topic = written(work, word)
    first = work.end(who, commit=True)
    settled(work, who.name, COMMITTED)
    again = work.end(who, commit=True)
    if again != first:
        raise DoesNotHold(f"a commit that was sent twice was answered {first}, then {again}")
    code = refused(lambda: work.end(who, commit=False), "a committed transaction could be aborted afterwards")
    work.check_readable(topic)
    work.check_rows(topic, both(), "an abort was sent after a commit")
    return f"a commit may be repeated, and an abort after it is refused ({code})"


def coordinators_tell(work: Work, word: str) -> str:
    """ListTransactions and DescribeTransactions tell what is open, by whom, where, and how it ended."""
    who, topic = written(work, word)
    listed = work.ongoing(who.name)
    if listed != (who.name,):
        raise DoesNotHold(f"ListTransactions does not list the open transaction {who.name}")
    state = settled(work, who.name, OPEN)
    if state.identity != who.identity or state.timeout_ms != work.timeout_ms:
        raise DoesNotHold(
            f"DescribeTransactions tells {state.identity} with {state.timeout_ms} ms of {who.name}, which is "
            f"{who.identity} with {work.timeout_ms} ms"
        )
    places = {(topic, partition) for partition in PARTITIONS}
    if set(state.partitions) != places:
        raise DoesNotHold(f"DescribeTransactions leaves out {sorted(places - set(state.partitions))}")
    work.end(who, commit=True)
    settled(work, who.name, COMMITTED)
    if work.ongoing(who.name):
        raise DoesNotHold("ListTransactions lists a transaction as open that has ended")
    return "they tell what is open, by whom and where, and how it ended"


def settled(work: Work, name: str, states: tuple[str, ...]) -> TransactionDescription:
    """The description, once it is in one of these states. Raises DoesNotHold."""
    found = until(lambda: work.describe(name), lambda s: s is not None and s.state in states, work.patience_s)
    if found is None or found.state not in states:
        state = found.state if found is not None else "nothing"
        raise DoesNotHold(f"DescribeTransactions tells {state} of {name} instead of {states[0]}")
    return found


def seal(work: Work, who: Participant) -> ProducerIdentity | NotOffered:
    """Seal a transaction. Returns its holder. Raises DoesNotHold."""
    rules = ask(Seal((who,)))
    answers = Runner(work.cluster, work.timeout_ms).run(rules)
    answer = answers if isinstance(answers, (Refused, Unknown)) else answers[who.name]
    if isinstance(answer, NotOffered):
        return answer
    if isinstance(answer, (Refused, Unknown)):
        raise DoesNotHold(f"a transaction could not be sealed: {answer}")
    if answer.wrote != who.identity:
        raise DoesNotHold(f"{who.name} was written by {who.identity}, and sealed as that of {answer.wrote}")
    return answer.holder


def two_phase(work: Work, word: str) -> str:
    """Only its holder can end a sealed transaction. Raises NotOfferedHere. Whether it times out is seen in
    the end of this file."""
    who, topic = written(work, word)
    holder = seal(work, who)
    if isinstance(holder, NotOffered):
        work.end(who, commit=False)
        raise NotOfferedHere(str(holder))
    state = settled(work, who.name, OPEN)
    if state.timeout_ms != NEVER_MS:
        raise DoesNotHold(f"a sealed transaction times out after {state.timeout_ms} ms")
    refused(lambda: work.end(who, commit=False), "a sealed transaction could be ended by who wrote it")
    work.end(Participant(who.name, holder), commit=True)
    work.check_readable(topic)
    work.check_rows(topic, both(), "a sealed transaction was committed")
    return "a sealed transaction has no time-out, and only its holder can end it"


class NotOfferedHere(Exception):
    """The cluster does not offer what a probe looks for, and eoslog does without it."""


PROBES = (
    Probe("committed rows", "committed", committed_rows_are_readable),
    Probe("open transactions", "open", open_rows_are_hidden),
    Probe("aborted rows", "aborted", aborted_rows_stay_hidden),
    Probe("retries", "retried", retries_are_written_once),
    Probe("what a dead producer left", "left", new_producer_aborts),
    Probe("a replaced producer", "replaced", replaced_producer_cannot_write),
    Probe("offsets in transactions", "offsets", offsets_commit_with_it),
    Probe("ends of transactions", "ends", ends_are_final),
    Probe("coordinators", "told", coordinators_tell),
    Probe("two-phase commit", "sealed", two_phase),
)


NOT_ALLOWED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_NO_ANSWER = (NotFoundOut, BrokerUnreachable, ConnectionLost, AuthenticationRefused)
REPORTED = (DoesNotHold, NotFoundOut, NotOfferedHere, EoslogError, KafkaError, ProtocolError, CorruptBatch)
"""What a check may raise. Anything else is a fault of the rehearsal."""


def row(name: str, look: Callable[[], str]) -> Row:
    """The row of a check: what it returns holds."""
    try:
        return Row(name, Verdict.HOLDS, look())
    except REPORTED as error:
        return row_of(name, error)


def row_of(name: str, error: Exception) -> Row:
    """The row of a check that raised this."""
    if isinstance(error, DoesNotHold):
        return Row(name, Verdict.FAILS, str(error), error.do)
    if isinstance(error, NotOfferedHere):
        return Row(name, Verdict.NOTE, f"not offered: {error}")
    return Row(name, Verdict.UNKNOWN if _leaves_open(error) else Verdict.FAILS, str(error))


def _leaves_open(error: Exception) -> bool:
    """Whether the cluster did not answer, or a right is missing: then nothing is known about the promise."""
    if isinstance(error, RetriesExhausted):
        cause = error.__cause__
        return not isinstance(cause, KafkaError)
    if isinstance(error, (KafkaError, ProduceFailed)):
        return error.code in NOT_ALLOWED
    return isinstance(error, _NO_ANSWER)


# -- time-outs -------------------------------------------------------------------------------------
# Whether the brokers end a transaction whose time is over, and none before. Begun first, looked at last.


TIMEOUT_MS = 3_000
"""Of a transaction that is to time out: no machine halts that long while it is written."""
SWEEP_S = 20.0
"""How much later a broker may notice: Kafka looks every 10 s
(transaction.abort.timed.out.transaction.cleanup.interval.ms)."""
EXPIRES, LASTS = "expires", "lasts"
ROW = "of a producer that died"
PROOF = "proof of a time-out"


@dataclass
class TimeOut:
    """Transactions that nobody ends: `who` is soon over its time, `longer` is not, and `sealed` never is."""

    work: Work
    who: Participant | None = None
    longer: Participant | None = None
    sealed: tuple[Participant, ProducerIdentity] | None = None
    """As it was written, and its holder. None: two-phase commit is not offered."""
    begun_s: float = 0.0
    lasted: bool = False
    """Whether `longer` was committed."""

    @property
    def timeout_ms(self) -> int:
        """Of those that are soon over their time."""
        return min(TIMEOUT_MS, self.work.timeout_ms)

    @property
    def _group(self) -> str:
        return self.work.names.name(f"{EXPIRES}-group")

    def begin(self) -> str:
        """Open them, with a row each. Raises DoesNotHold, and what the client raises."""
        lasts, opened = self.work.names.name(LASTS), time.monotonic()
        self.longer, self.begun_s = self.work.open(f"{LASTS}-longer"), opened
        self.work.write(self.longer, (lasts, 0), [ROW])
        kept = self.work.open(f"{LASTS}-sealed", self.timeout_ms)
        self.work.write(kept, (lasts, 1), [ROW])
        holder = seal(self.work, kept)
        if isinstance(holder, ProducerIdentity):
            self.sealed = kept, holder
        opened = time.monotonic()
        self.who = self.work.open(EXPIRES, self.timeout_ms)
        self.work.write(self.who, (self.work.names.name(EXPIRES), 0), [ROW])
        self.work.stage(self.who, self._group, {self.work.place: (3, "of a dead one")})
        state = self.work.describe(self.who.name)
        passed_ms = (time.monotonic() - opened) * 1000
        if passed_ms < self.timeout_ms and (state is None or state.state not in OPEN):
            raise DoesNotHold(
                f"a transaction with a time-out of {self.timeout_ms} ms is {_named(state)} "
                f"{passed_ms:.0f} ms after its first row"
            )
        return "open"

    def rows(self) -> Iterator[Row]:
        """Wait until the brokers have aborted the first; only then can the others be said to last longer."""
        over = row("time-outs", self._wait)
        yield over
        if over.verdict is not Verdict.HOLDS:
            return
        yield self._proof()
        yield row("transactions that have time", self._lasts)
        if self.sealed is not None:
            yield row("sealed transactions", self._stays_sealed)

    def _wait(self) -> str:
        assert self.who is not None, "begun before"
        name, topic = self.who.name, self.work.names.name(EXPIRES)
        seconds = self.work.patience_s + SWEEP_S
        found = until(
            lambda: self.work.describe(name), lambda s: s is not None and s.state in ABORTED, seconds
        )
        if found is None or found.state not in ABORTED:
            raise DoesNotHold(
                f"a transaction with a time-out of {self.timeout_ms} ms is {_named(found)} "
                f"{seconds:g} s later: what a dead producer leaves would hold readers back for ever",
                "see transaction.abort.timed.out.transaction.cleanup.interval.ms of the brokers",
            )
        what = "a transaction has timed out"
        self.work.check_readable(topic, what)
        self.work.check_rows(topic, [], what)
        written = self.work.rows(topic, committed=False)[ROW]
        if written != 1:
            raise DoesNotHold(
                f"{what}: its acknowledged row is {written} times in the log: nothing was aborted"
            )
        offset = stored_offset(self.work, self._group, what)
        if offset is not None:
            raise DoesNotHold(f"{what}: its offset {offset[0]} counts as committed")
        who = self.who
        code = refused(lambda: self.work.end(who, commit=True), "a transaction that timed out was committed")
        self.work.check_rows(topic, [], "a transaction was committed after its time-out")
        return f"the brokers aborted a transaction that nobody ended, rows and offsets; late commits: {code}"

    def _proof(self) -> Row:
        """on.lost.transaction=replay writes again only what was certainly aborted by a time-out."""
        assert self.who is not None, "begun before"
        state = self.work.describe(self.who.name)
        if state is None:
            return Row(PROOF, Verdict.UNKNOWN, f"the coordinator does not know {self.who.name}")
        raised = f"it raised the epoch from {self.who.identity.epoch} to {state.identity.epoch}"
        seen = Description(state.state, state.identity, state.timeout_ms, state.start_ms)
        if is_aborted(seen, self.who):
            return Row(PROOF, Verdict.HOLDS, f"{raised}: it is certain which transaction was aborted")
        what = f"{raised} and left {state.state}, as another history may: a batch that is lost by it"
        return Row(PROOF, Verdict.NOTE, f"{what} stops the query also with on.lost.transaction=replay")

    def _lasts(self) -> str:
        """A transaction that has time left is still open, and can be committed."""
        assert self.longer is not None, "begun before"
        state, seconds = self.work.describe(self.longer.name), time.monotonic() - self.begun_s
        if seconds * 1000 >= self.work.timeout_ms:
            raise NotFoundOut(
                f"the brokers grant {self.work.timeout_ms} ms, and {seconds:.0f} s have passed: see "
                "transaction.max.timeout.ms"
            )
        if state is None or state.state not in OPEN:
            raise DoesNotHold(
                f"a transaction with a time-out of {self.work.timeout_ms} ms is {_named(state)} after "
                f"{seconds:.0f} s"
            )
        self.work.end(self.longer, commit=True)
        self.lasted = True
        return (
            f"open and committed after {seconds:.0f} s, with a time-out of {self.work.timeout_ms // 1000} s"
        )

    def _stays_sealed(self) -> str:
        """A sealed transaction is open although its time was over as long ago as that of the first."""
        assert self.sealed is not None, "asked before"
        who, holder = self.sealed
        state = self.work.describe(who.name)
        if state is None or state.state not in OPEN:
            raise DoesNotHold(f"a sealed transaction is {_named(state)} when others have timed out")
        self.work.end(Participant(who.name, holder), commit=True)
        topic = self.work.names.name(LASTS)
        self.work.check_readable(topic, "transactions were committed late")
        self.work.check_rows(topic, [ROW] * (1 + self.lasted), "transactions were committed late")
        return f"open and committed when another of {self.timeout_ms // 1000} s had timed out"


def _named(state: TransactionDescription | None) -> str:
    return "unknown to its coordinator" if state is None else state.state
