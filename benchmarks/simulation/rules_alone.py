"""The driver's own time for begin and commit: the rules run, and every command is answered at once."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.simulation.costs import Cost
from benchmarks.simulation.placement import participants
from eoslog.connector.commit import commands
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.commands import Command, Description, NotOffered, Rules, Sealed
from eoslog.connector.commit.decide import commit
from eoslog.connector.commit.decision import Stored
from eoslog.connector.commit.task_reports import Batch, Prepared, Run, Stamp
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.protocol.producer_identity import ProducerIdentity

_SINK, _RUN = Sink("query"), ProducerIdentity(1_000_000, 1_000)
_TIMES, _ANCHORS, _MANY = 20, 50, 400
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
    for number in range(1, _TIMES):
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
