"""Kills a driver at every command of a micro-batch, and has another driver go on, by the sink's own rules.

Each batch is a story: a driver lives up to its n-th command and is killed. A new one, which remembers
nothing, begins the same batch again, as Spark does, and commits it. Then the dead one wakes up and sends what
it was about to send. After each story a reader of committed data must see every row of all batches exactly
once, the source offsets must be those of the batch, and nothing may be open.

A micro-batch is one generator of commands: begin, two tasks, commit. Spark runs the same rules in several
processes (connector/sink). What a task does between them, to open its transaction and to write, is a command
here too. A driver that is killed right after a command leaves the cluster as one that is killed before the
next. So halts before each command, and after the last, are all there are.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

from eoslog.client.admin.groups import StillPending
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.commands import (
    Command,
    End,
    Perform,
    ReadClock,
    Refused,
    Rules,
    Seal,
    TransactionVersion,
    Unknown,
)
from eoslog.connector.commit.decide import SourceOffsets, commit
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.finish import await_readable
from eoslog.connector.commit.prepare import Task, judge, participant_name, withdraw_if_late
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Prepared, Report, Run
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.connector.run.runner import Runner
from eoslog.errors import EoslogError, ProduceFailed
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.rehearse.probes import COMMITTED, both, settled, stored_offset
from eoslog.rehearse.work import PARTITIONS, DoesNotHold, NotFoundOut, Work

TASKS = (0, 1)
ROWS = 2
"""Rows of a task: one for each of the topic's two partitions."""


@dataclass(frozen=True)
class OpenTransaction(Command[ProducerIdentity]):
    """InitProducerId of a task."""

    name: str


@dataclass(frozen=True)
class WriteRows(Command[None]):
    """Produce, until every row is acknowledged."""

    participant: Participant
    topic: str
    partition: int
    rows: tuple[str, ...]


class Driver(NamedTuple):
    """One driver and its query. `number`: drivers of one sink differ in it, as their tasks' processes do."""

    sink: Sink
    topic: str
    readers: str
    number: int

    def batch(self, batch_id: int) -> Batch:
        """Batch `batch_id` of the query."""
        return Batch("rehearsal", batch_id, f"offsets-{batch_id}")

    def source(self, batch_id: int) -> SourceOffsets:
        """The source offsets of a batch, for the group of the query's readers."""
        return SourceOffsets(self.readers, {(self.topic, 0): (batch_id + 1, "")})

    def life(self, batch_id: int, last_run: Run | None) -> Rules[Run]:
        """Begin, write and commit a batch. Returns what the driver remembers of it. Raises CommitFault."""
        batch = self.batch(batch_id)
        begun, run = yield from begin(self.sink, batch, last_run=last_run, completed=batch_id - 1)
        reports = []
        for task in TASKS:
            reports.append((yield from self._task(begun, batch, task)))
        last = yield from commit(self.sink, reports, batch_id, self.source(batch_id))
        if last is not None:
            yield from await_readable(last)
        return run

    def _task(self, begun: Begun, batch: Batch, task: int) -> Rules[Report]:
        what, stamp = judge(begun, batch.query_id, batch.batch_id, task)
        if what is Task.PASS_DECIDED:
            return Decided(stamp, task, ROWS)
        name = participant_name(stamp, f"d{self.number}t{task}", 0)
        identity: ProducerIdentity = yield OpenTransaction(name)
        who = Participant(name, identity)
        for partition, row in enumerate(rows_of_task(batch.batch_id, task)):
            yield WriteRows(who, self.topic, partition, (row,))
        yield from withdraw_if_late(stamp, who)
        return Prepared(stamp, task, who, ROWS, tuple((self.topic, number) for number in range(ROWS)))


def rows_of_task(batch_id: int, task: int) -> Sequence[str]:
    """The rows of one task, by partition."""
    return [f"batch {batch_id}, task {task}, row {row}" for row in range(ROWS)]


