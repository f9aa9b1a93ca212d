"""Measures the costs of single commands on a cluster, one and MANY at a time, on a sink of its own, and the
driver's own time for its rules. Where Kafka's nodes end transactions, many are a window at each
coordinator.

Nothing here runs a micro-batch of a size that is foretold: tasks are calibrated by batches of one and MANY
tasks whose commits are not timed, all else by single commands. For the driver's own time the rules run, and
every command is answered at once.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.simulation.model import IN_FLIGHT, Cost, Costs, by_partition, participants
from benchmarks.simulation.query import Query, open_transaction
from benchmarks.starts import PARTITIONS
from eoslog.client.admin import transaction_states, transactions
from eoslog.connector.commit import commands
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.commands import (
    Acquire,
    Command,
    Description,
    End,
    FetchStored,
    NotOffered,
    Rules,
    Sealed,
    StageOffsets,
    demand,
)
from eoslog.connector.commit.decide import commit
from eoslog.connector.commit.decision import ANCHOR, METADATA_LIMIT, Stored
from eoslog.connector.commit.task_reports import Batch, Prepared, Run, Stamp
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.protocol.internal_topics.coordinator_records import partition_of
from eoslog.protocol.producer_identity import ProducerIdentity

# -- a cluster's -----------------------------------------------------------------------------------

T = TypeVar("T")
MANY = 50
_TIMES = 5
STATE = "__transaction_state"


class Calibration:
    """The samples of one cluster, turn after turn. `pids`: of its nodes."""

    def __init__(self, query: Query, pids: Sequence[int], *, together: bool) -> None:
        self.query, self.pids, self.together = query, pids, together
        self.cluster, self.prefix = query.cluster, f"{query.sink.coordinator}-alone"
        self._single: dict[str, list[float]] = defaultdict(list)
        self._many: dict[str, list[float]] = defaultdict(list)
        self._counts: dict[str, int] = {}
        self._looked_at: dict[int, bool] = {}

    def turn(self) -> None:
        """Measure everything once more."""
        nodes = sorted(set(self.leaders().values()))
        for _ in range(_TIMES):
            self._task(1)
            self._task(MANY)
        for node in nodes * (_TIMES // len(nodes)):
            self._looks(node)
            for _ in range(2):
                self._transactions(1, [node])
            self._transactions(MANY if self.together else IN_FLIGHT * len(nodes), nodes)
            if self.together:
                self._spread()
        self._driver()

    def costs(self) -> Costs:
        """Medians so far."""
        begin, commit = rules_alone(self.query.workers, sealed=bool(self._single["sealed"]))
        found = {name: self._cost(name) for name in Costs.__dataclass_fields__ if name in self._single}
        found.setdefault("sync", Cost(0.0))
        return Costs(**found, begin=begin, commit=commit)

    def leaders(self) -> dict[int, int]:
        """The node of each coordinator partition."""
        return dict(self.cluster.topic(STATE).leaders)

    def _cost(self, name: str) -> Cost:
        alone = statistics.median(self._single[name])
        more = self._many.get(name)
        return Cost(
            alone, max(0.0, (statistics.median(more) - alone) / (self._counts[name] - 1)) if more else 0.0
        )

    def _note(self, name: str, many: int, ms: float) -> None:
        if many > 1:
            self._counts[name] = many
        (self._single if many == 1 else self._many)[name].append(ms)

    def _task(self, many: int) -> None:
        before = self._cpu()
        took = self.query.micro_batch(
            many, prepared=lambda: self._note("task_cpu", many, self._cpu() - before)
        )
        self._note("task", many, took.tasks)

    def _spread(self) -> None:
        """The same on as many partitions as possible: what each partition's sync adds."""
        names = [f"{self.prefix}/{n}" for n in range(MANY)]
        opened = [self._open(name, n % PARTITIONS) for n, name in enumerate(names)]
        files = len(by_partition(names, len(self.leaders()))) + PARTITIONS
        self._timed("seal", MANY, lambda: transactions.keep_prepared(self.cluster, names, 60_000))
        held = transactions.keep_prepared(self.cluster, names, 60_000)
        enders = {n: a.holder for n, a in held.items() if isinstance(a, transactions.AcquiredTransaction)}
        time.sleep(PAUSE_SECONDS)
        started = time.perf_counter()
        transactions.end_txns(self.cluster, enders or dict(opened), commit=True)
        self._single["sync"].append((_ms(started) - self._many["end"][-1]) / (files - 2))

    def _open(self, name: str, partition: int = 0) -> Participant:
        return open_transaction(self.cluster, name, self.query.topic, (partition,))

    def _looks(self, node: int) -> None:
        """The driver looks at one node after the other."""
        names = self._names(MANY, [node])
        if not self._looked_at.get(node):
            transactions.end_txns(self.cluster, dict(map(self._open, names)), commit=True)
            self._looked_at[node] = True
        for looked_at in (names[:1], names):
            self._timed("look", len(looked_at), lambda: transaction_states.describe(self.cluster, looked_at))  # noqa: B023

    def _transactions(self, many: int, nodes: Sequence[int]) -> None:
        """Of names at these nodes, ended together."""
        opened = [self._open(name) for name in self._names(many, nodes)]
        names = [who.name for who in opened]
        self._timed(
            "listing",
            many,
            lambda: transaction_states.list_transactions(self.cluster, self.prefix, ["Ongoing"]),
        )
        time.sleep(PAUSE_SECONDS)
        started = time.perf_counter()
        sealed = transactions.keep_prepared(self.cluster, names, 60_000)
        if many == 1 or not self.together:
            self._note("seal", many, _ms(started))
        held = {
            name: answer.holder
            for name, answer in sealed.items()
            if isinstance(answer, transactions.AcquiredTransaction)
        }
        if held:
            self._single["sealed"].append(1.0)
        self._end(many, {who.name: held.get(who.name, who.identity) for who in opened})

    def _end(self, many: int, enders: dict[str, ProducerIdentity]) -> None:
        time.sleep(PAUSE_SECONDS)
        started = time.perf_counter()
        answers = transactions.end_txns(self.cluster, enders, commit=True)
        ended = _ms(started)
        refused = {name: answer for name, answer in answers.items() if isinstance(answer, Exception)}
        assert not refused, refused
        last = list(enders)[-1]
        while transaction_states.describe(self.cluster, [last])[last].state != "CompleteCommit":  # type: ignore[union-attr]
            time.sleep(0.001)
        written = _ms(started)
        self._note("end", many, ended)
        self._note("marker", many, written - ended if many == 1 else written - self._single["end"][-1])

    def _driver(self) -> None:
        for chunks in [1, MANY] * _TIMES:
            group, name = f"{self.prefix}-{chunks}", f"{self.prefix}/driver"
            own = Participant(name, self._do(Acquire(name)))
            offsets = {(ANCHOR, n): (1, "x" * METADATA_LIMIT) for n in range(chunks)}
            time.sleep(PAUSE_SECONDS)
            started = time.perf_counter()
            self._do(StageOffsets(own, group, offsets))
            self._do(End(True, (own,)))
            self._note("decide", chunks, _ms(started))
            self._do(FetchStored(group))  # waits for the marker
            self._timed("stored", chunks, lambda group=group: self._do(FetchStored(group)))  # type: ignore[misc]

    def _do(self, command: Command[T]) -> T:
        return self.query.runner.run(demand(command, "a cost cannot be measured"))

    def _names(self, many: int, nodes: Sequence[int]) -> list[str]:
        """Names at these nodes; where all are ended together, at the first partition."""
        leaders = self.leaders()
        homes = [n for n, leader in leaders.items() if leader in nodes][: 1 if self.together else None]
        names = (f"{self.prefix}/{n}" for n in count())
        return list(islice((name for name in names if partition_of(name, len(leaders)) in homes), many))

    def _timed(self, name: str, many: int, act: Callable[[], object]) -> None:
        time.sleep(PAUSE_SECONDS)
        started = time.perf_counter()
        act()
        self._note(name, many, _ms(started))

    def _cpu(self) -> float:
        return sum(map(cpu_ms, self.pids))


