"""Spark around the commit protocol, in memory: drivers, tasks, the checkpoint, and all that may go wrong.

Every process is a generator that yields one request at a time; the simulation picks whose turn it is
and what becomes of the request. What it picks is a list of numbers (model_history.py), so the same code
is run through all small histories one by one, and through large ones at random.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from eoslog.connector.commit import begin as begin_rules
from eoslog.connector.commit import commands as c
from eoslog.connector.commit import decide as decide_rules
from eoslog.connector.commit.faults import CommitFault, ParticipantsLost
from eoslog.connector.commit.messages import Batch, Begun, Decided, Empty, Prepared, Report, Run
from eoslog.connector.commit.names import Participant, Sink
from eoslog.connector.commit.prepare import Task, judge, participant_name
from eoslog.connector.commit.seal import TwoPhase
from tests.connector.commit.model_broker import ModelBroker
from tests.connector.commit.model_history import Choices, Fault, Shape

T = TypeVar("T")
Steps = Generator[Any, Any, T]

USER_GROUP = "dashboards"
SOURCE = ("source", 0)
ROWS = 2  # of a partition
ATTEMPTS = 3
RESTARTS = 20


class Request(NamedTuple):
    """One step of a process that the world can see: a request, or (local) a write to the checkpoint."""

    do: Callable[[], Any]
    local: bool = False


class Spawn(NamedTuple):
    """A driver starts the tasks of a batch and waits until each partition has a report."""

    begun: Begun
    batch: Batch
    slice: int


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
    pending: Request | Spawn | None = None
    spawn: Spawn | None = None
    suspended: bool = False
    memory: dict[str, Run] = field(default_factory=dict)
    reports: dict[int, Report] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)


class Simulation:
    """One history from the first batch to the last one, with everybody's restarts."""

    def __init__(self, shape: Shape, choices: Choices) -> None:
        self.shape, self.choices = shape, choices
        self.two_phase = TwoPhase.NEVER if shape.keeps is None else TwoPhase.AUTO
        self.broker = ModelBroker(
            shape.tv,
            last_epoch=shape.last_epoch,
            late_markers=shape.late_markers,
            keeps=bool(shape.keeps),
            tells_holder=shape.tells_holder,
        )
        self.sink = Sink("sink")
        self.query, self.first_slice, self.slices = 0, 0, shape.batches
        self.planned: set[int] = set()
        self.completed: set[int] = set()
        self.live: list[Process] = []
        self.budget, self.restarts, self.workers = shape.faults, 0, 0
        self.used: list[Fault] = []
        self.faults: list[Exception] = []
        self.idle_workers: list[int] = []

    # -- the world goes on --------------------------------------------------------------------

    def run(self) -> "Simulation":
        memory: dict[str, Run] = {}
        while self.live or not self._over():
            if not any(p.partition is None and not p.suspended for p in self.live):
                if self._over():
                    for process in self.live:
                        process.suspended = False
                else:
                    memory = self._start_driver(memory)
            if self.live:
                self._step(self._turn())
        self.broker.settle_all()
        return self

    @property
    def lost(self) -> bool:
        return any(isinstance(fault, ParticipantsLost) for fault in self.faults)

    def rows(self, slice_: int, partition: int) -> list[str]:
        """What one partition of one slice of the source holds; a batch is one slice."""
        if (slice_, partition) in self.shape.empty:
            return []
        return [f"{slice_}/{partition}/{number}" for number in range(ROWS)]

    def all_rows(self) -> list[str]:
        shape = self.shape
        return [r for s in range(self.slices) for p in range(shape.partitions) for r in self.rows(s, p)]

    def _over(self) -> bool:
        return self.first_slice + len(self.completed) == self.slices or self.lost

    def _start_driver(self, memory: dict[str, Run]) -> dict[str, Run]:
        self.restarts += 1
        assert self.restarts <= RESTARTS, f"no progress: {self.faults[-3:]}"
        process = Process(memory=memory)
        process.steps = self._driver(process)
        self._resume(process, None)
        return process.memory

    def _turn(self) -> Process:
        awake = [p for p in self.live if not p.suspended and p.pending is not None]
        asleep = [p for p in self.live if p.suspended]
        if asleep and self.choices.pick(2):
            asleep[0].suspended = False
            awake.insert(0, asleep[0])
        if self.shape.spread:
            return awake[self.choices.pick(len(awake))]
        tasks = [p for p in awake if p.partition is not None]
        return (tasks or awake)[0]

    def _step(self, process: Process) -> None:
        pending = process.pending
        if isinstance(pending, Spawn):
            process.pending = None
            self._spawn(process, pending)
        elif pending is not None:
            self.broker.now_ms += 1
            self._request(process, pending)

    # -- faults -------------------------------------------------------------------------------

    def _request(self, process: Process, request: Request) -> None:
        fault = self._fault(process, request)
        if fault is Fault.SUSPEND:
            process.suspended = True
            self.live.remove(process)
            self.live.append(process)
        elif fault is Fault.TIMEOUT_LOST:
            self._resume(process, c.Unknown("the request was lost"))
        elif fault is Fault.TIMEOUT_DONE:
            request.do()
            self._resume(process, c.Unknown("the answer was lost"))
        elif fault in (Fault.KILL, Fault.WIPE):
            request.do()
            self._kill(process)
            if fault is Fault.WIPE:
                self._wipe()
        else:
            answer = request.do()
            self._resume(process, request.do() if fault is Fault.REPEAT else answer)

    def _fault(self, process: Process, request: Request) -> Fault | None:
        kinds: list[Fault] = []
        if self.budget:
            kinds = [k for k in self.shape.kinds if self._possible(k, process, request)]
        at = self.choices.pick(1 + len(kinds))
        if at == 0:
            return None
        self.budget -= 1
        self.used.append(kinds[at - 1])
        if kinds[at - 1] is Fault.EXPIRE:
            opened = self.broker.mortal(self.sink.prefix)
            self.broker.expire(opened[self.choices.pick(len(opened))])
            return None
        return kinds[at - 1]

    def _possible(self, kind: Fault, process: Process, request: Request) -> bool:
        if kind is Fault.EXPIRE:
            return bool(self.broker.mortal(self.sink.prefix))
        if kind in (Fault.SUSPEND, Fault.WIPE):  # not while there is another driver, asleep or woken up
            return [p for p in self.live if p.partition is None] == [process]
        return kind is Fault.KILL or not request.local

    # -- processes ----------------------------------------------------------------------------

    def _resume(self, process: Process, answer: Any, error: Exception | None = None) -> None:
        if process not in self.live:
            self.live.append(process)
        assert process.steps is not None
        try:
            process.pending = process.steps.throw(error) if error else process.steps.send(answer)
        except StopIteration as done:
            self._ended(process, done.value)
        except (TaskFailed, CommitFault):  # of a task; a driver keeps its own
            self._ended(process, None)

    def _ended(self, process: Process, report: Report | None) -> None:
        self.live.remove(process)
        if process.partition is None:
            self._orphan(process)
            return
        self.idle_workers.append(process.worker)
        self._task_ended(process, report)

    def _kill(self, process: Process) -> None:
        self._close(process)
        if process.partition is None:
            process.memory.clear()
            self._orphan(process)
        else:
            self._task_ended(process, None)

    def _wipe(self) -> None:
        """The query starts with a new checkpoint, from the offsets committed to the user's group. The
        source waits for them to be stable, if need be until the sink's own transaction times out."""
        own = self.broker.transactions.get(self.sink.coordinator)
        if own is not None and own.state == "Ongoing":
            self.broker.expire(self.sink.coordinator)
        self.broker.settle_all()
        self.first_slice = self.broker.groups.get(USER_GROUP, {}).get(SOURCE, (0, ""))[0]
        self.slices = max(self.slices, self.first_slice + 1)  # a query without rows never begins a batch
        self.query += 1
        self.planned, self.completed = set(), set()

    def _close(self, process: Process) -> None:
        assert process.steps is not None
        process.steps.close()
        self.live.remove(process)

    def _orphan(self, driver: Process) -> None:
        """Tasks without a driver may go on for a while, or die with it."""
        for task in [p for p in self.live if p.parent is driver]:
            if not (self.shape.spread and self.choices.pick(2)):
                self._close(task)

    def _task_ended(self, task: Process, report: Report | None) -> None:
        parent, partition = task.parent, task.partition
        assert parent is not None and partition is not None
        waits = parent in self.live and parent.pending is None and parent.spawn is task.spawn
        if not waits or partition in parent.reports:
            return  # nobody waits for it any more
        if report is not None:
            parent.reports[partition] = report
            if len(parent.reports) == self.shape.partitions:
                self._resume(parent, [parent.reports[p] for p in range(self.shape.partitions)])
        elif not any(p.spawn is task.spawn and p.partition == partition for p in self.live):
            if parent.attempts[partition] >= ATTEMPTS:
                self._resume(parent, None, TaskFailed())
            else:
                self._start_task(parent, partition)

    def _spawn(self, driver: Process, spawn: Spawn) -> None:
        driver.reports, driver.attempts = {}, {}
        driver.spawn = spawn
        for partition in range(self.shape.partitions):
            self._start_task(driver, partition)
        if self.shape.spread:
            for partition in range(self.shape.partitions):
                if driver.pending is None and driver in self.live and self.choices.pick(5) == 4:
                    self._start_task(driver, partition)  # a speculative attempt

    def _start_task(self, driver: Process, partition: int) -> None:
        driver.attempts[partition] = driver.attempts.get(partition, 0) + 1
        if self.idle_workers:
            worker = min(self.idle_workers)
            self.idle_workers.remove(worker)
        else:
            worker = self.workers
            self.workers += 1
        assert driver.spawn is not None
        steps = self._task(driver.spawn, partition, worker)
        self._resume(Process(steps, driver, partition, worker, spawn=driver.spawn), None)

    # -- what they do -------------------------------------------------------------------------

    def _driver(self, process: Process) -> Steps[None]:
        batch_id = self._newest()
        replay = batch_id in self.planned
        try:
            while self.first_slice + batch_id < self.slices:
                if not replay:
                    yield from self._local(lambda b=batch_id: self._log(self.planned, b))
                replay = False
                yield from self._batch(
                    process, Batch(f"query {self.query}", batch_id, f"slice {self.first_slice + batch_id}")
                )
                yield from self._local(lambda b=batch_id: self._log(self.completed, b))
                batch_id += 1
        except (CommitFault, TaskFailed, QueryFailed) as fault:
            self.faults.append(fault)

    def _newest(self) -> int:
        newest = max(self.planned, default=0)
        return newest + 1 if newest in self.completed else newest

    def _local(self, write: Callable[[], bool]) -> Steps[None]:
        if not (yield Request(write, local=True)):
            raise QueryFailed("the checkpoint was written by somebody else")

    def _log(self, log: set[int], batch_id: int) -> bool:
        new = batch_id not in log
        log.add(batch_id)
        return new

    def _batch(self, process: Process, batch: Batch) -> Steps[None]:
        reports: list[Report | None] = [None] * self.shape.partitions
        try:
            begun = yield from self._begin(process, batch)
            reports = yield Spawn(begun, batch, self.first_slice + batch.batch_id)
            end = self.first_slice + batch.batch_id + 1
            source = decide_rules.SourceOffsets(USER_GROUP, {SOURCE: (end, "")})
            yield from self._client(
                decide_rules.commit(self.sink, reports, batch.batch_id, source, self.two_phase)
            )
        except (CommitFault, TaskFailed):
            if reports[0] is None:
                reports = [process.reports.get(p) for p in range(self.shape.partitions)]
            yield from self._client(decide_rules.abort(self.sink, reports, batch.batch_id))
            raise

    def _begin(self, process: Process, batch: Batch) -> Steps[Begun]:
        planner = str(self.choices.pick(2)) if self.shape.spread else "0"  # each remembers for itself
        rules = begin_rules.begin(
            self.sink,
            None if self.shape.blind else batch,
            last_run=process.memory.pop(planner, None),
            completed=None if self.shape.blind else max(self.completed, default=None),
            once_at_most=self.shape.at_most_once,
            two_phase=self.two_phase,
        )
        begun, run = yield from self._client(rules)
        if len(self.live) == 1 and Fault.SUSPEND not in self.used:
            assert not self.broker.ongoing(self.sink.prefix), "begin leaves readers held back"
        process.reports = {}
        if run is not None:
            process.memory[planner] = run
        return begun

    def _task(self, spawn: Spawn, partition: int, worker: int) -> Steps[Report]:
        batch_id = spawn.batch.batch_id
        task, stamp = judge(spawn.begun, spawn.batch.query_id, batch_id)
        rows = self.rows(spawn.slice, partition)
        if task is not Task.WRITE or not rows:
            return Decided(stamp, partition) if task is Task.PASS_DECIDED else Empty(stamp, partition)
        name = participant_name(stamp, f"w{worker}", 0)
        identity = yield Request(lambda: self.broker.init(name))
        if isinstance(identity, c.Unknown):
            raise TaskFailed
        for number, row in enumerate(rows):
            answer = yield Request(lambda n=number, r=row: self.broker.produce(name, identity, n, [r]))
            if answer is not None:
                yield Request(lambda: self.broker.end(name, identity, False))
                raise TaskFailed
        return Prepared(stamp, partition, Participant(name, identity), len(rows), (("out", partition),))

    def _client(self, rules: c.Rules[T]) -> Steps[T]:
        """Runs rules as connector/driver.py does, a request at a time."""
        answer: Any = None
        while True:
            try:
                command = rules.send(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = yield from self._perform(command)

    def _perform(self, command: c.Command[Any]) -> Steps[Any]:
        broker = self.broker
        if isinstance(command, c.End):
            answers = {}
            for name, identity in command.participants:
                answers[name] = yield Request(lambda n=name, i=identity: broker.end(n, i, command.commit))
            return answers
        if isinstance(command, c.Seal):
            kept = {}
            for name, _ in command.participants:
                kept[name] = yield Request(lambda n=name: broker.keep(n))
            return kept
        calls: dict[type, Callable[[Any], Any]] = {
            c.Acquire: lambda x: broker.init(x.name),
            c.FetchStored: lambda x: broker.fetch(x.group),
            c.StageOffsets: lambda x: broker.stage(*x.sink, x.group, x.offsets),
            c.CommitOffsets: lambda x: broker.commit_offsets(x.group, x.offsets),
            c.ListOngoing: lambda x: broker.ongoing(x.prefix),
            c.Describe: lambda x: broker.describe(x.names),
            c.FindHeld: lambda x: broker.settle_all() or (),
        }
        return (yield Request(lambda: calls[type(command)](command)))
