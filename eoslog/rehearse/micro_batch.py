"""A driver's micro-batch as one generator of commands: begin, two tasks, commit. Pure.

Spark runs the same rules in several processes (connector/sink). What a task does between them, to open its
transaction and to write, is a command here too, so a driver can be halted there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.commands import Command, Rules
from eoslog.connector.commit.decide import SourceOffsets, commit
from eoslog.connector.commit.finish import await_readable
from eoslog.connector.commit.prepare import Task, judge, participant_name, withdraw_if_late
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Prepared, Report, Run
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.protocol.producer_identity import ProducerIdentity

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
