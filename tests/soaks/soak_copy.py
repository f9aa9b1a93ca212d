"""`make soak-copy`: a copy whose driver is killed 20 times, on the bundled broker and on Apache Kafka, and
the same through Spark's own connector.

    python -m tests.soaks.soak_copy [--rows 200000] [--kills 20] [--seed N] [--only bundled,kafka,spark]
        [--kafka 4.3.1 [--transaction-version 1 | --zookeeper]]
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from eoslog.testing import EmbeddedBroker
from tests.kit.kafka_nodes import PEERS, ApacheKafka, spark_kafka
from tests.scenarios.apache_kafka import kafka_on_zookeeper
from tests.soaks.copy_audit import audit, publish
from tests.soaks.copy_lives import Copy, Job, Report

KAFKA = PEERS / "kafka-4.3.1"
SOURCE, TARGET, GROUP = "source", "target", "copied"
PARTITIONS, TARGET_PARTITIONS = 4, 3
FEW = {"offsets.topic.num.partitions": "8", "transaction.state.log.num.partitions": "8"}

SUBJECTS = {
    "bundled": ("eoslog", "eoslog on the bundled broker"),
    "kafka": ("eoslog", "eoslog on Apache Kafka {kafka}"),
    "spark": ("kafka", "Spark's own connector on Apache Kafka {kafka}"),
}


@contextlib.contextmanager
def broker_of(subject: str, options: argparse.Namespace) -> Iterator[str]:
    """The subject's broker; its bootstrap address."""
    if subject == "bundled":
        with EmbeddedBroker() as broker:
            yield broker.bootstrap
    else:
        jars = KAFKA.with_name(f"kafka-{options.kafka}")
        if options.zookeeper:
            with kafka_on_zookeeper(FEW, jars) as node:
                yield node.bootstrap
            return
        level = options.transaction_version
        formatting = (f"--feature=transaction.version={level}",) if level else ()
        with ApacheKafka(jars, FEW, formatting=formatting) as node:
            yield node.bootstrap


def make_topics(bootstrap: str, replicas: int = 1) -> None:
    """Source and target, empty."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    new = [NewTopic(SOURCE, PARTITIONS, replicas), NewTopic(TARGET, TARGET_PARTITIONS, replicas)]
    for made in admin.create_topics(new).values():
        made.result(60)


def copy(subject: str, bootstrap: str, options: argparse.Namespace, directory: Path) -> Report:
    """Publish, copy under kills, audit."""
    make_topics(bootstrap)
    publish(bootstrap, SOURCE, options.rows, PARTITIONS, options.seed)
    connector, _ = SUBJECTS[subject]
    jars = ",".join(map(str, sorted(spark_kafka().glob("*.jar")))) if connector == "kafka" else ""
    place = directory / "checkpoint"
    job = Job(connector, bootstrap, SOURCE, TARGET, place, GROUP, options.batch, jars, options.java)
    report = Copy(job, options.rows // options.batch, options.kills, options.seed, directory).run()
    group = (GROUP, SOURCE) if connector == "eoslog" else None
    report.verdict = audit(bootstrap, TARGET, options.rows, PARTITIONS, group)
    return report


def main() -> None:
    """Run the subjects asked for; fails if eoslog's copy is not right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--batch", type=int, default=2_500, help="maxOffsetsPerTrigger")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--only", default=",".join(SUBJECTS), help=f"of {', '.join(SUBJECTS)}")
    parser.add_argument("--java", default="", help="options of the driver's JVM, such as a shared archive")
    parser.add_argument("--kafka", default="4.3.1", help="version of Apache Kafka")
    parser.add_argument("--transaction-version", default="", help="level of the feature, by default Kafka's")
    parser.add_argument("--zookeeper", action="store_true", help="the node has a ZooKeeper (until 3.9)")
    options = parser.parse_args()
    wrong = []
    for subject in options.only.split(","):
        connector, title = SUBJECTS[subject][0], SUBJECTS[subject][1].format(kafka=options.kafka)
        print(f"{title}: {options.rows} rows, {options.kills} kills, seed {options.seed}", flush=True)
        directory = Path(tempfile.mkdtemp(prefix="soak-copy-"))
        with broker_of(subject, options) as bootstrap:
            report = copy(subject, bootstrap, options, directory)
        print("\n".join(f"  {line}" for line in report.lines()), flush=True)
        if connector == "eoslog" and (not report.verdict.right or report.stops):
            wrong.append(title)
            print(f"  what the application wrote: {directory}", flush=True)
        else:
            shutil.rmtree(directory)
    sys.exit(f"not right: {'; '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
