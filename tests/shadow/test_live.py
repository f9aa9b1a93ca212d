"""A shadow takes over while it and the running query run: on a broker, without Spark, killed at each step."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from eoslog.cli import main
from eoslog.connector.checkpoint import standstill
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.checkpoint.shadow_check import decided_in
from eoslog.connector.checkpoint.standstill import Standstill, TakeOverWish
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.decide import commit, count
from eoslog.connector.commit.faults import CommitFault, SinkFenced, TakenOver
from eoslog.connector.commit.leave_sink import fence
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.places import Place
from eoslog.connector.commit.prepare import stamp_of
from eoslog.connector.commit.task_reports import Batch, Begun, Empty, Left, Run
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.offsets import ShadowCut, to_json
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.connector.run.places_in_log import topic_ids
from eoslog.connector.run.runner import Runner
from eoslog.connector.sink.committer import begin_stream, commit_stream
from eoslog.connector.sink.noted_rows import undecided_behind
from eoslog.connector.sink.shadow_sink import as_begun, stand_if_wanted
from eoslog.connector.source.reader import StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable
from eoslog.errors import OptionError, ShadowLost
from eoslog.shadow import TakenPlace, live, take_over, take_over_live
from tests.connector.brokers import Kafka
from tests.shadow import test_take_over
from tests.shadow.test_take_over import CLOSED, Both, Dies, forgotten

Done = TypeVar("Done")


class Living(Both):
    """A shadow whose driver does its batches in this thread: it decides in its own sink, and stands still."""

    def __init__(self, kafka: Kafka, place: Path, batches: int = 4) -> None:
        super().__init__(kafka, place, 0)
        self.run: Run | None = None
        self.own = Sink(f"new-{self.topic}")
        self.number, self.covered, self.read = 0, 0, 0
        """The shadow's batches, the running query's that they cover, and rows of the source."""
        for _ in range(batches):
            self.step()

    @property
    def options(self) -> SinkOptions:
        """The shadow's."""
        return self.named(**{"transactional.id": self.own.id, "topic": self.into})

    @property
    def as_live(self) -> SinkOptions:
        """The running query's."""
        return self.named(
            **{"transactional.id": self.old.id, "kafka.group.id": self.group, "topic": self.topic}
        )

    def named(self, **names: str) -> SinkOptions:
        given = {"kafka.bootstrap.servers": self.kafka.bootstrap, "checkpointLocation": str(self.place)}
        return sink_options(given | names, stream=True)

    def step(self, early: Sequence[bytes] = (), behind: int = 0, *, ends: bool = True) -> None:
        """A batch of the shadow, and one of the running query if that has decided nothing since the last one.
        `early`: rows that the shadow alone writes. `behind`: batches that the running query decides before
        the shadow has done. `ends`: Spark notes that it is done."""
        own, first = self.ends(self.into), self.covered
        if first == self.done:
            self.old_batch()
        self.kafka.put(self.into, list(early), 1, **CLOSED)
        for number in range(first, self.done):
            self.rows(self.into, number)
        last = self.runner.run(observed_decision(self.old))
        assert last is not None
        cut = ShadowCut(self.old.id, self.group, self.done, self.ends(self.topic), own)
        cut = cut._replace(decided=decided_in(last))
        end = to_json(
            {(self.source, 0): self.done}, began=None if first else {(self.source, 0): 0}, shadow=cut
        )
        (self.place / "offsets" / str(self.number)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
        self.covered = self.read = self.done
        self.decide_own()
        for _ in range(behind):
            self.old_batch()
        self.stand()
        if ends:
            self.complete()

    def no_data(self, early: Sequence[bytes]) -> None:
        """A batch of the shadow that reads nothing, and writes these rows."""
        offsets = self.place / "offsets"
        (offsets / str(self.number)).write_text((offsets / str(self.number - 1)).read_text())
        self.kafka.put(self.into, list(early), 1, **CLOSED)
        self.decide_own()
        self.stand()
        self.complete()

    def stand(self) -> None:
        stand_if_wanted(self.options, Checkpoint.at(str(self.place)).planned(self.number))

    def rows(self, topic: str, number: int) -> None:
        """What the running query's batch writes."""
        for p in range(2):
            self.kafka.put(topic, [b"%d" % n for n in range(2)], p, key=b"%d" % number)

    def old_batch(self) -> None:
        self.rows(self.topic, self.done)
        self.decide()

    def complete(self) -> None:
        """Spark notes that the batch is done."""
        (self.place / "commits" / str(self.number)).write_text("v1\n{}")
        self.number += 1

    def decide_own(self) -> None:
        planned = Checkpoint.at(str(self.place)).planned(self.number)
        batch = Batch(self.new, planned.batch_id, planned.digest)
        begun, self.run = self.runner.run(begin(self.own, batch, last_run=self.run))
        self.runner.run(commit(self.own, [Empty(stamp_of(begun), 0)], batch.batch_id))

    def take_over(self, *more: str) -> Result:
        command = ["shadow", "take-over", str(self.place), "--live", "--wait", "20", *more]
        return CliRunner().invoke(main, [*command, "--bootstrap-server", self.kafka.bootstrap])

    @contextmanager
    def taking_over(self, *more: str) -> Iterator[list[Result]]:
        """The command runs beside the shadow's batches, which begin when it has asked for it."""
        with self.beside(lambda: self.take_over(*more)) as done:
            yield done

    @contextmanager
    def beside(self, takes_over: Callable[[], Done]) -> Iterator[list[Done]]:
        """The same with whatever lets it take over."""
        done = list[Done]()
        thread = threading.Thread(target=lambda: done.append(takes_over()))
        thread.start()
        while TakeOverWish.read(Checkpoint.at(str(self.place))) is None and thread.is_alive():
            time.sleep(0.01)
        yield done
        thread.join(60)
        assert done

    def plan(self, *, live: bool = False) -> dict[str, Any]:
        """Plan the next batch as the source does that has the shadow's options. `live`: has not."""
        given = {
            "kafka.bootstrap.servers": self.kafka.bootstrap, "subscribe": self.source,
            "startingOffsets": "earliest", "kafka.group.id": self.group,
        }  # fmt: skip
        if not live:
            given |= {"shadow.of": self.old.id, "shadow.topic": self.topic, "shadow.into": self.into}
        last = (self.place / "offsets" / str(self.number - 1)).read_text().splitlines()[-1]
        reader = StreamReader(source_options(given, stream=True))
        end: dict[str, Any] = dict(reader.latestOffset(json.loads(last), ReadAllAvailable()))
        (self.place / "offsets" / str(self.number)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
        return end

    def begun(self, options: SinkOptions) -> Begun:
        begun = begin_stream(options)
        assert begun is not None
        return begun

    def goes_on(self, options: SinkOptions, *, live: bool = False) -> None:
        """The query's next batch, in the running query's place. `live`: as in plan."""
        rows = [b"row"] * 3
        self.kafka.put(self.source, rows)
        end = self.plan(live=live)
        self.read = end[self.source]["0"]
        begun = self.begun(options)
        assert begun.sink_id == self.old.id and not begun.is_decided
        assert as_begun(options, begun).topic == self.topic
        commit_stream(options, [Empty(stamp_of(begun), 0)], self.number)
        self.complete()
        decided = self.decided()
        assert decided is not None and decided[:2] == (self.new, self.number - 1)
        ((at, _),) = self.standing()[2].values()
        log_end = self.ends(self.source)[self.source, 0]
        assert at == self.read == log_end, "it reads to the log's end"

    def check_taken(self, closed: int = 0) -> None:
        """It has taken over in its last batch; what it alone had written is there once."""
        rows, decided, group, note = self.standing()
        last = Checkpoint.at(str(self.place)).planned(self.number)
        assert decided == Batch(self.new, last.batch_id, last.digest)
        assert note is not None and (note.sink, note.since) == (self.old.id, last.batch_id)
        ((at, _),) = group.values()
        assert at == self.covered == self.done, "it stands where the running query has ended"
        assert [row[3] for row in rows].count(b"closed") == closed
        written = self.kafka.rows(self.into, 2)
        assert sorted(map(str, rows)) == sorted(map(str, written)) or len(rows) == len(written)


@pytest.fixture
def living(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Living:
    monkeypatch.setattr(standstill, "STANDS_SECONDS", 2.0)
    return Living(kafka, tmp_path / "new")


@pytest.mark.parametrize("left", [False, True])
def test_it_takes_over_between_two_batches(living: Living, left: bool) -> None:
    with living.taking_over() as done:
        living.step([b"closed"] if left else [], ends=False)
    assert done[0].exit_code == 0, done[0].output
    assert f"done: {int(left)} rows" in done[0].output
    living.check_taken(closed=int(left))
    living.complete()
    living.goes_on(living.options)
    living.goes_on(living.options)
    again = living.take_over()
    assert again.exit_code == 1 and "the shadow has taken over" in again.output, again.output


@pytest.fixture
def placed(living: Living, monkeypatch: pytest.MonkeyPatch) -> Living:
    """The running query's decisions say where its rows are, which its transactions write."""
    name, written = f"w-{living.topic}", list[Place]()
    producer, rows = living.kafka.transactional(name), living.rows
    topic_id = topic_ids(living.cluster, (living.topic,))[living.topic]

    def by_transaction(topic: str, number: int) -> None:
        rows(topic, number)
        if topic != living.topic:
            living.kafka.put(topic, [b"row"], 1)
            return
        at, now = living.ends(topic)[topic, 1], int(time.time() * 1000)
        producer.begin_transaction()
        producer.produce(topic, b"row", partition=1, timestamp=now)
        producer.commit_transaction(60)
        written[:] = [Place(topic, topic_id, 1, at, living.identity(name), now)]

    monkeypatch.setattr(living, "rows", by_transaction)
    monkeypatch.setattr(test_take_over, "count", lambda *a: count(*a)._replace(places=tuple(written)))
    return living


def forget_groups(living: Living, *groups: str) -> None:
    """The cluster forgets what these groups had: after a week without use, or as brokers were restored."""
    for deleted in living.kafka.admin.delete_consumer_groups(list(groups)).values():
        deleted.result(60)


@pytest.mark.parametrize("left", [False, True])
def test_the_last_batch_as_a_shadow_is_not_written_again(placed: Living, left: bool) -> None:
    """A power cut takes Spark's note that it is done, and the cluster has forgotten the decision since."""
    with placed.taking_over() as done:
        placed.step([b"closed"] if left else [], ends=False)
    assert done[0].exit_code == 0, done[0].output
    rows = placed.standing()[0]
    forget_groups(placed, placed.old.group, placed.group)
    begun = placed.begun(placed.options)
    assert begun.sink_id == placed.old.id and begun.is_decided
    placed.complete()
    placed.goes_on(placed.options)
    assert placed.standing()[0] == rows


def test_rows_that_were_added_are_the_decision_s(placed: Living) -> None:
    """They stand behind those of the running query, and nobody takes them for a lost decision's."""
    with placed.taking_over() as done:
        placed.step([b"closed"], ends=False)
    assert done[0].exit_code == 0, done[0].output
    last = placed.runner.run(observed_decision(placed.old))
    assert last is not None and undecided_behind(placed.cluster, placed.old.id, last) == ()
    added = [row for row in placed.standing()[0] if row[3] == b"closed"]
    assert [(p.partition, p.offset) for p in last.places] == [row[:2] for row in added]
    placed.complete()
    placed.goes_on(placed.options)
    placed.goes_on(placed.options)


@pytest.mark.parametrize("ends", [False, True])
def test_brokers_that_come_back_from_before_a_take_over(placed: Living, ends: bool) -> None:
    """The sink's last decision is the running query's again: what the shadow alone had written is gone.
    `ends`: Spark has noted that its batch is done, and a later one is planned."""
    with placed.taking_over() as done:
        placed.step([b"closed"], ends=False)
    assert done[0].exit_code == 0, done[0].output
    forget_groups(placed, placed.old.group, placed.group)
    placed.done -= 1
    placed.decide()
    if ends:
        placed.complete()
        forgotten(placed)
    with pytest.raises(TakenOver, match="query old-query has taken the place of query new-query"):
        placed.begun(placed.as_live if ends else placed.options)


def test_it_takes_over_from_a_notebook(living: Living) -> None:
    options = {"kafka.bootstrap.servers": living.kafka.bootstrap, "topic": living.topic}
    options |= {"transactional.id": living.old.id, "kafka.group.id": living.group}
    with living.beside(lambda: take_over_live(str(living.place), options, wait_seconds=20)) as done:
        living.step([b"closed"], ends=False)
    assert done == [TakenPlace(living.old.id, living.group, living.number, living.done, 1)]
    living.check_taken(closed=1)
    living.complete()
    living.goes_on(living.options)


def test_who_has_taken_over_does_not_go_on_in_the_shadow_s_topic(living: Living) -> None:
    """Without shadow.of, and with a shadow's sink options. With those that the error names it goes on."""
    with living.taking_over():
        living.step(ends=False)
    living.complete()
    forgotten(living)
    with pytest.raises(OptionError, match=f"Set topic={living.topic}, transactional.id={living.old.id} and"):
        living.begun(living.options)
    begun = living.begun(living.as_live)
    assert begun.sink_id == living.old.id and not begun.is_decided


def test_the_old_version_stops(living: Living) -> None:
    begun, run = living.runner.run(begin(living.old, Batch("old-query", living.done + 1, "0" * 32)))
    with living.taking_over():
        living.step()
    with pytest.raises(SinkFenced):
        living.runner.run(commit(living.old, [Empty(stamp_of(begun), 0)], run.batch.batch_id))


@pytest.mark.parametrize("fenced", [False, True])
def test_a_shadow_that_is_behind_reads_on(
    living: Living, monkeypatch: pytest.MonkeyPatch, fenced: bool
) -> None:
    """The running query is left alone for a while; then its next batch is the last one that it decides."""
    monkeypatch.setattr(live, "PATIENCE", 2 if fenced else 99)
    first = living.identity(living.old)
    with living.taking_over() as done:
        for _ in range(2):
            living.step(behind=1)
        moved = living.identity(living.old)
        living.step(ends=False)
    assert done[0].exit_code == 0, done[0].output
    after = 3 * (first.epoch < moved.epoch)
    assert moved.epoch - first.epoch == (5 if fenced else 4) or after, "its own batches raise it, too"
    living.check_taken()
    living.complete()
    living.goes_on(living.options)


# -- kills -----------------------------------------------------------------------------------------


class Deaths:
    """Has the command die at a step, without anything that it would do at its end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch, self.seen = monkeypatch, 0
        self.patch.setattr(live.LiveTakeOver, "_withdraw", lambda _: None)

    def after(self, module: Any, kind: type[c.Command[Any]], count: int = 1) -> None:
        """After the so many-th command of a kind that a runner of the module carries out."""

        def die(command: c.Command[Any]) -> None:
            if isinstance(command, kind):
                self.seen += 1
                if self.seen == count:
                    raise Dies

        self.patch.setattr(module, "Runner", partial(Runner, after=die))

    def instead(self, owner: Any, name: str, when: Callable[[Any], bool] = lambda _: True) -> None:
        """Instead of a call."""
        kept = getattr(owner, name)

        def die(*given: Any, **named: Any) -> Any:
            if when(given[0]):
                raise Dies
            return kept(*given, **named)

        self.patch.setattr(owner, name, die)


KILLS: dict[str, tuple[bool, Callable[[Deaths], None]]] = {
    "the running query is fenced": (False, lambda d: d.after(live, c.Acquire)),
    "before the wish says it": (False, lambda d: d.instead(TakeOverWish, "write", lambda w: w.becomes)),
    "the shadow's sink is acquired": (False, lambda d: d.after(live, c.Acquire, 2)),
    "the sink is acquired": (False, lambda d: d.after(take_over, c.Acquire)),
    "rows are added": (False, lambda d: d.after(take_over, c.SaveState)),
    "offsets are staged": (False, lambda d: d.after(take_over, c.StageOffsets)),
    "it is decided": (True, lambda d: d.after(take_over, c.End)),
    "before the note": (True, lambda d: d.instead(NotedSink, "write")),
}
"""Whether it is decided then, and how the command dies."""


@pytest.mark.parametrize("as_live", [False, True])
@pytest.mark.parametrize("kill", list(KILLS))
def test_a_kill_changes_nothing_or_all(
    living: Living, monkeypatch: pytest.MonkeyPatch, kill: str, as_live: bool
) -> None:
    """Then both are started again: with the options that each had, or the shadow with the running query's."""
    decided, dies = KILLS[kill]
    stops = 0
    with monkeypatch.context() as patch:
        dies(Deaths(patch))
        with living.taking_over() as done:
            try:
                living.step([b"closed"], ends=False)
            except CommitFault as stopped:
                assert "the take-over that was begun" in str(stopped)
                stops = 1
    assert isinstance(done[0].exception, Dies), done[0].output
    wished = kill not in ("the running query is fenced", "before the wish says it")
    assert stops == wished
    names = living.as_live if as_live else living.options
    if decided:
        begun = living.begun(names)
        assert begun.sink_id == living.old.id and begun.is_decided, "its rows are there"
        living.check_taken(closed=1)
        living.complete()
        if not as_live:
            living.goes_on(names)
        return
    if as_live:
        with pytest.raises(OptionError, match="would stop it"):
            living.begun(names)
    begun = living.begun(living.options)
    assert begun.sink_id == living.own.id and begun.is_decided
    living.complete()
    rows = living.kafka.rows(living.topic, 2)
    assert len(rows) == 4 * living.done and b"closed" not in [row[3] for row in rows]
    assert living.decided() == Batch("old-query", living.done - 1, f"{living.done - 1:032x}")
    living.run = None
    living.kafka.put(living.topic, [b"closed"], 1, **CLOSED)
    with living.taking_over() as done:
        living.step(ends=False)
    assert done[0].exit_code == 0, done[0].output
    living.check_taken(closed=1)
    living.complete()
    living.goes_on(living.options)


# -- comparison ------------------------------------------------------------------------------------


def test_what_one_writes_a_step_later_is_found_equal(living: Living) -> None:
    """As in a comparison of all at once."""
    living.step([b"closed", b"both"])
    with living.taking_over() as done:
        living.kafka.put(living.topic, [b"closed"], 1, **CLOSED)
        living.kafka.put(living.topic, [b"early"], 1, **CLOSED)
        living.step()
        living.kafka.put(living.topic, [b"both"], 1, **CLOSED)
        living.step([b"early"], ends=False)
    assert done[0].exit_code == 0, done[0].output
    living.check_taken(closed=1)


def test_a_batch_without_rows_is_planned_like_the_one_before(living: Living) -> None:
    """Spark runs it to close windows: what was compared is not compared once more."""
    with living.taking_over() as done:
        living.step(behind=1)
        living.no_data([b"closed"])
        living.kafka.put(living.topic, [b"closed"], 1, **CLOSED)
        living.step(ends=False)
    assert done[0].exit_code == 0, done[0].output
    living.check_taken(closed=1)


def test_a_key_that_was_late_before_does_not_tell_rows_apart(living: Living) -> None:
    """Of two rows of a key one would be written twice, the other never."""
    living.step([b"closed"])
    living.kafka.put(living.topic, [b"closed"], 1, **CLOSED)
    living.step()
    with living.taking_over("--key", "--wait", "3") as done:
        living.step([b"other"])
    assert done[0].exit_code == 1 and "cannot be told by the key" in done[0].output, done[0].output


# -- who does not wait -----------------------------------------------------------------------------


def at(
    module: Any, monkeypatch: pytest.MonkeyPatch, kind: type, count: int, does: Callable[[], None]
) -> None:
    """Do this just before the so many-th command of a kind of the module's runners."""
    seen = list[object]()

    def before(command: c.Command[Any]) -> None:
        if isinstance(command, kind):
            seen.append(command)
            if len(seen) == count:
                monkeypatch.setattr(module, "Runner", Runner)
                does()

    monkeypatch.setattr(module, "Runner", partial(Runner, before=before))


def next_batch(living: Living) -> None:
    """The shadow's next batch, in its own sink, while somebody looks at the last one."""
    batch = Batch(living.new, living.number + 1, "0" * 32)
    begun, living.run = living.runner.run(begin(living.own, batch, last_run=living.run))
    living.runner.run(commit(living.own, [Empty(stamp_of(begun), 0)], batch.batch_id))


def test_a_shadow_that_does_not_wait_does_not_take_over(
    living: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has decided one more batch: its rows would be in nobody's topic."""
    at(live, monkeypatch, c.Acquire, 2, lambda: next_batch(living))
    with living.taking_over() as done:
        living.step(ends=False)
    assert done[0].exit_code == 1 and "it has not waited" in done[0].output, done[0].output
    assert living.decided() == Batch("old-query", living.done - 1, f"{living.done - 1:032x}")
    assert TakeOverWish.read(Checkpoint.at(str(living.place))) is None


def test_a_shadow_decides_nothing_in_its_own_sink_meanwhile(
    living: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = list[SinkFenced]()

    def goes_on() -> None:
        with pytest.raises(SinkFenced) as fenced:
            next_batch(living)
        stopped.append(fenced.value)

    at(take_over, monkeypatch, c.Acquire, 1, goes_on)
    with living.taking_over() as done:
        living.step(ends=False)
    assert stopped and done[0].exit_code == 0, done[0].output
    living.check_taken()
    living.complete()
    living.goes_on(living.options)


def test_a_start_in_the_middle_ends_the_take_over(living: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has acquired the shadow's sink after that was looked at."""
    begun = list[Begun]()
    at(take_over, monkeypatch, c.StageOffsets, 1, lambda: begun.append(living.begun(living.options)))
    with living.taking_over() as done:
        living.step([b"closed"], ends=False)
    assert done[0].exit_code == 1 and begun, done[0].output
    assert begun[0].sink_id == living.own.id and begun[0].is_decided
    assert living.decided() == Batch("old-query", living.done - 1, f"{living.done - 1:032x}")
    assert b"closed" not in [row[3] for row in living.kafka.rows(living.topic, 2)]


def test_nobody_answers(living: Living) -> None:
    """Of a command that has died: the shadow waits for it once."""
    checkpoint = Checkpoint.at(str(living.place))
    TakeOverWish("dead").write(checkpoint)
    began = time.monotonic()
    living.step()
    assert time.monotonic() - began > 2.0 and TakeOverWish.read(checkpoint) is None
    living.step()
    assert living.decided() == Batch("old-query", living.done - 1, f"{living.done - 1:032x}")


def test_another_command_wants_the_same(living: Living) -> None:
    checkpoint = Checkpoint.at(str(living.place))
    with living.taking_over() as done:
        TakeOverWish("another").write(checkpoint)
    assert done[0].exit_code == 1 and "another command wants the same" in done[0].output, done[0].output
    wish = TakeOverWish.read(checkpoint)
    assert wish is not None and wish.word == "another", "it is left alone"


def test_the_running_query_decides_once_more(living: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    """Just before its sink is acquired: the shadow reads that as well."""
    at(live, monkeypatch, c.Acquire, 1, living.old_batch)
    with living.taking_over() as done:
        living.step()
        assert living.covered == living.done - 1 and not done
        living.step(ends=False)
    assert done[0].exit_code == 0, done[0].output
    living.check_taken()


def test_a_guarantee_without_a_decision_that_counts(living: Living) -> None:
    """at_most_once: the next start would drop the batch."""
    checkpoint = Checkpoint.at(str(living.place))
    TakeOverWish("asks").write(checkpoint)
    stand_if_wanted(living.named(**{"processing.guarantee": "at_most_once"}), checkpoint.planned(0))
    assert Standstill.read(checkpoint) is None


# -- what is refused -------------------------------------------------------------------------------


def differs(living: Living) -> None:
    living.kafka.put(living.topic, [b"more"])
    for _ in range(6):
        living.step()


def few_steps(living: Living) -> None:
    for log in ("offsets", "commits"):
        (living.place / log / "0").unlink()


def no_decisions(living: Living) -> None:
    NotedSink(None, None, 0).write(Checkpoint.at(str(living.place)))


def another(living: Living) -> None:
    end = to_json({(living.source, 0): living.done})
    (living.place / "offsets" / str(living.number - 1)).write_text(f"v1\n{{}}\n{json.dumps(end)}")


@pytest.mark.parametrize(
    ("history", "more", "says"),
    [
        (differs, (), "1 rows were written by one version alone, in batch 4 or later"),
        (few_steps, (), "2 steps were compared, and at least 10 have to be, or all"),
        (no_decisions, (), "the shadow has no sink that keeps decisions"),
        (another, (), "planned without the option shadow.of"),
        (lambda _: None, ("--decision-topic", "elsewhere"), "has no decision on elsewhere"),
        (lambda _: None, ("--fence",), "leave --dry-run and --fence out"),
        (lambda _: None, ("--wait", "0.1"), "within 0.1 s: the shadow has decided no batch meanwhile"),
    ],
)
def test_what_is_refused(
    living: Living, history: Callable[[Living], None], more: tuple[str, ...], says: str
) -> None:
    history(living)
    before = living.standing()
    done = living.take_over(*more)
    assert done.exit_code in (1, 2) and says in done.output and "Traceback" not in done.output, done.output
    assert living.standing() == before
    assert TakeOverWish.read(Checkpoint.at(str(living.place))) is None


def test_a_sink_that_was_left_is_not_taken_over(living: Living) -> None:
    """Its query goes on elsewhere."""
    living.runner.run(fence(living.old, Left("word", living.old.id, "old-query", living.done, 0)))
    before = living.standing()
    with living.taking_over() as done:
        living.no_data([])
    assert done[0].exit_code == 1 and "has gone on on another cluster" in done[0].output, done[0].output
    assert living.standing() == before


def test_the_state_is_saved_on(living: Living) -> None:
    """Or the new version's state would be saved nowhere, once it has the running query's place."""
    living.state = living.kafka.topic(cleanup_policy="compact")
    with living.taking_over() as done:
        living.step()
    said = f"Start the shadow with state.topic={living.state}"
    assert done[0].exit_code == 1 and said in done[0].output, done[0].output


def test_a_batch_in_its_place_needs_the_note(living: Living) -> None:
    """The note is another one, and another query has decided since: whose rows they are is not guessed."""
    with living.taking_over():
        living.step()
    living.plan()
    NotedSink(living.own.id, None, 0).write(Checkpoint.at(str(living.place)))
    living.decide()
    with pytest.raises(OptionError, match=r"planned in that query's place.*Give eoslog shadow take-over"):
        living.begun(living.options)


# -- a checkpoint that does not say it -------------------------------------------------------------


def unnoted(living: Living, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Both are stopped, and the shadow takes over; its checkpoint does not say so."""
    copy = living.place.with_name("copy")
    shutil.copytree(living.place, copy)

    def dies(*given: Any) -> None:
        raise Dies

    with monkeypatch.context() as patch:
        if how == "killed":
            patch.setattr(take_over, "note_taken", dies)
        Both.take_over(living)
    if how != "killed":
        shutil.rmtree(living.place)
        shutil.copytree(copy, living.place)
    decided = living.decided()
    assert decided is not None and decided.query_id == living.new
    noted = NotedSink.read(Checkpoint.at(str(living.place)))
    assert noted is not None and noted.sink == living.own.id


@pytest.mark.parametrize("then", ["start", "command", "live", "planned", "as live"])
@pytest.mark.parametrize("how", ["killed", "copy"])
def test_what_a_checkpoint_does_not_say_is_noted(
    living: Living, monkeypatch: pytest.MonkeyPatch, how: str, then: str
) -> None:
    """By the next start, and by the command. Then it goes on."""
    unnoted(living, monkeypatch, how)
    before = living.standing()
    if then == "planned":  # a start that has not come any further
        living.plan()
    if then == "as live":
        forgotten(living)
    elif then != "start":
        done = living.take_over() if then == "live" else Both.take_over(living)
        assert done.exit_code == 0, done.output
        assert living.standing()[:3] == before[:3]
    if then == "as live":
        begun = living.begun(living.as_live)
        assert begun.sink_id == living.old.id and not begun.is_decided
        return
    living.goes_on(living.options)
    living.goes_on(living.options)
    assert living.standing()[0] == before[0]


def test_a_note_that_cannot_be_made_up_for_by_the_start(
    living: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shadow keeps its decisions elsewhere. The way out that the error names ends."""
    unnoted(living, monkeypatch, "killed")
    living.plan()
    elsewhere = living.kafka.topic(1)
    named = {"transactional.id": living.own.id, "topic": living.into, "decision.topic": elsewhere}
    with pytest.raises(OptionError, match=r"planned in that query's place.*Give eoslog shadow take-over"):
        living.begun(living.named(**named))
    assert Both.take_over(living).exit_code == 0
    living.goes_on(living.options)


@pytest.mark.parametrize("live", [False, True], ids=["shadow", "live"])
@pytest.mark.parametrize("older", [0, 1])
def test_a_copy_of_before_that_comes_back(
    living: Living, monkeypatch: pytest.MonkeyPatch, older: int, live: bool
) -> None:
    """The shadow has gone on in the other query's place: the copy would be a shadow of its own, and rows
    would be missing. It stops, and the way out ends. `live`: how it has gone on."""
    monkeypatch.setattr("eoslog.checkpoint.standing.drivers_of", lambda query: [])
    copy = living.place.with_name("copy")
    shutil.copytree(living.place, copy)
    for _ in range(older):
        living.step()
    assert Both.take_over(living).exit_code == 0
    for _ in range(2 - older):
        living.goes_on(living.as_live if live else living.options, live=live)
    last, rows = living.number - 1, living.standing()[0]
    shutil.rmtree(living.place)
    shutil.copytree(copy, living.place)
    living.number -= 2
    living.kafka.put(living.source, [b"row"])
    with pytest.raises(ShadowLost, match=f"has decided batch {last} of query {living.new} there") as lost:
        living.plan()
        living.begun(living.options)
    for more in ((), ("--live",)):
        done = living.take_over() if more else Both.take_over(living)
        assert done.exit_code == 1 and "this checkpoint is a copy of before" in done.output, done.output
    assert living.standing()[0] == rows
    named = re.search(r"eoslog (checkpoint rebuild) FOLDER (.+?), with", str(lost.value))
    assert named is not None
    living.place = living.place.with_name("again")
    typed = [*named[1].split(), str(living.place), *named[2].split(), "--watch", "0"]
    done = CliRunner().invoke(main, [*typed, "--bootstrap-server", living.kafka.bootstrap])
    assert done.exit_code == 0, done.output
    living.number = last
    begun = living.begun(living.as_live)
    assert begun.sink_id == living.old.id and begun.is_decided
    living.complete()
    living.goes_on(living.as_live, live=live)
