"""The crash table of docs/exactly-once.md, line by line: real processes, a real broker, SIGKILL, and the
stock consumer as the reader.

With EOSLOG_TEST_OFFSET_LOG=2 every line of it with the checkpoint of a query whose sources have names.
"""

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eoslog.checkpoint import restore_checkpoint
from eoslog.client.admin import groups, transaction_states
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from tests.connector.brokers import Broker, Kafka, offers_two_phase_commit, start_broker
from tests.connector.crashes.crash_query import (
    GROUP,
    IN_DRIVER,
    IN_TASKS,
    OFFSET_LOG,
    REPLAYED,
    ROWS,
    SOURCE,
    Crash,
    Query,
    run,
    start,
)
from tests.connector.spark_application import PATIENCE_SECONDS, Application
from tests.connector.spark_probe import UNDECIDED, WRITING
from tests.kit.program import until

DECIDED = ("decided", "decision sent", "all finished")
MAYBE_DECIDED = "decision sent, no answer read"
WRITTEN = (
    "some tasks prepared",
    "all tasks prepared",
    "some winners sealed",
    "before the decision is staged",
    "decision staged",
    "verified",
    "before the decision",
)
BROKER_DIES_AT = (
    "offsets logged",
    "begun",
    "a task in the middle of its rows",
    "all tasks prepared",
    "decision staged",
    "before the decision",
    "decided, no winner finished",
    "decided, some winners finished",
    "all finished, not logged",
)
NAMED_DIES_AT = (
    "offsets logged",
    "all tasks prepared",
    "decided, no winner finished",
    "all finished, not logged",
)
SHORT_MS = 5_000
"""A time-out that is waited for: long enough for a whole batch on a machine with much to do."""


class Bench:
    """A broker, a topic, a query that writes to it, and the readers' view."""

    def __init__(self, broker: Broker, checkpoint: Path, **options: str) -> None:
        self.broker, self.kafka = broker, Kafka(broker.bootstrap)
        self.topic = self.make_topic()
        self.sink_id = f"sink-{self.topic}"
        more = {name.replace("__", "."): value for name, value in options.items()}
        self.query = Query(
            checkpoint,
            {
                "kafka.bootstrap.servers": broker.bootstrap,
                "topic": self.topic,
                "transactional.id": self.sink_id,
            }
            | more,
        )

    def run_until_killed(self, at: str) -> bool:
        """Whether it got there, with a time-out as short as this machine allows."""
        for doubled in range(6):
            hurry = {"kafka.transaction.timeout.ms": str(SHORT_MS << doubled)}
            said = run(replace(self.query, options=self.query.options | hurry), Crash(at))
            if not said.startswith("BatchRefused"):
                return said == "killed"
        return False

    def make_topic(self) -> str:
        """A topic of two partitions."""
        return self.kafka.topic(2)

    def visible(self) -> list[bytes]:
        return sorted(row[3] for row in self.kafka.rows(self.topic, 2))

    def batch(self, number: int) -> list[bytes]:
        return [row for row in self.query.rows() if row.startswith(b"%d/" % number)]

    @property
    def seals(self) -> bool:
        """Whether this cluster lets winners be sealed; where not, their time-outs end them."""
        return offers_two_phase_commit(self.broker.bootstrap)

    def open(self) -> list[str]:
        """Transactions of the sink that hold back readers."""
        with self.cluster() as cluster:
            return [
                t.transactional_id
                for t in transaction_states.list_transactions(cluster, self.sink_id, ["Ongoing"])
            ]

    def wait_until_nothing_is_open(self) -> None:
        until(lambda: not self.open(), "nothing is open", PATIENCE_SECONDS)

    def written(self, batch: int, partition: int = 0) -> int:
        """How often a task's first row was written, as a reader sees it who sees aborted rows too."""
        rows = [row[3] for row in self.kafka.rows(self.topic, 2, committed=False)]
        return rows.count(b"%d/%d/0" % (batch, partition))

    def cluster(self) -> Cluster:
        return Cluster(ClientConfig(parse_addresses(self.broker.bootstrap)))

    def finish(self) -> None:
        """Start the query again, with time: all of its rows are there, once, and nothing is left open."""
        patient = {"kafka.transaction.timeout.ms": "60000"}
        assert run(replace(self.query, options=self.query.options | patient)) == "done"
        assert self.visible() == self.query.rows()
        assert self.open() == []


