"""Kills nodes of an Apache Kafka cluster while a copy runs, and starts them again before the next die."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random

from benchmarks.peer_cluster import ThreeNodes
from tests.soaks.copy_lives import Job, sink_of

DEAD_SECONDS = (1.0, 5.0)
"""How long a node stays dead, and between two deaths."""
PROGRESS_SECONDS = 240.0
"""The longest that a copy may stand still with one node left."""

ROLES = ("leads a partition", "coordinates the transaction", "coordinates the decision", "any")


class NodeKills:
    """A thread that kills until it is told to end. `kills`: by what the node was to the copy."""

    def __init__(self, cluster: ThreeNodes, job: Job, partitions: int, seed: int, *, but_one: bool) -> None:
        """`but_one`: two die, one after the other, and the copy has to go on with the third alone."""
        self.kills: Counter[str] = Counter()
        self.alone = 0  # times that the copy went on with one node
        self._cluster, self._job, self._partitions = cluster, job, partitions
        self._draw, self._over = Random(seed), threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(self._two if but_one else self._one,))

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """End with all nodes alive and in sync. Raises what went wrong."""
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self, kill_some: Callable[[], None]) -> None:
        try:
            while not self._over.is_set():
                self._wait()
                kill_some()
        except BaseException as error:
            self._failure = error

    def _wait(self) -> None:
        self._over.wait(self._draw.uniform(*DEAD_SECONDS))

    def _one(self) -> None:
        role = ROLES[sum(self.kills.values()) % len(ROLES)]
        self._kill(self._who(role), role)
        self._wait()
        self._bring_back()

    def _two(self) -> None:
        first, second, left = self._draw.sample(self._cluster.nodes, 3)
        self._kill(first, "first of two")
        self._wait()
        self._kill(second, "second of two")
        if self._goes_on():
            self.alone += 1
            print(f"  the copy goes on with node {left} alone", flush=True)
        self._bring_back()

    def _kill(self, node: int, role: str) -> None:
        self._cluster.kill(node)
        self.kills[role] += 1
        batch = self._job.newest("offsets")
        print(f"  node {node} killed ({role}), batch {batch}", flush=True)

    def _bring_back(self) -> None:
        for node in self._cluster.nodes:
            if node not in self._cluster.alive:
                self._cluster.start_again(node)
        self._cluster.wait_until_healthy(300)

    def _who(self, role: str) -> int:
        sink = sink_of(self._job)
        if role == ROLES[0]:
            return self._cluster.leader_of(self._job.target, self._draw.randrange(self._partitions))
        if role == ROLES[3] or sink is None:
            return self._draw.choice(self._cluster.nodes)
        if role == ROLES[1]:
            return self._cluster.coordinator_of("transaction", sink.coordinator)
        return self._cluster.coordinator_of("group", sink.group)

    def _goes_on(self) -> bool:
        """Wait for two batches to be noted; False if the copy came to its end before."""
        before, deadline = self._job.newest("commits"), time.monotonic() + PROGRESS_SECONDS
        while self._job.newest("commits") < before + 2:
            if self._over.is_set():
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(f"no batch noted for {PROGRESS_SECONDS} s with one node alive")
            time.sleep(0.1)
        return True
