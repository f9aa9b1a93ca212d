"""Topics and their partitions: creates, finds, changes and deletes them. No crash leaves a step half done.

`topics.json` in the data directory is the registry. A topic exists from the moment it is in the registry; its
partition directories are created before. A deletion is noted in the registry first. Then the directories are
renamed to `<name>.<hex>-delete`, the note is dropped, and the directories are removed. The next start
finishes what a crash interrupted. It never removes a directory with records that has neither a topic nor such
a note: the start fails. A change of a topic's partitions or configs also counts once it is in the registry.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from eoslog.broker.config import BrokerConfig
from eoslog.broker.log import files, leader_epochs
from eoslog.broker.log.data_dir import REGISTRY, DataDir, DataDirError, TopicEntry, new_id, rename_away, tidy
from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.log.partition import Partition, save_all
from eoslog.broker.ports.ports import Clock, FileSystem
from eoslog.broker.topics.known_topics import KnownTopics
from eoslog.broker.topics.partition_creation import PartitionMaker, storage_error
from eoslog.broker.topics.topic import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Topic,
    check_growth,
    check_new_name,
    check_room,
    is_internal,
)
from eoslog.broker.topics.topic_configs import TopicConfigs
from eoslog.protocol.errors import ErrorCode, KafkaError

__all__ = ["OFFSETS_TOPIC", "TRANSACTIONS_TOPIC", "Topic", "Topics", "is_internal"]

logger = logging.getLogger(__name__)


class Topics:
    """All topics of a broker. `report`: what was wrong with the logs when they were opened."""

    def __init__(
        self, fs: FileSystem, data_dir: DataDir, config: BrokerConfig, clock: Clock, flush: GroupFlush
    ) -> None:
        """Use `open`."""
        self._fs, self._dir, self._config, self._clock, self._flush = fs, data_dir, config, clock, flush
        self._known = KnownTopics(fs, data_dir.file(REGISTRY))
        self.configs = TopicConfigs(self._known, config)
        self._maker = PartitionMaker(fs, data_dir, config, clock, flush)
        self.report = self._maker.report
        self._busy: dict[str, int] = {}  # new partitions of topics being created or enlarged in steps
        self._closed = False
        self.beside: Callable[[Callable[[], None]], object] = lambda job: job()
        """Runs slow jobs that touch only files of deleted topics: in this thread, or in another one."""

    @classmethod
    def open(
        cls, fs: FileSystem, data_dir: str, config: BrokerConfig, clock: Clock, flush: GroupFlush
    ) -> Topics:
        """Lock the data directory and open all topics in it.

        Raises DataDirError if another broker has locked the directory, or it is not valid. A damaged
        partition is not an error: it is offline, see `report`.
        """
        directory = DataDir(fs, data_dir, config.network.node_id, clock.now_ms())
        topics = cls(fs, directory, config, clock, flush)
        try:
            topics._load()
        except BaseException:
            topics._close_files()
            directory.close()
            raise
        return topics

    @property
    def cluster_id(self) -> str:
        """The id of this single-node cluster, created with the data directory."""
        return self._dir.cluster_id

    @property
    def unsettled_ms(self) -> int:
        """How long the half second of this leader epoch still lasts; 0 if nothing was written in it."""
        written = any(partition.wrote for partition in self.all_partitions())
        return leader_epochs.rest_ms(self._dir.leader_epoch, self._clock.now_ms()) if written else 0

    @property
    def fs(self) -> FileSystem:
        """The file system, for other files in the data directory."""
        return self._fs

    @property
    def data_dir(self) -> str:
        """The path of the data directory."""
        return self._dir.path

    # -- looking up ----------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """See `KnownTopics.version`."""
        return self._known.version

    def get(self, name: str) -> Topic | None:
        """See `KnownTopics.get`."""
        return self._known.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """See `KnownTopics.by_id`."""
        return self._known.by_id(topic_id)

    def names(self) -> list[str]:
        """See `KnownTopics.names`."""
        return self._known.names()

    def partition(self, topic: str, index: int) -> Partition | None:
        """See `KnownTopics.partition`."""
        return self._known.partition(topic, index)

    def existing(self, name: str) -> Topic:
        """See `KnownTopics.existing`."""
        return self._known.existing(name)

    def all_partitions(self) -> list[Partition]:
        """See `KnownTopics.all_partitions`."""
        return self._known.all_partitions()

    # -- creating and deleting -----------------------------------------------------------------

    def internal(self, name: str) -> list[Partition]:
        """The partitions of one of the broker's own topics, which is created on first use."""
        found = self._known.get(name)
        if found is None:
            counts = {
                OFFSETS_TOPIC: self._config.groups.offsets_topic_partitions,
                TRANSACTIONS_TOPIC: self._config.transactions.transaction_log_partitions,
            }
            sizes = {
                OFFSETS_TOPIC: self._config.storage.offsets_topic_segment_bytes,
                TRANSACTIONS_TOPIC: self._config.storage.transaction_log_segment_bytes,
            }
            configs = {"cleanup.policy": "compact", "segment.bytes": str(sizes[name])}
            found = self._create(name, counts[name], configs)
        return found.partitions

    def create(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> Topic:
        """Create a topic. -1 partitions: num.partitions of them.

        Raises KafkaError INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS,
        INVALID_CONFIG, POLICY_VIOLATION (max.partitions), KAFKA_STORAGE_ERROR; then nothing is left behind.
        """
        self.check_create(name, partitions, configs or {})
        count = self._config.topics.num_partitions if partitions == -1 else partitions
        return self._create(name, count, configs or {})

    def check_create(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Raise what `create` would raise, without creating anything (validate_only)."""
        check_new_name(name, [*(topic.name for topic in self._known), *self._busy])
        if partitions < 1 and partitions != -1:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"topic {name} needs at least one partition")
        self._check_room(name, self._config.topics.num_partitions if partitions == -1 else partitions)
        self.configs.settings(configs)

    async def create_gently(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Like `create`, but other work runs in between while many partitions are created."""
        self.check_create(name, partitions, configs)
        entry = TopicEntry(name, new_id(), partitions, dict(configs))
        with self._busy_with(name, partitions):
            made = await self._maker.make_gently(entry, range(partitions))
        return self._created(entry, made)

    def _create(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        entry = TopicEntry(name, new_id(), partitions, dict(configs))
        return self._created(entry, self._maker.make(entry, range(partitions)))

    def _created(self, entry: TopicEntry, made: list[Partition]) -> Topic:
        topic = Topic(entry.name, entry.topic_id, made, entry.configs)
        self._register(topic, made)
        facts = {"topic": topic.name, "partitions": len(made)}
        logger.info("topic %s made with %d partitions", topic.name, len(made), extra=facts)
        return topic

    @contextmanager
    def _busy_with(self, name: str, partitions: int) -> Iterator[None]:
        """Meanwhile no other request can create or enlarge this topic, or use up max.partitions for it."""
        self._busy[name] = partitions
        try:
            yield
        finally:
            del self._busy[name]

    def add_partitions(self, name: str, total: int) -> Topic:
        """Enlarge a topic to `total` partitions. Returns the changed topic.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, POLICY_VIOLATION (max.partitions),
        KAFKA_STORAGE_ERROR; then the topic is unchanged.
        """
        entry, indexes = self._growth(name, total)
        return self._grown(entry, self._maker.make(entry, indexes))

    async def add_partitions_gently(self, name: str, total: int) -> Topic:
        """Like `add_partitions`, but other work runs in between while many partitions are created."""
        entry, indexes = self._growth(name, total)
        with self._busy_with(name, len(indexes)):
            made = await self._maker.make_gently(entry, indexes)
        return self._grown(entry, made)

    def _growth(self, name: str, total: int) -> tuple[TopicEntry, range]:
        """The topic as it will be, and the indexes of its new partitions. Raises KafkaError."""
        topic = self.check_add_partitions(name, total)
        entry = TopicEntry(name, topic.topic_id, total, topic.configs)
        return entry, range(len(topic.partitions), total)

    def _grown(self, entry: TopicEntry, made: list[Partition]) -> Topic:
        topic = self._known.by_id(entry.topic_id)
        if topic is None:
            self._maker.undo(made, [partition.directory for partition in made])
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {entry.name} was deleted meanwhile"
            )
        grown = replace(topic, partitions=[*topic.partitions, *made])
        self._register(grown, made)
        facts = {"topic": entry.name, "partitions": entry.partitions}
        logger.info("topic %s now has %d partitions", entry.name, entry.partitions, extra=facts)
        return grown

    def check_add_partitions(self, name: str, total: int) -> Topic:
        """Raise what `add_partitions` would raise, without adding any (validate_only). Returns the topic."""
        topic = self.existing(name)
        check_growth(topic, total)
        if name in self._busy:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"topic {name} is already being enlarged")
        self._check_room(name, total - len(topic.partitions))
        return topic

    def _check_room(self, name: str, added: int) -> None:
        count = len(self.all_partitions()) + sum(self._busy.values())
        check_room(name, added, count, self._config.topics.partitions_max)

    def _register(self, topic: Topic, made: Iterable[Partition]) -> None:
        """Put a topic into the registry with the partitions just `made`, which exist from then on.

        Raises KafkaError KAFKA_STORAGE_ERROR; then they do not exist.
        """
        try:
            settings = self.configs.settings(topic.configs)  # they may have changed since
            for partition in made:
                partition.reconfigure(settings)
            self._known.put(topic)
        except (OSError, KafkaError) as error:
            self._maker.undo(made, [partition.directory for partition in made])
            if isinstance(error, KafkaError):
                raise
            raise storage_error(f"topic {topic.name} was not created or enlarged", error) from error

    def delete(self, name: str) -> None:
        """Delete a topic and its records.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION for an internal one,
        KAFKA_STORAGE_ERROR if the deletion could not be noted; then the topic still exists.
        """
        topic = self.existing(name)
        if topic.internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} is the broker's own")
        try:
            self._known.drop(topic)
        except OSError as error:
            raise storage_error(f"topic {name} is not deleted", error) from error
        logger.info("topic %s deleted", name, extra={"topic": name})
        for partition in topic.partitions:
            partition.close()
        try:
            renamed = rename_away(self._fs, self._dir.path, [p.directory for p in topic.partitions])
            self._known.dropped(topic)
        except OSError as error:
            logger.warning("topic %s is deleted, the next start removes its files: %s", name, error)
        else:
            self.beside(partial(self._remove, renamed))

    def _remove(self, directories: Iterable[str]) -> None:
        """Remove the directories of deleted partitions. The next start removes those that stay."""
        for directory in directories:
            if self._closed:
                return
            try:
                self._fs.remove_tree(directory)
            except OSError as error:
                logger.warning("%s of a deleted topic stays until the next start: %s", directory, error)

    def _load(self) -> None:
        try:
            stored = self._known.stored()
            tidy(self._fs, self._dir.path, stored.partitions, stored.deleting)
        except files.BadFile as error:
            raise DataDirError(str(error)) from error
        for entry in stored.topics:
            self._known.opened(Topic(entry.name, entry.topic_id, self._maker.open(entry), entry.configs))
        if stored.deleting:
            self._known.save()

    # -- periodic work, and the end ------------------------------------------------------------

    def expire_producers(self) -> None:
        """Forget idle producers. Called every producer.id.expiration.check.interval.ms."""
        now_ms = self._clock.now_ms()
        for partition in self.all_partitions():
            partition.expire_producers(now_ms)

    def tick(self) -> None:
        """Write the recovery points. Called every log.flush.offset.checkpoint.interval.ms."""
        try:
            self._checkpoint()
        except OSError as error:
            logger.error("recovery points not written, a start after a crash will check more: %s", error)

    def _checkpoint(self) -> None:
        """Write the recovery points. An offline partition keeps its old one, below which all was durable."""
        points = {}
        for partition in self.all_partitions():
            key = (partition.topic, partition.index)
            old = self._dir.recovery_points.get(key, 0)
            points[key] = old if partition.offline is not None else partition.recovery_point
        self._dir.checkpoint(points)
        self._dir.recovery_points = points

    def close(self) -> None:
        """Shut down in order: make all durable, save indexes and snapshots, release the lock.

        Stop the flush first. Raises OSError if something could not be saved; the next start then recovers it.
        """
        self._closed = True
        try:
            save_all(self.all_partitions())
            self._checkpoint()
            if all(partition.offline is None for partition in self.all_partitions()):
                self._dir.mark_clean()
        finally:
            self._close_files()
            self._dir.close()

    def _close_files(self) -> None:
        for partition in self.all_partitions():
            partition.close()
