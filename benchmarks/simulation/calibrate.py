"""Measures the costs of single commands on a cluster, one and MANY at a time, on a sink of its own. Where
Kafka's nodes end transactions, many are a window at each coordinator.

Nothing here runs a micro-batch of a size that is foretold: tasks are calibrated by batches of one and MANY
tasks whose commits are not timed, all else by single commands.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count, islice
from pathlib import Path
from typing import TypeVar

from benchmarks.simulation.costs import IN_FLIGHT, Cost, Costs
from benchmarks.simulation.placement import by_partition
from benchmarks.simulation.query import Query, open_transaction
from benchmarks.simulation.rules_alone import PAUSE_SECONDS, rules_alone
from benchmarks.starts import PARTITIONS
from eoslog.client.admin import transaction_states, transactions
from eoslog.connector.commit.commands import Acquire, Command, End, FetchStored, StageOffsets, demand
from eoslog.connector.commit.decision import ANCHOR, METADATA_LIMIT
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.protocol.internal_topics.coordinator_records import partition_of
from eoslog.protocol.producer_identity import ProducerIdentity

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
        before, started = self._cpu(), time.perf_counter()
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
        self._note("end_cpu", many, self._cpu() - before)

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
