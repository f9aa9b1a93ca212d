"""A real broker as a history's cluster: the bundled one, whose data directory is copied and put back while it
is down. What is in it is read by a stock client."""

import shutil
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import NewPartitions

from eoslog.client.admin.groups import commit_plain, fetch_committed
from eoslog.client.admin.transaction_states import list_transactions
from eoslog.client.admin.transactions import init_producer_id
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire
from tests.connector.brokers import LATEST, Kafka

TWO_PHASE = "transaction.two.phase.commit.enable"
CONFIG = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "auto.create.topics.enable": "false",
    TWO_PHASE: "true",
}
CLEAN = (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint")
"""What tells a broker that it need not look at its logs."""
STATE, GROUPS = "__transaction_state", "__consumer_offsets"
TERMINATE_MS = 60_000
OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")


class RealCluster:
    """See ground.Cluster. It has transaction.version 2 always. `opener`: who wrote in a transaction last."""

    requests = 0

    def __init__(self, folder: Path) -> None:
        self._folder, self._config = folder, dict(CONFIG)
        self.broker = EmbeddedBroker(folder / "data", config=self._config).start()
        self._kafka = Kafka(self.broker.bootstrap)
        self.opener: Callable[[str], object] = lambda _: None

    def close(self) -> None:
        """The end."""
        del self._kafka  # or it looks for the broker for ever
        self.broker.kill()

    def stand_open(self, topic: str) -> None:
        """Not played here."""
        raise NotImplementedError(topic)

    def end_strangers(self) -> None:
        """There are none."""

    # -- topics -----------------------------------------------------------------------------------

    @property
    def topics(self) -> dict[str, int]:
        """With their numbers of partitions."""
        found = self._kafka.admin.list_topics(timeout=30).topics
        return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}

    def partitions(self, topic: str) -> int:
        """How many."""
        return self.topics[topic]

    def id_of(self, name: str) -> str:
        """A topic's id as tools print it."""
        with Wire(self.broker.host, self.broker.port) as wire:
            (found,) = wire.call(ApiKey.METADATA, 12, topics=[{"name": name}])["topics"]
        return urlsafe_b64encode(found["topic_id"]).decode().rstrip("=")

    def create(self, name: str, partitions: int) -> None:
        """A new topic."""
        self._kafka.topic(partitions, name)

    def delete(self, name: str) -> None:
        """Deleted, and gone."""
        self._kafka.admin.delete_topics([name])[name].result(60)
        while name in self.topics:
            continue

    def add_partition(self, name: str) -> None:
        """One more."""
        more = NewPartitions(name, self.partitions(name) + 1)
        self._kafka.admin.create_partitions([more])[name].result(60)

    def take(self, topic: str, partition: int, values: Sequence[str]) -> None:
        """Records of a producer without transactions."""
        self._kafka.put(topic, [value.encode() for value in values], partition)

    # -- the broker and its disk ------------------------------------------------------------------

    def become(self, tv: int, keeps: bool) -> None:
        """Two-phase commit is offered, or not."""
        if (self._config[TWO_PHASE] == "true") != keeps:
            self._config[TWO_PHASE] = str(keeps).lower()
            self.broker.stop()
            self.broker = EmbeddedBroker(self._folder / "data", port=self.broker.port, config=self._config)
            self._start()

    def restart(self) -> None:
        """It ends and starts again."""
        self.broker.stop()
        self._start()

    def snapshot(self) -> Path:
        """A copy of its disk, made while it is down."""
        self.broker.stop()
        copy = self._copy()
        shutil.copytree(self.broker.data, copy)
        self._start()
        return copy

    def restore(self, disk: Path) -> None:
        """It is started on such a copy."""
        self.broker.stop()
        shutil.rmtree(self.broker.data)
        shutil.copytree(disk, self.broker.data)
        self._start()

    def put_back(self, transactions: Path, groups: Path, logs: Path, topic: str) -> None:
        """See ground.Cluster."""
        self.broker.kill()
        for copy, name in ((transactions, STATE), (groups, GROUPS), (logs, topic)):
            for folder in copy.glob(f"{name}-*"):
                shutil.rmtree(self.broker.data / folder.name)
                shutil.copytree(folder, self.broker.data / folder.name)
        self._start()

    def logs_of(self, topic: str) -> Path:
        """A copy of a topic's logs."""
        partitions, copy = self.partitions(topic), self._copy()
        self.broker.stop()
        for number in range(partitions):
            shutil.copytree(self.broker.data / f"{topic}-{number}", copy / f"{topic}-{number}")
        self._start()
        return copy

    def cut(self, topic: str, kept: Path) -> None:
        """The logs go back to that copy; not those of a topic that was created again."""
        names = [path.name for path in kept.iterdir()]
        if len(names) > self.partitions(topic) or not all(map(self._is_same, kept.iterdir())):
            return
        self.broker.stop()
        for name in names:
            shutil.rmtree(self.broker.data / name)
            shutil.copytree(kept / name, self.broker.data / name)
        for name in CLEAN:
            (self.broker.data / name).unlink(missing_ok=True)
        self._start()

    def _is_same(self, kept: Path) -> bool:
        name = "partition.metadata"
        return (kept / name).read_text() == (self.broker.data / kept.name / name).read_text()

    def _copy(self) -> Path:
        return self._folder / uuid.uuid4().hex

    def _start(self) -> None:
        self.broker.start()
        self._kafka = Kafka(self.broker.bootstrap)

    # -- what is in it ----------------------------------------------------------------------------

    def plain(self, topic: str, below: Mapping[str, int] | None = None) -> list[str]:
        """See ground.Cluster."""
        rows = self._rows(topic, committed=True)
        return [v for part, at, v in rows if below is None or at < below.get(str(part), 0)]

    def written(self, topic: str) -> list[str]:
        """What is committed, and what lies behind the last stable offsets, of aborted transactions too."""
        asked = {TopicPartition(topic, n): LATEST for n in range(self.partitions(topic))}
        committed = IsolationLevel.READ_COMMITTED
        told = self._kafka.admin.list_offsets(asked, isolation_level=committed)
        stable = {where.partition: future.result(60).offset for where, future in told.items()}
        later = [v for n, at, v in self._rows(topic, committed=False) if at >= stable[n]]
        return [v for n, at, v in self._rows(topic, committed=True) if at < stable[n]] + later

    def seen(self, topic: str) -> list[str]:
        """See ground.Cluster."""
        return [value for _, _, value in self._rows(topic, committed=True)]

    def _rows(self, topic: str, *, committed: bool) -> list[tuple[int, int, str]]:
        rows = self._kafka.rows(topic, self.partitions(topic), committed=committed)
        return [(row[0], row[1], row[3].decode()) for row in rows]

    def sealed_for_good(self, name: str) -> bool:
        """A real cluster does not change within a history."""
        return False

    def held_open(self) -> Iterator[tuple[str, object]]:
        """See ground.Cluster."""
        with Cluster(ClientConfig(parse_addresses(self.broker.bootstrap))) as cluster:
            for listed in list_transactions(cluster, "", OPEN):
                yield listed.transactional_id, self.opener(listed.transactional_id)

    def places_of(self, group: str, *, noted: bool = False) -> list[tuple[str, int]]:
        """See ground.Cluster."""
        with Cluster(ClientConfig(parse_addresses(self.broker.bootstrap))) as cluster:
            found = fetch_committed(cluster, group, None, require_stable=False)
        held = {place for place, (_, text) in found.items() if text or not noted}
        return [(topic, number) for topic, number in held if not topic.startswith("__")]

    def commit_by_hand(self, group: str, topic: str, partition: int, offset: int) -> None:
        """See ground.Cluster."""
        with Cluster(ClientConfig(parse_addresses(self.broker.bootstrap))) as cluster:
            commit_plain(cluster, group, {(topic, partition): (offset, "")}, {})

    def end_of(self, topic: str, partition: int) -> int:
        """See ground.Cluster."""
        asked = {TopicPartition(topic, partition): LATEST}
        (found,) = self._kafka.admin.list_offsets(asked).values()
        return int(found.result(60).offset)

    def forget(self, *, ids: bool, groups: bool, rows: Iterable[str] = ()) -> None:
        """A real cluster forgets after days."""
        raise NotImplementedError("histories with a real cluster have no such act")

    def empty(self, topic: str) -> None:
        """All records are deleted, those of open transactions as well."""
        ends = [TopicPartition(topic, number, -1) for number in range(self.partitions(topic))]
        for deleted in self._kafka.admin.delete_records(ends).values():
            deleted.result(60)

    def compact(self, topic: str, keep: int, markers: bool) -> None:
        """See ground.Cluster."""
        raise NotImplementedError("histories with a real cluster have no such act")

    def end_held(self) -> bool:
        """The bundled broker loses no marker."""
        return False

    def mark(self, place: tuple[str, int], writer: ProducerIdentity, commit: bool) -> bool:
        """The bundled broker loses no marker."""
        return False

    def terminate(self, name: str) -> bool:
        """Abort what a transactional id has open, whoever holds it (forceTerminateTransaction)."""
        there = name in [held for held, _ in self.held_open()]
        if there:
            with Cluster(ClientConfig(parse_addresses(self.broker.bootstrap))) as cluster:
                init_producer_id(cluster, name, TERMINATE_MS)
        return there

    def is_open(self) -> bool:
        """Whether any transaction is."""
        return any(True for _ in self.held_open())
