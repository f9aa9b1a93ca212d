"""The driver's side of the sink on the model cluster: what begin, commit and abort hand to the rules, what
they remember, and when the partitions are asked."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eoslog.client.admin import groups as group_offsets
from eoslog.client.admin.groups import CommittedOffset
from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.checkpoint_view import CheckpointView, kept_of
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.decision import Decision, Stored, decode
from eoslog.connector.commit.faults import (
    CheckpointCopied,
    CheckpointMismatch,
    CheckpointOlder,
    CommitFault,
    DecisionGone,
    ReplayDiffers,
    SinkFenced,
    StartsElsewhere,
    TakenOver,
)
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.places import Place, Places, Seen
from eoslog.connector.commit.prepare import judge
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Empty, Report
from eoslog.connector.commit.write_token import sink_of_query
from eoslog.connector.offsets.group_notes import Note, read_note
from eoslog.connector.options.sink_options import Guarantee, SinkOptions, sink_options
from eoslog.connector.run import run_memory
from eoslog.connector.sink import committer, noted_rows, start_of_run
from eoslog.errors import OptionError, WrongCluster
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.commit.model_bench import Bench, Crash, finishes
from tests.connector.commit.model_broker import UNSTABLE


class OnModel:
    """Runs rules on the model cluster, in the place of a Runner."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.acquainted, self.lost_broker, self.retries = True, False, 0

    def disturbed(self) -> bool:
        told, self.lost_broker = self.lost_broker, False
        return told

    def run(self, rules: c.Rules[Any], *around: c.Around) -> Any:
        return self.bench.run(rules, *around)


class Query:
    """A stream's checkpoint and its sink. Batches read one partition, of 10 offsets a batch."""

    def __init__(self, folder: Path, bench: Bench, query_id: str = "q", **options: str) -> None:
        self.folder, self.bench, self.runner = folder, bench, OnModel(bench)
        self.options = stream_options(folder, **options)
        for log in ("offsets", "commits"):
            (folder / log).mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": query_id}))

    def plan(self, batch_id: int, end: int | None = None) -> None:
        offset = 10 * (batch_id + 1) if end is None else end
        (self.folder / "offsets" / str(batch_id)).write_text(f'v1\n{{}}\n{{"in":{{"0":{offset}}}}}')

    def complete(self, batch_id: int) -> None:
        (self.folder / "commits" / str(batch_id)).write_text("v1\n{}")

    def begin(self) -> Begun:
        self.bench.commands.clear()
        begun = committer.begin_stream(self.options, self.runner)  # type: ignore[arg-type]
        assert begun is not None
        return begun

    def commit(self, reports: list[Report], batch_id: int) -> None:
        committer.commit_stream(self.options, reports, batch_id, self.runner)  # type: ignore[arg-type]

    def batch(self, batch_id: int) -> list[Report]:
        self.plan(batch_id)
        reports = self.bench.prepare_all(self.begin())
        self.commit(reports, batch_id)
        self.complete(batch_id)
        return reports

    def dies_finishing(self, batch_id: int) -> list[Report]:
        """Decided, and no participant committed."""
        self.plan(batch_id)
        reports = self.bench.prepare_all(self.begin())
        self.bench.crash_at(finishes)
        with pytest.raises(Crash):
            self.commit(reports, batch_id)
        return reports

    def last(self) -> Decision:
        """The sink's last decision."""
        stored = self.bench.run(c.demand(c.FetchStored(self.bench.sink.group), "it cannot be read"))
        last = decode(self.bench.sink, stored.chunks)
        assert last is not None
        return last

    def sent(self, kind: type) -> list[Any]:
        return [command for command in self.bench.commands if isinstance(command, kind)]


