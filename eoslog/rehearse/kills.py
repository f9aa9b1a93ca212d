"""Kills a driver at every command of a micro-batch, and has another driver go on, by the sink's own rules.

Each batch is a story: a driver lives up to its n-th command and is killed. A new one, which remembers
nothing, begins the same batch again, as Spark does, and commits it. Then the dead one wakes up and sends what
it was about to send. After each story a reader of committed data must see every row of all batches exactly
once, the source offsets must be those of the batch, and nothing may be open.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from eoslog.client.admin.group_offsets import StillPending
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.commit.commands import Command, End, Rules, Unknown
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.task_reports import Run
from eoslog.connector.run.runner import Runner
from eoslog.errors import ProduceFailed
from eoslog.protocol.errors import KafkaError
from eoslog.rehearse.halted import HaltedRun
from eoslog.rehearse.micro_batch import Driver, OpenTransaction, WriteRows, rows_of
from eoslog.rehearse.rows import DoesNotHold, NotFoundOut
from eoslog.rehearse.work import Work

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
