"""A single Apache Kafka node (KRaft) to run the scenarios against: the yardstick of what to expect."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Self

JARS = Path(__file__).parents[2] / ".peers" / "kafka-4.3.1"
START_TIMEOUT = 60.0


class KafkaMissing(RuntimeError):
    """Java or Kafka's jars are not there; the text says how to get them."""


def check() -> None:
    """Raises KafkaMissing unless Java and the jars are there."""
    if shutil.which("java") is None:
        raise KafkaMissing("no java on the path: install Java 17 or later (make setup does on Debian)")
    if not any(JARS.glob("kafka-clients-*.jar")):
        raise KafkaMissing(f"no Kafka in {JARS}: make test-java and make test-kafka fetch it by Maven")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class ApacheKafka:
    """Runs kafka.Kafka on free ports in a temporary directory. A context manager."""

    def __init__(self, config: Mapping[str, str]) -> None:
        """`config`: broker options on top of what a single node needs. Raises KafkaMissing."""
        check()
        self.host, self.port = "127.0.0.1", free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="kafka-"))
        self._config = self._settings() | dict(config)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """host:port, for a client's bootstrap.servers."""
        return f"{self.host}:{self.port}"

    def _settings(self) -> dict[str, str]:
        controller = free_port()
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.host}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "log.dirs": str(self._folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "8",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
        }

    def start(self) -> Self:
        """Format the directory, start, and wait until the port answers."""
        properties = self._folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._config.items()))
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
        subprocess.run(self._java(*tool), check=True, capture_output=True, timeout=START_TIMEOUT)
        with (self._folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(properties)), stdout=output, stderr=subprocess.STDOUT
            )
        self._wait()
        return self

    def _java(self, *arguments: str) -> list[str]:
        return ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", *arguments]

    def _wait(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError(f"Kafka ended: {(self._folder / 'output').read_text()[-2000:]}")
            try:
                socket.create_connection((self.host, self.port), 1).close()
            except OSError:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"Kafka did not answer within {START_TIMEOUT} s") from None
                time.sleep(0.1)
            else:
                return

    def stop(self) -> None:
        """End it and remove its directory."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()
