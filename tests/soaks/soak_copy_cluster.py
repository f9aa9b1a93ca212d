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
import time
from pathlib import Path

from benchmarks.peer_cluster import ThreeNodes
from tests.soaks.copy_audit import audit
from tests.soaks.copy_lives import Job
from tests.soaks.copy_rows import publish
from tests.soaks.copy_soak import Copy, Report
from tests.soaks.node_kills import NodeKills
from tests.soaks.soak_copy import GROUP, KAFKA, PARTITIONS, SOURCE, TARGET, TARGET_PARTITIONS, make_topics

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
