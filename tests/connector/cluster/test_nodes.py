"""Nodes are killed, and leaders move, while a query stands at a point of the crash table.

`make test-connector-cluster` runs them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import quantiles

import pytest
from confluent_kafka.admin import NewTopic
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from eoslog.client.admin import transaction_states
from eoslog.connector.commit.commands import Command, End
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.offsets.offsets import Offsets
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.connector.source.whole_batches import WholeBatches
from eoslog.errors import EoslogError
from tests.connector.brokers import FORMATTING, Kafka
from tests.connector.crashes.crash_query import Crash, Query, Running, start
from tests.connector.crashes.test_crash_table import Bench
from tests.connector.source.test_whole_batches import Writer
from tests.kit.kafka_nodes import ThreeNodes
from tests.kit.program import until
from tests.scenarios.apache_kafka import JARS, check

# -- the query, and who does what for it -----------------------------------------------------------
# A query of the crash table on three nodes, and who of them does what for it.


POINTS = (
    "begun",
    "a task in the middle of its rows",
    "some tasks prepared",
    "all tasks prepared",
    "decision staged",
    "before the decision",
    "decision sent, no answer read",
    "decided, no winner finished",
    "decided, some winners finished",
    "all finished, not logged",
)
REACH_SECONDS = 120.0
"""How long a query may take to its point, on a machine with much else to do."""
BOUND_SECONDS = 180.0
"""How long a query may take to its end after a node died: the client's own time-outs, and a margin."""


SEEN_SECONDS = 60.0
"""How long after the end of a query its last rows may take to be readable: a marker stands in the leader's
log at once, but counts for readers when all replicas in sync have it, and a dead one is in sync until the
controller has taken it out (broker.session.timeout.ms, 9 s)."""


class ClusterBench(Bench):
    """A topic of two partitions with replicas on all nodes, and a query that writes to it.

    `waits`: seconds from each disturbance to the end of the run in which it came.
    """

    def __init__(self, nodes: ThreeNodes, checkpoint: Path, in_sync: int = 2, **options: str) -> None:
        """`in_sync`: the topic's min.insync.replicas."""
        self._in_sync = in_sync
        super().__init__(nodes, checkpoint, **options)  # type: ignore[arg-type]
        self.nodes = nodes
        self.waits: list[float] = []

    def make_topic(self) -> str:
        """A topic that has a replica on each node."""
        name = f"t-{time.monotonic_ns():x}"
        config = {"min.insync.replicas": str(self._in_sync)}
        self.kafka.admin.create_topics([NewTopic(name, 2, 3, config=config)])[name].result(60)
        self.kafka_sees(name)
        return name

    def kafka_sees(self, topic: str) -> None:
        """Wait until every node knows the topic's leaders."""
        until(
            lambda: topic in self.kafka.admin.list_topics(timeout=20).topics,
            f"{topic} is known",
            REACH_SECONDS,
        )

    # -- who does what ------------------------------------------------------------------------

    def leads(self) -> int:
        """The node that leads the first partition."""
        return self.nodes.leader_of(self.topic, 0)

    def coordinates_sink(self) -> int:
        """The node that coordinates the sink's own transaction, the decision."""
        return self.nodes.coordinator_of("transaction", self.sink_id)

    def coordinates_participant(self) -> int:
        """The node that coordinates a participant: one that is open, if one is."""
        with self.cluster() as cluster:
            prefix = f"{self.sink_id}/"
            names = [
                t.transactional_id for t in transaction_states.list_transactions(cluster, prefix, ["Ongoing"])
            ]
            names = names or [
                t.transactional_id for t in transaction_states.list_transactions(cluster, prefix)
            ]
        return self.nodes.coordinator_of("transaction", names[0])

    def coordinates_group(self) -> int:
        """The node that keeps the group in which decisions are."""
        return self.nodes.coordinator_of("group", self.sink_id)

    def all_there(self) -> bool:
        """Whether readers of committed data come to see each row of the query once, and nothing is open."""
        wanted, deadline = self.query.rows(), time.monotonic() + SEEN_SECONDS
        while (seen := self.visible()) != wanted and time.monotonic() < deadline:
            assert len(seen) < len(wanted), f"{len(seen)} rows instead of {len(wanted)}"
            time.sleep(0.2)
        assert seen == wanted, (
            f"{len(seen)} rows of {len(wanted)} after {SEEN_SECONDS} s; open: {self.open()}"
        )
        return self.open() == []

    # -- what happens to it -------------------------------------------------------------------

    def disturb(self, query: Query, at: str, batch: int, disturbance: Callable[[], None]) -> str:
        """Halt the query at a point of a batch, let it go on while things happen; how it ended."""
        running: Running = start(query, Crash(at, batch, stop=True))
        running.wait_until_stopped(REACH_SECONDS)
        disturbance()
        began = time.monotonic()
        running.wake()
        said = running.end(BOUND_SECONDS)
        self.waits.append(round(time.monotonic() - began, 1))
        return said


