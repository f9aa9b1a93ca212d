"""The topics of a broker: create, look up, change, grow and delete, with what a restart must know of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from eoslog.broker.config import BrokerConfig
from eoslog.broker.log import data_dir, files, leader_epochs
from eoslog.broker.log.data_dir import REGISTRY, DataDir, DataDirError, TopicEntry, new_id, rename_away, tidy
from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition, save_all
from eoslog.broker.log.reserve import Reserve
from eoslog.broker.ports import Clock, FileSystem
from eoslog.broker.topics.partition_creation import PartitionMaker, storage_error
from eoslog.protocol.errors import ErrorCode, KafkaError

# -- one topic -------------------------------------------------------------------------------------
# A topic, and the checks of a new or growing one.


OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
METADATA_TOPIC = "__cluster_metadata"
"""Of Kafka's controllers. Clients that find a topic of this name take it for theirs."""

MAX_NAME = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True)
class Topic:
    """A topic. `configs`: only those that were set on it."""

    name: str
    topic_id: bytes
    partitions: list[Partition]
    configs: dict[str, str]

    @property
    def internal(self) -> bool:
        """Whether it is one of the broker's own topics."""
        return is_internal(self.name)


def is_internal(name: str) -> bool:
    """Whether this is the name of one of the broker's own topics."""
    return name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


def check_name(name: str) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION unless `name` is a legal topic name."""
    if name in ("", ".", ".."):
        reason = f"a topic cannot be named {name!r}"
    elif len(name) > MAX_NAME:
        reason = f"a topic name has at most {MAX_NAME} characters, not {len(name)}"
    elif not _LEGAL.fullmatch(name):
        reason = f"topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def check_new_name(name: str, existing: Iterable[str]) -> None:
    """Raises KafkaError unless a topic of this name can be created beside the `existing` ones.

    INVALID_TOPIC_EXCEPTION for an illegal name, for one of the broker's own, and for one that differs from
    another only in '.' and '_' (they are the same in metric names); INVALID_REQUEST for that of Kafka's
    controllers; TOPIC_ALREADY_EXISTS.
    """
    check_name(name)
    if name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name} is of Kafka's controllers alone")
    if is_internal(name):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} is the broker's own")
    plain = name.replace(".", "_")
    for other in existing:
        if other == name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        if other.replace(".", "_") == plain:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name} differs from {other} only in '.' and '_': their metric names would collide",
            )


def check_growth(topic: Topic, total: int) -> None:
    """Raises KafkaError INVALID_PARTITIONS unless a topic may grow to `total` partitions."""
    count = len(topic.partitions)
    if topic.internal:
        reason = "is the broker's own, its number of partitions is fixed at its first use"
    elif total == count:
        reason = f"already has {count} partitions"
    elif total < count:
        reason = f"has {count} partitions, {total} would be fewer"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"topic {topic.name} {reason}")


def check_room(name: str, added: int, count: int, limit: int) -> None:
    """Raises KafkaError POLICY_VIOLATION if `added` partitions and the existing `count` exceed `limit`."""
    if count + added > limit:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {name}: {added} more partitions are too many: there are {count}, and max.partitions is"
            f" {limit}",
        )


# -- known topics ----------------------------------------------------------------------------------
# The existing topics, in memory and in the registry. A change counts once it is in the registry.


logger = logging.getLogger(__name__)


class KnownTopics:
    """The topics by name and by id. `path`: of the registry. Iteration is in the order of creation."""

    def __init__(self, fs: FileSystem, path: str, reserve: Reserve) -> None:
        self._fs, self._path, self._reserve = fs, path, reserve
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._deleting: set[bytes] = set()
        self.version = 0
        """Rises with every change of the registry."""

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    # -- looking up ----------------------------------------------------------------------------

    def get(self, name: str) -> Topic | None:
        """A topic by name."""
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """A topic by its id of 16 bytes."""
        return self._by_id.get(topic_id)

    def names(self) -> list[str]:
        """All names, including the internal topics', sorted."""
        return sorted(self._by_name)

    def partition(self, topic: str, index: int) -> Partition | None:
        """One partition, None if there is no such topic or index."""
        found = self._by_name.get(topic)
        return found.partitions[index] if found and 0 <= index < len(found.partitions) else None

    def existing(self, name: str) -> Topic:
        """A topic by name. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self._by_name.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return topic

    def all_partitions(self) -> list[Partition]:
        """The partitions of all topics."""
        return [partition for topic in self for partition in topic.partitions]

    # -- the registry --------------------------------------------------------------------------

    def stored(self) -> data_dir.TopicRegistry:
        """The content of the registry, for a start. Raises BadFile, OSError."""
        if not self._fs.exists(self._path):
            return data_dir.TopicRegistry()
        return data_dir.decode(files.read_whole(self._fs, self._path), self._path)

    def opened(self, topic: Topic) -> None:
        """Add a topic of the registry, with its partitions open, at a start."""
        self._by_name[topic.name] = self._by_id[topic.topic_id] = topic

    def put(self, topic: Topic) -> None:
        """Register a topic, new or changed. Raises OSError; then nothing has changed."""
        before = self._by_name.get(topic.name)
        self._by_name[topic.name] = self._by_id[topic.topic_id] = topic
        try:
            self.save()
        except OSError:
            if before is None:
                del self._by_name[topic.name], self._by_id[topic.topic_id]
            else:
                self._by_name[topic.name] = self._by_id[topic.topic_id] = before
            self._take_back(topic)
            raise

    def _take_back(self, topic: Topic) -> None:
        """Save the old registry after a failed save, if that has put the new one in place."""
        try:
            if not self._fs.exists(self._path) or files.read_whole(self._fs, self._path) != self._content():
                self.save()
        except OSError as error:
            what = "the failed change of topic %s may take effect at the next start: %s"
            logger.error(what, topic.name, error, extra={"topic": topic.name})

    def drop(self, topic: Topic) -> None:
        """Remove a topic, and note that its files must be removed. Raises OSError; then it is still there."""
        self._deleting.add(topic.topic_id)
        del self._by_name[topic.name], self._by_id[topic.topic_id]
        try:
            self.save()
        except OSError:
            self._by_name[topic.name] = self._by_id[topic.topic_id] = topic
            self._deleting.discard(topic.topic_id)
            raise

    def dropped(self, topic: Topic) -> None:
        """Drop that note: the files of the removed topic are renamed. Raises OSError."""
        self._deleting.discard(topic.topic_id)
        self.save()

    def save(self) -> None:
        """Write the registry. Raises OSError."""
        files.write_whole(self._fs, self._path, self._content(), reserve=self._reserve)
        self.version += 1

    def _content(self) -> bytes:
        entries = [
            data_dir.TopicEntry(topic.name, topic.topic_id, len(topic.partitions), topic.configs)
            for topic in self
        ]
        return data_dir.encode(entries, self._deleting)


# -- configs ---------------------------------------------------------------------------------------
# The configs of topics: checks them, stores them, and applies them to the topics' logs.


class TopicConfigs:
    """The configs of the `known` topics, with the broker's options as defaults."""

    def __init__(self, known: KnownTopics, config: BrokerConfig) -> None:
        self._known, self._config = known, config

    def settings(self, configs: Mapping[str, str]) -> LogSettings:
        """The settings for the logs of a topic with these configs. Raises KafkaError INVALID_CONFIG."""
        return LogSettings.of(self._config, configs)

    def set(self, name: str, configs: Mapping[str, str]) -> Topic:
        """Replace the configs of a topic. Its logs use the new ones at once.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, KAFKA_STORAGE_ERROR; then the topic is
        unchanged.
        """
        topic = self._known.existing(name)
        settings = self.check(name, configs)
        changed = replace(topic, configs=dict(configs))
        try:
            self._known.put(changed)
        except OSError as error:
            raise storage_error(f"the configs of topic {name} are unchanged", error) from error
        for partition in topic.partitions:
            partition.reconfigure(settings)
        return changed

    def check(self, name: str, configs: Mapping[str, str]) -> LogSettings:
        """The settings of a topic with these configs. Raises KafkaError as `set` does."""
        self._known.existing(name)
        settings = self.settings(configs)
        if is_internal(name) and configs.get("cleanup.policy") != "compact":
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"topic {name} is the broker's own and needs cleanup.policy=compact",
            )
        return settings

    def check_defaults(self, config: BrokerConfig) -> None:
        """Raise KafkaError INVALID_CONFIG if a topic's own configs do not fit these broker options."""
        for topic in self._known:
            LogSettings.of(config, topic.configs)

    def defaults_changed(self) -> None:
        """Apply changed options of the broker to all logs."""
        for topic in self._known:
            settings = self.settings(topic.configs)
            for partition in topic.partitions:
                partition.reconfigure(settings)


