"""One driver and its tasks on the model cluster, by hand: for tests that tell one story each."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeGuard, TypeVar

from eoslog.connector.commit import commands as c
from eoslog.connector.commit.abandon import Aborted, end_run, run_of
from eoslog.connector.commit.begin import begin, mark_attempt
from eoslog.connector.commit.decide import SourceOffsets, commit
from eoslog.connector.commit.places import PartitionState
from eoslog.connector.commit.prepare import Task, judge, participant_name
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.seal import TwoPhase
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Empty, Prepared, Report, Run
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.commit.model_broker import ModelBroker

T = TypeVar("T")


class Crash(Exception):
    """The driver is gone."""


class Bench:
    """Runs rules on a cluster and notes each command. `intercept` may answer in the cluster's place, by
    returning something else than None, or crash the driver by raising. `told` hears each command with its
    answer. `ids`: of the topics that there are, to which each task's rows go."""

    def __init__(
        self,
        tv: int = 2,
        two_phase: TwoPhase = TwoPhase.AUTO,
        on_lost: OnLost = OnLost.STOP,
        **broker: Any,
    ) -> None:
        self.two_phase, self.on_lost = two_phase, on_lost
        self.broker = ModelBroker(tv, **broker)
        self.asked: c.Listed | None = None
        self.sink = Sink("sink")
        self.ids: dict[str, str | None] = {}
        self.commands: list[c.Command[Any]] = []
        self.intercept: Callable[[c.Command[Any]], Any] | None = None
        self.told: Callable[[c.Command[Any], Any], None] | None = None

    def run(self, rules: c.Rules[T], *around: c.Around) -> T:
        return c.run_rules(rules, self._answer, *around)

    def _answer(self, command: c.Command[Any]) -> Any:
        self.commands.append(command)
        self.broker.now_ms += 1
        answer = self.intercept(command) if self.intercept else None
        if answer is None:
            answer = self._perform(command)
        if self.told is not None:
            self.told(command, answer)
        return answer

    def begin(self, batch_id: int, query: str = "q", run: Run | None = None, **more: Any) -> Begun:
        batch = Batch(query, batch_id, more.pop("digest", f"digest {batch_id}"))
        at_most_once = more.pop("at_most_once", False)
        begun, self.remembered = self.run(
            begin(self.sink, batch, last_run=run, two_phase=self.two_phase, on_lost=self.on_lost, **more)
        )
        if at_most_once:
            begun = replace(begun, dropped=self.run(mark_attempt(self.sink, batch)))
        return begun

    def prepare(self, begun: Begun, partition: int, rows: list[str], worker: str = "") -> Report:
        assert begun.batch is not None
        task, stamp = judge(begun, begun.batch.query_id, begun.batch.batch_id, partition)
        if task is Task.PASS_DECIDED:
            return Decided(stamp, partition, len(rows))
        if not rows:
            return Empty(stamp, partition)
        name = participant_name(stamp, worker or f"w{partition}", 0)
        identity = self.broker.init(name)
        if not self.broker.verifies:
            self.broker.add_partitions(name, identity)
        assert self.broker.produce(name, identity, 0, rows) is None
        ids = tuple((topic, number) for topic, number in self.ids.items() if number is not None)
        written = (("out", partition),)
        return Prepared(stamp, partition, Participant(name, identity), len(rows), written, topic_ids=ids)

    def prepare_all(self, begun: Begun) -> list[Report]:
        assert begun.batch is not None
        name = f"{begun.batch.query_id}{begun.batch.batch_id}"
        return [self.prepare(begun, partition, [f"{name}p{partition}"]) for partition in range(2)]

    def commit(self, reports: list[Report], batch_id: int, source: SourceOffsets | None = None) -> None:
        self.run(commit(self.sink, reports, batch_id, source, self.two_phase))

    def abort(
        self, reports: Sequence[Report | None], batch_id: int = 0, begun: Begun | None = None
    ) -> Aborted:
        """As Spark does, perhaps without a report; what came of it."""
        run = run_of(reports, begun)
        return self.run(end_run(self.sink, run)).outcome if run is not None else Aborted.LEFT

    def whole_batch(self, batch_id: int, **more: Any) -> list[Report]:
        reports = self.prepare_all(self.begin(batch_id, **more))
        self.commit(reports, batch_id)
        return reports

    def crash_at(self, stop: Callable[[c.Command[Any]], bool], *, after: bool = False) -> None:
        """From now on the driver dies at the first command that `stop` picks."""

        def intercept(command: c.Command[Any]) -> None:
            if stop(command):
                self.intercept = None
                if after:
                    self._perform(command)
                raise Crash

        self.intercept = intercept

    def give_up(self, name: str, identity: ProducerIdentity) -> None:
        """As an attempt that fails does with its own transaction."""
        self._end(name, identity, False)

    def open(self) -> tuple[str, ...]:
        return self.broker.ongoing(self.sink.prefix)

    def _perform(self, command: c.Command[Any]) -> Any:
        broker = self.broker
        match command:
            case c.Acquire(name, current, used):
                return broker.go_on(name, current, used=used) if current else broker.init(name, used=used)
            case c.FetchStored(group, _, stable):
                return broker.fetch(group, stable=stable)
            case c.StageOffsets((name, identity), group, offsets):
                if not broker.verifies:
                    broker.add_offsets(name, identity, group)
                return broker.stage(name, identity, group, offsets)
            case c.CommitOffsets(group, offsets):
                return broker.commit_offsets(group, offsets)
            case c.AskOngoing(prefix):
                self.asked = c.Listed(broker.ongoing(prefix))
                return None
            case c.ListOngoing(prefix, asked):
                early, self.asked = self.asked if asked else None, None
                return c.Listed(broker.ongoing(prefix)) if early is None else early
            case c.Describe(names):
                return broker.describe(names)
            case c.Seal(participants):
                return {name: broker.keep(name) for name, _ in participants}
            case c.SaveState(own, saving, last_save, contents):
                return saving.write(own, last_save, contents)
            case c.FindTopics(names):
                return {name: self.ids[name] for name in names if name in self.ids}
            case c.FindHeld() | c.AwaitMarkers():
                return ()
            case c.AskOpen():
                return None
            case c.FindSettled(staged):
                return broker.settled([group for group, _ in staged])
            case c.FindOpen(places):
                return dict.fromkeys(places, PartitionState(-1, None))
            case c.FindOwn(_, producer_id):
                return broker.find_own(producer_id)
            case c.WriteMarkers(held, commit):
                return broker.write_markers(held, commit)
            case c.TransactionVersion():
                return broker.tv
            case c.ReadClock():
                return broker.now_ms
            case c.End(commit, participants):
                return {name: self._end(name, identity, commit) for name, identity in participants}
        raise AssertionError(command)

    def _end(self, name: str, identity: ProducerIdentity, commit: bool) -> ProducerIdentity | c.Refused:
        if self.broker.aborts_by_epoch(name, identity, commit):
            return self.broker.abort(name, identity)
        return self.broker.end(name, identity, commit)


def decides(command: c.Command[Any]) -> bool:
    """Whether it is the commit point: EndTxn(commit) on the sink's own id."""
    return isinstance(command, c.End) and command.commit and command.participants[0].name == "sink"


def finishes(command: c.Command[Any]) -> TypeGuard[c.End]:
    """Whether it commits participants."""
    return isinstance(command, c.End) and command.commit and not decides(command)