@pytest.fixture
def bench(broker: Broker, tmp_path: Path) -> Iterator[Bench]:
    yield Bench(broker, tmp_path / "checkpoint")


def test_no_crash(bench: Bench) -> None:
    assert run(bench.query) == "done"
    assert bench.visible() == bench.query.rows() and bench.open() == []


@pytest.mark.parametrize("at", IN_DRIVER)
def test_driver_killed(bench: Bench, at: str) -> None:
    """Readers see whole earlier batches, and of the killed one nothing or what was decided; after the
    restart everything once. A decided batch is not written again, any other is."""
    batch = 0 if at == "sink acquired" else 1  # the second batch of a run goes on under the same identity
    assert run(bench.query, Crash(at, batch)) == "killed"
    early = bench.visible()
    assert len(set(early)) == len(early)
    if not at.startswith(DECIDED):
        assert early == [row for number in range(batch) for row in bench.batch(number)]
    bench.finish()
    if at != MAYBE_DECIDED:
        written = at in WRITTEN and not at.startswith(DECIDED)
        assert bench.written(batch) == (2 if written else 1)


@pytest.mark.parametrize("at", NAMED_DIES_AT)
def test_driver_killed_whose_sources_have_names(bench: Bench, at: str) -> None:
    """The same with version 2 of the offset log, at the moments at which the checkpoint decides."""
    bench.query = replace(bench.query, version=2)
    test_driver_killed(bench, at)


@pytest.mark.parametrize("at", IN_TASKS)
def test_task_killed(bench: Bench, at: str) -> None:
    """Its next attempt writes the rows; what the killed one left open is cleared with the batch."""
    assert run(bench.query, Crash(at)) == "done"
    assert bench.visible() == bench.query.rows() and bench.open() == []
    assert bench.written(1) == 2


@pytest.mark.parametrize("at", ["begun", "before the decision is staged", "before the decision"])
def test_old_driver_wakes_up_after_a_new_one_is_done(bench: Bench, at: str) -> None:
    old = start(bench.query, Crash(at, stop=True))
    old.wait_until_stopped()
    bench.finish()
    old.wake()
    assert "another driver owns the sink" in old.end() or at == "begun"
    assert bench.visible() == bench.query.rows()
    bench.finish()


def test_old_driver_wakes_up_in_the_middle_of_a_new_ones_batch(bench: Bench) -> None:
    old = start(bench.query, Crash("before the decision", stop=True))
    old.wait_until_stopped()
    new = start(bench.query, Crash("all tasks prepared", stop=True))
    new.wait_until_stopped()
    old.wake()
    assert "another driver owns the sink" in old.end()
    new.wake()
    assert new.end() == "done"
    assert bench.visible() == bench.query.rows() and bench.open() == []


@pytest.mark.parametrize("at", BROKER_DIES_AT)
def test_broker_killed(bench: Bench, at: str) -> None:
    """The driver or the task waits at a point, the broker is killed and started again, and it goes on."""
    running = start(bench.query, Crash(at, stop=True))
    running.wait_until_stopped()
    bench.broker.kill()
    running.wake()
    bench.broker.restart()
    assert running.end() == "done"
    assert bench.visible() == bench.query.rows() and bench.open() == []


def test_broker_and_driver_killed_between_two_winners(bench: Bench) -> None:
    assert run(bench.query, Crash("decided, some winners finished")) == "killed"
    bench.broker.kill()
    bench.broker.restart()
    bench.finish()


def test_source_offsets_are_those_of_the_decided_batches(broker: Broker, tmp_path: Path) -> None:
    """Undecided: of the batch before. Decided, whatever happens after: of the batch."""
    bench = Bench(broker, tmp_path / "checkpoint", kafka__group__id=GROUP)
    bench.kafka.topic(2, name=SOURCE)
    for at, ends in (("before the decision", ROWS), ("decided, no winner finished", 2 * ROWS)):
        assert run(bench.query, Crash(at)) == "killed"
        with bench.cluster() as cluster:
            found = groups.fetch_committed(cluster, GROUP, [(SOURCE, 0), (SOURCE, 1)], require_stable=False)
        assert [offset for offset, _ in found.values()] == [ends, ends]
    bench.finish()


