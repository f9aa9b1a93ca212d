"""Batch writes whose process is killed (SIGKILL), at each point in turn: what the next run of a token makes
of it; and how long a write that nobody can start again holds readers back."""

import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa
import pytest

from eoslog.client.admin import transaction_states
from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.client.wire.cluster import Cluster, shared_cluster
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.finish import abort_all
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.run.runner import Runner
from eoslog.connector.sink import committer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.errors import OptionError
from tests.connector.brokers import Kafka, offers_two_phase_commit, start_broker

TASKS, ROWS = 2, 3
TIMEOUT_MS = 8000
PATIENCE_SECONDS = 60

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    ["eoslog.connector.sink.committer", "eoslog.connector.sink.task_writer", "pandas"]
)

Point = Callable[[c.Command[Any], int], bool]
BEFORE: dict[str, Point] = {
    "before the decision is staged": lambda command, _: isinstance(command, c.StageOffsets),
    "before the decision": lambda command, ends: _commits(command) and ends == 1,
    "decided, no winner finished": lambda command, ends: _commits(command) and ends == 2,
    "decided, one winner finished": lambda command, ends: _commits(command) and ends == 3,
    "finished, not noted": lambda command, _: isinstance(command, c.CommitOffsets),
}
AFTER: dict[str, Point] = {
    "sink acquired": lambda command, _: isinstance(command, c.Acquire),
    "a winner sealed": lambda command, _: isinstance(command, c.Seal),
    "decision staged": lambda command, _: isinstance(command, c.StageOffsets),
    "decided": lambda command, ends: _commits(command) and ends == 1,
}
BETWEEN = ("begun", "a task prepared", "all tasks prepared", "noted")
POINTS = (*AFTER, *BEFORE, *BETWEEN)
PENDING = {"decision staged", "before the decision"}
DECIDED = {name for name in POINTS if name.startswith(("decided", "finished", "noted"))}


def _commits(command: c.Command[Any]) -> bool:
    return isinstance(command, c.End) and command.commit


def values(name: str) -> list[bytes]:
    return [b"%s/%d/%d" % (name.encode(), p, number) for p in range(TASKS) for number in range(ROWS)]


def _run(
    given: dict[str, str], name: str, point: str, answers: Connection, within: Batch | None = None
) -> None:
    """A whole write in a process of its own, which dies at the point. `within`: a micro-batch whose
    foreachBatch makes it, as the tasks are told."""
    try:
        os.environ["PYTHON_WORKER_FACTORY_SECRET"] = uuid.uuid4().hex  # a driver of its own
        options, ends = sink_options(given, stream=False), 0

        def die() -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        def before(command: c.Command[Any]) -> None:
            nonlocal ends
            ends += _commits(command)
            if point in BEFORE and BEFORE[point](command, ends):
                die()

        def after(command: c.Command[Any]) -> None:
            if point in AFTER and AFTER[point](command, ends):
                die()

        def reached(place: str) -> None:
            if place == point:
                die()

        cluster = shared_cluster(options.client)
        runner = Runner(cluster, options.transaction_timeout_ms, before=before, after=after)
        begun = committer.begin_batch(options, runner)
        assert begun is not None and begun.batch is not None
        reached("begun")
        reports, word = [], uuid.uuid4().hex  # of a run of the query
        for partition in range(TASKS):
            mine = [b"%s/%d/%d" % (name.encode(), partition, number) for number in range(ROWS)]
            rows = pa.record_batch({"value": pa.array(mine)})
            attempt = Attempt(begun.batch.query_id, begun.batch.batch_id, partition, within, word)
            reports.append(write_rows(options, begun, attempt, iter([rows])).report)
            reached("a task prepared")
        reached("all tasks prepared")
        ends = 0  # begin has finished again what was decided before under transactional.id
        committer.commit_batch(options, reports, runner)
        reached("noted")
        answers.send("done")
    except Exception as error:
        answers.send(f"{type(error).__name__}: {error}")


