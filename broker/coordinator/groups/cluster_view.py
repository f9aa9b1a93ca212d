"""The topics of the broker as the rules of consumer groups see them (`MetadataImage`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eoslog.broker.coordinator.groups.consumer_group_state import MetadataImage, TopicImage
from eoslog.broker.coordinator.groups.subscription_regex import matching

if TYPE_CHECKING:
    from eoslog.broker.topics.topics import Topic, Topics


@dataclass(frozen=True, slots=True)
class VisibleTopics:
    """Which topics a client may describe, by the current ACLs."""

    sees: Callable[[str], bool]
    version: int
    """A number that grows with each change of the ACLs."""


class ClusterView:
    """The broker's topics. The matches of regular expressions are cached until the topics change."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._matches: dict[str, frozenset[str]] = {}
        self._matched_at = -1

    @property
    def version(self) -> int:
        """See `MetadataImage.version`."""
        return self._topics.version

    def topic(self, name: str) -> TopicImage | None:
        """See `MetadataImage.topic`."""
        return _info(self._topics.get(name))

    def matching(self, regex: str) -> frozenset[str]:
        """See `MetadataImage.matching`."""
        if self._matched_at != self.version:
            self._matches.clear()
            self._matched_at = self.version
        if regex not in self._matches:
            self._matches[regex] = matching(regex, self._topics.names())
        return self._matches[regex]

    def seen_by(self, visible_topics: VisibleTopics | None) -> MetadataImage:
        """The topics, with the matches of regular expressions limited to what a client may describe."""
        return self if visible_topics is None else _Seen(self, visible_topics)


class _Seen:
    """The topics as one client sees them. Only regular expressions are limited: names are checked before."""

    def __init__(self, cluster: ClusterView, visible_topics: VisibleTopics) -> None:
        self._cluster, self._visible_topics = cluster, visible_topics
        self.topic = cluster.topic

    @property
    def version(self) -> int:
        """A number that grows with each change of the topics or the ACLs."""
        return self._cluster.version + self._visible_topics.version

    def matching(self, regex: str) -> frozenset[str]:
        """See `MetadataImage.matching`; without the topics that the client may not describe, as in Kafka."""
        return frozenset(filter(self._visible_topics.sees, self._cluster.matching(regex)))


def _info(topic: Topic | None) -> TopicImage | None:
    return None if topic is None else TopicImage(topic.name, topic.topic_id, len(topic.partitions))
