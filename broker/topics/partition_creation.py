"""Creates and opens the partitions of a topic on disk, and undoes a creation that failed.

It says where replicas may be, and how many: the only module that knows that this is a single node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Iterable, Iterator, Sequence

from eoslog.broker.config import BrokerConfig
from eoslog.broker.log.data_dir import DataDir, TopicEntry
from eoslog.broker.log.durability import GroupFlush, PartitionPlace
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition, create_directories, open_partition
from eoslog.broker.log.recovery import KnownLog, RecoveryFinding
from eoslog.broker.ports import Clock, FileSystem
from eoslog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

STEP = 64
"""Partitions that are created in one turn of the event loop."""


class PartitionMaker:
    """Creates partitions in one data directory. `report`: what was wrong with the logs at opening."""

    def __init__(
        self, fs: FileSystem, data_dir: DataDir, config: BrokerConfig, clock: Clock, flush: GroupFlush
    ) -> None:
        self._fs, self._dir, self._config, self._clock, self._flush = fs, data_dir, config, clock, flush
        self.report: list[RecoveryFinding] = []

    def open(self, entry: TopicEntry) -> list[Partition]:
        """Open the partitions of a topic. A damaged one is offline, see `report`."""
        settings = LogSettings.of(self._config, entry.configs)
        opened = []
        for index in range(entry.partitions):
            point = self._dir.recovery_points.get((entry.name, index), 0)
            opened.append(
                self._open(self._place(entry, index), settings, self._known(point, self._dir.clean))
            )
        return opened

    def make(self, entry: TopicEntry, indexes: Sequence[int]) -> list[Partition]:
        """Create and open empty partitions of a topic. Raises KafkaError; then nothing is left behind."""
        steps = self._steps(entry, indexes)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                made: list[Partition] = end.value
                return made

    async def make_gently(self, entry: TopicEntry, indexes: Sequence[int]) -> list[Partition]:
        """Like `make`, but other work runs in between. A cancellation leaves nothing behind either."""
        steps = self._steps(entry, indexes)
        try:
            while True:
                next(steps)
                await asyncio.sleep(0)
        except StopIteration as end:
            made: list[Partition] = end.value
            return made
        finally:
            steps.close()

    def _steps(self, entry: TopicEntry, indexes: Sequence[int]) -> Generator[None, None, list[Partition]]:
        """Create a few partitions per step, all directories first: one sync is enough for them."""
        settings = LogSettings.of(self._config, entry.configs)
        places = [self._place(entry, index) for index in indexes]
        made: list[str] = []
        opened: list[Partition] = []
        try:
            for some in _batches(places):
                self._make_directories(some, settings, made)
                yield
            self._fs.sync_dir(self._dir.path)
            for some in _batches(places):
                opened += [self._open(place, settings, self._known(clean=True)) for place in some]
                yield
            for partition in opened:
                if partition.offline is not None:
                    raise OSError(partition.offline)
        except OSError as error:
            self.undo(opened, made)
            raise storage_error(f"topic {entry.name} was not created or enlarged", error) from error
        except GeneratorExit:
            self.undo(opened, made)
            raise
        return opened

    def _make_directories(
        self, places: Sequence[PartitionPlace], settings: LogSettings, made: list[str]
    ) -> None:
        """Create directories. Adds to `made` each that may exist afterwards, also if it raises OSError."""
        for place in places:
            if self._fs.exists(place.directory):
                raise OSError(f"{place.directory} exists already; a restart removes leftovers of a deletion")
        for place in places:
            made.append(place.directory)
            self._dir.forget(place.topic, place.number)
        create_directories(self._fs, places, settings.index_interval_bytes, self._dir.leader_epoch)

    def undo(self, opened: Iterable[Partition], directories: Iterable[str]) -> None:
        """Close and remove partitions that are empty and not registered."""
        for partition in opened:
            partition.close()
        for directory in directories:
            try:
                if self._fs.exists(directory):
                    self._fs.remove_tree(directory)
            except OSError as error:
                # The next start also removes empty directories that are not registered.
                logger.warning(
                    "cannot remove %s of a topic that could not be created; the next start does: %s",
                    directory,
                    error,
                )

    def _place(self, entry: TopicEntry, index: int) -> PartitionPlace:
        return PartitionPlace(entry.name, index, entry.topic_id, self._dir.file(f"{entry.name}-{index}"))

    def _known(self, recovery_point: int = 0, clean: bool = False) -> KnownLog:
        return KnownLog(recovery_point, clean, self._dir.leader_epoch)

    def _open(self, place: PartitionPlace, settings: LogSettings, known: KnownLog) -> Partition:
        now_ms = self._clock.now_ms()
        return open_partition(
            self._fs, place, settings, self._flush, self._dir.checkpoints, known, now_ms, self.report
        )


def storage_error(what: str, error: OSError) -> KafkaError:
    """The error for a client when the disk fails: `what` did not happen, and why."""
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {error}")


def _batches(places: Sequence[PartitionPlace]) -> Iterator[Sequence[PartitionPlace]]:
    for start in range(0, len(places), STEP):
        yield places[start : start + STEP]


REPLICATION_FACTOR = 1
"""The replication factor of every topic, whatever was requested."""

DEFAULT = -1
"""A client requests this to let the broker choose."""


def check_factor(config: BrokerConfig, asked: int) -> None:
    """Raise KafkaError INVALID_REPLICATION_FACTOR unless a topic may be created with this factor.

    The default is always accepted: even with default.replication.factor=3 a topic gets 1.
    """
    if asked in (DEFAULT, REPLICATION_FACTOR) or (asked > 1 and config.topics.accept_replication_factor):
        return
    raise KafkaError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"replication factor {asked}: this is a single node, ask for 1"
        " (or start the broker with accept.any.replication.factor=true)",
    )


def check_replicas(node_id: int, replicas: Sequence[int]) -> None:
    """Raise KafkaError INVALID_REPLICA_ASSIGNMENT unless a partition may be on these brokers."""
    if list(replicas) != [node_id]:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"replicas {list(replicas)}: the only node has id {node_id}",
        )