def rows_of(batches: range) -> list[str]:
    """The rows of some batches."""
    return [row for batch_id in batches for task in TASKS for row in rows_of_task(batch_id, task)]


T = TypeVar("T")
NO_REQUEST = (ReadClock, TransactionVersion)
"""Commands that the cluster does not see."""


@dataclass
class HaltedRun(Generic[T]):
    """A driver's run, which halts before a command. `sent`: the commands that it has sent so far.
    `ended`: with `result`."""

    rules: Rules[T]
    perform: Perform
    sent: list[Command[Any]]
    halted_before: Command[Any] | None = None
    ended: bool = False
    result: T | None = None
    _waits: Command[Any] | None = None

    @classmethod
    def of(cls, rules: Rules[T], perform: Perform) -> HaltedRun[T]:
        """A run that has not begun."""
        return cls(rules, perform, [])

    def run(self, commands: int | None = None) -> HaltedRun[T]:
        """Go on for so many commands (None: to the end). Raises what the rules raise."""
        answer: Any = None
        if self._waits is not None:
            answer, self.halted_before = self._answer(self._waits, None), None
        while True:
            try:
                command = self.rules.send(answer)
            except StopIteration as done:
                self.ended, self.result, self._waits = True, done.value, None
                return self
            self._waits = command
            answer = self._answer(command, commands)
            if self.halted_before is not None:
                return self

    def _answer(self, command: Command[Any], commands: int | None) -> Any:
        """The command's answer, one request after another. None, and halted_before, if the time has come."""
        if isinstance(command, NO_REQUEST):
            return self.perform(command)
        singles = _singles(command)
        answers: dict[str, Any] = {}
        for single in singles:
            if commands is not None and len(self.sent) >= commands:
                self.halted_before = single
                return None
            self.sent.append(single)
            answer = self.perform(single)
            if len(singles) == 1 or isinstance(answer, (Refused, Unknown)):
                return answer
            answers |= answer
        return answers


def _singles(command: Command[Any]) -> list[Command[Any]]:
    """One command for each transaction that is ended or sealed."""
    if isinstance(command, (End, Seal)) and len(command.participants) > 1:
        return [replace(command, participants=(one,)) for one in command.participants]
    return [command]


MOST_COMMANDS = 100
"""A micro-batch has some thirty commands: with more, a rule does not come to its end."""


@dataclass
class Kills:
    """What was done: the commands before which a driver was killed, and what the dead left open at most."""

    stops: list[str] = field(default_factory=list)
    open: int = 0
    held: int = 0


def rehearse(work: Work, word: str, connect: Callable[[], Cluster]) -> Kills:
    """Kill a driver at every command. Raises DoesNotHold, and what the client raises."""
    query = _Query(work, word, connect)
    for fresh in (True, False):  # a first driver acquires the sink; one that goes on keeps it
        for commands in range(MOST_COMMANDS):
            if not query.story(commands, fresh):
                break
        else:
            raise DoesNotHold(f"a micro-batch has not ended after {MOST_COMMANDS} commands")
    return query.kills


