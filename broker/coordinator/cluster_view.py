"""The topics of the broker as the rules of consumer groups see them (`rules.consumer_state.Cluster`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.rules.consumer_regex import matching
from eoslog.broker.rules.consumer_state import TopicInfo

if TYPE_CHECKING:
    from eoslog.broker.topics import Topic, Topics


class ClusterView:
    """What regular expressions stand for is remembered till the topics change."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._matches: dict[str, frozenset[str]] = {}
        self._matched_at = -1

    @property
    def version(self) -> int:
        """See `Cluster.version`."""
        return self._topics.version

    def topic(self, name: str) -> TopicInfo | None:
        """See `Cluster.topic`."""
        return _info(self._topics.get(name))

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """See `Cluster.by_id`."""
        return _info(self._topics.by_id(topic_id))

    def matching(self, regex: str) -> frozenset[str]:
        """See `Cluster.matching`."""
        if self._matched_at != self.version:
            self._matches.clear()
            self._matched_at = self.version
        if regex not in self._matches:
            self._matches[regex] = matching(regex, self._topics.names())
        return self._matches[regex]


def _info(topic: Topic | None) -> TopicInfo | None:
    return None if topic is None else TopicInfo(topic.name, topic.topic_id, len(topic.partitions))