# -- all topics ------------------------------------------------------------------------------------
# Topics and their partitions: creates, finds, changes and deletes them. No crash leaves a step half done.
#
# `topics.json` in the data directory is the registry. A topic exists from the moment it is in the registry;
# its partition directories are created before. A deletion is noted in the registry first. Then the
# directories are renamed to `<name>.<hex>-delete`, the note is dropped, and the directories are removed.
# The next start finishes what a crash interrupted. It never removes a directory with records that has
# neither a topic nor such a note: the start fails. A change of a topic's partitions or configs also counts
# once it is in the registry.


class Topics:
    """All topics of a broker. `report`: what was wrong with the logs when they were opened."""

    def __init__(
        self, fs: FileSystem, data_dir: DataDir, config: BrokerConfig, clock: Clock, flush: GroupFlush
    ) -> None:
        """Use `open`."""
        self._fs, self._dir, self._config, self._clock, self._flush = fs, data_dir, config, clock, flush
        self._known = KnownTopics(fs, data_dir.file(REGISTRY), data_dir.reserve)
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

    @property
    def reserve(self) -> Reserve:
        """The room that is kept for a full disk."""
        return self._dir.reserve

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
        self.reserve.open_for_start()
        try:
            save_all(self.all_partitions())
            self._checkpoint()
            if all(partition.offline is None for partition in self.all_partitions()):
                self._dir.mark_clean()
        finally:
            self._close_files()
            self.reserve.fill()
            self._dir.close()

    def _close_files(self) -> None:
        for partition in self.all_partitions():
            partition.close()