class _Query:
    """A query whose driver is killed in every batch."""

    def __init__(self, work: Work, word: str, connect: Callable[[], Cluster]) -> None:
        self.work, self.connect, self.kills = work, connect, Kills()
        self.sink, self.topic = work.names.sink(word), work.names.name(word)
        self.readers = work.names.name(f"{word}-readers")
        self.batch_id = self.drivers = 0
        self.last_run: Run | None = None

    def story(self, commands: int, fresh: bool) -> bool:
        """One batch, whose first driver is killed before its command number `commands`. Returns whether there
        is a later command to kill it at."""
        first = self._life(None if fresh else self.last_run)
        where = "after its last command"
        with first.cluster:
            life = self._run(first, commands, "a driver")
            if life.halted_before is not None:
                where = f"before {self._named(life.halted_before)}"
            told = f"a driver was killed {where}, in batch {self.batch_id}"
            self.kills.stops.append(where)
            is_last = life.ended or (fresh and _has_begun(life))
            self._look(life, told)
            self._successor(told)
            self._check(f"{told}, and another driver went on")
            if _has_begun(life) and not life.ended:
                self._wake(first, f"{told}, another driver went on, and the dead one woke up")
        self.batch_id += 1
        return not is_last

    def _life(self, last_run: Run | None) -> _Process:
        self.drivers += 1
        driver = Driver(self.sink, self.topic, self.readers, self.drivers)
        return _Process(self.work, self.connect(), driver.life(self.batch_id, last_run))

    def _run(self, process: _Process, commands: int | None, who: str) -> HaltedRun[Run]:
        try:
            return process.life.run(commands)
        except CommitFault as fault:
            if process.unanswered is not None:
                raise NotFoundOut(f"{who} got no answer in batch {self.batch_id}: {fault}") from fault
            raise DoesNotHold(f"{who} could not go on in batch {self.batch_id}: {fault}") from fault

    def _successor(self, told: str) -> None:
        second = self._life(None)
        with second.cluster:
            self.last_run = self._run(second, None, f"{told}; another driver").result

    def _wake(self, dead: _Process, told: str) -> None:
        with suppress(CommitFault, KafkaError, ProduceFailed):  # refused, as it should be
            dead.life.run()
        self._check(told)

    def _look(self, life: HaltedRun[Run], told: str) -> None:
        """What the dead driver leaves: of an undecided batch nobody may see a row."""
        self.kills.open = max(self.kills.open, len(self.work.ongoing(self.sink.coordinator)))
        self.kills.held = max(self.kills.held, len(self.work.held(self.topic)))
        if not any(isinstance(sent, End) and self._decides(sent) for sent in life.sent):
            before = rows_of(range(self.batch_id))
            self.work.check_rows(self.topic, before, f"{told}, which was not decided yet")

    def _decides(self, sent: End) -> bool:
        return sent.commit and sent.participants[0].name == self.sink.coordinator

    def _check(self, told: str) -> None:
        left = self.work.ongoing(self.sink.coordinator)
        if left:
            raise DoesNotHold(f"{told}: {len(left)} transactions are still open, as {left[0]}")
        self.work.check_readable(self.topic, told)
        self.work.check_rows(self.topic, rows_of(range(self.batch_id + 1)), told)
        try:
            found = self.work.offset(self.readers, (self.topic, 0))
        except StillPending as pending:
            raise DoesNotHold(f"{told}: the source offsets stay pending: {pending}") from pending
        if found is None or found[0] != self.batch_id + 1:
            offset = "none" if found is None else found[0]
            raise DoesNotHold(f"{told}: the source offset is {offset} instead of {self.batch_id + 1}")

    def _named(self, command: Command[Any]) -> str:
        if isinstance(command, End):
            whose = "the sink's own" if self._decides(command) else "a task's"
            return f"EndTxn({'commit' if command.commit else 'abort'}) of {whose} transaction"
        return type(command).__name__


def _has_begun(life: HaltedRun[Run]) -> bool:
    """Whether the driver's begin is over, so that its identity cannot become a newer one any more."""
    return any(isinstance(sent, OpenTransaction) for sent in life.sent)


class _Process:
    """A driver's process: a life, with connections of its own."""

    def __init__(self, work: Work, cluster: Cluster, rules: Rules[Run]) -> None:
        self.work, self.cluster = replace(work, cluster=cluster), cluster
        self.unanswered: Unknown | None = None
        self._runner = Runner(cluster, work.timeout_ms, decisions=work.decisions)
        self.life = HaltedRun.of(rules, self._perform)

    def _perform(self, command: Command[Any]) -> Any:
        if isinstance(command, OpenTransaction):
            return self.work.open(command.name).identity
        if isinstance(command, WriteRows):
            return self.work.write(command.participant, (command.topic, command.partition), command.rows)
        answer = self._runner.run(_only(command))
        answers = answer.values() if isinstance(answer, dict) else [answer]
        self.unanswered = next((one for one in answers if isinstance(one, Unknown)), self.unanswered)
        return answer


