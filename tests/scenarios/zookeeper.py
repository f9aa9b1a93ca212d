"""A ZooKeeper for one Apache Kafka node, from the jars of a Kafka that still had it (until 3.9)."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peer_kafka import START_SECONDS, free_port
from tests.scenarios.apache_kafka import ApacheKafka, KafkaMissing

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