def stream_options(folder: Path, **more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": "nowhere:1", "topic": "out", "transactional.id": "sink"}
    given["checkpointLocation"] = str(folder)
    return sink_options(given | {name.replace("__", "."): text for name, text in more.items()}, stream=True)


def write_options(**more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": "nowhere:1", "topic": "out"}
    return sink_options(given | {name.replace("__", "."): text for name, text in more.items()}, stream=False)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Memories of this test alone."""
    (tmp_path / "memories").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "memories"))
    monkeypatch.setattr(start_of_run, "cluster_id", lambda cluster: "cluster")
    monkeypatch.setattr(start_of_run, "behind_the_first", lambda *_: ())  # the model keeps no records
    monkeypatch.setattr(noted_rows, "_behind", lambda *_: ())
    monkeypatch.setattr(start_of_run, "visible_since", lambda *_: ())
    return tmp_path


@pytest.fixture
def query(folder: Path) -> Query:
    return Query(folder / "q", Bench())


def group_holds(monkeypatch: pytest.MonkeyPatch, found: Mapping[tuple[str, int], tuple[int, str]]) -> None:
    with_epochs = {tp: CommittedOffset(*one, -1) for tp, one in found.items()}
    monkeypatch.setattr(group_offsets, "fetch_with_epochs", lambda *_, **__: with_epochs)


# -- begin of a micro-batch -------------------------------------------------------------------


def test_a_query_goes_on_without_acquiring_its_sink(query: Query) -> None:
    query.batch(0)
    query.batch(1)
    assert not [command for command in query.sent(c.Acquire) if command.current is None]
    assert len(query.bench.broker.visible()) == 4


def test_a_start_that_was_stopped_is_stopped_again(query: Query) -> None:
    """What is compared at a start is compared until it fits: a second try remembers nothing of the first."""
    query.batch(0)
    query.plan(0, end=7)  # another checkpoint in its place
    query.plan(1)
    run_memory.take(repr(query.options.client.bootstrap), "sink", "q")
    for planned in (1, 1, 2):
        query.plan(planned)
        with pytest.raises(CheckpointMismatch, match="with other source offsets"):
            query.begin()
        assert run_memory.look(repr(query.options.client.bootstrap), "sink", "q") is None


def test_the_batch_of_another_query_is_not_looked_for_in_this_ones_checkpoint(query: Query) -> None:
    """It would be another batch under the same number, and its offsets those of nobody."""
    query.plan(0)
    query.plan(1)
    view = CheckpointView.of(Checkpoint.at(str(query.options.checkpoint_location)))
    assert kept_of(view, Batch("q", 0)) is not None
    assert kept_of(view, Batch("another", 0)) is None


def test_a_begin_that_failed_leaves_no_memory(query: Query) -> None:
    query.batch(0)
    query.plan(1)
    away = c.Unknown("away")
    query.bench.intercept = lambda command: away if isinstance(command, c.ListOngoing) else None
    with pytest.raises(CommitFault):
        query.begin()
    query.bench.intercept = None
    query.begin()
    assert c.Acquire("sink", used=True) in query.bench.commands


@pytest.mark.parametrize(
    ("remembers", "acquainted", "lost_broker", "asks"),
    [
        (True, True, False, False),
        (True, True, True, True),
        (True, False, False, True),
        (False, True, False, True),
    ],
)
def test_who_may_have_missed_the_loss_of_a_broker_asks_the_partitions(
    query: Query, remembers: bool, acquainted: bool, lost_broker: bool, asks: bool
) -> None:
    """A process that was just started has seen no connection break; nor has a run that has just begun."""
    query.batch(0)
    query.plan(1)
    query.runner.acquainted, query.runner.lost_broker = acquainted, lost_broker
    if not remembers:
        run_memory.take(repr(query.options.client.bootstrap), "sink", "q")
    query.begin()
    assert bool(query.sent(c.FindHeld)) is asks


def test_queries_sinks_and_clusters_have_memories_of_their_own(folder: Path, query: Query) -> None:
    query.batch(0)
    others = [
        Query(folder / "r", query.bench, "r"),
        Query(folder / "s", query.bench, transactional__id="other"),
        Query(folder / "t", query.bench, kafka__bootstrap__servers="elsewhere:1"),
    ]
    for other in others:
        (other.folder / "eoslog").mkdir()
        shutil.copy(query.folder / "eoslog" / "starts", other.folder / "eoslog")
        other.complete(0)
        other.plan(1)
        other.begin()
        assert [command.current for command in other.sent(c.Acquire)] == [None], other.options


def test_a_query_that_rested_until_its_ids_expired_goes_on(query: Query) -> None:
    query.batch(0)
    query.plan(1)
    query.bench.broker.transactions.clear()
    query.begin()


def test_a_checkpoint_that_plans_other_offsets_stops(query: Query) -> None:
    query.dies_finishing(0)
    query.plan(0, end=11)
    with pytest.raises(CheckpointMismatch):
        query.begin()


def plan_files(query: Query, batch_id: int, *paths: str) -> None:
    """As Spark does for its file source: the files stand in the source's own log."""
    log = query.folder / "sources" / "0"
    log.mkdir(parents=True, exist_ok=True)
    lines = [f'{{"path":"{path}","timestamp":1,"batchId":{batch_id}}}' for path in paths]
    (log / str(batch_id)).write_text("\n".join(["v1", *lines]))
    (query.folder / "offsets" / str(batch_id)).write_text(f'v1\n{{}}\n{{"logOffset":{batch_id}}}')


def test_a_batch_of_other_files_is_no_replay(query: Query) -> None:
    """A power cut has taken the plan of a decided batch, and a new file has come: the end is the same."""
    plan_files(query, 0, "one")
    query.commit(query.bench.prepare_all(query.begin()), 0)
    plan_files(query, 0, "one", "two")
    with pytest.raises(CheckpointMismatch, match="with other source offsets"):
        query.begin()
    plan_files(query, 0, "one")
    query.begin()
    query.complete(0)
    plan_files(query, 0, "one", "two")
    plan_files(query, 1, "three")
    with pytest.raises(CheckpointMismatch, match="with other source offsets"):
        query.begin()


@pytest.mark.parametrize("end", ["5", '{"page":5}'])
def test_where_ends_do_not_say_what_was_read_a_replay_has_the_same_rows(query: Query, end: str) -> None:
    (query.folder / "offsets" / "0").write_text(f"v1\n{{}}\n{end}")
    begun = query.begin()
    assert begun.sums
    first = query.bench.prepare_all(begun)
    query.commit(summed(first, 7), 0)
    again = query.bench.prepare_all(query.begin())
    for rows, checksum in ((1, 8), (2, 7), (2, None)):
        with pytest.raises(ReplayDiffers, match=r"same batch with other rows.*other-rows:0$"):
            query.commit(summed(again, checksum, rows), 0)
    query.commit(summed(again, 7), 0)
    query.commit(again, 0)
    query.options = replace(query.options, accepted=frozenset({"other-rows:0"}))
    query.commit(summed(again, 8), 0)
    query.complete(0)
    query.batch(1)
    assert len(query.bench.broker.visible()) == 4


def test_where_ends_say_what_was_read_a_replay_may_have_other_rows(query: Query) -> None:
    """rand() and uuid(): the rows of the first time are visible, and those of now are the same records'."""
    query.plan(0)
    begun = query.begin()
    assert not begun.sums
    query.commit(summed(query.bench.prepare_all(begun), 7), 0)
    query.commit(summed(query.bench.prepare_all(query.begin()), 8, 3), 0)


def summed(reports: list[Report], checksum: int | None, rows: int = 1) -> list[Report]:
    """The reports of tasks that were given rows with this checksum."""
    return [
        report if isinstance(report, Empty) else replace(report, checksum=checksum, rows=rows)
        for report in reports
    ]


def test_options_reach_the_rules(folder: Path) -> None:
    once = Query(folder / "a", Bench(), processing__guarantee="at_most_once")
    once.plan(0)
    assert [once.begin().dropped, once.begin().dropped] == [False, True]
    demanding = Query(folder / "b", Bench(), two__phase__commit="require")
    demanding.plan(0)
    with pytest.raises(CommitFault, match=r"two\.phase\.commit=require"):
        demanding.begin()
    never = Query(folder / "c", Bench(keeps=True), two__phase__commit="false")
    never.batch(0)
    assert not never.sent(c.Seal)
    replays = Query(folder / "d", Bench(), on__lost__transaction="replay")
    lost = replays.dies_finishing(0)[1].participant.name  # type: ignore[union-attr]
    replays.bench.broker.expire(lost)
    assert replays.begin().lost == (1,)


@pytest.mark.parametrize("check", ["check_sources", "NotedStarts.add", "StartOfRun.after"])
def test_a_batch_of_a_start_that_was_refused_is_not_attempted(
    folder: Path, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """at_most_once: no task has had its rows, and the error's way out must not drop them."""
    query = Query(folder / "q", Bench(), processing__guarantee="at_most_once")
    query.plan(0)

    def refuses(*_: object) -> None:
        raise CommitFault("no")

    with monkeypatch.context() as patch:
        patch.setattr(f"eoslog.connector.sink.committer.{check}", refuses)
        with pytest.raises(CommitFault, match="no"):
            query.begin()
    assert [query.begin().dropped, query.begin().dropped] == [False, True]


@pytest.mark.parametrize("named", [False, True])
def test_at_least_once_asks_the_cluster_for_its_name_alone(folder: Path, named: bool) -> None:
    """Once a run: whoever had it may have left decided rows that readers wait for."""
    query = Query(folder / "q", Bench(), processing__guarantee="at_least_once")
    if not named:
        query.options = replace(query.options, transactional_id=None)
    asked = []
    for batch_id in (0, 1, 1):
        query.plan(batch_id)
        query.bench.commands.clear()
        assert committer.begin_stream(query.options, query.runner) is None  # type: ignore[arg-type]
        query.commit([], batch_id)
        asked.append(len(query.sent(c.Acquire)))
    assert asked == ([1, 0, 1] if named else [0, 0, 0])
    assert named or not query.bench.commands


def test_at_least_once_does_not_begin_behind_a_decision_that_another_hides(folder: Path) -> None:
    """A driver has died deciding, and its offsets are pending: what it has decided before is not readable."""
    exact = Query(folder / "q", Bench())
    exact.batch(0)
    exact.plan(1)
    reports = exact.bench.prepare_all(exact.begin())
    exact.bench.crash_at(lambda command: isinstance(command, c.End))
    with pytest.raises(Crash):
        exact.commit(reports, 1)
    assert exact.bench.run(observed_decision(exact.bench.sink)) is None
    anew = Query(folder / "r", exact.bench, "r", processing__guarantee="at_least_once")
    anew.plan(0, end=20)
    for _ in range(2):
        with pytest.raises(StartsElsewhere, match=r"is batch 0 of query q\): in-0 at 20, and 10 was"):
            committer.begin_stream(anew.options, anew.runner)  # type: ignore[arg-type]
    anew.plan(0, end=10)
    assert committer.begin_stream(anew.options, anew.runner) is None  # type: ignore[arg-type]


def test_at_least_once_asks_the_group_by_default_how_far_its_name_has_come(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """exactly_once has committed there, and its decision is gone."""
    group_holds(monkeypatch, {("in", 0): (4, Note("sink", "before", 3).text())})
    query = Query(folder / "q", Bench(), processing__guarantee="at_least_once")
    plan = query.folder / "offsets" / "0"
    plan.write_text('v1\n{}\n{"in":{"0":10},"cluster-id:cluster":{}}')
    with pytest.raises(StartsElsewhere, match="in-0 at 10, and 4 was reached"):
        committer.begin_stream(query.options, query.runner)  # type: ignore[arg-type]
    plan.write_text('v1\n{}\n{"in":{"0":10},"cluster-id:another":{}}')
    assert committer.begin_stream(query.options, query.runner) is None  # type: ignore[arg-type]


def test_a_write_of_at_least_once_asks_for_its_name_alone() -> None:
    for given, acquired in (({"transactional.id": "named"}, 1), ({}, 0)):
        bench = Bench()
        to = {"kafka.bootstrap.servers": "nowhere:1", "topic": "out", "processing.guarantee": "at_least_once"}
        options = sink_options({**to, **given}, stream=False)
        assert committer.begin_batch(options, OnModel(bench)) is None  # type: ignore[arg-type]
        assert sum(isinstance(command, c.Acquire) for command in bench.commands) == acquired


def test_the_sinks_own_transaction_is_short(folder: Path) -> None:
    """While a crashed driver's is open, nobody can read the committed source offsets."""
    for given, kept in (("900000", 60_000), ("30000", 30_000)):
        assert (
            committer.runner_for(stream_options(folder, kafka__transaction__timeout__ms=given))._timeout_ms
            == kept
        )


def test_exactly_once_needs_a_checkpoint() -> None:
    options = sink_options({"kafka.bootstrap.servers": "nowhere:1", "topic": "out"}, stream=True)
    with pytest.raises(OptionError, match=r"exactly_once needs a checkpoint"):
        committer.begin_stream(options, OnModel(Bench()))  # type: ignore[arg-type]


def test_a_group_needs_a_checkpoint_whatever_the_guarantee() -> None:
    given = {"kafka.bootstrap.servers": "nowhere:1", "topic": "out", "kafka.group.id": "g"}
    options = sink_options({**given, "processing.guarantee": "at_least_once"}, stream=True)
    with pytest.raises(OptionError, match=r"kafka\.group\.id needs a checkpoint"):
        committer.begin_stream(options, OnModel(Bench()))  # type: ignore[arg-type]


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_new_checkpoint_at_a_relative_place_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, guarantee: str
) -> None:
    """A start in another folder would be a new query. A name tells it again."""
    given = {"kafka.bootstrap.servers": "nowhere:1", "topic": "out", "processing.guarantee": guarantee}
    query = Query(folder / "q", Bench())
    monkeypatch.chdir(folder)
    monkeypatch.setattr(start_of_run, "committed_offsets", lambda *_, **__: {})

    says = f"is relative, and the query's checkpoint is {folder}/q."

    def told(place: str, **more: str) -> bool:
        options = sink_options({**given, "checkpointLocation": place, **more}, stream=True)
        caplog.clear()
        committer.begin_stream(options, query.runner)  # type: ignore[arg-type]
        return f"checkpointLocation={place} {says}" in caplog.text

    query.plan(0)
    assert told("q") and told("./q")
    assert not told(str(folder / "q")) and not told(f"file:{folder}/q")
    assert not told("q", **{"transactional.id": "named"})
    if guarantee == "at_least_once":
        query.complete(0)
        query.plan(1)
        assert not told("q")


def test_at_least_once_needs_a_checkpoint_unless_its_user_knows_better() -> None:
    """What another guarantee has decided on it would stay open for ever."""
    given = {"kafka.bootstrap.servers": "nowhere:1", "topic": "out", "processing.guarantee": "at_least_once"}
    for more in ({}, {"start.accepted": "new-checkpoint"}, {"start.accepted": "no-checkpoint"}):
        options = sink_options({**given, **more}, stream=True)
        with pytest.raises(OptionError, match=r"at_least_once needs a checkpoint.*,?no-checkpoint:0$"):
            committer.begin_stream(options, OnModel(Bench()))  # type: ignore[arg-type]
    options = sink_options({**given, "start.accepted": "no-checkpoint:0"}, stream=True)
    assert committer.begin_stream(options, OnModel(Bench())) is None  # type: ignore[arg-type]
    options = sink_options({**given, "start.accepted": "no-checkpoint:0", "kafka.group.id": "g"}, stream=True)
    with pytest.raises(OptionError, match=r"kafka\.group\.id needs a checkpoint"):
        committer.begin_stream(options, OnModel(Bench()))  # type: ignore[arg-type]


def test_at_least_once_without_a_checkpoint_asks_whether_its_name_has_decided(query: Query) -> None:
    """Whoever leaves the word among the options is asked again: the rows might be held back for ever."""
    query.dies_finishing(0)
    given = {"kafka.bootstrap.servers": "nowhere:1", "topic": "out", "transactional.id": "sink"}
    given["processing.guarantee"] = "at_least_once"
    options = sink_options({**given, "start.accepted": "no-checkpoint:0"}, stream=True)
    with pytest.raises(OptionError, match=r"start\.accepted=no-checkpoint:0,no-checkpoint:1$"):
        committer.begin_stream(options, query.runner)  # type: ignore[arg-type]
    options = sink_options({**given, "start.accepted": "no-checkpoint:1"}, stream=True)
    assert committer.begin_stream(options, query.runner) is None  # type: ignore[arg-type]


# -- the start is compared with the group -----------------------------------------------------


def test_a_decision_that_only_the_group_tells_of_stops_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(folder / "q", Bench(), kafka__group__id="g")
    query.plan(0)
    group_holds(monkeypatch, {("in", 0): (10, Note("another", "q", 0).text())})
    for _ in range(2):
        with pytest.raises(DecisionGone, match="group g holds"):
            query.begin()


def test_what_is_odd_is_said_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark has completed a batch, and the sink knows of none: said at the start, not for every batch."""
    query = Query(folder / "q", Bench())
    query.complete(4)
    query.plan(5)
    query.commit(query.bench.prepare_all(query.begin()), 5)
    assert "the checkpoint has completed batch 4, but the sink has decided no batch" in caplog.text
    caplog.clear()
    query.complete(5)
    query.batch(6)
    assert caplog.text == ""


def test_a_group_that_was_moved_is_compared_with_the_batch_that_was_decided(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not with the batch that is planned; a partition that only the decided one had, too."""
    query = Query(folder / "q", Bench(), kafka__group__id="g")
    group_holds(monkeypatch, {})
    (query.folder / "offsets" / "0").write_text('v1\n{}\n{"in":{"0":10},"old":{"0":5}}')
    query.commit(query.bench.prepare_all(query.begin()), 0)
    query.complete(0)
    query.plan(1)
    run_memory.take(repr(query.options.client.bootstrap), "sink", "q")
    wanted: list[Any] = []

    def holds(cluster: Any, group: str, places: Any, **_: Any) -> dict[tuple[str, int], CommittedOffset]:
        wanted.extend(places)
        return {("in", 0): CommittedOffset(10, "", -1), ("old", 0): CommittedOffset(3, "", -1)}

    monkeypatch.setattr(group_offsets, "fetch_with_epochs", holds)
    caplog.clear()
    query.begin()
    assert ("old", 0) in wanted
    assert "old-0 at 3, not at 5, where batch 0 ended" in caplog.text and "in-0" not in caplog.text


# -- copies of a checkpoint ------------------------------------------------------------------


def copied(query: Query, folder: Path, **options: str) -> Query:
    """As `cp -r` of a checkpoint does, by people who give the query the same names."""
    copy = Query(folder, query.bench)
    shutil.rmtree(folder)
    shutil.copytree(query.folder, folder)
    copy.options = stream_options(folder, **options)
    return copy


STARTS = ("new application", "living application")


def key(query: Query) -> tuple[str, str, str]:
    return repr(query.options.client.bootstrap), "sink", "q"


class Applications:
    """Where queries are started: each in an application of its own, or all in one that lives."""

    def __init__(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.living, self.threads = kind == "living application", 0
        monkeypatch.setattr(run_memory, "streams_now", lambda: ((self.threads, "0"),))
        monkeypatch.setattr(run_memory, "stream_lives", lambda one: one[0] == self.threads)

    def start(self, query: Query) -> Query:
        """The query was stopped, if it ran, and is started."""
        self.threads += 1
        if not self.living:
            run_memory.take(*key(query))
        return query


@pytest.fixture(params=STARTS)
def apps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Applications:
    return Applications(request.param, monkeypatch)


@pytest.mark.parametrize("goes_on", ["the original", "the copy"])
def test_of_two_copies_of_a_checkpoint_one_goes_on(
    folder: Path, query: Query, apps: Applications, goes_on: str
) -> None:
    """The one that has not decided last would take the other's batch for its own: it is told of the other."""
    apps.start(query).batch(0)
    copy = copied(query, folder / "copy", topic="other")
    first, second = (query, copy) if goes_on == "the original" else (copy, query)
    apps.start(first).batch(1)
    for _ in range(2):
        apps.start(second).plan(1)
        said = rf"batch 1 .*checkpoint {first.folder}, by a start of 2\d.*rows went to out.*{second.folder}"
        with pytest.raises(CheckpointCopied, match=said):
            second.begin()
    apps.start(first).batch(2)
    word = first.last().start
    assert word is not None
    second.options = replace(second.options, accepted=frozenset({f"copied:{word.word}"}))
    second.plan(2)
    assert apps.start(second).begin().decided == Batch("q", 2, first.last().batch.digest)


def test_a_copy_whose_rows_name_other_topics_is_told(folder: Path, query: Query) -> None:
    """It was made while the query ran, so it knows the start that has decided; no option says its topics."""
    query.options = replace(query.options, topic=None)
    query.batch(0)
    query.plan(1)
    moved = copied(query, folder / "copy")
    moved.options = replace(moved.options, topic=None)
    reports = query.bench.prepare_all(query.begin())
    query.commit(reports, 1)
    told = query.last().start
    assert told is not None

    def again(other: Query, *topics: str, **more: Any) -> None:
        run_memory.take(*key(other))
        other.options = replace(other.options, **more)
        begun = other.begin()
        assert begun.is_decided
        stamp = judge(begun, "q", 1, 0)[1]
        other.commit([Decided(stamp, number, 1, None, topics) for number in range(2)], 1)

    again(query, "other")
    again(moved, "out")
    with pytest.raises(
        CheckpointCopied, match=r"rows went to out\..*checkpoint fork.*start\.accepted=copied:"
    ):
        again(moved, "out", "other")
    again(moved, "other", accepted=frozenset({f"copied:{told.word}"}))


@pytest.mark.parametrize("hot", [True, False], ids=["made while it runs", "put back at its place"])
def test_of_two_copies_that_write_elsewhere_one_stops_although_no_rows_say_so(
    folder: Path, query: Query, apps: Applications, hot: bool
) -> None:
    """The batch had no rows after a filter; the copy has another filter, and another topic."""
    apps.start(query).batch(0)
    before = copied(query, folder / "copy", topic="other")
    query.plan(1)
    reports = query.bench.prepare_all(apps.start(query).begin())
    copy = copied(query, folder / "hot copy", topic="other") if hot else before
    query.commit([Empty(report.stamp, report.partition) for report in reports], 1)
    if not hot:
        shutil.rmtree(query.folder)
        shutil.copytree(copy.folder, query.folder)
        copy = named(query, "sink", topic="other")
    copy.plan(1)
    with pytest.raises(CheckpointCopied):
        apps.start(copy).begin()


def test_a_running_query_is_not_disturbed_by_a_copy_that_is_refused(folder: Path, query: Query) -> None:
    query.batch(0)
    copy = copied(query, folder / "copy", topic="other")
    query.batch(1)
    memory = run_memory.look(*key(query))
    assert memory is not None
    copy.plan(1)
    copy.options = replace(copy.options, accepted=frozenset({"something"}))
    run_memory.take(*key(copy))
    with pytest.raises(CheckpointCopied, match=r"start\.accepted=something,copied:"):
        copy.begin()
    run_memory.keep(memory, *key(query))
    query.batch(2)
    assert not [command for command in query.sent(c.Acquire) if command.current is None]


def test_nobody_is_stopped_by_a_copy_in_part_whose_decision_is_forgotten(folder: Path, query: Query) -> None:
    """The original may live, and rest: Spark runs no batch without new rows."""
    query.batch(0)
    query.batch(1)
    query.bench.broker.groups.clear()
    copy = copied(query, folder / "copy")
    for batch in (0, 1):
        (copy.folder / "offsets" / str(batch)).unlink()
        (copy.folder / "commits" / str(batch)).unlink()
    copy.plan(0)
    run_memory.take(*key(copy))
    with pytest.raises(CheckpointOlder, match="has noted batch 1 of this query"):
        copy.begin()
    assert not copy.sent(c.Acquire)


def test_a_decision_that_was_on_its_way_is_no_forgotten_one(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its marker is late, which hides it until the sink is acquired; Spark's files lead to the one before."""
    query.batch(0)
    query.batch(1)
    for log, batch in (("offsets", 1), ("commits", 1), ("commits", 0)):
        (query.folder / log / str(batch)).unlink()
    run_memory.take(*key(query))
    fetch = query.bench.broker.fetch

    def late(group: str, *, stable: bool = True) -> Any:
        is_late = stable and group == query.bench.sink.group and not query.sent(c.Acquire)
        return UNSTABLE if is_late else fetch(group, stable=stable)

    monkeypatch.setattr(query.bench.broker, "fetch", late)
    with pytest.raises(CommitFault) as told:
        query.begin()
    monkeypatch.setattr(query.bench.broker, "fetch", fetch)
    with pytest.raises(type(told.value)) as again:
        query.begin()
    assert str(again.value) == str(told.value)


def named(query: Query, sink: str, **options: str) -> Query:
    """The query with another transactional.id, from its next start on."""
    query.options = stream_options(query.folder, transactional__id=sink, **options)
    run_memory.take(*key(query))
    run_memory.take(repr(query.options.client.bootstrap), sink, "q")
    return query


def starts_in_vain(query: Query, said: str) -> str:
    """The word of start.accepted that the error names."""
    for _ in range(2):
        run_memory.take(*key(query))
        with pytest.raises(TakenOver, match=said) as caught:
            query.begin()
    return str(caught.value).rpartition("start.accepted=")[2]


def test_a_sink_that_was_left_is_not_gone_on_with(folder: Path, query: Query) -> None:
    """The rows of the next batches went elsewhere: a backup and a new checkpoint would write them again."""
    query.batch(0)
    backup = copied(query, folder / "backup")
    named(query, "another").plan(1)
    query.begin()
    told = query.last()
    assert told.left is not None and told.left[1:4] == ("another", "q", 1)
    assert (told.batch[:2], told.sequence, told.winners) == (("q", 0), 2, ())
    said = r"sink sink: it was left for sink another by batch 1 of query q, at 2.*transactional\.id=another"
    backup.plan(1)
    starts_in_vain(backup, said)
    anew = Query(folder / "anew", query.bench, "anew")
    anew.plan(0)
    word = starts_in_vain(anew, said)
    assert word == f"left:{told.left.word}"
    anew.options = replace(anew.options, accepted=frozenset({word, f"new-checkpoint:{told.word}"}))
    anew.batch(0)
    assert query.last().left is None


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_sink_that_has_forgotten_its_decisions_is_left_with_a_mark(
    folder: Path, query: Query, guarantee: str
) -> None:
    """The query has rested for so long; its rows tell nobody anything: a backup would write the next ones
    again."""
    query.batch(0)
    backup = copied(query, folder / "backup")
    query.bench.broker.groups.clear()
    accepted = {"start__accepted": "decisions-gone:0"}
    named(query, "another", processing__guarantee=guarantee, **accepted).plan(1)
    committer.begin_stream(query.options, query.runner)  # type: ignore[arg-type]
    told = query.last()
    assert told.left is not None and told.left[2:4] == ("q", 1) and told.batch[:2] == ("q", 0)
    backup.plan(1)
    starts_in_vain(backup, "left for .* by batch 1")


def test_a_sink_that_has_got_no_batch_is_left_without_a_mark(query: Query) -> None:
    """It may be another query's, whose name was given by mistake."""
    query.batch(0)
    named(query, "mistaken").plan(1)
    query.begin()
    named(query, "another")
    query.begin()
    stored = query.bench.broker.fetch("mistaken")
    assert isinstance(stored, Stored) and not stored.chunks


def test_a_checkpoint_comes_back_to_the_sink_that_it_has_left(folder: Path, query: Query) -> None:
    query.batch(0)
    backup = copied(query, folder / "backup")
    for start in range(9):  # so many that its note of starts has only the last
        named(query, "another").plan(1 + start)
        query.commit(query.bench.prepare_all(query.begin()), 1 + start)
        query.complete(1 + start)
    named(query, "sink").plan(10)
    for _ in range(2):  # the first start dies before it decides
        run_memory.take(*key(query))
        query.begin()
        assert query.last().left is not None
    backup.plan(1)
    starts_in_vain(backup, "left for sink another by batch 1")
    run_memory.take(*key(query))
    query.batch(10)
    assert query.last().left is None


@pytest.mark.parametrize("after", [False, True])
def test_who_dies_leaving_a_sink_may_stay(query: Query, after: bool) -> None:
    query.batch(0)
    named(query, "another").plan(1)
    query.bench.crash_at(lambda command: isinstance(command, c.End) and command.commit, after=after)
    with pytest.raises(Crash):
        query.begin()
    named(query, "sink").batch(1)
    assert query.last().left is None and len(query.bench.broker.visible()) == 4


def test_at_least_once_under_a_sinks_name_leaves_it(folder: Path, query: Query) -> None:
    query.batch(0)
    plain = Query(folder / "p", query.bench, "p", processing__guarantee="at_least_once")
    plain.plan(0)
    assert committer.begin_stream(plain.options, plain.runner) is None  # type: ignore[arg-type]
    query.plan(1)
    starts_in_vain(query, "sink sink: it was left for at_least_once by batch 0 of query p")
    plain.options = stream_options(plain.folder, start__accepted=f"new-checkpoint:{query.last().word}")
    plain.begin()


def test_at_least_once_for_a_while_comes_back(folder: Path, query: Query) -> None:
    query.batch(0)
    backup = copied(query, folder / "backup")
    named(query, "sink", processing__guarantee="at_least_once").plan(1)
    assert committer.begin_stream(query.options, query.runner) is None  # type: ignore[arg-type]
    query.complete(1)
    backup.plan(1)
    starts_in_vain(backup, "left for at_least_once by batch 1 of query q")
    named(query, "sink").batch(2)
    assert query.last().left is None


def test_a_sink_that_was_left_is_left_again_only_for_the_same_one(folder: Path, query: Query) -> None:
    query.batch(0)
    backup = copied(query, folder / "backup")
    named(query, "another").plan(1)
    query.begin()
    named(backup, "a third").plan(1)
    starts_in_vain(backup, "left for sink another by batch 1")
    named(backup, "another").begin()


def test_a_moved_checkpoint_is_no_copy(folder: Path, query: Query, apps: Applications) -> None:
    apps.start(query).batch(0)
    moved = copied(query, folder / "moved")
    apps.start(moved).dies_finishing(1)
    again = copied(moved, folder / "again")
    apps.start(again).begin()
    again.complete(1)
    apps.start(again).batch(2)
    assert len(query.bench.broker.visible()) == 6


def test_a_checkpoint_that_is_put_back_replays_the_decided_batch(
    folder: Path, query: Query, apps: Applications
) -> None:
    """A backup that was made before the last start lies where the lost one lay: its batch is the same."""
    apps.start(query).batch(0)
    backup = copied(query, folder / "backup")
    apps.start(query).batch(1)
    shutil.rmtree(query.folder)
    shutil.copytree(backup.folder, query.folder)
    apps.start(query).batch(1)
    apps.start(query).batch(2)
    assert len(query.bench.broker.visible()) == 6
    shutil.rmtree(query.folder)
    shutil.copytree(backup.folder, query.folder)
    query.plan(1)
    with pytest.raises(CheckpointOlder):
        apps.start(query).begin()


def test_a_checkpoint_that_is_put_back_elsewhere_or_for_another_topic_stops(
    folder: Path, query: Query, apps: Applications
) -> None:
    apps.start(query).batch(0)
    backup = copied(query, folder / "backup")
    apps.start(query).batch(1)
    shutil.rmtree(query.folder)
    shutil.copytree(backup.folder, query.folder)
    query.plan(1)
    query.options = replace(query.options, topic="other")
    with pytest.raises(CheckpointCopied):
        apps.start(query).begin()


def test_starts_that_decide_nothing_are_remembered_beside_the_last_that_did(
    query: Query, apps: Applications
) -> None:
    apps.start(query).batch(0)
    query.plan(1)
    for _ in range(5):
        apps.start(query).begin()
    apps.start(query).batch(1)
    assert len(json.loads((query.folder / "eoslog" / "starts").read_text())["starts"]) == 7
    for batch_id in range(2, 20):
        apps.start(query).batch(batch_id)
    assert len(json.loads((query.folder / "eoslog" / "starts").read_text())["starts"]) == 8


def test_a_decision_of_an_older_version_is_of_any_copy(folder: Path, query: Query) -> None:
    """It has no word of a start, and no checkpoint had one."""
    query.plan(0)
    reports = [replace(r, stamp=replace(r.stamp, start=None)) for r in query.bench.prepare_all(query.begin())]
    query.commit(list(reports), 0)
    assert query.last().start is None
    (query.folder / "eoslog" / "starts").unlink()
    query.begin()


# -- a start is a start ----------------------------------------------------------------------


def test_a_start_in_a_living_application_is_a_start(
    query: Query, apps: Applications, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another group, and on another cluster: both are compared with what is noted."""
    group_holds(monkeypatch, {})
    apps.start(query).batch(0)
    query.options = replace(query.options, group_id="g")
    apps.start(query).batch(1)
    noted = NotedSink.read(Checkpoint.at(str(query.folder)))
    assert noted is not None and noted.group == "g"
    monkeypatch.setattr(start_of_run, "cluster_id", lambda cluster: "another")
    query.plan(2)
    query.bench.broker.groups.clear()
    query.bench.broker.transactions.clear()
    with pytest.raises(WrongCluster):
        apps.start(query).begin()


def test_a_cluster_that_is_another_one_under_a_living_query_is_named(
    query: Query, apps: Applications, monkeypatch: pytest.MonkeyPatch
) -> None:
    apps.start(query).batch(0)
    monkeypatch.setattr(start_of_run, "cluster_id", lambda cluster: "another")
    query.plan(1)
    query.bench.broker.groups.clear()
    query.bench.broker.transactions.clear()
    with pytest.raises(WrongCluster, match=r"start\.accepted=cluster:another$"):
        query.begin()
    query.options = replace(query.options, accepted=frozenset({"cluster:another"}))
    apps.start(query).batch(1)
    query.options = replace(query.options, accepted=frozenset())
    apps.start(query).batch(2)


def test_a_start_after_another_guarantee_takes_the_sink(
    folder: Path, query: Query, apps: Applications
) -> None:
    """at_least_once has raised the epoch, and the driver remembers the one before."""
    once = replace(query.options, guarantee=Guarantee.AT_MOST_ONCE)
    weaker = replace(query.options, guarantee=Guarantee.AT_LEAST_ONCE)
    exactly, query.options = query.options, once
    apps.start(query).batch(0)
    query.plan(1)
    query.options = weaker
    assert committer.begin_stream(query.options, apps.start(query).runner) is None  # type: ignore[arg-type]
    query.options = exactly
    apps.start(query).batch(1)
    apps.start(query).batch(2)
    assert len(query.bench.broker.visible()) == 6


def test_another_guarantee_forgets_what_is_remembered(query: Query) -> None:
    """Also where the system shows no threads."""
    exactly = query.options
    query.batch(0)
    query.plan(1)
    query.options = replace(exactly, guarantee=Guarantee.AT_LEAST_ONCE)
    assert committer.begin_stream(query.options, query.runner) is None  # type: ignore[arg-type]
    query.options = exactly
    query.batch(1)


def test_a_living_query_that_was_fenced_stops(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is started and ended in its application meanwhile."""
    threads = {(1, "0"), (2, "0")}
    monkeypatch.setattr(run_memory, "streams_now", lambda: tuple(threads))
    monkeypatch.setattr(run_memory, "stream_lives", lambda one: one in threads)
    query.batch(0)
    threads.remove((2, "0"))
    query.batch(1)
    assert not [command for command in query.sent(c.Acquire) if command.current is None]
    query.bench.broker.init("sink")
    threads.add((3, "0"))
    query.plan(2)
    with pytest.raises(SinkFenced):
        query.begin()


def test_of_threads_that_are_not_shown_options_tell_of_a_start(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_holds(monkeypatch, {})
    query.batch(0)
    query.options = replace(query.options, group_id="g")
    query.batch(1)
    noted = NotedSink.read(Checkpoint.at(str(query.folder)))
    assert noted is not None and noted.group == "g"


# -- commit and abort of a micro-batch --------------------------------------------------------


def test_the_offsets_that_are_committed_are_those_of_the_batch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the next one is planned already: those who start from the group would miss its rows."""
    group_holds(monkeypatch, {})
    query = Query(folder / "q", Bench(), kafka__group__id="g")
    query.plan(0)
    reports = query.bench.prepare_all(query.begin())
    query.plan(1)
    query.commit(reports, 0)
    ((place, (offset, note)),) = query.bench.broker.groups["g"].items()
    assert (place, offset, read_note(note)) == (("in", 0), 10, Note("sink", "q", 0))
    assert Checkpoint.at(str(query.folder)).planned(1).topic_offsets() == {("in", 0): 20}


def test_the_decision_says_what_the_batch_plan_was(query: Query) -> None:
    """Enough to write offsets/<batch> again, if a power cut of the driver's machine has taken it."""
    text = 'v1\n{"batchWatermarkMs":7,"batchTimestampMs":9,"conf":{"a":"b"}}\n{"in":{"0":10}}\n-'
    (query.folder / "offsets" / "0").write_text(text)
    query.commit(query.bench.prepare_all(query.begin()), 0)
    last = query.last()
    assert last.ends == 'v1\n{"batchWatermarkMs":7,"batchTimestampMs":9}\n{"in":{"0":10}}\n-'
    assert Planned.parse(0, last.ends) == Planned.parse(0, text)


def test_source_offsets_go_to_the_sinks_own_group_by_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the sink's cluster. Where two sources have come to different ends, the note has both."""
    group_holds(monkeypatch, {})
    here, there = '{"in":{"0":%d},"cluster-id:cluster":{}}', '{"in":{"0":9},"cluster-id:other":{}}'
    lines = [here % 20, here % 15, there, '{"files":{"0":4}}', '{"logOffset":3}', "-"]

    def committed(name: str, **options: str) -> dict[str, Any]:
        query = Query(folder / name, Bench(), **options)
        query.plan(0)
        (query.folder / "offsets" / "0").write_text("\n".join(["v1", "{}", *lines]))
        query.commit(query.bench.prepare_all(query.begin()), 0)
        ours = {"sink", sink_of_query("q").writes_group}
        return {group: held for group, held in query.bench.broker.groups.items() if group not in ours}

    ((place, (offset, note)),) = committed("by default")["sink/offsets"].items()
    assert (place, offset) == (("in", 0), 15)
    assert read_note(note) == Note("sink", "q", 0, apart=(("0", 20), ("1", 15)))
    assert committed("left out", commit__source__offsets="false") == {}
    assert set(committed("at most once", processing__guarantee="at_most_once")) <= {"sink/attempts"}
    lines.pop(2)
    assert set(committed("named", kafka__group__id="g")["g"]) == {("in", 0), ("files", 0)}
    with pytest.raises(
        OptionError, match=r"commit\.source\.offsets=false, and kafka\.group\.id names a group"
    ):
        stream_options(folder, commit__source__offsets="false", kafka__group__id="g")


def test_at_least_once_commits_its_offsets_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(group_offsets, "commit_plain", lambda cluster, *told_: told.append(told_))
    query = Query(folder / "q", Bench(), kafka__group__id="g", processing__guarantee="at_least_once")
    query.plan(0)
    query.commit([], 0)
    ((group, committed, _),) = told
    ((place, (offset, note)),) = committed.items()
    assert (group, place, offset) == ("g", ("in", 0), 10)
    expected = Note("sink", "q", 0, decided=False, topic="out")
    assert read_note(note) == expected, "whose they are, and where the rows are; they tell of no decision"


def test_a_commit_that_lost_a_broker_asks_the_partitions(query: Query) -> None:
    for batch_id, lost_broker in enumerate((True, False)):
        query.plan(batch_id)
        reports = query.bench.prepare_all(query.begin())
        query.bench.commands.clear()
        query.runner.lost_broker = lost_broker
        query.commit(reports, batch_id)
        query.complete(batch_id)
        assert bool(query.sent(c.FindHeld)) is lost_broker


def test_abort_leaves_nothing_open(query: Query) -> None:
    query.plan(0)
    reports = query.bench.prepare_all(query.begin())
    assert len(query.bench.open()) == 2
    committer.abort_batch(query.options, reports, 0, query.runner)  # type: ignore[arg-type]
    assert query.bench.open() == ()


# -- batch writes -----------------------------------------------------------------------------


class Write:
    """A batch write, with a token or without."""

    def __init__(self, bench: Bench, **options: str) -> None:
        self.bench, self.options, self.runner = bench, write_options(**options), OnModel(bench)

    def begin(self) -> Begun:
        begun = committer.begin_batch(self.options, self.runner)  # type: ignore[arg-type]
        assert begun is not None and begun.batch is not None
        return begun

    def reports(self, begun: Begun) -> list[Report]:
        return [self.bench.prepare(begun, partition, [f"row {partition}"]) for partition in range(2)]

    def commit(self, reports: list[Report]) -> None:
        committer.commit_batch(self.options, reports, self.runner)  # type: ignore[arg-type]


@pytest.mark.parametrize(("late", "warns"), [((), False), (("w",), True), (c.Unknown("away"), True)])
def test_readers_are_waited_for(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, late: Any, warns: bool
) -> None:
    """When a batch is done, of a stream or a write. What comes late is said, and is no error."""
    bench = Bench()
    perform = bench._perform
    monkeypatch.setattr(bench, "_perform", lambda x: late if isinstance(x, c.AwaitMarkers) else perform(x))
    query, write = Query(folder / "q", bench), Write(bench)
    for batch_id in range(2):
        reports = query.batch(batch_id)
        (waits,) = query.sent(c.AwaitMarkers)
        assert waits.names == tuple(r.participant.name for r in reports)  # type: ignore[union-attr]
        assert query.bench.commands[-1] == waits
    write.commit(write.reports(write.begin()))
    assert isinstance(bench.commands[-1], c.AwaitMarkers)
    said = [one for one in caplog.records if "readers may see a part of it only" in one.getMessage()]
    assert len(said) == (3 if warns else 0)


def test_a_token_is_not_noted_as_done_before_readers_see_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the next write of its stem asks the partitions."""
    bench = Bench()
    perform, late = bench._perform, [("w",), ()]

    def answer(command: c.Command[Any]) -> Any:
        return late.pop(0) if isinstance(command, c.AwaitMarkers) else perform(command)

    monkeypatch.setattr(bench, "_perform", answer)
    write = Write(bench, write__token="job-1")
    for asks in (True, False):
        write.commit(write.reports(write.begin()))
        before = len(bench.commands)
        write.begin()
        assert any(isinstance(one, c.FindHeld) for one in bench.commands[before:]) is asks


def test_a_token_writes_once_whatever_the_brokers_have_forgotten() -> None:
    write = Write(Bench(), write__token="job-1")
    write.commit(write.reports(write.begin()))
    write.bench.broker.transactions.clear()
    again = write.reports(write.begin())
    assert all(isinstance(report, Decided) for report in again)
    write.commit(again)
    assert sorted(write.bench.broker.visible()) == ["row 0", "row 1"]


def test_a_token_whose_write_died_is_finished_by_the_next_run() -> None:
    write = Write(Bench(), write__token="job-1")
    begun = write.begin()
    reports = write.reports(begun)
    write.bench.crash_at(lambda command: finishes(command) and command.participants[0].name != begun.sink_id)
    with pytest.raises(Crash):
        write.commit(reports)
    assert write.bench.broker.visible() == []
    again = write.reports(write.begin())
    assert all(isinstance(report, Decided) for report in again)
    assert sorted(write.bench.broker.visible()) == ["row 0", "row 1"]


@pytest.mark.parametrize("writes", [1, 20])
def test_batch_writes_under_a_query_s_name_change_nothing_for_it(
    folder: Path, query: Query, apps: Applications, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """What Spark has not noted is not written again; without its checkpoint it goes on where it ended."""
    apps.start(query).batch(0)
    query.plan(1)
    query.commit(query.bench.prepare_all(query.begin()), 1)
    for _ in range(writes):
        write = Write(query.bench, transactional__id="sink")
        write.commit(write.reports(write.begin()))
    assert apps.start(query).begin().is_decided
    copy = copied(query, folder / "copy", topic="other")
    (copy.folder / "eoslog" / "starts").unlink()
    with pytest.raises(CheckpointCopied, match="batch 1 of query q was decided"):
        apps.start(copy).begin()
    note = {("in", 0): (20, Note("sink", "q", 1).text())}
    for starting, noted in ((20, note), (20, {}), (10, note), (10, {})):
        group_holds(monkeypatch, noted)
        anew = Query(folder / f"anew-{starting}-{len(noted)}", query.bench, f"anew-{starting}-{len(noted)}")
        line = {"in": {"0": 30}, f"began-at:in:{starting}:0": {}, "cluster-id:cluster": {}}
        (anew.folder / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(line)}")
        if starting == 20:
            reports = query.bench.prepare_all(anew.begin())
            assert not [report for report in reports if isinstance(report, Decided)]
        else:
            with pytest.raises(StartsElsewhere):
                anew.begin()


def test_each_token_has_a_sink_of_its_own() -> None:
    bench = Bench()
    begun = [Write(bench, write__token=token).begin() for token in ("a", "b")]
    begun.append(Write(bench, write__token="a", transactional__id="mine").begin())
    assert len({one.sink_id for one in begun}) == 3
    named, anonymous = Write(bench, transactional__id="mine").begin(), Write(bench).begin()
    assert named.sink_id == "mine" and anonymous.batch is not None
    assert anonymous.sink_id == anonymous.batch.query_id != Write(bench).begin().sink_id


def test_options_of_a_write_reach_the_rules() -> None:
    with pytest.raises(CommitFault, match=r"two\.phase\.commit=require"):
        Write(Bench(), two__phase__commit="require", transactional__id="mine").begin()
    never = Write(Bench(keeps=True), two__phase__commit="false")
    never.commit(never.reports(never.begin()))
    assert not [command for command in never.bench.commands if isinstance(command, c.Seal)]


def test_a_write_that_lost_a_broker_asks_the_partitions() -> None:
    for lost_broker in (True, False):
        write = Write(Bench())
        reports = write.reports(write.begin())
        write.bench.commands.clear()
        write.runner.lost_broker = lost_broker
        write.commit(reports)
        asked = [command for command in write.bench.commands if isinstance(command, c.FindHeld)]
        assert bool(asked) is lost_broker


def test_a_write_of_another_session_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A thread of foreachBatch may have made it. Once in a process; with a token it is exact anyway."""
    streams = list[tuple[int, str]]()
    monkeypatch.setattr(run_memory, "streams_now", lambda: tuple(streams))
    monkeypatch.setattr(committer, "_warned", set())

    def warnings(**options: str) -> int:
        write = Write(Bench(), **options)
        write.commit(write.reports(write.begin()))
        return sum("Spark does not say of which micro-batch it is" in said for said in caplog.messages)

    assert warnings() == 0
    streams.append((1, "1"))
    assert warnings(write__token="job-1") == 0
    assert [warnings(), warnings(transactional__id="mine")] == [1, 1]


def test_a_failed_write_is_looked_at_until_its_tasks_are_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is dying may open a transaction after the first look."""
    write = Write(Bench())
    begun = write.begin()
    now, looks = 0.0, 0

    def sleep(seconds: float) -> None:
        nonlocal now, looks
        now, looks = now + seconds, looks + 1
        if now < 2.0:
            write.bench.prepare(begun, 0, ["late"], worker=f"dying{looks}")

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(committer, "runner_for", lambda options: write.runner)
    write.bench.prepare(begun, 0, ["row"])
    committer.abort_write(write.options, begun, [None, None])
    assert looks and not write.bench.broker.ongoing(begun.sink_id)


def test_a_batch_is_decided_when_its_plan_is_on_the_disk(tmp_path: Path, monkeypatch: Any) -> None:
    bench, synced = Bench(), list[str]()
    query = Query(tmp_path, bench)
    query.plan(0)
    own = tmp_path / "sources" / "0"
    own.mkdir(parents=True)
    for entry in ("8", "9.compact", "10"):
        (own / entry).write_text("v1\n{}")
    reports, real = bench.prepare_all(query.begin()), os.fsync

    def fsync(opened: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{opened}"), tmp_path))
        real(opened)

    monkeypatch.setattr(os, "fsync", fsync)
    bench.crash_at(lambda command: isinstance(command, c.End) and command.commit)
    with pytest.raises(Crash):
        query.commit(reports, 0)
    assert {"offsets/0", "offsets", "metadata", ".", "sources/0/10", "sources/0"} <= set(synced)


def test_a_plan_that_the_disk_does_not_take_is_not_decided(tmp_path: Path, monkeypatch: Any) -> None:
    bench = Bench()
    query = Query(tmp_path, bench)
    query.plan(0)
    reports = bench.prepare_all(query.begin())

    def fsync(_: int) -> None:
        raise OSError("no space left on the device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(CheckpointUnreadable, match="offsets/0: no space left"):
        query.commit(reports, 0)
    assert not any(isinstance(command, c.End) and command.commit for command in bench.commands)


def test_without_checkpoint_sync_the_disk_is_left_alone(tmp_path: Path, monkeypatch: Any) -> None:
    bench = Bench()
    query = Query(tmp_path, bench, **{"checkpoint.sync": "false"})
    query.plan(0)
    reports, synced = bench.prepare_all(query.begin()), list[int]()
    monkeypatch.setattr(os, "fsync", synced.append)
    query.commit(reports, 0)
    assert synced == []


def test_the_newest_batch_whose_rows_are_all_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    """An open one is passed over; one without rows stands on those of the last that had some."""
    ours, theirs = (Place("out", None, 0, at, ProducerIdentity(at, 0), 0) for at in (5, 9))
    shown = {ours: Seen.COMMITTED, theirs: Seen.OPEN}
    monkeypatch.setattr(noted_rows, "look_at", lambda _, places: {place: shown[place] for place in places})

    def newest(*noted: tuple[int, Places], decided: int | None = None) -> int | None:
        last = None if decided is None else Batch("q", decided, "digest")
        return noted_rows._newest_visible(None, noted, last)  # type: ignore[arg-type]

    assert newest((8, (ours,)), (7, (ours,))) == 8
    assert newest((8, (ours, theirs)), (7, (ours,))) == 7
    assert newest((8, (theirs,)), (7, (ours,)), decided=7) is None
    assert newest((8, ()), (7, (ours,))) == 8
    assert newest((8, ()), (7, (theirs,))) is None