def _only(command: Command[Any]) -> Rules[Any]:
    """Rules of one command."""
    return (yield command)


# -- crashes of brokers ----------------------------------------------------------------------------
# What brokers must still know after a crash, and what transactions that were under way must have become.
#
# A crash shows most of what a broker forgets only within the milliseconds before the next sync of its disk.
# So several writers never stop: at each moment something has just been acknowledged.


WRITERS, NAMES = 4, 4
"""How many write at once, and how many transactional ids each has in turn."""
WHEN = "brokers have crashed under load"


@dataclass
class Told:
    """The last that a writer was told of a transactional id. `committed`: of its newest transaction."""

    who: Participant
    committed: bool = False


@dataclass
class Writer(threading.Thread):
    """One transaction after another, each with a row on every partition, until it is told to stop or the
    cluster does not answer any more."""

    work: Work
    number: int
    topic: str
    going: threading.Event
    done: int = 0
    """Transactions whose commit was acknowledged."""
    told: dict[str, Told] = field(default_factory=dict)
    failure: Exception | None = None

    def __post_init__(self) -> None:
        super().__init__(name=f"eoslog-rehearsal-{self.number}", daemon=True)

    __hash__ = threading.Thread.__hash__

    @property
    def group(self) -> str:
        """The consumer group of its offsets."""
        return self.work.names.name(f"load-{self.number}-group")

    def row(self, transaction: int) -> str:
        """What it writes to every partition."""
        return f"{self.number}.{transaction}"

    def run(self) -> None:
        """Write. Ends with `failure`, if the cluster has answered no more."""
        try:
            while self.going.is_set():
                self._transaction()
        except (EoslogError, KafkaError, ProduceFailed) as error:
            self.failure = error

    def _transaction(self) -> None:
        who = self.work.open(f"load-{self.number}-{self.done % NAMES}")
        self.told[who.name] = Told(who)
        for partition in PARTITIONS:
            self.work.write(who, (self.topic, partition), [self.row(self.done)])
        self.work.stage(who, self.group, {self.work.place: (self.done, "")})
        self.work.end(who, commit=True)
        self.told[who.name].committed = True
        self.done += 1


class Load:
    """Writers with connections of their own. `start` before the crash, `check` after it."""

    def __init__(self, work: Work, word: str, connect: Callable[[], Cluster]) -> None:
        self.work, self.topic = work, work.names.name(word)
        self._going = threading.Event()
        self._clusters = [connect() for _ in range(WRITERS)]
        self.writers = [
            Writer(replace(work, cluster=cluster), number, self.topic, self._going)
            for number, cluster in enumerate(self._clusters)
        ]

    def start(self) -> None:
        """Return when every writer has committed. Raises NotFoundOut if one does not come to that."""
        self._going.set()
        for writer in self.writers:
            writer.start()
        deadline = time.monotonic() + self.work.patience_s + WRITERS
        while any(writer.done < NAMES for writer in self.writers):
            if time.monotonic() > deadline or not all(writer.is_alive() for writer in self.writers):
                self.stop()
                raise NotFoundOut(f"no load could be put on the cluster: {self.writers[0].failure}")
            time.sleep(0.01)

    def stop(self) -> None:
        """Let each writer come to the end of what it has begun."""
        self._going.clear()
        for writer in self.writers:
            if writer.is_alive():
                writer.join()
        for cluster in self._clusters:
            cluster.close()

    def check(self) -> int:
        """What was acknowledged must be there, and the rest in whole or not at all. Returns how many commits
        were acknowledged. Raises DoesNotHold."""
        for told in (told for writer in self.writers for told in writer.told.values()):
            if told.committed:
                settled(self.work, told.who.name, COMMITTED)
            again = self.work.open(told.who.name)  # aborts what is open
            if again.identity <= told.who.identity:
                raise DoesNotHold(
                    f"{WHEN}: a new producer got {again.identity}, after {told.who.identity} before"
                )
        self.work.check_readable(self.topic, WHEN)
        found = self.work.rows(self.topic)
        for writer in self.writers:
            self._check(writer, found)
        return sum(writer.done for writer in self.writers)

    def _check(self, writer: Writer, found: Counter[str]) -> None:
        for transaction in range(writer.done):
            if found[writer.row(transaction)] != len(PARTITIONS):
                raise DoesNotHold(
                    f"{WHEN}: of {len(PARTITIONS)} rows of an acknowledged transaction "
                    f"{found[writer.row(transaction)]} can be read"
                )
        last = found[writer.row(writer.done)]  # nobody was told how it ended
        if last not in (0, len(PARTITIONS)):
            raise DoesNotHold(f"{WHEN}: {last} of {len(PARTITIONS)} rows of one transaction can be read")
        wanted = writer.done if last else writer.done - 1
        offset = stored_offset(self.work, writer.group, WHEN)
        if offset is None or offset[0] != wanted:
            seen = "none" if offset is None else offset[0]
            raise DoesNotHold(f"{WHEN}: the committed offset is {seen} instead of {wanted}")