def run(given: dict[str, str], name: str, point: str = "", within: Batch | None = None) -> str:
    """How the process ended: "done", "killed", or what it raised."""
    here, there = _processes.Pipe(duplex=False)
    process = _processes.Process(target=_run, args=(given, name, point, there, within))
    process.start()
    there.close()
    process.join(120)
    return "killed" if process.exitcode == -signal.SIGKILL else str(here.recv())


class Site:
    """A topic of a broker, and what is open or held back on it."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka, self.topic = kafka, kafka.topic(1)
        self.given = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": self.topic}
        self.options = sink_options(self.given, stream=False)

    def open(self, prefix: str = "") -> list[str]:
        found = transaction_states.list_transactions(shared_cluster(self.options.client), prefix, ["Ongoing"])
        return [listing.transactional_id for listing in found]

    def seals(self, named: bool) -> bool:
        return named and offers_two_phase_commit(self.kafka.bootstrap)

    def abort(self, names: set[str]) -> None:
        found = transaction_states.describe(shared_cluster(self.options.client), sorted(names))
        left = [Participant(name, state.identity) for name, state in found.items() if state is not None]
        Runner(shared_cluster(self.options.client), TIMEOUT_MS).run(abort_all(left))

    def held_back(self) -> bool:
        """Whether a read_committed reader does not see the end."""
        with Cluster(self.options.client) as cluster:
            place = {(self.topic, 0): LATEST}
            ends = [list_offsets(cluster, place, committed=committed) for committed in (True, False)]
        return ends[0] != ends[1]

    def rows(self) -> list[bytes]:
        return sorted(row[3] for row in self.kafka.rows(self.topic))


@pytest.fixture(scope="module")
def hasty() -> Iterator[Kafka]:
    """A broker that looks for timed-out transactions all the time."""
    interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with start_broker({interval: "100"}) as broker:
        yield Kafka(broker.bootstrap)


@pytest.mark.parametrize("point", POINTS)
def test_a_write_with_a_token_is_there_once_wherever_it_was_killed(hasty: Kafka, point: str) -> None:
    site = Site(hasty)
    stem = f"{site.topic}-"
    assert run({**site.given, "write.token": f"{stem}0"}, "a") == "done"
    assert run({**site.given, "write.token": f"{stem}1"}, "b", point) == "killed"
    assert run({**site.given, "write.token": f"{stem}1"}, "b") == "done"
    assert site.rows() == sorted(values("a") + values("b"))
    assert site.open(f"eoslog-write:{stem}") == [] and not site.held_back()
    said = run({**site.given, "write.token": f"{stem}1"}, "c")
    assert said.startswith("TokenReused") and f"write.token={stem}1 has written 6 rows" in said, said
    assert site.rows() == sorted(values("a") + values("b"))


@pytest.mark.parametrize("named", [False, True], ids=["without a name", "transactional.id"])
@pytest.mark.parametrize("point", POINTS)
def test_a_write_of_foreachbatch_without_a_token_is_there_once_wherever_it_was_killed(
    hasty: Kafka, point: str, named: bool
) -> None:
    """What is not decided is ended here, as the guard of a Spark driver does; the next run ends the rest."""
    site, query = Site(hasty), uuid.uuid4().hex
    given = site.given | ({"transactional.id": site.topic} if named else {})
    assert run(given, "a", within=Batch(query, 0)) == "done"
    died = run(given, "b", point, Batch(query, 1))
    assert died == ("done" if point == "a winner sealed" and not site.seals(named) else "killed")
    opened = set(site.open())
    ended = run(given, "b", within=Batch(query, 1))
    if point in PENDING:  # the dead run's own transaction may be open in the group of transactional.id
        while ended != "done":
            assert named and "cannot be read" in ended, ended
            ended = run(given, "b", within=Batch(query, 1))
    assert ended == "done"
    left = set(site.open())
    assert left <= opened and (not left or point not in DECIDED), left
    site.abort(left)
    assert site.rows() == sorted(values("a") + values("b"))
    said = run(given, "c", within=Batch(query, 1))
    assert said.startswith("OtherRowsInBatch") and f"batch 1 of query {query}" in said, said
    site.abort(set(site.open()))  # as Spark's abort does
    assert site.rows() == sorted(values("a") + values("b"))


@pytest.mark.parametrize("point", ["decision staged", "decided", "noted"])
def test_what_a_dead_run_has_written_under_a_token_is_found_under_another_one(
    hasty: Kafka, point: str
) -> None:
    """Nobody waits for what it has not decided."""
    site, query = Site(hasty), uuid.uuid4().hex
    old, new = ({**site.given, "write.token": f"{site.topic}-{kind}-1"} for kind in ("old", "new"))
    assert run(old, "a", point, Batch(query, 1)) == "killed"
    ended = run(new, "a", within=Batch(query, 1))
    if point in DECIDED:
        assert ended.startswith(f"SinkChanged: batch 1 of query {query}"), ended
        assert f"start.accepted=sink-changed:{site.topic}:1" in ended, ended
        site.abort(set(site.open(f"eoslog-write:{site.topic}-new")))  # as Spark's abort does
        assert run(old, "a", within=Batch(query, 1)) == "done"
    else:
        assert ended == "done"
        site.abort(set(site.open()))
    assert site.rows() == sorted(values("a")) and not site.open(f"eoslog-write:{site.topic}")


@pytest.mark.parametrize("tokens", ["", "a", "b", "ab"])
def test_a_line_of_foreachbatch_that_had_no_rows_writes_none_from_an_older_copy(
    hasty: Kafka, tokens: str
) -> None:
    """The copy's batch has rows for it, which came since; the function's other line has written later ones.
    `tokens`: which lines have one."""
    sites, query = {"a": Site(hasty), "b": Site(hasty)}, uuid.uuid4().hex

    def write(line: str, number: int) -> str:
        token = {"write.token": f"{sites[line].topic}-{number}"} if line in tokens else {}
        return run({**sites[line].given, **token}, line, within=Batch(query, number))

    for number in (6, 7):
        assert write("a", number) == "done"
    said = write("b", 6)
    assert said.startswith("CheckpointOlder") and "has written batch 7 of this query before" in said, said
    sites["b"].abort(set(sites["b"].open()))  # as Spark's abort does
    assert sites["b"].rows() == []
    assert write("b", 8) == "done" and sites["b"].rows() == values("b")


def test_a_write_without_a_name_holds_readers_back_no_longer_than_the_time_out(hasty: Kafka) -> None:
    """Nobody can start it again, so nothing of it is kept from timing out. What was decided and not yet
    committed is lost then: such a write has to come to its end, or have a name."""
    sites = {
        point: Site(hasty) for point in POINTS if point not in ("finished, not noted", "a winner sealed")
    }
    timeout = {"kafka.transaction.timeout.ms": str(TIMEOUT_MS)}
    last = 0.0
    for point, site in sites.items():
        assert run({**site.given, **timeout}, "a", point) == "killed", point
        last = time.monotonic()
    while held := [point for point, site in sites.items() if site.held_back()]:
        assert time.monotonic() < last + TIMEOUT_MS / 1000 + 5, f"held back by {held}"
        time.sleep(0.2)
    for point, site in sites.items():
        assert not site.held_back()
        whole = {"noted": 1.0, "decided, one winner finished": 0.5}.get(point, 0)
        assert len(site.rows()) == whole * TASKS * ROWS, point
    site = Site(hasty)
    assert run({**site.given, **timeout}, "a", "a winner sealed") == "done", "it seals nothing"
    named = {**site.given, **timeout, "transactional.id": site.topic}
    if offers_two_phase_commit(hasty.bootstrap):
        assert run(named, "b", "a winner sealed") == "killed", "the judge would see it"
        assert run(named, "c") == "done"
        assert site.rows() == sorted(values("a") + values("c"))


@pytest.mark.parametrize("name", ["transactional.id", "write.token"])
def test_require_needs_a_write_that_can_be_started_again(name: str) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", "two.phase.commit": "require"}
    with pytest.raises(OptionError, match=r"two\.phase\.commit=require: .* give transactional\.id or write"):
        sink_options(given, stream=False)
    for stream in (True, False):
        more = {} if stream else {name: "n"}
        assert sink_options({**given, **more}, stream=stream).two_phase.value == "require"
