"""A query of the crash table on three nodes, and who of them does what for it."""

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import NewTopic

from benchmarks.peer_cluster import ThreeNodes
from eoslog.client.admin import transaction_states
from tests.connector.crashes.crash_query import Crash, Query, Running, start
from tests.connector.crashes.test_crash_table import Bench
from tests.kit.waiting import until

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
