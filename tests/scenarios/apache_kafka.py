"""A single Apache Kafka node to run the scenarios against, and a ZooKeeper for old versions."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.kit import kafka_nodes
from tests.kit.kafka_nodes import START_SECONDS, free_port

JARS = Path(__file__).parents[2] / ".peers" / "kafka-4.3.1"

_FEW = {
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
}
_SMALL = ("-Xmx512m", "-XX:TieredStopAtLevel=1")


class KafkaMissing(RuntimeError):
    """Java or Kafka's jars are not there; the text says how to get them."""


def check(jars: Path = JARS) -> None:
    """Raises KafkaMissing unless Java and the jars are there."""
    if shutil.which("java") is None:
        raise KafkaMissing("no java on the path: install Java 17 or later (make setup does on Debian)")
    if not any(jars.glob("kafka-clients-*.jar")):
        raise KafkaMissing(f"no Kafka in {jars}: make .peers/{jars.name} fetches it by Maven")


class ApacheKafka(kafka_nodes.ApacheKafka):
    """A small node of few partitions, from the jars that the make targets fetch."""

    def __init__(
        self,
        config: Mapping[str, str],
        formatting: Sequence[str] = (),
        jars: Path = JARS,
        zookeeper: str = "",
    ) -> None:
        """`config`: broker options on top of what a single node needs; `formatting`: arguments of
        kafka-storage format; `jars`: those of the version that is wanted; `zookeeper`: the address of one, in
        place of KRaft. Raises KafkaMissing."""
        check(jars)
        super().__init__(jars, _FEW | dict(config), _SMALL, formatting, zookeeper)


# -- ZooKeeper -----------------------------------------------------------------------------------
# A ZooKeeper for one Apache Kafka node, from the jars of a Kafka that still had it (until 3.9).

SESSION_MS = 3_000
"""ZooKeeper takes a broker that was killed for alive this long; until then it cannot start again."""
_TICK_MS = 500  # a session is at least two ticks
_STORES_RULES = "kafka.security.authorizer.AclAuthorizer"
_AUTHORIZER = "authorizer.class.name"


@contextmanager
def zookeeper(jars: Path) -> Iterator[str]:
    """Its host:port, until the block ends. Raises KafkaMissing if these jars have none, RuntimeError if it
    does not start."""
    if not any(jars.glob("zookeeper-*.jar")):
        raise KafkaMissing(f"no ZooKeeper in {jars}: Kafka has none from 4.0 on")
    directory, port = Path(tempfile.mkdtemp(prefix="zookeeper-")), free_port()
    options = {
        "dataDir": str(directory / "data"),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "tickTime": str(_TICK_MS),
        "admin.enableServer": "false",
    }
    config, log = directory / "zoo.cfg", directory / "out.log"
    config.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    with log.open("wb") as out:
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", main, str(config)]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        _wait(process, port, log)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"ZooKeeper did not start: {log.read_text()[-2000:]}") from None
            time.sleep(0.05)
        else:
            return


@contextmanager
def kafka_on_zookeeper(config: Mapping[str, str], jars: Path) -> Iterator[ApacheKafka]:
    """A node with its own ZooKeeper. It keeps access rules there, so KRaft's authorizer is replaced."""
    settings = {"zookeeper.session.timeout.ms": str(SESSION_MS), **config}
    if _AUTHORIZER in settings:
        settings[_AUTHORIZER] = _STORES_RULES
    with zookeeper(jars) as address, ApacheKafka(settings, jars=jars, zookeeper=address) as node:
        yield node
