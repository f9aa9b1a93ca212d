"""What a node that dies costs the batch that is being committed: reckoned, and measured on three nodes.

A node that dies without a word is fenced when the controller has not heard of it for
`broker.session.timeout.ms`. Until then its coordinators and leaders are nowhere, and
each append that it should copy waits for it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

from benchmarks.many_tasks import DECISIONS
from benchmarks.peers import ThreeNodes
from benchmarks.simulation.query import Query
from eoslog.client.wire.config import ClientConfig

SESSION_MS, HEARTBEAT_MS = 9_000, 2_000
"""Defaults of broker.session.timeout.ms and broker.heartbeat.interval.ms."""
TASKS, BOUND = 100, 0.25


def stall_ms(
    config: ClientConfig, session_ms: float = SESSION_MS, heartbeat_ms: float = HEARTBEAT_MS
) -> float:
    """How long a commit waits: the last heartbeat was half an interval ago, and the driver, which tries again
    after pauses, notices half a pause later. At most half of both more or less."""
    return session_ms - heartbeat_ms / 2 + config.retry_backoff_max_ms / 2


def measured(kafka: Path, times: int) -> list[float]:
    """Commits of 100 tasks; a node is killed right before. The controller is a process of its own."""
    took = []
    with (
        ThreeNodes(kafka, DECISIONS, controller_apart=True) as cluster,
        Query(cluster.bootstrap, "lost") as query,
    ):
        for _ in range(3):
            query.micro_batch(TASKS)
        for number in range(times):
            reports = query.tasks(query.begin(), TASKS)
            node = cluster.nodes[number % 3]
            cluster.kill(node)
            started = time.perf_counter()
            query.commit(reports)
            took.append((time.perf_counter() - started) * 1000)
            print(f"node {node} killed: commit took {took[-1]:,.0f} ms", flush=True)
            cluster.start_again(node)
            cluster.wait_until_healthy()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", type=Path, default=Path(".peers/kafka-4.3.1"))
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    was = statistics.median(measured(given.kafka, given.times))
    said = stall_ms(ClientConfig(()))
    print(f"foretold {said:,.0f} ms, measured {was:,.0f} ms, ratio {said / was:.2f}")
    if abs(said - was) > BOUND * was:
        sys.exit("foretold wrong")


if __name__ == "__main__":
    main()
