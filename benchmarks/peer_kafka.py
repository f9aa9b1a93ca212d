"""A single Apache Kafka node to measure and test against: one process, its own temporary directory.

KRaft, or with ZooKeeper, which Kafka had until 3.9.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import pyspark

from eoslog.client.wire.config import ClientConfig
from eoslog.client.wire.connection import BrokerConnection
from eoslog.errors import EoslogError
from eoslog.protocol.typed import METADATA

if TYPE_CHECKING:
    from eoslog.protocol.typed import MetadataRequestDraft

MEASURED = ("-Xmx1g", "-Xms1g")
_METADATA = 12  # names the topics
_STARTS = 10  # with ZooKeeper, where a killed node is taken for alive until its session ends
START_SECONDS = 180
"""How long a node may take to serve clients, on a machine with much else to do."""


PEERS = Path(__file__).parents[1] / ".peers"


def spark_kafka() -> Path:
    """Jars of Spark's own connector of this PySpark's line. There is none of 4.3 yet: that of 4.2 works."""
    line = ".".join(pyspark.__version__.split(".")[:2])
    return max(PEERS.glob(f"spark-kafka-{line}.?"), default=PEERS / "spark-kafka-4.2.0")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cluster_id() -> str:
    """An id for kafka-storage, which takes one that begins with a dash for an option."""
    while (made := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return made


class ApacheKafka:
    """Runs `kafka.Kafka` from a folder of jars. A context manager."""

    def __init__(
        self,
        jars: Path,
        settings: Mapping[str, str] | None = None,
        java: Sequence[str] = MEASURED,
        formatting: Sequence[str] = (),
        zookeeper: str = "",
    ) -> None:
        """`settings`: broker options on top of what a single node needs; `java`: options of its JVM;
        `formatting`: arguments of kafka-storage format, such as --feature=transaction.version=1;
        `zookeeper`: host:port of a ZooKeeper, in place of KRaft."""
        self.host = "127.0.0.1"
        self.port, self._controller = free_port(), free_port()
        self._java, self._formatting, self._zookeeper = java, formatting, zookeeper
        self._classpath = f"{jars}/*"
        self._directory = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self.ready_after = 0.0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _with_kraft(self) -> dict[str, str]:
        listeners = f"PLAINTEXT://127.0.0.1:{self.port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }

    def _with_zookeeper(self) -> dict[str, str]:
        return {
            "broker.id": "1",
            "zookeeper.connect": self._zookeeper,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
        }

    def _properties(self) -> Path:
        values = {
            **(self._with_zookeeper() if self._zookeeper else self._with_kraft()),
            "log.dirs": str(self._directory / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        } | self._settings
        path = self._directory / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        return path

    def __enter__(self) -> Self:
        try:
            return self._start()
        except BaseException:
            self.__exit__()
            raise

    def _start(self) -> Self:
        properties = self._properties()
        if not self._zookeeper:
            tool = ["java", "-cp", self._classpath, "kafka.tools.StorageTool", "format", *self._formatting]
            told = ["-t", cluster_id(), "-c", str(properties)]
            subprocess.run([*tool, *told], check=True, capture_output=True)
        self._log = (self._directory / "out.log").open("wb")
        return self._run()

    def _run(self) -> Self:
        started, starts = time.monotonic(), 1
        process = self._begin()
        while not self._is_registered():
            if process.poll() is not None and self._zookeeper and starts < _STARTS:
                process, starts = self._begin(), starts + 1
            elif process.poll() is not None or time.monotonic() - started > START_SECONDS:
                raise RuntimeError(self.output()[-3000:])
            time.sleep(0.02)
        self.ready_after = time.monotonic() - started
        return self

    def _begin(self) -> subprocess.Popen[bytes]:
        properties = self._directory / "server.properties"
        command = ["java", *self._java, "-cp", self._classpath, "kafka.Kafka", str(properties)]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        return self._process

    def _is_registered(self) -> bool:
        """Whether the node is in its own Metadata. Versions before 3.5 open the port earlier, and a topic
        that is created then is not answered for."""
        address = (self.host, self.port)
        body: MetadataRequestDraft = {"topics": [], "allow_auto_topic_creation": False}
        try:
            connection = BrokerConnection(*address, ClientConfig((address,), request_timeout_ms=10_000))
        except EoslogError:
            return False
        try:
            return bool(connection.call(METADATA, body, max_version=_METADATA)["brokers"])
        except EoslogError:
            return False
        finally:
            connection.close()

    def output(self) -> str:
        """What its JVM has printed."""
        return (self._directory / "out.log").read_text()

    def kill(self) -> None:
        """SIGKILL: it has no moment to save anything."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self, settings: Mapping[str, str] | None = None) -> Self:
        """Start again on the same directory and ports, with other `settings`; stops it first if it runs."""
        self._stop()
        self._settings |= settings or {}
        self._properties()
        return self._run()

    def _stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def __exit__(self, *exc: object) -> None:
        self._stop()
        if self._log is not None:
            self._log.close()
        shutil.rmtree(self._directory, ignore_errors=True)
