"""What the processes of the model do: drivers run batches by the protocol's rules, tasks write their rows.

Each is a generator that yields one request at a time, with a label that says which request of which step
it is; model_spark.py decides what becomes of it.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from eoslog.connector.checkpoint.start_checks import check_story
from eoslog.connector.checkpoint.start_facts import StartFacts
from eoslog.connector.commit import begin as begin_rules
from eoslog.connector.commit import commands as c
from eoslog.connector.commit import decide as decide_rules
from eoslog.connector.commit.abandon import Aborted, Ended, clear_again, end_run
from eoslog.connector.commit.faults import CheckpointOlder, CommitFault, DecisionGone, StartsElsewhere
from eoslog.connector.commit.marker_proof import prove_last
from eoslog.connector.commit.places import PartitionState
from eoslog.connector.commit.prepare import Task, judge, participant_name, withdraw_if_late
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.seal import TwoPhase
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Empty, Prepared, Report, Run
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.connector.offsets.group_notes import Note, NotedOffset, read_note
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.commit.model_broker import ModelBroker
from tests.connector.commit.model_history import DISTURBING, Choices, Fault, Shape

T = TypeVar("T")
Steps = Generator[Any, Any, T]

USER_GROUP = "dashboards"
SOURCE = ("source", 0)
ROWS = 2  # of a partition


class Request(NamedTuple):
    """One step of a process that the world can see: a request, or (local) a write to the checkpoint."""

    label: str
    do: Callable[[], Any]
    local: bool = False


class Spawn(NamedTuple):
    """A driver starts the tasks of a batch and waits until each partition has a report."""

    begun: Begun
    batch: Batch
    slice: int


@dataclass
class Ledger:
    """A query's checkpoint: Spark's two logs. Its batch 0 is the source's `first` slice."""

    query: int = 0
    first: int = 0
    planned: set[int] = field(default_factory=set)
    completed: set[int] = field(default_factory=set)

    @property
    def done(self) -> int:
        """How many slices are behind it."""
        return self.first + len(self.completed)


class TasksDead(NamedTuple):
    """Who has aborted waits until Spark has killed the batch's tasks."""


class TaskFailed(Exception):
    """A task got an answer that it cannot go on from, or too many of its attempts died."""


class QueryFailed(Exception):
    """Spark itself stops a driver: somebody else has written to its checkpoint."""


@dataclass(eq=False)
class Process:
    """A driver (`partition` None) or a task's attempt."""

    steps: Steps[Any] | None = None
    parent: "Process | None" = None
    partition: int | None = None
    worker: int = -1
    pending: Request | Spawn | TasksDead | None = None
    spawn: Spawn | None = None
    suspended: bool = False
    memory: dict[str, Run] = field(default_factory=dict)
    run: Run | None = None
    stopped: bool = False
    reports: dict[int, Report] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)


