"""Apache Kafka to measure and test against: one node, or three that can be killed and started again one by
one.

One node is a process with a temporary directory of its own: KRaft, or ZooKeeper, which Kafka had until 3.9.

Three nodes: KRaft; replication 3 and min.insync.replicas 2 for all topics, those of groups and transactions
too. A node is broker and controller in one process; with `controller_apart` one more process is the whole
controller quorum, so that all brokers but one may be dead at the same time.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Self, TypeVar

import pyspark

from eoslog.client.wire.config import ClientConfig
from eoslog.client.wire.connection import BrokerConnection
from eoslog.errors import EoslogError
from eoslog.protocol.apis import Api
from eoslog.protocol.typed import FIND_COORDINATOR, METADATA

if TYPE_CHECKING:
    from eoslog.protocol.typed import FindCoordinatorRequestDraft, MetadataRequestDraft, MetadataResponse


# -- one node --------------------------------------------------------------------------------------

MEASURED = ("-Xmx1g", "-Xms1g")
_METADATA = 12  # names the topics
_STARTS = 10  # with ZooKeeper, where a killed node is taken for alive until its session ends
START_SECONDS = 180
"""How long a node may take to serve clients, on a machine with much else to do."""


PEERS = Path(__file__).parents[2] / ".peers"


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


def _is_open(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, 10).close()
    except OSError:
        return False
    return True


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
        protocols = self._settings.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT").split(",")
        if "PLAINTEXT:PLAINTEXT" not in protocols:
            return _is_open(address)  # it answers no plain question
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


# -- three nodes -----------------------------------------------------------------------------------

T = TypeVar("T")
RequestDraft = TypeVar("RequestDraft")
Response = TypeVar("Response")

SMALL = ("-Xmx384m", "-Xms128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
HOST = "127.0.0.1"
APART = 100
"""The node id of the controller that is apart."""

_PATIENCE = 120.0
"""Seconds for a node to start, or for the cluster to become healthy, on a machine with much to do."""
_SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "6",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


@dataclass(frozen=True)
class Seat:
    """A partition as a node sees it: nodes by their ids; `leader` -1 while there is none."""

    leader: int
    replicas: frozenset[int]
    in_sync: frozenset[int]


class Process:
    """One JVM with its directory and ports, which it keeps over its deaths."""

    def __init__(self, number: int, directory: Path, port: int) -> None:
        """`port`: of clients, or of the other controllers where the process is only that."""
        self.number, self.directory, self.port = number, directory, port
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int:
        """Of the last start."""
        assert self._popen is not None
        return self._popen.pid

    def format(self, classpath: str, arguments: Sequence[str], settings: Mapping[str, str]) -> None:
        """Write the settings and make the log directory."""
        self.directory.mkdir()
        values = {"node.id": str(self.number), "log.dirs": str(self.directory / "data"), **settings}
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        tool = ["java", *SMALL, "-cp", classpath, "kafka.tools.StorageTool", "format", *arguments]
        subprocess.run([*tool, "-c", str(self.properties)], check=True, capture_output=True)

    def start(self, classpath: str, java: Sequence[str]) -> None:
        """Start without waiting. What it writes is added to out.log."""
        with (self.directory / "out.log").open("ab") as out:
            command = ["java", *java, "-cp", classpath, "kafka.Kafka", str(self.properties)]
            self._popen = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        """SIGKILL."""
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL to one that takes too long: it may wait for nodes that are gone."""
        if self._popen is not None:
            self._popen.terminate()
            try:
                self._popen.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def properties(self) -> Path:
        """The settings' file."""
        return self.directory / "server.properties"

    def output(self) -> str:
        """The end of what it wrote."""
        return (self.directory / "out.log").read_text(errors="replace")[-3000:]


