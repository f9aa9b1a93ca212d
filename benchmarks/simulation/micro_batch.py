"""What a micro-batch asks of a cluster, and what the cluster writes for it: counts, pure.

The batch is one of a running query, its third or later: names, coordinators and leaders are known, and the
batch before it has as many tasks. A task writes a transaction of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

TV2 = 2
BEGIN, TASKS, COMMIT = "begin", "tasks", "commit"
Requests = Mapping[str, int]
"""How many of each API."""


@dataclass(frozen=True)
class MicroBatch:
    """`at_a_time`: tasks that run side by side. `leaders`: nodes that lead the partitions a task writes to,
    `written`: those partitions. `coordinators`: nodes that coordinate a task of this batch, `asked`: nodes
    that the driver asks about the transactions of this batch, of the one before and of its own. `sealed`:
    the cluster offers two-phase commit and the query uses it. `together`: a coordinator ends all of its
    transactions by one request (the bundled broker). `groups`: 2 with kafka.group.id. `looks`: how often
    the driver looks whether all markers are written.
    """

    tasks: int
    at_a_time: int = 1
    nodes: int = 1
    coordinators: int = 1
    asked: int = 1
    leaders: int = 1
    written: int = 1
    transaction_version: int = TV2
    sealed: bool = False
    together: bool = False
    groups: int = 1
    looks: int = 1

    def requests(self) -> dict[str, Requests]:
        """What clients send, by phase."""
        old = self.transaction_version < TV2
        listing = Counter(Metadata=2 * self.nodes, ListTransactions=self.nodes)
        begin = listing + Counter(DescribeTransactions=1, OffsetFetch=1, InitProducerId=int(old))
        tasks = Counter(
            InitProducerId=self.tasks,
            AddPartitionsToTxn=self.tasks * old,
            Produce=self.tasks * self.leaders,
            DescribeTransactions=self.tasks,
        )
        commit = listing + Counter(
            OffsetFetch=1,
            InitProducerId=self.tasks * self.sealed,
            AddOffsetsToTxn=self.groups * old,
            TxnOffsetCommit=self.groups,
            DescribeTransactions=self.asked + (0 if self.together else self.looks * self.coordinators),
            EndTxn=1 + (self.coordinators if self.together else self.tasks),
        )
        return {BEGIN: begin, TASKS: +tasks, COMMIT: commit}

    @property
    def state_records(self) -> int:
        """Records in `__transaction_state`. Of a task: Empty, Ongoing by each leader that asks for it (one
        with transaction.version 1: the client asks), sealed, PrepareCommit, CompleteCommit. Of the driver:
        Ongoing for each group, PrepareCommit, CompleteCommit, and Empty with transaction.version 1."""
        old = self.transaction_version < TV2
        task = 1 + (1 if old else self.leaders) + self.sealed + 2
        return self.tasks * task + self.groups + 2 + old

    @property
    def markers(self) -> int:
        """Control records in the topics that are written to."""
        return self.tasks * self.written

    def connections(self, drivers: int = 2) -> int:
        """Open connections to the cluster, when its processes have met all nodes. A worker has one to each
        node for requests and one to each that leads a partition it writes to; of the driver's two processes,
        begin and commit, each has one to each node for requests and one for the list of transactions."""
        return self.at_a_time * 2 * self.nodes + drivers * 2 * self.nodes


def offset_records(chunks: int, source_partitions: int = 0) -> int:
    """Records in `__consumer_offsets`: the decision and its marker; and with kafka.group.id the source's
    offsets and their marker, if that group is on another partition."""
    return chunks + 1 + (source_partitions + 1 if source_partitions else 0)