class Programs:
    """The world as drivers and tasks see it, and what they do in it."""

    def __init__(self, shape: Shape, choices: Choices) -> None:
        self.shape, self.choices = shape, choices
        self.two_phase = TwoPhase.NEVER if shape.keeps is None else TwoPhase.AUTO
        self.broker = ModelBroker(
            shape.tv,
            last_epoch=shape.last_epoch,
            late_markers=shape.late_markers,
            keeps=bool(shape.keeps),
            tells_holder=shape.tells_holder,
            verifies=shape.verifies,
        )
        self.sink = Sink("sink")
        self.slices = shape.batches
        self.ledger = Ledger()
        self.live: list[Process] = []
        self.memory: dict[str, Run] = {}
        self.numbers: dict[tuple[int, int], tuple[int, int]] = {}
        self.used: list[Fault] = []
        self.disturbed = False
        self.faults: list[Exception] = []

    @property
    def calm(self) -> bool:
        """Nobody else is at work or was in between, and nothing of them is on its way."""
        return len(self.live) == 1 and not self.shape.spread and not DISTURBING & set(self.used)

    def rows(self, slice_: int, partition: int) -> list[str]:
        """What one partition of one slice of the source holds; a batch is one slice."""
        if (slice_, partition) in self.shape.empty:
            return []
        return [f"{slice_}/{partition}/{number}" for number in range(ROWS)]

    def _driver(self, process: Process) -> Steps[None]:
        mine = self.ledger
        batch_id = self._newest(mine)
        replay = batch_id in mine.planned
        try:
            while mine.first + batch_id < self.slices:
                if not replay:
                    yield from self._local("Spark's offset log", partial(self._log, mine.planned, batch_id))
                replay = False
                batch = Batch(f"query {mine.query}", batch_id, f"slice {mine.first + batch_id}")
                yield from self._batch(process, mine, batch)
                yield from self._local("Spark's commit log", partial(self._log, mine.completed, batch_id))
                batch_id += 1
        except (StartsElsewhere, DecisionGone, CheckpointOlder) as fault:
            self.faults.append(fault)
            if self.ledger is mine:  # the way out that the error names: another new checkpoint
                self.begin_at_the_group()
        except (CommitFault, TaskFailed, QueryFailed) as fault:
            self.faults.append(fault)

    def begin_at_the_group(self) -> None:
        """A new checkpoint, which begins where the group stands now."""
        first = self.broker.groups.get(USER_GROUP, {}).get(SOURCE, (0, ""))[0]
        self.ledger = Ledger(self.ledger.query + 1, first)

    def _newest(self, ledger: Ledger) -> int:
        newest = max(ledger.planned, default=0)
        return newest + 1 if newest in ledger.completed else newest

    def _local(self, label: str, write: Callable[[], bool]) -> Steps[None]:
        if not (yield Request(label, write, local=True)):
            raise QueryFailed("the checkpoint was written by somebody else")

    def _log(self, log: set[int], batch_id: int) -> bool:
        new = batch_id not in log
        log.add(batch_id)
        return new

    def _batch(self, process: Process, mine: Ledger, batch: Batch) -> Steps[None]:
        try:
            begun = yield from self._begin(process, mine, batch)
            reports = yield Spawn(begun, batch, mine.first + batch.batch_id)
            end = mine.first + batch.batch_id + 1
            note = Note(self.sink.id, batch.query_id, batch.batch_id).text()
            source = decide_rules.SourceOffsets(USER_GROUP, {SOURCE: (end, note)})
            for _ in range(2 if self.shape.twice else 1):
                rules = decide_rules.commit(self.sink, reports, batch.batch_id, source, self.two_phase)
                yield from self._client("commit", rules)
            yield from self._prove(begun)
        except (CommitFault, TaskFailed):
            yield from self._abort(process)
            raise

    def _abort(self, process: Process) -> Steps[None]:
        """As Spark does when a batch has failed or its query is stopped: at once, and again when its tasks
        are dead."""
        if process.run is None:
            return
        self.memory.clear()
        ended: Ended = yield from self._client("abort", end_run(self.sink, process.run))
        yield TasksDead()
        if ended.outcome is not Aborted.LEFT:
            yield from self._client("abort again", clear_again(self.sink, process.run, ended))

    def ender(self, stopped: Process) -> Steps[None]:
        """Another process of the driver's aborts, while the one that begins or commits is still at work."""
        process = Process(run=stopped.run)
        yield from self._abort(process)

    def _begin(self, process: Process, mine: Ledger, batch: Batch) -> Steps[Begun]:
        planner = str(self.choices.pick(2)) if self.shape.spread else "0"  # each remembers for itself
        process.run = None
        rules = begin_rules.begin(
            self.sink,
            batch,
            last_run=process.memory.pop(planner, None),
            completed=max(mine.completed, default=None),
            two_phase=self.two_phase,
            on_lost=OnLost.REPLAY if self.shape.replays else OnLost.STOP,
        )
        begun, run = yield from self._client("begin", rules)
        yield from self._prove(begun)
        if self.calm:
            assert not self.broker.ongoing(self.sink.prefix), "begin leaves readers held back"
        if begun.acquired_now and self._two_checkpoints:
            yield from self._compare(mine, begun)
        if self.shape.at_most_once:
            tried = yield from self._client("begin", begin_rules.mark_attempt(self.sink, batch))
            begun = replace(begun, dropped=tried)
        process.reports = {}
        process.memory[planner] = process.run = run
        return begun

    @property
    def _two_checkpoints(self) -> bool:
        """Whether a driver may begin a batch from another checkpoint than the one that has gone on."""
        told = {StartsElsewhere, DecisionGone, CheckpointOlder} & {type(fault) for fault in self.faults}
        return bool(told) or Fault.HANDOVER in self.used or Fault.RESTORE in self.shape.kinds

    def _compare(self, mine: Ledger, begun: Begun) -> Steps[None]:
        """As start_of_run.py does when the sink is acquired."""
        found = yield Request(
            "begin: OffsetFetch of the user's group",
            lambda: self.broker.groups.get(USER_GROUP, {}).get(SOURCE),
        )
        if isinstance(found, c.Unknown):
            raise CommitFault("the group cannot be read")
        batch, decided = begun.batch, begun.decided
        new = not mine.completed and batch.batch_id == 0
        ours = decided if decided and decided.query_id == batch.query_id else None
        end = mine.first if new else mine.first + batch.batch_id + 1
        story = StartFacts(
            sink=self.sink.id,
            batch=batch,
            ends={SOURCE: end},
            begins={SOURCE: {"0": end}},
            completed=max(mine.completed, default=None),
            decided=decided,
            ended=(ours.digest, {SOURCE: mine.first + ours.batch_id + 1}) if ours else None,
            group=USER_GROUP,
            committed={SOURCE: NotedOffset(found[0], read_note(found[1]))} if found else {},
            since=0,
        )
        check_story(story)

    def _prove(self, begun: Begun) -> Steps[None]:
        """As committer.py does when a broker was lost."""
        if self.disturbed:
            self.disturbed = False
            yield from self._client("prove", prove_last(self.sink, begun.identity))

    def _task(self, spawn: Spawn, partition: int, worker: int) -> Steps[Report]:
        batch_id = spawn.batch.batch_id
        task, stamp = judge(spawn.begun, spawn.batch.query_id, batch_id, partition)
        rows = self.rows(spawn.slice, partition)
        if task is Task.PASS_DECIDED:
            return Decided(stamp, partition, len(rows))
        if task is not Task.WRITE or not rows:
            return Empty(stamp, partition)
        name = participant_name(stamp, f"w{worker}", self._next_number(worker, batch_id))
        identity = yield Request("task: InitProducerId", lambda: self.broker.init(name))
        if isinstance(identity, c.Unknown):
            raise TaskFailed
        writes = [partial(self.broker.produce, name, identity, n, [row]) for n, row in enumerate(rows)]
        steps = [Request("task: Produce", write) for write in writes]
        if not self.shape.verifies:
            add = partial(self.broker.add_partitions, name, identity)
            steps.insert(0, Request("task: AddPartitionsToTxn", add))
        for step in steps:
            if (yield step) is not None:
                yield from self._end_transaction("task", name, identity, False)
                raise TaskFailed
        participant = Participant(name, identity)
        yield from self._client("task", withdraw_if_late(stamp, participant))
        return Prepared(stamp, partition, participant, len(rows), (("out", partition),))

    def _next_number(self, worker: int, batch_id: int) -> int:
        """As task_writer.py counts: a process never uses a name again in a batch, nor in the one after."""
        of_batch, number = self.numbers.get((worker, batch_id % 2), (-1, 0))
        number = number + 1 if of_batch == batch_id else 0
        self.numbers[worker, batch_id % 2] = (batch_id, number)
        return number

    def _client(self, step: str, rules: c.Rules[T]) -> Steps[T]:
        """Runs rules as connector/run/runner.py does, a request at a time."""
        answer: Any = None
        asked: Any = None
        settled: Any = None
        while True:
            try:
                command = rules.send(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            if isinstance(command, c.ListOngoing) and command.asked and asked is not None:
                answer, asked = asked, None  # as it was when it was asked for, or why it did not come
                continue
            if isinstance(command, c.FindSettled):
                answer, settled = settled, None  # AskOpen has sent it, and this reads the answer
                continue
            answer = yield from self._perform(f"{step}: {_told(command)}", command)
            if isinstance(command, c.AskOpen):
                settled, answer = answer, None
            if isinstance(command, c.AskOngoing):
                asked, answer = None if isinstance(answer, c.Unknown) else answer, None

    def _end_transaction(self, step: str, name: str, identity: ProducerIdentity, commit: bool) -> Steps[Any]:
        """As client/admin/transactions.py ends a transaction. (A look before an abort is no fault's
        target: it changes nothing, and every state is looked at here.)"""
        whose = _whose(name)
        if self.broker.aborts_by_epoch(name, identity, commit):
            abort = partial(self.broker.abort, name, identity)
            return (yield Request(f"{step}: InitProducerId to abort {whose}", abort))
        label = f"{step}: EndTxn({'commit' if commit else 'abort'}) of {whose}"
        return (yield Request(label, partial(self.broker.end, name, identity, commit)))

    def _perform(self, label: str, command: c.Command[Any]) -> Steps[Any]:
        broker = self.broker
        if isinstance(command, c.End):
            step, answers = label.split(":")[0], {}
            for who in command.participants:
                answers[who.name] = yield from self._end_transaction(step, *who, command.commit)
            return answers
        if isinstance(command, c.StageOffsets) and not self.shape.verifies:
            add = partial(broker.add_offsets, *command.sink, command.group)
            problem = yield Request(f"{label.split(':')[0]}: AddOffsetsToTxn", add)
            if problem is not None:
                return problem
        if isinstance(command, c.Seal):
            kept = {}
            for name, _ in command.participants:
                kept[name] = yield Request(label, partial(broker.keep, name))
            return kept
        if isinstance(command, c.TransactionVersion):  # known without a request
            return broker.tv
        if isinstance(command, c.ReadClock):
            return broker.now_ms
        calls: dict[type, Callable[[Any], Any]] = {
            c.Acquire: lambda x: (
                broker.go_on(x.name, x.current, used=x.used)
                if x.current
                else broker.init(x.name, used=x.used)
            ),
            c.FetchStored: lambda x: broker.fetch(x.group, stable=x.stable),
            c.StageOffsets: lambda x: broker.stage(x.sink.name, x.sink.identity, x.group, x.offsets),
            c.CommitOffsets: lambda x: broker.commit_offsets(x.group, x.offsets),
            c.AskOngoing: lambda x: c.Listed(broker.ongoing(x.prefix)),
            c.ListOngoing: lambda x: c.Listed(broker.ongoing(x.prefix)),
            c.Describe: lambda x: broker.describe(x.names),
            c.FindHeld: lambda x: broker.find_held(),
            c.AskOpen: lambda x: broker.settled([group for group, _ in x.staged]),
            c.FindOpen: lambda x: dict.fromkeys(x.places, PartitionState(-1, None)),
            c.FindOwn: lambda x: broker.find_own(x.producer_id),
            c.WriteMarkers: lambda x: broker.write_markers(x.held, x.commit),
        }
        return (yield Request(label, lambda: calls[type(command)](command)))


def _told(command: c.Command[Any]) -> str:
    """Which request of a step it is."""
    match command:
        case c.Acquire(_, current, _):
            return "InitProducerId to raise the epoch" if current else "InitProducerId"
        case c.End(commit, ((name, _), *_)):
            return f"EndTxn({'commit' if commit else 'abort'}) of {_whose(name)}"
        case c.StageOffsets(_, group, _):
            return f"TxnOffsetCommit of the {'source offsets' if group == USER_GROUP else 'decision'}"
        case c.FetchStored(group) if group.endswith("/finished"):
            return "OffsetFetch of the note"
        case c.FetchStored(group):
            return f"OffsetFetch of {'the attempt' if group.endswith('/attempts') else 'the decision'}"
        case c.Describe(names):
            whose = sorted({_whose(name) for name in names})
            return f"DescribeTransactions of {' and '.join(whose)}"
    return _API.get(type(command), "EndTxn of nobody")


def _whose(name: str) -> str:
    return "a participant" if "/" in name else "the sink"


_API: dict[type, str] = {
    c.CommitOffsets: "OffsetCommit of the attempt",
    c.Seal: "InitProducerId(keep) of a participant",
    c.AskOngoing: "ListTransactions ahead",
    c.ListOngoing: "ListTransactions",
    c.FindHeld: "DescribeProducers",
    c.FindOpen: "DescribeProducers of what was written",
    c.AskOpen: "OffsetFetch of what is staged",
    c.FindOwn: "DescribeProducers of the sink",
    c.WriteMarkers: "WriteTxnMarkers",
}
