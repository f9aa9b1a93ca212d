"""What the histories of the model have covered: states of the simulation, and faults at requests.

A state is what a crash could leave behind at a request: the cluster's transactions, groups and rows, the
checkpoint, and which processes are where.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.connector.commit.model_history import Fault

if TYPE_CHECKING:
    from tests.connector.commit.model_spark import Simulation


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
