"""What a micro-batch costs besides its data: a constant number of broker round trips, however many tasks.

The connector's requests are counted on the wire, by what it sends and when it waits: requests that are sent
before the answer of the first is read are one round trip. The table is that of docs/exactly-once.md.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eoslog.client.admin import groups as group_offsets
from eoslog.client.admin import transaction_states, transactions
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster, shared_cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.client.wire.connection import BrokerConnection
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.decide import SourceOffsets, commit
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.prepare import judge, participant_name
from eoslog.connector.commit.seal import TwoPhase
from eoslog.connector.commit.task_reports import Batch, Begun, Prepared, Report, Run
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.progress import step_of
from eoslog.connector.run.runner import Runner
from eoslog.connector.sink import task_writer
from eoslog.connector.sink.committer import begin_batch
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.protocol.apis import APIS
from eoslog.protocol.encode import encode_batches
from tests.connector.brokers import Kafka, offers_two_phase_commit, skip_unless_served

PAGE = Path(__file__).parents[3] / "docs" / "exactly-once.md"
SIZES = (2, 8, 32)
MORE_ON_TV1 = 3


class Wire:
    """Counts by step: requests, and round trips: how often a first answer is waited for."""

    def __init__(self) -> None:
        self.step = ""
        self.requests: Counter[str] = Counter()
        self.trips: Counter[str] = Counter()
        self.apis: dict[str, list[str]] = {}
        self.waiting = False

    def sent(self, api: Any) -> None:
        self.requests[self.step] += 1
        self.waiting = True
        name = APIS[api].name
        if name not in self.apis.setdefault(self.step, []):
            self.apis[self.step].append(name)

    def received(self) -> None:
        if self.waiting:
            self.trips[self.step] += 1
            self.waiting = False

    @contextmanager
    def tapped(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        send, receive = BrokerConnection.send, BrokerConnection.receive

        def counted_send(connection: BrokerConnection, api: Any, *rest: Any, **more: Any) -> Any:
            self.sent(api)
            return send(connection, api, *rest, **more)

        def counted_receive(connection: BrokerConnection, *rest: Any, **more: Any) -> Any:
            self.received()
            return receive(connection, *rest, **more)

        with patch.context() as tap:
            tap.setattr(BrokerConnection, "send", counted_send)
            tap.setattr(BrokerConnection, "receive", counted_receive)
            yield


class Stepping(Runner):
    """Tells the wire which step of which part a request belongs to."""

    def __init__(self, cluster: Cluster, wire: Wire, sink: Sink) -> None:
        super().__init__(cluster, 60_000)
        self.wire, self.sink, self.part = wire, sink, ""

    def _do(self, command: Any) -> Any:
        self.wire.step = f"{self.part}: {step_of(command, self.sink)}"
        return super()._do(command)


def prepare(cluster: Cluster, begun: Begun, topic: str, partition: int) -> Report:
    """A task with one row, by the client that tasks use."""
    assert begun.batch is not None
    _, stamp = judge(begun, *begun.batch[:2], partition)
    name = participant_name(stamp, f"w{partition}", 0)
    identity = transactions.init_producer_id(cluster, name, 60_000)
    with Producer(cluster, identity=identity, transactional_id=name) as producer:
        now_ms = int(time.time() * 1000)  # what is old is deleted
        for batch in encode_batches(None, pa.array([b"row"]), None, now_ms, codec=0, max_batch_bytes=1000):
            producer.send(topic, 0, batch)
        producer.flush()
    who = Participant(name, identity)
    written = tuple(producer.first_rows)
    return Prepared(stamp, partition, who, 1, written, first_rows=tuple(producer.first_rows.values()))


def counted(
    kafka: Kafka, patch: pytest.MonkeyPatch, tasks: int, tv: int, policy: TwoPhase, source: str
) -> Wire:
    """The driver's requests of a running query's third micro-batch: all coordinators are known by then."""
    topic, wire = kafka.topic(), Wire()
    patch.setattr(Cluster, "transaction_version", lambda self: tv)
    sink, run = Sink(f"trips-{topic}"), None
    with Cluster(ClientConfig(parse_addresses(kafka.bootstrap))) as cluster:
        runner = Stepping(cluster, wire, sink)
        for batch_id in range(3):
            wire.__init__()  # type: ignore[misc]
            run = _batch(
                cluster,
                runner,
                Batch("q", batch_id, str(batch_id)),
                run,
                (tasks, topic, source),
                patch,
                policy,
            )
    assert len(kafka.rows(topic, 1)) == 3 * tasks
    return wire


def _batch(
    cluster: Cluster,
    runner: Stepping,
    batch: Batch,
    run: Run | None,
    work: tuple[int, str, str],
    patch: pytest.MonkeyPatch,
    policy: TwoPhase,
) -> Run | None:
    tasks, topic, source = work
    done = batch.batch_id - 1 if batch.batch_id else None
    if run is not None:
        _wait_for_markers(cluster, runner.sink)
    runner.part = "begin"
    with runner.wire.tapped(patch):
        begun, run = runner.run(begin(runner.sink, batch, last_run=run, completed=done, two_phase=policy))
    reports = [prepare(cluster, begun, topic, partition) for partition in range(tasks)]
    runner.part = "commit"
    offsets = SourceOffsets(f"{runner.sink.id}-user", {(source, 0): (batch.batch_id, "")})
    with runner.wire.tapped(patch):
        runner.run(commit(runner.sink, reports, batch.batch_id, offsets, policy))
    return run


def _wait_for_markers(cluster: Cluster, sink: Sink) -> None:
    """Kafka answers EndTxn before its markers are written: who is quick asks for offsets more than once."""
    deadline = time.monotonic() + 60
    while True:
        state = transaction_states.describe(cluster, [sink.coordinator])[sink.coordinator]
        if state is not None and state.state == "CompleteCommit":
            break
        assert time.monotonic() < deadline, state
        time.sleep(0.01)
    group_offsets.fetch_committed(cluster, sink.group, [(ANCHOR, 0)], require_stable=True)


@pytest.mark.parametrize("policy", [TwoPhase.AUTO, TwoPhase.NEVER], ids=["sealed", "not sealed"])
@pytest.mark.parametrize("tv", [2, 1], ids=["TV2", "TV1"])
def test_round_trips_are_constant(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, tv: int, policy: TwoPhase
) -> None:
    skip_unless_served(kafka.bootstrap, tv)
    source = kafka.topic()
    seen = {tasks: counted(kafka, monkeypatch, tasks, tv, policy, source) for tasks in SIZES[: tv + 1]}
    first = seen[SIZES[0]]
    for tasks, wire in seen.items():
        print(f"\n{tasks} tasks: {wire.trips.total()} round trips, {wire.requests.total()} requests")
        for step, trips in wire.trips.items():
            print(f"  {step}: {trips} trips, {wire.requests[step]} requests: {', '.join(wire.apis[step])}")
        assert wire.trips == first.trips, (tasks, wire.trips, first.trips)
        each = [step for step in wire.requests if wire.requests[step] != first.requests[step]]
        assert set(each) <= {"commit: seal", "commit: finish"}, "requests that grow with the tasks"
        assert all(wire.requests[step] == tasks for step in each)
    sealed = policy is TwoPhase.AUTO and offers_two_phase_commit(kafka.bootstrap)
    told = "sealed" if sealed else "not sealed"
    newer = first.trips.total() - (MORE_ON_TV1 if tv == 1 else 0)
    assert f"{newer} round trips {told}" in PAGE.read_text()
    assert "On transaction.version 1 there are three more" in PAGE.read_text()


def test_a_driver_that_waits_for_each_answer_would_be_noticed(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eoslog.client.wire import pipelined

    skip_unless_served(kafka.bootstrap, 2)
    monkeypatch.setattr(pipelined, "IN_FLIGHT", 1)
    source = kafka.topic()
    two, eight = (counted(kafka, monkeypatch, tasks, 2, TwoPhase.AUTO, source) for tasks in (2, 8))
    assert eight.trips.total() > two.trips.total()


def test_a_task_has_few_of_its_own(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside its rows, when its process knows the topic, and has used the name before, two batches ago."""
    topic = kafka.topic()
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic, "transactional.id": topic}
    options, wire = sink_options(given, stream=False), Wire()
    begun = begin_batch(options)
    assert begun is not None and begun.batch is not None
    attempt = Attempt(begun.batch.query_id, 0, 0)
    _, stamp = judge(begun, *attempt[:3])
    for number in range(2):
        monkeypatch.setattr(task_writer, "_next_slot", lambda stamp, n=number: ("w", n))
        shared_cluster(options.client).coordinator("transaction", participant_name(stamp, "w", number))
        wire.__init__()  # type: ignore[misc]
        with wire.tapped(monkeypatch):
            write_rows(options, begun, attempt, iter([pa.record_batch({"value": pa.array([b"row"])})]))
    beside = [api for api in wire.apis[""] if api != "Produce"]
    older = shared_cluster(options.client).transaction_version() < transactions.TV2
    assert beside == ["InitProducerId", *(["AddPartitionsToTxn"] if older else []), "DescribeTransactions"]
    assert wire.requests[""] == len(beside) + 1
    if older:
        return
    assert f"A task has {len(beside)} round trips of its own" in PAGE.read_text()
