"""`make soak-copy-cluster`: a copy on three nodes of Apache Kafka that are killed while it runs.

    python -m tests.soaks.soak_copy_cluster [--rows 200000] [--seed N] [--only nodes,both,alone]
        [--transaction-version 1]

`nodes`: one node at a time, replication 3 and min.insync.replicas 2; the query must not stop. `both`: the
driver is killed as well. `alone`: min.insync.replicas 1, and all nodes but one are dead, one after the other.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.kit.kafka_nodes import ThreeNodes
from tests.soaks.copy_audit import audit, publish
from tests.soaks.copy_lives import Copy, Job, Report, sink_of
from tests.soaks.soak_copy import GROUP, KAFKA, PARTITIONS, SOURCE, TARGET, TARGET_PARTITIONS, make_topics

# -- nodes are killed ----------------------------------------------------------------------------
# Kills nodes of an Apache Kafka cluster while a copy runs, and starts them again before the next die.

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


# -- the soak ------------------------------------------------------------------------------------

SUBJECTS = {
    "nodes": "one node at a time, min.insync.replicas 2",
    "both": "one node at a time, min.insync.replicas 2, and the driver",
    "alone": "two nodes of three, min.insync.replicas 1",
}
ONE_IN_SYNC = {"min.insync.replicas": "1", "transaction.state.log.min.isr": "1"}


def copy(subject: str, options: argparse.Namespace, directory: Path) -> tuple[Report, NodeKills]:
    """Publish, copy under kills, audit."""
    alone = subject == "alone"
    settings = ONE_IN_SYNC if alone else None
    version = [f"--feature=transaction.version={options.transaction_version}"]
    with ThreeNodes(KAFKA, settings, controller_apart=alone, formatting=version) as cluster:
        make_topics(cluster.bootstrap, 3)
        publish(cluster.bootstrap, SOURCE, options.rows, PARTITIONS, options.seed)
        place, at = directory / "checkpoint", cluster.bootstrap
        job = Job("eoslog", at, SOURCE, TARGET, place, GROUP, options.batch, java=options.java)
        driver_kills = options.kills if subject == "both" else 0
        under_way = Copy(job, options.rows // options.batch, driver_kills, options.seed, directory)
        nodes = NodeKills(cluster, job, TARGET_PARTITIONS, options.seed, but_one=alone)
        nodes.start()
        try:
            report = under_way.run()
        finally:
            nodes.end()
        report.verdict = audit(cluster.bootstrap, TARGET, options.rows, PARTITIONS, (GROUP, SOURCE))
        return report, nodes


def main() -> None:
    """Run the subjects asked for; fails if a copy is not right or a query stopped by itself."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=6, help="of the driver")
    parser.add_argument("--batch", type=int, default=2_000, help="maxOffsetsPerTrigger")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--transaction-version", type=int, choices=(1, 2), default=2, help="of the cluster")
    parser.add_argument("--only", default=",".join(SUBJECTS), help=f"of {', '.join(SUBJECTS)}")
    parser.add_argument("--java", default="", help="options of the driver's JVM, such as a shared archive")
    options = parser.parse_args()
    wrong = []
    for subject in options.only.split(","):
        version = f"transaction.version {options.transaction_version}"
        print(f"{SUBJECTS[subject]}: {options.rows} rows, {version}, seed {options.seed}", flush=True)
        directory = Path(tempfile.mkdtemp(prefix="soak-nodes-"))
        report, nodes = copy(subject, options, directory)
        roles = ", ".join(f"{count} {role}" for role, count in nodes.kills.items())
        alone = f"; {nodes.alone} times it went on with one node" if subject == "alone" else ""
        lines = [f"{sum(nodes.kills.values())} kills of nodes ({roles}){alone}", *report.lines()]
        print("\n".join(f"  {line}" for line in lines), flush=True)
        if not report.verdict.right or report.stops:
            wrong.append(SUBJECTS[subject])
            print(f"  what the application wrote: {directory}", flush=True)
        else:
            shutil.rmtree(directory)
    sys.exit(f"not right: {'; '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
