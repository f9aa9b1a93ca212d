"""What single commands cost on one cluster, measured apart from any micro-batch (calibrate.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

IN_FLIGHT = 100
"""client/wire/pipelined.py"""


@dataclass(frozen=True)
class Cost:
    """Milliseconds: `alone`, and of each further one that is sent together with it."""

    alone: float
    each: float = 0.0

    def of(self, count: int) -> float:
        """So many, a window of requests at a time."""
        full, rest = divmod(count, IN_FLIGHT)
        return full * self.window(IN_FLIGHT) + self.window(rest)

    def window(self, count: int) -> float:
        """So many, sent together."""
        return self.alone + (count - 1) * self.each if count else 0.0


@dataclass(frozen=True)
class Costs:
    """`task`: opened, written, seen; `each` while workers run side by side. `look`: DescribeTransactions of a
    name, and of each further name. `stored`: the decision is read, and each further chunk of it. `listing`:
    ListTransactions on all nodes, and each transaction listed. `decide`: TxnOffsetCommit and EndTxn of the
    driver's own. `seal`: of a node's participants. `end`: of participants, and each further one at any node.
    `sync`: each further partition that an end of all together writes to. `marker`: from EndTxn's answer to
    CompleteCommit, and each further one, at any node, while they queue up. `begin`,
    `commit`: the driver's rules alone, for one task and for each further one. `task_cpu`, `end_cpu`: CPU of
    all nodes for a task, and for an end with its markers.
    """

    task: Cost
    look: Cost
    stored: Cost
    listing: Cost
    decide: Cost
    seal: Cost
    end: Cost
    sync: Cost
    marker: Cost
    begin: Cost
    commit: Cost
    task_cpu: Cost
    end_cpu: Cost

    def as_json(self) -> dict[str, list[float]]:
        """By name."""
        return {
            name: [round(cost["alone"], 4), round(cost["each"], 5)] for name, cost in asdict(self).items()
        }

    @classmethod
    def from_json(cls, found: Mapping[str, list[float]]) -> Costs:
        """What `as_json` gave."""
        return cls(**{field.name: Cost(*found[field.name]) for field in fields(cls)})
