"""Spark around the commit protocol, in memory: whose turn it is, all that may go wrong, what has been
covered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from eoslog.connector.commit import commands as c
from eoslog.connector.commit.faults import CommitFault, MarkersMissing, ParticipantsLost
from eoslog.connector.commit.task_reports import Report
from tests.connector.commit.model_history import Choices, Fault, Shape
from tests.connector.commit.model_programs import (
    USER_GROUP,
    Process,
    Programs,
    Request,
    Spawn,
    TaskFailed,
    TasksDead,
)

# -- coverage ------------------------------------------------------------------------------------
# What the histories of the model have covered: states of the simulation, and faults at requests.
#
# A state is what a crash could leave behind at a request: the cluster's transactions, groups and rows, the
# checkpoint, and which processes are where.


def state_of(done: Simulation) -> int:
    """The state as a number: equal for equal states."""
    broker = done.broker
    transactions = tuple(
        (name, t.state, t.identity, t.holder, tuple(t.rows.values()), tuple(t.offsets))
        for name, t in broker.transactions.items()
    )
    groups = tuple((group, tuple(held.items())) for group, held in broker.groups.items())
    processes = tuple(
        (p.partition, p.worker, p.suspended, getattr(p.pending, "label", None)) for p in done.live
    )
    checkpoint = (done.ledger.query, tuple(done.ledger.planned), tuple(done.ledger.completed))
    return hash((transactions, groups, broker.rows_committed, processes, checkpoint, len(done.late)))


class Coverage:
    """Sums over histories."""

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()
        self.hits: Counter[tuple[str, Fault]] = Counter()
        self.labels: set[str] = set()
        self.states: set[int] = set()

    def add(self, end: str, done: Simulation) -> None:
        self.ends[end] += 1
        self.hits.update(done.places)
        self.labels |= done.labels
        self.states |= done.states

    def merge(self, other: Coverage) -> None:
        self.ends += other.ends
        self.hits += other.hits
        self.labels |= other.labels
        self.states |= other.states

    def missing(self, kinds: Iterable[Fault]) -> list[tuple[str, Fault]]:
        """Requests that were never hit by one of these faults. (A write to the checkpoint can only be the
        last thing a process does: it is not lost on its way.)"""
        asked = [(label, kind) for label in sorted(self.labels) for kind in kinds]
        return [
            (label, kind)
            for label, kind in asked
            if not self.hits[label, kind] and (kind is Fault.KILL or not label.startswith("Spark's"))
        ]

    def __str__(self) -> str:
        ends = ", ".join(f"{count:,} {end}" for end, count in sorted(self.ends.items()))
        return f"{self.ends.total():,} histories ({ends}), {len(self.states):,} states"

    def table(self) -> str:
        """Requests by faults: how many histories have this fault there."""
        kinds = list(Fault)
        wide = max(map(len, self.labels), default=0)
        head = " ".join(f"{kind.name:>12}" for kind in kinds)
        lines = [
            f"{label:<{wide}} " + " ".join(f"{self.hits[label, kind]:>12,}" for kind in kinds)
            for label in sorted(self.labels)
        ]
        return "\n".join([" " * wide + " " + head, *lines])


# -- Spark ---------------------------------------------------------------------------------------
# Spark around the commit protocol, in memory: whose turn it is, and all that may go wrong.
#
# Every process (model_programs.py) is a generator that yields one request at a time; the simulation picks
# whose turn it is and what becomes of the request. What it picks is a list of numbers (model_history.py), so
# the same code is run through all small histories one by one, and through large ones at random.

ATTEMPTS = 3
RESTARTS = 20


class Simulation(Programs):
    """One history from the first batch to the last one, with everybody's restarts."""

    def __init__(self, shape: Shape, choices: Choices) -> None:
        super().__init__(shape, choices)
        self.budget, self.switches = shape.faults, shape.switches
        self.restarts, self.workers = 0, 0
        self.used_before = 0
        """How many faults had struck when the last driver was started."""
        self.idle_workers: list[int] = []
        self.late: list[Callable[[], Any]] = []
        self.team: Process | None = None
        self.places: list[tuple[str, Fault]] = []
        """Which request each fault hit."""
        self.ended = False
        """The query was stopped, and has not been started again."""
        self.copy: dict[str, object] | None = None
        """Of the brokers' disks, made at some moment."""
        self.copied_in = (0, 0)
        self.labels: set[str] = set()
        self.states: set[int] = set()

    # -- the world goes on --------------------------------------------------------------------

    def run(self) -> Simulation:
        while self.live or not self._over():
            if not any(p.partition is None and not p.suspended for p in self.live):
                if self._over() or (self.ended and self.live):
                    self._wake()
                else:
                    self._judge_end()
                    self._start_driver()
            if self.late and self.choices.pick(2):
                self.late.pop(0)()
            if self.live:
                self._step(self._turn())
        for request in self.late:
            request()
        self.broker.settle_all()
        return self

    def _wake(self) -> None:
        for process in self.live:
            process.suspended = False

    def _judge_end(self) -> None:
        """After an orderly end, when all that was at work is gone, nothing is open."""
        kinds = {
            kind for label, kind in self.places if kind is not Fault.KILL or not label.startswith("task")
        }
        if self.ended and kinds <= {Fault.END, Fault.HANG}:
            assert not self.broker.ongoing(self.sink.coordinator), "an orderly end leaves readers held back"
        self.ended = False

    @property
    def lost(self) -> bool:
        """Rows are lost, and no start brings them back: of a loss that can be replayed `winners` are told."""
        lost = [fault for fault in self.faults if isinstance(fault, ParticipantsLost)]
        return any(not (self.shape.replays and fault.winners) for fault in lost)

    def all_rows(self) -> list[str]:
        shape = self.shape
        return [r for s in range(self.slices) for p in range(shape.partitions) for r in self.rows(s, p)]

    @property
    def held(self) -> bool:
        """No start can go on, even undisturbed: what the cluster has lost of the sink's own transaction
        cannot be proven."""
        stands = self.ledger.done < self.slices and len(self.used) == self.used_before
        return stands and [type(fault) for fault in self.faults[-2:]] == [MarkersMissing, MarkersMissing]

    def _over(self) -> bool:
        return self.ledger.done == self.slices or self.lost or self.held

    def _start_driver(self) -> None:
        self.restarts += 1
        assert self.restarts <= RESTARTS, f"no progress: {self.faults[-3:]}"
        self.used_before = len(self.used)
        process = Process(memory=self.memory)
        process.steps = self._driver(process)
        self._resume(process, None)

    def _turn(self) -> Process:
        awake = [p for p in self.live if not p.suspended and p.pending is not None]
        asleep = [p for p in self.live if p.suspended]
        going = [p for p in awake if not isinstance(p.pending, TasksDead)]
        dying = [p for p in asleep if p.stopped and p.partition is not None]
        if going or dying:
            awake = going
        if dying and not going:
            asleep = dying
        if asleep and (not awake or self.choices.pick(2)):
            asleep[0].suspended = False
            awake.insert(0, asleep[0])
            self.team = _leader(asleep[0])
        if self.shape.spread:
            return awake[self.choices.pick(len(awake))]
        if self.shape.switches:
            awake = self._team_of(awake)
        tasks = [p for p in awake if p.partition is not None]
        return (tasks or awake)[0]

    def _team_of(self, awake: list[Process]) -> list[Process]:
        """One driver and its tasks go on, until they end or it is another's turn."""
        leaders = list(dict.fromkeys(_leader(p) for p in awake))
        if self.team not in leaders:
            self.team = leaders[0]
        if len(leaders) > 1 and self.switches and self.choices.pick(2):
            self.switches -= 1
            self.team = next(leader for leader in leaders if leader is not self.team)
        return [p for p in awake if _leader(p) is self.team]

    def _step(self, process: Process) -> None:
        pending = process.pending
        if isinstance(pending, TasksDead):
            self._resume(process, None)
        elif process.stopped and (isinstance(pending, Spawn) or (pending is not None and pending.local)):
            self._close(process)  # Spark does not come back to it
        elif isinstance(pending, Spawn):
            process.pending = None
            self._spawn(process, pending)
        elif pending is not None:
            self.broker.now_ms += 1
            self._request(process, pending)

    # -- faults -------------------------------------------------------------------------------

    def _request(self, process: Process, request: Request) -> None:
        self.labels.add(request.label)
        self.states.add(state_of(self))
        if Fault.RESTORE in self.shape.kinds and self.copy is None and self.choices.pick(2):
            self.copy, self.copied_in = self.broker.copied(), self._batch_now()
        fault = self._fault(process, request)
        if fault is Fault.END:
            self._end(process)
        elif fault is Fault.RESTORE and self._restore(request):
            return
        elif fault in (Fault.SUSPEND, Fault.HANDOVER, Fault.HANG):
            process.suspended = True
            if fault is Fault.HANDOVER:
                self.memory = {}  # it is kept by query
                self.begin_at_the_group()
                self.slices = max(self.slices, self.ledger.first + 1)
            self.live.remove(process)
            self.live.append(process)
            if fault is Fault.HANG:
                self._speculate(process)
        elif fault in (Fault.TIMEOUT_LOST, Fault.TIMEOUT_LATE):
            if fault is Fault.TIMEOUT_LATE:
                self.late.append(request.do)
            self._resume(process, c.Unknown("the request was lost"))
        elif fault is Fault.TIMEOUT_DONE:
            request.do()
            self._resume(process, c.Unknown("the answer was lost"))
        elif fault is Fault.KILLED_LATE:
            self.late.append(request.do)
            self._kill(process)
        elif fault in (Fault.KILL, Fault.WIPE):
            request.do()
            self._kill(process)
            if fault is Fault.WIPE:
                self._wipe()
        else:
            answer = request.do()
            if fault is Fault.LATE:
                self.late.append(request.do)
            self._resume(process, request.do() if fault is Fault.REPEAT else answer)

    def _fault(self, process: Process, request: Request) -> Fault | None:
        kinds: list[Fault] = []
        if self.budget and request.label.startswith(self.shape.struck):
            kinds = [k for k in self.shape.kinds if self._possible(k, process, request)]
        at = self.choices.pick(1 + len(kinds))
        if at == 0:
            return None
        self.budget -= 1
        self.used.append(kinds[at - 1])
        self.places.append((request.label, kinds[at - 1]))
        if kinds[at - 1] is Fault.EXPIRE:
            opened = self.broker.mortal(self.sink.coordinator)
            self.broker.expire(opened[self.choices.pick(len(opened))])
            return None
        if kinds[at - 1] is Fault.FORGET:
            groups = ((self.sink.group,), (USER_GROUP,), (self.sink.group, USER_GROUP))
            self.broker.forget_markers(self.sink.coordinator, groups[self.choices.pick(len(groups))])
            self.disturbed = True
            return None
        return kinds[at - 1]

    def _possible(self, kind: Fault, process: Process, request: Request) -> bool:
        own = self.broker.transactions.get(self.sink.coordinator)
        if kind is Fault.EXPIRE:
            return bool(self.broker.mortal(self.sink.coordinator))
        if kind is Fault.RESTORE:
            return self.copy is not None
        if kind is Fault.FORGET:
            ends = "EndTxn" in request.label and request.label.endswith(" of the sink")
            return ends and own is not None and own.state == "Ongoing"
        if kind is Fault.END:
            driver = process.parent or process
            return driver in self.live and not (request.local or driver.stopped or driver.suspended)
        if kind is Fault.HANG:
            return process.partition is not None and not any(p.suspended for p in self.live)
        if kind is Fault.HANDOVER and own is not None and own.state == "Ongoing":
            return False  # the source waits for what is pending
        if kind in (
            Fault.SUSPEND,
            Fault.HANDOVER,
            Fault.WIPE,
        ):  # not while there is another driver, asleep or woken up
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
        self.begin_at_the_group()
        self.slices = max(self.slices, self.ledger.first + 1)  # a query without rows never begins a batch

    def _restore(self, request: Request) -> bool:
        """The brokers go back to the copy. Whether everybody dies of it: a driver that lives on in the batch
        that the copy was made in, or begins the next one, may just be committing winners whose decision is
        not in the copy (docs/guarantees.md). A batch more is there then: who has nothing to do asks nobody.
        """
        assert self.copy is not None
        self.broker.restore(self.copy)
        self.slices = max(self.slices, self.ledger.first + max(self.ledger.planned, default=-1) + 2)
        far = self.copied_in != self._batch_now() and not request.label.startswith("begin")
        if far and not self.choices.pick(2):
            return False
        for process in list(self.live):
            self._close(process)
        self.memory = {}
        return True

    def _batch_now(self) -> tuple[int, int]:
        return self.ledger.query, max(self.ledger.planned, default=-1)

    def _end(self, process: Process) -> None:
        """query.stop(): the stream's thread is interrupted, wherever it is. Whoever is at work goes on at any
        later moment."""
        self.ended = True
        if process.partition is not None:
            parent = process.parent
            assert parent is not None
            for task in [p for p in self.live if p.parent is parent and not p.suspended]:
                task.suspended = task.stopped = True
            if self._awaited(process):
                self._resume(parent, None, TaskFailed())
            return
        process.stopped = process.suspended = True
        self.live.remove(process)
        self.live.append(process)
        ender = Process(stopped=True)
        ender.steps = self.ender(process)
        self._resume(ender, None)

    def _close(self, process: Process) -> None:
        assert process.steps is not None
        process.steps.close()
        self.live.remove(process)

    def _orphan(self, driver: Process) -> None:
        """Tasks without a driver may go on for a while, or die with it; one that hangs notices nothing."""
        for task in [p for p in self.live if p.parent is driver and not p.suspended]:
            if not (self.shape.spread and self.choices.pick(2)):
                self._close(task)

    def _task_ended(self, task: Process, report: Report | None) -> None:
        parent, partition = task.parent, task.partition
        assert parent is not None and partition is not None
        if not self._awaited(task) or partition in parent.reports:
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

    def _awaited(self, task: Process) -> bool:
        parent = task.parent
        return parent in self.live and parent.pending is None and parent.spawn is task.spawn

    def _spawn(self, driver: Process, spawn: Spawn) -> None:
        driver.reports, driver.attempts = {}, {}
        driver.spawn = spawn
        for partition in range(self.shape.partitions):
            self._start_task(driver, partition)
        if self.shape.spread:
            for partition in range(self.shape.partitions):
                if driver.pending is None and driver in self.live and self.choices.pick(5) == 4:
                    self._start_task(driver, partition)

    def _speculate(self, task: Process) -> None:
        """Another attempt beside one that hangs."""
        assert task.parent is not None and task.partition is not None
        if self._awaited(task) and task.parent.attempts[task.partition] < ATTEMPTS:
            self._start_task(task.parent, task.partition)

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


def _leader(process: Process) -> Process:
    return process.parent or process