_STANDARD_ERROR = 2  # no pipe: a broker that the command starts may keep it open for ever
BEFORE, OPEN = ["committed 1", "committed 2"], ["open 1", "open 2"]


def look(work: Work, word: str, crash: Callable[[], None], connect: Callable[[], Cluster]) -> str:
    """Crash brokers while one transaction was just committed, another is open, and others are under way.
    Raises DoesNotHold, NotFoundOut."""
    topic, group = work.names.name(word), work.names.name(f"{word}-group")
    left, done = work.open(f"{word}-open"), work.open(f"{word}-committed")
    for partition in PARTITIONS:
        work.write(left, (topic, partition), [f"{row} of {partition}" for row in OPEN])
        work.write(done, (topic, partition), [f"{row} of {partition}" for row in BEFORE])
    work.stage(done, group, {work.place: (9, "noted")})
    work.end(done, commit=True)
    idle = work.open(f"{word}-idle")
    lost = _crash(work, crash, load := Load(work, f"{word}-load", connect))
    settled(work, done.name, COMMITTED)
    if stored_offset(work, group, "its transaction was committed") != (9, "noted"):
        raise DoesNotHold("a committed offset is gone after the crash")
    for partition in PARTITIONS:  # as a producer does whose answers the crash has cut off
        work.write(left, (topic, partition), [f"{row} of {partition}" for row in OPEN])
    work.end(left, commit=True)
    work.check_readable(topic, "brokers have crashed, and every transaction has ended")
    work.check_rows(topic, [*both(BEFORE), *both(OPEN)], "brokers have crashed")
    again = work.open(f"{word}-idle")
    if again.identity <= idle.identity:
        raise DoesNotHold(f"a new producer got {again.identity}, after {idle.identity} before the crash")
    commits = load.check()
    if not lost:
        raise NotFoundOut("the command has ended, and no broker has cut a connection: none has crashed")
    return f"what was acknowledged is there, also {commits} commits under load; retries are written once"


def _crash(work: Work, crash: Callable[[], None], load: Load) -> bool:
    """Crash brokers under load. Returns whether one was lost."""
    load.start()
    try:
        work.cluster.brokers()
        work.cluster.disturbed()  # from now on
        crash()
    finally:
        load.stop()
    return work.cluster.disturbed() or any(writer.failure for writer in load.writers)


def run_command(text: str) -> None:
    """Run the user's command in a shell; its output goes to standard error. Raises NotFoundOut."""
    done = subprocess.run(text, shell=True, stdin=subprocess.DEVNULL, stdout=_STANDARD_ERROR, check=False)
    if done.returncode:
        raise NotFoundOut(f"the command of --crash ended with status {done.returncode}: {text}")
