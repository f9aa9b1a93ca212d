"""What a history happens on: a world is handed its ground.

SimGround is clusters in memory with Spark imitated; spark_ground.py has a broker with Spark itself.
"""

import random
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import pyarrow as pa

from eoslog.client.wire import cluster as client
from eoslog.client.wire.cluster import shared_cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.histories.clock import Clock
from tests.histories.processes import Application, Strike, machine
from tests.histories.sim_cluster import SimCluster
from tests.histories.sim_connection import Network
from tests.histories.spark import BatchSink, FileStream, Job, Plan, Stream, Told, UnionStream
from tests.histories.stage import stage

Rows = Callable[[], Iterator[pa.RecordBatch]]


class Time(Protocol):
    """Who waits, waits here."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


class Cluster(Protocol):
    """What people do to a cluster, and what is in it."""

    requests: int

    @property
    def topics(self) -> Mapping[str, Any]:
        """By their names."""

    def partitions(self, topic: str) -> int:
        """How many."""

    def id_of(self, name: str) -> str:
        """A topic's id as tools print it."""

    def stand_open(self, topic: str) -> None:
        """Another application writes to all partitions in a transaction, and does not end it."""

    def end_strangers(self) -> None:
        """Such transactions are committed."""

    def become(self, tv: int, keeps: bool) -> None:
        """transaction.version, and whether two-phase commit is offered, from now on."""

    def create(self, name: str, partitions: int) -> None:
        """A new topic."""

    def delete(self, name: str) -> None:
        """It goes, with all that is kept of it."""

    def add_partition(self, name: str) -> None:
        """One more."""

    def take(self, topic: str, partition: int, values: Sequence[str]) -> None:
        """Records of a producer without transactions."""

    def restart(self) -> None:
        """The broker ends and starts again."""

    def snapshot(self) -> Any:
        """A copy of its disk."""

    def restore(self, disk: Any) -> None:
        """It is started on such a copy."""

    def put_back(self, transactions: Any, groups: Any, logs: Any, topic: str) -> None:
        """It is started with `__transaction_state`, `__consumer_offsets` and the logs of a topic as three
        copies have them. Producer ids are the controller's, which loses nothing."""

    def logs_of(self, topic: str) -> Any:
        """A copy of a topic's logs."""

    def cut(self, topic: str, kept: Any) -> None:
        """The logs go back to that copy, as by an unclean election."""

    def places_of(self, group: str, *, noted: bool = False) -> Collection[tuple[str, int]]:
        """The partitions of source topics of which a group has offsets. `noted`: with a sink's note."""

    def commit_by_hand(self, group: str, topic: str, partition: int, offset: int) -> None:
        """A consumer of the group, or an operator, commits an offset."""

    def end_of(self, topic: str, partition: int) -> int:
        """Where a partition ends."""

    def forget(self, *, ids: bool, groups: bool, rows: Iterable[str] = ()) -> None:
        """Transactional ids and groups that nobody has used for long are gone, and what these topics hold."""

    def empty(self, topic: str) -> None:
        """All records are deleted, those of open transactions as well."""

    def compact(self, topic: str, keep: int, markers: bool) -> None:
        """Compaction takes all but the last `keep` committed batches of each partition, and, if asked, their
        markers. Their readers have had them, so seen() tells them still."""

    def end_held(self) -> bool:
        """An operator ends what is open on groups' partitions and has ended: as `__transaction_state` has it,
        and by an abort what it does not have; whether there was any."""

    def mark(self, place: tuple[str, int], writer: ProducerIdentity, commit: bool) -> bool:
        """An operator writes a marker on a partition (WriteTxnMarkers); whether the writer was open there."""

    def terminate(self, name: str) -> bool:
        """Abort what a transactional id has open, whoever holds it; whether it had."""

    def plain(self, topic: str, below: Mapping[str, int] | None = None) -> list[str]:
        """A source's records; those of each partition that lie before an offset."""

    def written(self, topic: str) -> list[str]:
        """Rows that are committed or may still be."""

    def seen(self, topic: str) -> list[str]:
        """Rows that a read_committed reader gets."""

    def held_open(self) -> Iterator[tuple[str, object]]:
        """Transactional ids with an open transaction, and who opened each."""

    def sealed_for_good(self, name: str) -> bool:
        """Whether a transaction does not time out, and the cluster lets nobody take it over."""


class App(Protocol):
    """A driver and its processes. `ended`: how, once it has."""

    ended: str

    @property
    def dead(self) -> bool:
        """Whether it was killed."""

    def arm(self, strike: Strike | None) -> None:
        """What strikes in what is done next."""

    def kill(self) -> None:
        """SIGKILL to all of it."""