# -- nodes -----------------------------------------------------------------------------------------
# Nodes are killed, and leaders and coordinators move, while a query stands at a point of the crash table.


# -- a node is killed ----------------------------------------------------------------------------
# A node is killed while a query stands at a point of the crash table, and the query lives on.
#
# First the dead node stays dead until the query is done; then another one is killed in a later batch, and
# comes back while the query goes on. Every batch is there once, in bounded time, without a restart.


ROLES: dict[str, Callable[[ClusterBench], int]] = {
    "leads a partition": ClusterBench.leads,
    "coordinates the sink": ClusterBench.coordinates_sink,
    "coordinates a participant": ClusterBench.coordinates_participant,
    "coordinates the group": ClusterBench.coordinates_group,
}


@pytest.mark.kafka
@pytest.mark.timeout(900)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("at", POINTS)
def test_the_node_that(nodes: ThreeNodes, tmp_path: Path, role: str, at: str) -> None:
    bench = ClusterBench(nodes, tmp_path / "checkpoint")
    victims: list[int] = []

    def kill() -> None:
        victims.append(ROLES[role](bench))
        nodes.kill(victims[-1])

    assert bench.disturb(bench.query, at, 1, kill) == "done"
    assert bench.all_there()

    nodes.start_again(victims[0])
    nodes.wait_until_healthy()
    bench.query = replace(bench.query, batches=4)

    def kill_and_start() -> None:
        kill()
        nodes.start_again(victims[-1])

    assert bench.disturb(bench.query, at, 3, kill_and_start) == "done"
    assert bench.all_there()
    print(f"{role}, {at}: nodes {victims}, done after {bench.waits} s")


# -- leaders and coordinators move ---------------------------------------------------------------
# Leaders and coordinators move while a query stands at a point of the crash table; no node dies.
#
# Partitions get a new order of replicas (reassignment), and the first of them is elected (preferred leader
# election), as operators and balancers do: of the target topic, of the coordinators' logs, of all at once.

COORDINATORS = ("__transaction_state", "__consumer_offsets")


def move(nodes: ThreeNodes, topics: list[str]) -> int:
    """Give every partition of the topics another leader; how many there are."""
    admin = KafkaAdminClient(bootstrap_servers=nodes.bootstrap, request_timeout_ms=60_000)
    try:
        wanted: dict[TopicPartition, list[int]] = {}
        for topic in admin.describe_topics(topics):
            for part in topic["partitions"]:
                leader = part["leader_id"]
                others = [node for node in nodes.nodes if node != leader]
                wanted[TopicPartition(topic["name"], part["partition_index"])] = [*others, leader]
        admin.alter_partition_reassignments(wanted)
        _until_done(admin, wanted)
        _elect(nodes, admin, {place: order[0] for place, order in wanted.items()})
    finally:
        admin.close()
    return len(wanted)


def _elect(nodes: ThreeNodes, admin: KafkaAdminClient, leaders: dict[TopicPartition, int]) -> None:
    """Elect until each place has its leader: one that is out of sync just now is not taken."""
    deadline = time.monotonic() + REACH_SECONDS
    left = dict(leaders)
    while left:
        assert time.monotonic() < deadline, f"still led by others than {left}"
        by_topic: dict[str, list[int]] = {}  # the one form that this client understands
        for place in left:
            by_topic.setdefault(place.topic, []).append(place.partition)
        admin.elect_leaders(0, by_topic, raise_errors=False)
        time.sleep(0.2)
        left = {p: node for p, node in left.items() if nodes.leader_of(p.topic, p.partition) != node}


def _until_done(admin: KafkaAdminClient, wanted: dict[TopicPartition, list[int]]) -> None:
    until(
        lambda: not admin.list_partition_reassignments(),
        f"the reassignment to {wanted} is over",
        REACH_SECONDS,
    )


@pytest.mark.kafka
@pytest.mark.timeout(900)
@pytest.mark.parametrize("at", POINTS)
def test_leaders_move(nodes: ThreeNodes, tmp_path: Path, at: str) -> None:
    bench = ClusterBench(nodes, tmp_path / "checkpoint")
    moved: list[int] = []

    def move_all() -> None:
        moved.append(move(nodes, [bench.topic, *COORDINATORS]))

    assert bench.disturb(bench.query, at, 1, move_all) == "done"
    assert bench.all_there()
    print(f"{at}: {moved[0]} partitions moved, done after {bench.waits} s")


# -- one replica is enough -------------------------------------------------------------------------
# One replica is enough (min.insync.replicas=1, of the topic and of Kafka's own): all nodes but one die
# while a query stands at a point of the crash table.


ONE = {"min.insync.replicas": "1", "transaction.state.log.min.isr": "1"}