def cpu_ms(pid: int) -> float:
    """CPU time of a process's threads so far, in ms."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((thread / "schedstat").read_text().split()[0])
        except FileNotFoundError:  # the thread has ended since it was listed
            continue
    return total / 1e6


def _ms(since: float) -> float:
    return (time.perf_counter() - since) * 1000


# -- the driver's own ------------------------------------------------------------------------------

_SINK, _RUN = Sink("query"), ProducerIdentity(1_000_000, 1_000)
_TURNS, _ANCHORS, _MANY = 20, 50, 400
PAUSE_SECONDS = 0.02
"""Before each sample: in a batch a command comes once, and what it needs is no longer in caches."""


class AnsweredAtOnce:
    """A cluster where all goes well. It keeps the decision."""

    def __init__(self, sealed: bool) -> None:
        self.sealed, self.chunks, self.identity, self.state = sealed, {}, _RUN, "Empty"

    chunks: dict[int, tuple[int, str]]

    def answer(self, command: Command[Any]) -> Any:
        """What the cluster says."""
        match command:
            case commands.FetchStored():
                return Stored(_ANCHORS, self.chunks)
            case commands.StageOffsets():
                self.chunks = {at: chunk for (_, at), chunk in command.offsets.items()}
                self.state = "Ongoing"
                return None
            case commands.Seal():
                return {who.name: self._seal(who.identity) for who in command.participants}
            case commands.End():
                return {who.name: self._end(who.name, who.identity) for who in command.participants}
            case commands.Describe():
                return {name: self._described(name) for name in command.names}
            case commands.ListOngoing():
                return commands.Listed(())
            case commands.AwaitMarkers() | commands.FindSettled():
                return ()
            case commands.ReadClock():
                return 0
            case commands.Acquire():
                return self.identity
            case commands.AskOngoing() | commands.AskOpen():
                return None
        raise AssertionError(f"the rules ask for {command}")

    def _seal(self, identity: ProducerIdentity) -> Sealed | NotOffered:
        return Sealed(_next(identity), identity) if self.sealed else NotOffered("no")

    def _end(self, name: str, identity: ProducerIdentity) -> ProducerIdentity:
        if name == _SINK.coordinator:
            self.identity, self.state = _next(identity), "CompleteCommit"
        return _next(identity)

    def _described(self, name: str) -> Description:
        if name == _SINK.coordinator:
            return Description(self.state, self.identity, 60_000, 0)
        number = self._numbers.get(name)
        if number is None:
            return Description("CompleteCommit", _RUN, 600_000, 0)
        return Description("Ongoing", number, 600_000, 0)

    _numbers: dict[str, ProducerIdentity]

    def open(self, names: dict[str, ProducerIdentity]) -> None:
        """What the tasks of the next batch have opened."""
        self._numbers = names


def _next(identity: ProducerIdentity) -> ProducerIdentity:
    return identity._replace(epoch=identity.epoch + 1)


def _took(rules: Rules[Any], answer: Callable[[Command[Any]], Any]) -> tuple[Any, float]:
    """The rules' result, and their own milliseconds."""
    spent, said = 0.0, None
    while True:
        started = time.perf_counter()
        try:
            command = rules.send(said)
        except StopIteration as done:
            return done.value, spent + (time.perf_counter() - started) * 1000
        spent += (time.perf_counter() - started) * 1000
        said = answer(command)