@pytest.fixture(scope="module")
def hasty() -> Iterator[Broker]:
    """A broker that looks for timed-out transactions all the time."""
    interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with start_broker({interval: "100"}) as started:
        yield started


def test_participant_timed_out_before_the_decision(hasty: Broker, tmp_path: Path) -> None:
    bench = Bench(hasty, tmp_path / "checkpoint", kafka__transaction__timeout__ms=str(SHORT_MS))
    late = start(bench.query, Crash("all tasks prepared", stop=True))
    late.wait_until_stopped()
    bench.wait_until_nothing_is_open()
    late.wake()
    said = late.end()
    assert said.startswith("BatchRefused") and "batch 1" in said and "kafka.transaction.timeout.ms" in said
    assert bench.visible() == bench.batch(0)
    bench.finish()


def test_nobody_finishes_for_longer_than_the_time_out(hasty: Broker, tmp_path: Path) -> None:
    """Killed right after the decision: the winners are sealed, so they wait for whoever comes. Where the
    cluster does not offer that, the batch is lost loudly."""
    bench = Bench(hasty, tmp_path / "checkpoint", kafka__transaction__timeout__ms=str(SHORT_MS))
    assert run(bench.query, Crash("decided, no winner finished")) == "killed"
    if not bench.seals:
        bench.wait_until_nothing_is_open()
        said = run(bench.query)
        assert said.startswith("ParticipantsLost") and "batch 1" in said
        assert bench.visible() == bench.batch(0)
        return
    time.sleep(SHORT_MS / 1000 + 1.5)
    assert len(bench.open()) == 2
    bench.finish()
    assert bench.written(1) == 1


def test_a_sealed_batch_that_was_not_decided_is_aborted_by_the_next_begin(
    hasty: Broker, tmp_path: Path
) -> None:
    bench = Bench(hasty, tmp_path / "checkpoint", kafka__transaction__timeout__ms=str(SHORT_MS))
    assert run(bench.query, Crash("before the decision is staged")) == "killed"
    time.sleep(SHORT_MS / 1000 + 1.0)
    if bench.seals:
        assert len(bench.open()) == 2, "no time-out ends them"
    else:
        bench.wait_until_nothing_is_open()
    bench.finish()
    assert bench.written(1) == 2


def test_two_phase_commit_required_where_it_is_switched_off(tmp_path: Path) -> None:
    """Said before anything is written; with auto the query goes on without."""
    with start_broker({"transaction.two.phase.commit.enable": "false"}) as plain:
        bench = Bench(plain, tmp_path / "checkpoint", two__phase__commit="require")
        said = run(bench.query)
        assert said.startswith("CommitFault") and "two.phase.commit=require" in said
        assert bench.visible() == [] and bench.written(0) == 0
        auto = Bench(plain, tmp_path / "another")
        assert run(auto.query, Crash("decided, no winner finished")) == "killed"
        auto.finish()


def test_participant_timed_out_after_the_decision(hasty: Broker, tmp_path: Path) -> None:
    """Without sealing, the one line that cannot end well: it ends loudly, every time, and nothing is
    doubled."""
    bench = Bench(
        hasty,
        tmp_path / "checkpoint",
        kafka__transaction__timeout__ms=str(SHORT_MS),
        two__phase__commit="false",
    )
    assert run(bench.query, Crash("decided, some winners finished")) == "killed"
    (lost,) = bench.open()
    bench.wait_until_nothing_is_open()
    for _ in range(2):
        said = run(bench.query)
        assert said.startswith("ParticipantsLost") and "batch 1" in said and lost in said
    early = bench.visible()
    assert len(early) == 3 * ROWS and set(bench.batch(0)) <= set(early) <= set(bench.query.rows())
    bench.query.options["on.lost.transaction"] = "replay"
    bench.finish()


@pytest.mark.timeout(3 * PATIENCE_SECONDS)
def test_participant_timed_out_after_the_decision_and_is_replayed(hasty: Broker, tmp_path: Path) -> None:
    """Only the lost partition is written again, and once, wherever replays are killed, and if what they write
    is lost too."""
    bench = Bench(hasty, tmp_path / "checkpoint", two__phase__commit="false", on__lost__transaction="replay")
    assert bench.run_until_killed("decided, some winners finished")
    bench.wait_until_nothing_is_open()
    kept, lost = bench.written(1), bench.written(1, partition=1)
    assert run(bench.query, Crash("all tasks prepared")) == "killed"
    assert run(bench.query, Crash("before the decision")) == "killed"
    assert bench.written(1, partition=1) == lost + 2
    assert bench.run_until_killed(REPLAYED)
    bench.wait_until_nothing_is_open()
    assert run(bench.query, Crash(MAYBE_DECIDED)) == "killed"
    bench.finish()
    assert bench.written(1) == kept, "what was committed is not written again"