@pytest.fixture(scope="module")
def started() -> Iterator[ThreeNodes]:
    check()
    with ThreeNodes(JARS, ONE, controller_apart=True, formatting=FORMATTING) as nodes:
        yield nodes


@pytest.mark.kafka
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "at",
    [
        "begun",
        "a task in the middle of its rows",
        "all tasks prepared",
        "before the decision",
        "decided, some winners finished",
    ],
)
def test_all_nodes_but_one_are_killed(nodes: ThreeNodes, tmp_path: Path, at: str) -> None:
    """The one that led the partition goes first; the others know that before the next is killed."""
    bench = ClusterBench(nodes, tmp_path / "checkpoint", in_sync=1)
    killed: list[int] = []

    def kill_two() -> None:
        for _ in range(2):
            killed.append(bench.leads())
            nodes.kill(killed[-1])
            nodes.wait_until_without(killed[-1])

    assert bench.disturb(bench.query, at, 1, kill_two) == "done"
    assert len(nodes.alive) == 1
    assert bench.all_there()
    print(f"{at}: nodes {killed}, done after {bench.waits} s with one left")


# -- whole batches of 64 tasks --------------------------------------------------------------------
# Read while writers and nodes are killed: never a part is met. The same reader without the option meets parts
# of most batches.

TASKS = 64
BATCHES = 24


class Killed(Exception):
    """The writer dies here."""


class Reader(threading.Thread):
    """Looks for ends as fast as it can; keeps each that is new, and when it was met."""

    def __init__(self, look: object) -> None:
        super().__init__()
        self._look, self.over = look, threading.Event()
        self.met: list[tuple[float, Offsets]] = []

    def run(self) -> None:
        while not self.over.is_set():
            with suppress(EoslogError):  # a node is down: it is tried again
                found = self._look()  # type: ignore[operator]
                if found is not None and (not self.met or self.met[-1][1] != found):
                    self.met.append((time.monotonic(), found))


def batches(writer: Writer, random: Random, nodes: ThreeNodes) -> int:
    """Write all batches. A third is killed after some of its transactions have ended, and tried again; in
    every eighth a node dies, and comes back. How many were killed."""
    killed = 0

    def dies_at(ends: int) -> object:
        left = ends

        def after(command: Command[object] | None) -> None:
            nonlocal left
            left -= isinstance(command, End) and command.commit
            if left < 0:
                raise Killed

        return after

    for number in range(BATCHES):
        victim = random.choice(sorted(nodes.alive)) if number % 8 == 5 else None
        if victim is not None:
            nodes.kill(victim)
        dies = random.randrange(TASKS) if random.random() < 1 / 3 else None
        while True:
            try:
                more = {} if dies is None else {"after": dies_at(dies)}
                writer.batch(number, range(TASKS), **more)  # type: ignore[arg-type]
                break
            except Killed:
                killed, dies = killed + 1, None
                time.sleep(random.random())
            except CommitFault:
                time.sleep(0.5)
        if victim is not None:
            nodes.start_again(victim)
    return killed


@pytest.mark.kafka
@pytest.mark.timeout(1200)
def test_no_part_is_read(nodes: ThreeNodes) -> None:
    kafka, seed = Kafka(nodes.bootstrap), int(time.time())
    topics = [f"{name}-{seed}" for name in ("orders", "lines")]
    for future in kafka.admin.create_topics([NewTopic(topic, TASKS, 3) for topic in topics]).values():
        future.result(60)
    writer = Writer(nodes.bootstrap, topics)
    log = SourceTopics(writer.options())
    whole, plain = Reader(WholeBatches(log).ends), Reader(SourceTopics(writer.options()).latest)
    for reader in (whole, plain):
        reader.start()
    with writer.cluster:
        try:
            killed = batches(writer, Random(seed), nodes)
            last = WholeBatches(SourceTopics(writer.options())).await_ends()
        finally:
            for reader in (whole, plain):
                reader.over.set()
                reader.join(120)
        assert all(row.offset < last[row.where] for row in writer.rows)
        parts = [number for _, ends in plain.met for number in writer.parts(ends)]
        assert parts, "who reads without the option meets parts"
        assert [number for _, ends in whole.met for number in writer.parts(ends)] == []
        waits = [met(whole, writer, number) - met(plain, writer, number) for number in range(BATCHES)]
    print(
        f"seed {seed}: {BATCHES} batches of {TASKS} tasks, {killed} writers killed; {len(set(parts))} "
        f"batches met in parts without the option ({len(parts)} looks of {len(plain.met)}), 0 with it "
        f"({len(whole.met)} looks); whole {1000 * quantiles(waits, n=2)[0]:.0f} ms later (median), "
        f"{1000 * max(waits):.0f} ms at most"
    )


def met(reader: Reader, writer: Writer, number: int) -> float:
    """When a reader met the last row of a batch first."""
    rows = [row for row in writer.rows if row.batch == number]
    return next(at for at, ends in reader.met if all(row.offset < ends[row.where] for row in rows))