def _batches(tasks: int, at_a_time: int, sealed: bool) -> tuple[float, float]:
    """Medians of begin and commit."""
    cluster, last = AnsweredAtOnce(sealed), Run(_RUN, _RUN, Batch("q", 0))
    begins, commits = [], []
    for number in range(1, _TURNS):
        batch = Batch("q", number, str(number))
        rules = begin(_SINK, batch, last_run=last if number > 1 else None, completed=number - 1)
        cluster.open({})
        time.sleep(PAUSE_SECONDS)
        (begun, last), took = _took(rules, cluster.answer)
        begins.append(took)
        opened = [
            who._replace(name=who.name.replace(str(_RUN), str(begun.incarnation)))
            for who in participants(_SINK, tasks, at_a_time, number % 2)
        ]
        cluster.open(dict(opened))
        who = (begun.sink_id, begun.incarnation, begun.identity, begun.sequence, begun.anchors, batch)
        reports = [Prepared(Stamp(*who), n, one, 10, (("t", n % 4),)) for n, one in enumerate(opened)]
        time.sleep(PAUSE_SECONDS)
        commits.append(_took(commit(_SINK, reports, number), cluster.answer)[1])
    return statistics.median(begins[2:]), statistics.median(commits[2:])


def rules_alone(at_a_time: int, *, sealed: bool) -> tuple[Cost, Cost]:
    """Begin's and commit's, from batches of one task and of _MANY."""
    ones, all_ = _batches(1, at_a_time, sealed), _batches(_MANY, at_a_time, sealed)
    begun, done = (Cost(one, (more - one) / (_MANY - 1)) for one, more in zip(ones, all_, strict=True))
    return begun, done
