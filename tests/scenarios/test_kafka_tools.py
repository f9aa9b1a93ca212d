"""Kafka's own command line tools, unchanged, on the bundled broker and on Apache Kafka in the same run.

Each must end with status 0, print what it is for, and complain (WARN, ERROR, exceptions) of nothing that it
does not complain of with Apache Kafka; what is not served must be told as such. Not part of the plain test
run: `make test-java-tools`.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from eoslog.broker.config import option_table
from eoslog.testing import EmbeddedBroker
from tests.scenarios.apache_kafka import JARS, ApacheKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]  # each tool is a JVM of its own

TOOLS = "org.apache.kafka.tools."
TIMEOUT = 120
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}
_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dlog4j2.level=WARN")
_COMPLAINT = re.compile(r"WARN|ERROR|Exception|^Error|[Ff]ailed")
_VARYING = re.compile(r"\[?\d{4}-\d\d-\d\d[ T][\d:,.]+\]?|\b[0-9a-f]{8,}(-[0-9a-f]+)*\b|\d+")


@dataclass
class Said:
    """What a tool did on one of the two."""

    status: int
    text: str
    complaints: set[str] = field(default_factory=set)


@dataclass
class Both:
    """The two brokers, and how to run a tool on them."""

    brokers: dict[str, EmbeddedBroker | ApacheKafka]

    def run(
        self, tool: str, *arguments: str, prints: str, stdin: str = "", status: int = 0
    ) -> dict[str, Said]:
        """Run it on Apache Kafka, then on ours. {bootstrap} in an argument stands for the address."""
        name = tool if tool.startswith("kafka.") else TOOLS + tool
        said = {}
        for who, broker in self.brokers.items():
            filled = [argument.replace("{bootstrap}", broker.bootstrap) for argument in arguments]
            said[who] = _run(name, filled, stdin)
        for who, one in said.items():
            assert one.status == status, f"{tool} on {who}: exit status {one.status}\n{one.text[-3000:]}"
            assert re.search(prints, one.text), f"{tool} on {who}: no {prints!r} in\n{one.text[-3000:]}"
        new = said["eoslog"].complaints - said["kafka"].complaints
        # Of a refusal that was asked for, the words may differ.
        assert status or not new, (
            f"{tool} complains of ours, not of Kafka: {new}\n{said['eoslog'].text[-3000:]}"
        )
        return said


def _run(name: str, arguments: list[str], stdin: str) -> Said:
    command = ["java", *_OPTIONS, "-cp", f"{JARS}/*", name, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    text = done.stdout + done.stderr
    complaints = {_VARYING.sub("#", line) for line in text.splitlines() if _COMPLAINT.search(line)}
    return Said(done.returncode, text, complaints)


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    """Ours and Apache Kafka, with the same settings."""
    assert any(JARS.glob("log4j-slf4j-impl-*.jar")), f"remove {JARS}, so that make fetches it anew"
    known = option_table()
    ours = {name: value for name, value in SETTINGS.items() if name in known}
    with ApacheKafka(SETTINGS) as kafka, EmbeddedBroker(config=ours) as eoslog:
        yield Both({"kafka": kafka, "eoslog": eoslog})


AT = ("--bootstrap-server", "{bootstrap}")


def _topic(both: Both, name: str, partitions: int = 1) -> None:
    both.run(
        "TopicCommand", *AT, "--create", "--topic", name, "--partitions", str(partitions),
        prints=f"Created topic {name}.",
    )  # fmt: skip


def _fill(both: Both, topic: str, records: int, *more: str) -> None:
    both.run(
        "ProducerPerformance", *AT, "--topic", topic, "--num-records", str(records), "--record-size", "1000",
        "--throughput", "-1", *more, prints=rf"{records} records sent, [\d.]+ records/sec",
    )  # fmt: skip


def test_topics(both: Both) -> None:
    _topic(both, "topics", 3)
    command = ("TopicCommand", *AT)
    both.run(*command, "--list", prints=r"(?m)^topics$")
    both.run(*command, "--describe", "--topic", "topics", prints=r"PartitionCount: 3\s+ReplicationFactor: 1")
    both.run(
        *command, "--describe", "--topic", "topics", prints=r"Partition: 2\s+Leader: 1\s+Replicas: 1\s+Isr: 1"
    )
    both.run(*command, "--alter", "--topic", "topics", "--partitions", "5", prints="")
    both.run(*command, "--describe", "--topic", "topics", prints="PartitionCount: 5")
    both.run(*command, "--describe", "--under-replicated-partitions", prints=r"^$")
    both.run(*command, "--create", "--if-not-exists", "--topic", "topics", prints="")
    both.run(*command, "--create", "--topic", "topics", prints="TopicExistsException", status=1)
    both.run(*command, "--delete", "--topic", "topics", prints="")
    both.run(
        *command, "--describe", "--topic", "topics", prints="does not exist|UnknownTopicOrPartition", status=1
    )


def test_configs(both: Both) -> None:
    _topic(both, "configs")
    command = ("kafka.admin.ConfigCommand", *AT, "--entity-type", "topics", "--entity-name", "configs")
    both.run(
        *command, "--alter", "--add-config", "retention.ms=3600000,cleanup.policy=[compact,delete]",
        prints="Completed updating config for topic configs.",
    )  # fmt: skip
    both.run(
        *command, "--describe", prints=r"retention.ms=3600000 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG"
    )
    both.run(*command, "--describe", "--all", prints=r"cleanup.policy=compact,delete")
    both.run(
        *command, "--alter", "--delete-config", "retention.ms",
        prints="Completed updating config for topic configs.",
    )  # fmt: skip
    both.run(*command, "--describe", prints=r"Dynamic configs for topic configs are:\s+cleanup.policy=")
    both.run(*command, "--alter", "--add-config", "retention.ms=soon", prints="retention.ms", status=1)


def test_configs_of_the_broker(both: Both) -> None:
    command = ("kafka.admin.ConfigCommand", *AT, "--entity-type", "brokers", "--entity-name", "1")
    both.run(*command, "--describe", "--all", prints=r"num.partitions=\d+ sensitive=false")
    both.run(*command, "--describe", prints="Dynamic configs for broker 1 are:")


def test_users(both: Both) -> None:
    command = ("kafka.admin.ConfigCommand", *AT, "--alter", "--entity-type", "users", "--entity-name", "bob")
    done = "Completed updating config for user bob."
    both.run(*command, "--add-config", "SCRAM-SHA-256=[iterations=4096,password=secret]", prints=done)
    there = ("kafka.admin.ConfigCommand", *AT, "--describe", "--entity-type", "users")
    both.run(
        *there, prints="SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-256=iterations=4096"
    )
    both.run(*command, "--delete-config", "SCRAM-SHA-256", prints=done)


def test_there_are_no_quotas(both: Both) -> None:
    said = both.run("kafka.admin.ConfigCommand", *AT, "--describe", "--entity-type", "clients", prints="")
    assert "Quota" not in said["eoslog"].text


def test_verifiable_producer_and_consumer(both: Both) -> None:
    _topic(both, "verifiable", 2)
    said = both.run(
        "VerifiableProducer", *AT, "--topic", "verifiable", "--max-messages", "2000", "--acks", "-1",
        prints=r'"name":"tool_data"',
    )  # fmt: skip
    for one in said.values():
        events = [json.loads(line) for line in one.text.splitlines() if line.startswith("{")]
        [summary] = [event for event in events if event["name"] == "tool_data"]
        assert (summary["sent"], summary["acked"]) == (2000, 2000)
    said = both.run(
        "VerifiableConsumer", *AT, "--topic", "verifiable", "--group-id", "verifiable",
        "--max-messages", "2000", "--reset-policy", "earliest", prints=r'"name":"shutdown_complete"',
    )  # fmt: skip
    for one in said.values():
        events = [json.loads(line) for line in one.text.splitlines() if line.startswith("{")]
        counts = [event["count"] for event in events if event["name"] == "records_consumed"]
        assert sum(counts) == 2000
        assert any(event["name"] == "offsets_committed" and event["success"] for event in events)


def test_performance(both: Both) -> None:
    _topic(both, "performance")
    _fill(both, "performance", 20_000, "--command-property", "enable.idempotence=true")
    said = both.run(
        "ConsumerPerformance", *AT, "--topic", "performance", "--num-records", "20000", "--timeout", "20000",
        prints=r"nMsg.sec",
    )  # fmt: skip
    for who, one in said.items():
        [figures] = [
            line.split(", ") for line in one.text.splitlines() if re.match(r"\d{4}-.*(, [\d.-]+){8}$", line)
        ]
        assert int(figures[4]) >= 20_000, f"{who}: {one.text}"


def test_performance_of_transactions(both: Both) -> None:
    _topic(both, "transactional")
    _fill(both, "transactional", 20_000, "--transactional-id", "perf", "--transaction-duration-ms", "100")
    both.run(
        "consumer.ConsoleConsumer", *AT, "--topic", "transactional", "--from-beginning", "--isolation-level",
        "read_committed", "--max-messages", "20000", "--timeout-ms", "20000",
        prints="Processed a total of 20000 messages",
    )  # fmt: skip


def test_end_to_end_latency(both: Both) -> None:
    _topic(both, "latency")
    both.run(
        "EndToEndLatency", *AT, "--topic", "latency", "--num-records", "200", "--producer-acks", "all",
        "--record-size", "100", prints=r"Avg latency: [\d.]+ ms",
    )  # fmt: skip


def test_console(both: Both) -> None:
    _topic(both, "console")
    both.run("ConsoleProducer", *AT, "--topic", "console", prints="", stdin="one\ntwo\n")
    both.run(
        "consumer.ConsoleConsumer", *AT, "--topic", "console", "--from-beginning", "--max-messages", "2",
        "--timeout-ms", "20000", prints=r"one\ntwo\n",
    )  # fmt: skip


def test_transactions(both: Both) -> None:
    _topic(both, "transactions")
    _fill(both, "transactions", 100, "--transactional-id", "tx", "--transaction-duration-ms", "100")
    command = ("TransactionsCommand", *AT)
    both.run(*command, "list", prints=r"tx\s+1\s+\d+\s+CompleteCommit")
    both.run(*command, "describe", "--transactional-id", "tx", prints=r"1\s+tx\s+\d+\s+\d+\s+CompleteCommit")
    both.run(
        *command, "describe-producers", "--topic", "transactions", "--partition", "0",
        prints=r"ProducerId\s+ProducerEpoch\s+LatestCoordinatorEpoch",
    )  # fmt: skip
    both.run(*command, "find-hanging", "--broker-id", "1", prints=r"Topic\s+Partition\s+ProducerId")
    both.run(*command, "forceTerminateTransaction", "--transactionalId", "tx", prints="")


def test_one_partition_of_a_transaction_is_aborted(both: Both) -> None:
    """The one difference: eoslog refuses to tear a transaction apart that its coordinator ends by itself."""
    from tests.scenarios.drivers.confluent import Confluent

    _topic(both, "hanging")
    asked = ("abort", "--topic", "hanging", "--partition", "0", "--start-offset", "0")
    for who, broker in both.brokers.items():
        with Confluent().producer(broker.bootstrap, transactional_id="hanging") as producer:
            producer.init()
            producer.begin()
            producer.send("hanging", b"1").result()
            said = _run(TOOLS + "TransactionsCommand", ["--bootstrap-server", broker.bootstrap, *asked], "")
            if who == "kafka":
                assert said.status == 0, said.text
            else:
                assert (said.status, "INVALID_TXN_STATE" in said.text) == (1, True), said.text
                producer.commit()
    both.run("GetOffsetShell", *AT, "--topic", "hanging", prints="hanging:0:2")


def test_groups(both: Both) -> None:
    _topic(both, "groups", 2)
    _fill(both, "groups", 100)
    both.run(
        "consumer.ConsoleConsumer", *AT, "--topic", "groups", "--group", "readers", "--from-beginning",
        "--max-messages", "100", "--timeout-ms", "20000", prints="Processed a total of 100 messages",
    )  # fmt: skip
    command = ("consumer.group.ConsumerGroupCommand", *AT)
    both.run(*command, "--list", prints=r"(?m)^readers$")
    both.run(*command, "--list", "--state", prints=r"readers\s+(Classic\s+)?Empty")
    both.run(
        *command, "--describe", "--group", "readers", prints=r"readers\s+groups\s+[01]\s+\d+\s+\d+\s+\d+"
    )
    both.run(*command, "--describe", "--group", "readers", "--state", prints=r"readers.*Empty\s+0")
    both.run(
        *command, "--describe", "--group", "readers", "--members", "--verbose", prints="no active members"
    )
    reset = ("--reset-offsets", "--group", "readers", "--all-topics")
    both.run(*command, *reset, "--to-earliest", "--dry-run", prints=r"readers\s+groups\s+0\s+0")
    both.run(*command, *reset, "--to-earliest", "--execute", prints=r"readers\s+groups\s+1\s+0")
    both.run(*command, *reset, "--shift-by", "1", "--execute", prints=r"readers\s+groups\s+[01]\s+1")
    both.run(
        *command, "--delete-offsets", "--group", "readers", "--topic", "groups:0",
        prints=r"groups\s+0\s+Successful",
    )  # fmt: skip
    both.run("GroupsCommand", *AT, "--list", prints=r"readers\s+Classic\s+consumer")
    both.run(
        *command, "--delete", "--group", "readers", prints="Deletion of requested consumer groups.*successful"
    )


def test_acls(both: Both) -> None:
    command = ("AclCommand", *AT)
    acl = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "secret")
    both.run(
        *command, "--add", *acl, prints=r"principal=User:alice, host=\*, operation=READ, permissionType=ALLOW"
    )
    both.run(*command, "--list", "--topic", "secret", prints=r"name=secret, patternType=LITERAL")
    both.run(
        *command, "--add", "--allow-principal", "User:bob", "--producer", "--topic", "secret",
        "--transactional-id", "tx", "--resource-pattern-type", "prefixed",
        prints=r"resourceType=TRANSACTIONAL_ID, name=tx, patternType=PREFIXED",
    )  # fmt: skip
    both.run(*command, "--list", "--principal", "User:bob", prints=r"User:bob.*operation=WRITE")
    both.run(*command, "--remove", "--force", *acl, prints="")
    both.run(*command, "--list", "--principal", "User:alice", prints="")


def test_offsets(both: Both) -> None:
    _topic(both, "offsets", 2)
    _fill(both, "offsets", 100)
    command = ("GetOffsetShell", *AT, "--topic", "offsets")
    both.run(*command, prints=r"offsets:0:\d+\noffsets:1:\d+")
    both.run(*command, "--time", "earliest", prints=r"offsets:0:0\noffsets:1:0")
    both.run(*command, "--time", "max-timestamp", "--partitions", "0", prints=r"offsets:0:-?\d+")


def test_records_are_deleted(both: Both, tmp_path: Path) -> None:
    _topic(both, "deleted")
    _fill(both, "deleted", 100)
    asked = tmp_path / "offsets.json"
    asked.write_text(
        json.dumps({"partitions": [{"topic": "deleted", "partition": 0, "offset": 40}], "version": 1})
    )
    both.run(
        "DeleteRecordsCommand", *AT, "--offset-json-file", str(asked),
        prints=r"partition: deleted-0\s+low_watermark: 40",
    )  # fmt: skip
    both.run("GetOffsetShell", *AT, "--topic", "deleted", "--time", "earliest", prints="deleted:0:40")


def test_the_cluster(both: Both) -> None:
    both.run(
        "BrokerApiVersionsCommand",
        *AT,
        prints=r"\(id: 1 rack: null isFenced: false\) -> \(\s+Produce\(0\): 0 to 13",
    )
    both.run("ClusterTool", "cluster-id", *AT, prints=r"Cluster ID: \S{22}")
    both.run("ClusterTool", "list-endpoints", *AT, prints=r"1\s+127.0.0.1\s+\d+")
    both.run(
        "FeatureCommand", *AT, "describe", prints=r"Feature: transaction.version.*FinalizedVersionLevel: 2"
    )
    both.run("MetadataQuorumCommand", *AT, "describe", "--status", prints=r"LeaderId:\s+1")
    both.run("MetadataQuorumCommand", *AT, "describe", "--replication", prints=r"(?m)^1\s.*Leader")


def test_log_dirs(both: Both) -> None:
    _topic(both, "dirs")
    said = both.run(
        "LogDirsCommand", *AT, "--describe", "--topic-list", "dirs",
        prints=r'"partition":"dirs-0","size":0,"offsetLag":0,"isFuture":false',
    )  # fmt: skip
    assert set(said) == {"kafka", "eoslog"}


def test_leaders_and_reassignments(both: Both, tmp_path: Path) -> None:
    _topic(both, "leaders", 2)
    both.run(
        "LeaderElectionCommand", *AT, "--election-type", "preferred", "--all-topic-partitions", prints=""
    )
    both.run("reassign.ReassignPartitionsCommand", *AT, "--list", prints="No partition reassignments found.")
    asked = tmp_path / "plan.json"
    asked.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "leaders", "partition": 0, "replicas": [1]}]})
    )
    both.run(
        "reassign.ReassignPartitionsCommand", *AT, "--reassignment-json-file", str(asked), "--execute",
        prints="Successfully started partition reassignment",
    )  # fmt: skip
    both.run(
        "reassign.ReassignPartitionsCommand", *AT, "--reassignment-json-file", str(asked), "--verify",
        prints="Reassignment of partition leaders-0 is completed.",
    )  # fmt: skip