class Run(Protocol):
    """A streaming query from its start to its end."""

    until_now: bool

    @property
    def app(self) -> App:
        """Where it runs."""

    @property
    def query_id(self) -> str:
        """Spark's, of its checkpoint."""

    @property
    def began(self) -> Mapping[str, Mapping[str, int]]:
        """Where it began, if this run began it."""

    @property
    def busy(self) -> bool:
        """Whether it stands still in the middle of a trigger."""

    @property
    def between(self) -> bool:
        """Whether no batch is planned and not complete."""

    def trigger(self, strike: Strike | None = None) -> bool:
        """One trigger; whether there was a batch. Raises what the connector raises, Killed, Stopped."""

    def stop(self) -> None:
        """The end in order."""


class Write(Protocol):
    """df.write."""

    def run(self, rows: Sequence[Rows]) -> None:
        """Raises what the connector raises, Killed, Stopped."""


class Ground(Protocol):
    """Everything that a world's acts are done with. `source`, `sink`: options that all have here."""

    source: Mapping[str, str]
    sink: Mapping[str, str]

    @property
    def clock(self) -> Time:
        """Its time."""

    @property
    def cluster(self) -> Cluster:
        """The one that people look at now."""

    @property
    def sites(self) -> Mapping[str, Cluster]:
        """All that there are, by their kafka.bootstrap.servers."""

    def turn(self, servers: str) -> None:
        """From now on people look at that one."""

    def around(self, warned: Counter[str]) -> AbstractContextManager[None]:
        """Within it the connector lives here; its warnings are counted."""

    def application(self, planners: int = 1, living: App | None = None) -> App:
        """A new one, with so many planner processes if that can be chosen; or `living`, for a further start,
        if it lives."""

    def stream(self, plan: Plan, app: App, told: Told) -> Run:
        """A query is started."""

    def job(self, app: App, options: dict[str, str]) -> Write:
        """A write of a DataFrame."""

    def client(self) -> AbstractContextManager[client.Cluster]:
        """The cluster, as a command on the command line sees it."""

    def shell(self, kill: int | tuple[str, int] | None) -> AbstractContextManager[None]:
        """Within it a command runs, in a process of its own. `kill`: at which of its steps it is killed."""


@contextmanager
def _same_luck() -> Iterator[None]:
    """Within it ids and the jitter of waits are those of every other play: a history can be played again."""
    kept, ids = random.getstate(), random.Random(0)
    random.seed(0)
    try:
        with patch.object(uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)):
            yield
    finally:
        random.setstate(kept)


class SimGround:
    """Clusters in memory, and Spark imitated."""

    source: Mapping[str, str] = {"kafka.bootstrap.servers": "a:9092"}
    sink = source

    def __init__(self, folder: Path) -> None:
        self.clock, self._folder = Clock(), folder
        self.sites = {f"{host}:9092": SimCluster(host, self.clock) for host in ("a", "b")}
        self.cluster, other = self.sites.values()
        self.cluster.beside, other.beside = [other], [self.cluster]
        self.apps: list[Application] = []

    @contextmanager
    def around(self, warned: Counter[str]) -> Iterator[None]:
        """See Ground."""
        self.clock.passed = self._tick
        for cluster in self.sites.values():
            cluster.opener = lambda: getattr(Network.process, "app", None)
        with (
            stage({one.host: one for one in self.sites.values()}, warned),
            self.clock.rules(),
            machine(self._folder / "tmp"),
            _same_luck(),
        ):
            yield

    def _tick(self) -> None:
        for cluster in self.sites.values():
            cluster.tick()

    def turn(self, servers: str) -> None:
        """See Ground."""
        self.cluster = self.sites[servers]

    def application(self, planners: int = 1, living: App | None = None) -> Application:
        """See Ground."""
        if isinstance(living, Application) and not living.dead:
            self.apps.append(Application.again(living))
        else:
            self.apps.append(Application(uuid.uuid4().hex, planners))
        return self.apps[-1]

    def stream(self, plan: Plan, app: Any, told: Told) -> Stream:
        """See Ground."""
        kind = FileStream if plan.files else UnionStream if plan.union else Stream
        return kind(plan, app, self.clock, told)

    def job(self, app: Any, options: dict[str, str]) -> Job:
        """See Ground."""
        return Job(app, self.clock, BatchSink(app, options))

    @contextmanager
    def client(self) -> Iterator[client.Cluster]:
        """See Ground."""
        with self.application().committer.runs():
            yield shared_cluster(ClientConfig(((self.cluster.host, 9092),)))

    @contextmanager
    def shell(self, kill: int | tuple[str, int] | None) -> Iterator[None]:
        """See Ground."""
        app = self.application()
        app.arm(None if kill is None else Strike("kill", kill))
        with app.committer.runs():
            yield
