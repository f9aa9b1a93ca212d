"""The existing topics, in memory and in the registry. A change counts once it is in the registry."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from eoslog.broker.log import data_dir, files
from eoslog.broker.log.partition import Partition
from eoslog.broker.ports.ports import FileSystem
from eoslog.broker.topics.topic import Topic
from eoslog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class KnownTopics:
    """The topics by name and by id. `path`: of the registry. Iteration is in the order of creation."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs, self._path = fs, path
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
        """Save the old registry after a failed save, which may already have put the new one in place."""
        try:
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
        entries = [
            data_dir.TopicEntry(topic.name, topic.topic_id, len(topic.partitions), topic.configs)
            for topic in self
        ]
        files.write_whole(self._fs, self._path, data_dir.encode(entries, self._deleting))
        self.version += 1