class ThreeNodes:
    """A cluster of brokers 1, 2 and 3. A context manager; nodes are named by their ids."""

    def __init__(
        self,
        jars: Path,
        settings: Mapping[str, str] | None = None,
        *,
        controller_apart: bool = False,
        java: Sequence[str] = SMALL,
        formatting: Sequence[str] = (),
    ) -> None:
        """`settings`: broker options on top of those above; `java`: options of each JVM; `formatting`:
        arguments of kafka-storage format, such as --feature=transaction.version=1."""
        self._directory = Path(tempfile.mkdtemp(prefix="kafka-nodes-"))
        self._classpath, self._java, self._settings = f"{jars}/*", java, dict(settings or {})
        self._formatting = formatting
        self.nodes = (1, 2, 3)
        self._brokers = {n: Process(n, self._directory / f"node-{n}", free_port()) for n in self.nodes}
        ids = (APART,) if controller_apart else self.nodes
        self._voters = {n: free_port() for n in ids}
        self._apart = (
            Process(APART, self._directory / "controller", self._voters[APART]) if controller_apart else None
        )

    @property
    def bootstrap(self) -> str:
        """All nodes' addresses."""
        return ",".join(f"{HOST}:{process.port}" for process in self._brokers.values())

    @property
    def alive(self) -> list[int]:
        """The nodes whose processes run."""
        return [n for n, process in self._brokers.items() if process.alive]

    def pid(self, node: int) -> int:
        """Of the node's last start."""
        return self._brokers[node].pid

    def __enter__(self) -> Self:
        try:
            self.start()
            return self
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Format all, start all, and wait until they serve."""
        name = cluster_id()
        for process in self._all():
            process.format(self._classpath, ["-t", name, *self._formatting], self._settings_of(process))
        for process in self._all():
            process.start(self._classpath, self._java)
        self.wait_until_healthy()

    def stop(self) -> None:
        """End all processes and remove their directories."""
        for process in self._all():
            process.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def kill(self, node: int) -> None:
        """SIGKILL to a node's process."""
        self._brokers[node].kill()

    def start_again(self, node: int) -> None:
        """Start a dead node on what it left; `wait_until_healthy` says when it is back in sync."""
        if self._brokers[node].alive:
            raise RuntimeError(f"node {node} is alive")
        self._brokers[node].start(self._classpath, self._java)

    def become(self, jars: Path, *nodes: int) -> None:
        """Stop these nodes in order, and start them as that version of Kafka; later starts are of it, too."""
        self._classpath = f"{jars}/*"
        for process in [self._brokers[n] for n in nodes] or [p for p in [self._apart] if p]:
            process.stop()
            process.start(self._classpath, self._java)

    # -- who does what ------------------------------------------------------------------------

    def leader_of(self, topic: str, partition: int) -> int:
        """The node that leads a partition; waits while none that is alive does."""

        def ask() -> int | None:
            seat = self._seats(self._any_alive(), [topic]).get((topic, partition))
            return seat.leader if seat is not None and seat.leader in self.alive else None

        return _until(ask, f"{topic}-{partition} has no leader that is alive", self._outputs)

    def coordinator_of(self, kind: Literal["group", "transaction"], key: str) -> int:
        """The node that coordinates a group or a transactional id; waits while none that is alive does."""
        body: FindCoordinatorRequestDraft = {
            "key_type": int(kind == "transaction"),
            "coordinator_keys": [key],
        }

        def ask() -> int | None:
            found = self._ask(self._any_alive(), FIND_COORDINATOR, body, 4)["coordinators"][0]
            alive = not found["error_code"] and found["node_id"] in self.alive
            return int(found["node_id"]) if alive else None

        return _until(ask, f"{kind} {key} has no coordinator that is alive", self._outputs)

    def in_sync(self, topic: str, partition: int) -> frozenset[int]:
        """The partition's in-sync replicas, as a node that is alive sees them."""
        return self._seats(self._any_alive(), [topic])[topic, partition].in_sync

    def wait_until_healthy(self, seconds: float = _PATIENCE) -> None:
        """Wait until every node says of itself that all nodes are there and every replica of every
        partition is in sync. A node asked right after its start does not answer before it has heard of
        its own death. Raises TimeoutError."""
        _until(lambda: self._healthy() or None, "not all nodes are there and in sync", self._outputs, seconds)

    def wait_until_without(self, node: int, seconds: float = _PATIENCE) -> None:
        """Wait until the others know that a dead node is dead: it leads nothing and is in sync nowhere."""

        def ask() -> bool | None:
            seats = [seat for n in self.alive for seat in self._seats(n, None).values()]
            gone = all(node not in seat.in_sync and seat.leader in self.alive for seat in seats)
            return gone or None

        _until(ask, f"node {node} is still in sync somewhere", self._outputs, seconds)

    def _healthy(self) -> bool:
        for node in self.nodes:
            answer = self._metadata(node, None)
            if {broker["node_id"] for broker in answer["brokers"]} != set(self.nodes):
                return False
            seats = _seats_of(answer).values()
            if any(seat.leader < 0 or seat.in_sync != seat.replicas for seat in seats):
                return False
        return True

    def _seats(self, node: int, topics: Iterable[str] | None) -> dict[tuple[str, int], Seat]:
        return _seats_of(self._metadata(node, topics))

    def _metadata(self, node: int, topics: Iterable[str] | None) -> MetadataResponse:
        body: MetadataRequestDraft = {
            "topics": None if topics is None else [{"name": name} for name in topics],
            "allow_auto_topic_creation": False,
        }
        return self._ask(node, METADATA, body, _METADATA)

    def _ask(
        self, node: int, api: Api[Any, RequestDraft, Response, Any], body: RequestDraft, version: int
    ) -> Response:
        address = (HOST, self._brokers[node].port)
        connection = BrokerConnection(*address, ClientConfig((address,), request_timeout_ms=10_000))
        try:
            return connection.call(api, body, max_version=version)
        finally:
            connection.close()

    def _any_alive(self) -> int:
        if not self.alive:
            raise RuntimeError("no node is alive")
        return self.alive[0]

    # -- settings -----------------------------------------------------------------------------

    def _all(self) -> list[Process]:
        return [*([self._apart] if self._apart else []), *self._brokers.values()]

    def _settings_of(self, process: Process) -> dict[str, str]:
        voters = ",".join(f"{n}@{HOST}:{port}" for n, port in self._voters.items())
        client, controller = f"PLAINTEXT://{HOST}:{process.port}", f"CONTROLLER://{HOST}:"
        common = {**_SETTINGS, "controller.quorum.voters": voters, **self._settings}
        if process is self._apart:
            return {"process.roles": "controller", "listeners": f"{controller}{process.port}", **common}
        own = {"advertised.listeners": client, **common}
        if self._apart is not None:
            return {"process.roles": "broker", "listeners": client, **own}
        listeners = f"{client},{controller}{self._voters[process.number]}"
        return {"process.roles": "broker,controller", "listeners": listeners, **own}

    def _outputs(self) -> str:
        return "\n".join(f"-- {p.number}, alive: {p.alive}\n{p.output()}" for p in self._all())


def _seats_of(answer: MetadataResponse) -> dict[tuple[str, int], Seat]:
    return {
        (topic["name"] or "", part["partition_index"]): Seat(
            part["leader_id"], frozenset(part["replica_nodes"]), frozenset(part["isr_nodes"])
        )
        for topic in answer["topics"]
        for part in topic["partitions"]
    }


def _until(
    ask: Callable[[], T | None], what: str, outputs: Callable[[], str], seconds: float = _PATIENCE
) -> T:
    """Ask until there is an answer; nodes that do not answer yet are asked again. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while True:
        failure: EoslogError | None = None
        try:
            answer = ask()
        except EoslogError as error:
            answer, failure = None, error
        if answer is not None:
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} after {seconds:.0f} s: {failure or ''}\n{outputs()}")
        time.sleep(0.1)