@pytest.mark.timeout(3 * PATIENCE_SECONDS)
@pytest.mark.parametrize("every", [1, 3])
def test_a_lost_participant_is_replayed_although_the_checkpoint_is_lost_too(
    hasty: Broker, tmp_path: Path, every: int
) -> None:
    """The machine is gone, with the disk. Batches between the last save and the lost one are passed."""
    bench = Bench(hasty, tmp_path / "checkpoint", two__phase__commit="false", on__lost__transaction="replay")
    saved = {"state.topic": bench.kafka.topic(cleanup_policy="compact"), "state.every.batches": f"{every}"}
    hurry = {"kafka.transaction.timeout.ms": str(2 * SHORT_MS)}
    bench.query = replace(bench.query, batches=6, version=1, ours=True, options=bench.query.options | saved)
    crash = Crash("decided, some winners finished", batch=4)
    assert run(replace(bench.query, options=bench.query.options | hurry), crash) == "killed"
    bench.wait_until_nothing_is_open()
    lost = set(bench.batch(4)) - set(bench.visible())
    assert len(lost) == ROWS
    shutil.rmtree(bench.query.checkpoint)
    restored = restore_checkpoint(str(bench.query.checkpoint), bench.query.options)
    assert restored is not None and (restored.batch, restored.decided) == (4 if every == 1 else 3, 4)
    bench.finish()


@pytest.mark.timeout(3 * PATIENCE_SECONDS)
def test_a_batch_that_does_not_replay_equally_is_not_replayed(hasty: Broker, tmp_path: Path) -> None:
    """Another run has other rows, and says so every time; the kept ones stay as they are."""
    bench = Bench(hasty, tmp_path / "checkpoint", two__phase__commit="false", on__lost__transaction="replay")
    bench.query = replace(bench.query, varies=True)
    assert bench.run_until_killed("decided, some winners finished")
    bench.wait_until_nothing_is_open()
    early = bench.visible()
    for _ in range(2):
        said = run(bench.query)
        assert said.startswith("ReplayDiffers") and "batch 1 of query" in said and "partitions [1]" in said
    assert bench.visible() == early and bench.open() == []


@pytest.mark.spark
@pytest.mark.timeout(3 * PATIENCE_SECONDS)
def test_spark_killed_and_its_workers_killed(broker: Broker, tmp_path: Path) -> None:
    """The workers in the middle of one batch, the whole application in a later one; then it runs to its end.

    Only task workers: Spark starts others and tries the tasks again. A query whose planner or committer
    dies stops with an error (test_driver_processes_killed in executors/).
    """
    kafka = Kafka(broker.bootstrap)
    source, target = kafka.topic(2), kafka.topic(2)
    rows = [b"%06d" % number for number in range(16_000)]
    for partition in range(2):
        kafka.put(source, rows[partition::2], partition=partition)
    place = tmp_path / "checkpoint"
    copy = ("tests.connector.crashes.crash_spark", kafka.bootstrap, source, target, place, str(OFFSET_LOG))
    with Application(tmp_path / "first", *copy) as first:
        first.order({"at": WRITING, "batch": 1, "do": "wait"}, {"at": UNDECIDED, "batch": 2, "do": "wait"})
        first.wait_for(2, WRITING, batch=1, attempt=0)
        workers = first.task_workers()
        assert {note["pid"] for note in first.notes(WRITING, batch=1)} <= {worker.pid for worker in workers}
        for worker in workers:
            worker.kill()
        first.wait_for_others(batch=1, partitions={0, 1})
        first.wait_for(1, UNDECIDED, batch=2)
    with Application(tmp_path / "again", *copy) as again:
        assert again.end() == 0, again.tail()
    assert sorted(row[3] for row in kafka.rows(target, 2)) == rows
    assert (place / "offsets" / "0").read_text().startswith(f"v{OFFSET_LOG}\n")
