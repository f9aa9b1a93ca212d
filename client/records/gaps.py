"""Offsets that are missing in a log: removed by compaction, or lost.

A log is written without gaps, and transactions, even aborted ones, leave their records and markers in place.
So offsets that are missing in the middle of a topic that is not compacted were lost: a segment is damaged, or
its file is gone.
"""

import logging

from eoslog.client.admin.configs import topic_configs
from eoslog.client.wire.cluster import Cluster
from eoslog.errors import EoslogError, OffsetsGone
from eoslog.protocol.errors import KafkaError

log = logging.getLogger("eoslog")

_POLICY = "cleanup.policy"


class Gaps:
    """The gaps of one partition."""

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        self._cluster, self._topic, self._partition = cluster, topic, partition

    def are_explained(self) -> bool:
        """Whether the topic is compacted. If the cluster does not say so, it counts as compacted, with a
        warning."""
        if self._topic not in self._cluster.compacted and self._is_compacted():
            self._cluster.compacted.add(self._topic)
        return self._topic in self._cluster.compacted

    def _is_compacted(self) -> bool:
        try:
            policy = topic_configs(self._cluster, [self._topic], [_POLICY])[self._topic].get(_POLICY, "")
        except (KafkaError, EoslogError) as error:
            log.warning(
                "%s-%d leaves offsets out, and whether it is compacted is not known (%s): continuing. See "
                "troubleshooting.md#offsets-are-missing-in-the-midst-of-a-partition",
                self._topic,
                self._partition,
                error,
            )
            return True
        return "compact" in policy

    def error(self, first: int, behind: int) -> OffsetsGone:
        """The error for missing offsets, from `first` to below `behind`."""
        return OffsetsGone(
            f"offsets {first} to {behind - 1} of {self._topic}-{self._partition} are missing in the midst of "
            f"its log, and the topic is not compacted ({_POLICY}): its log is damaged",
            behind=behind,
        )
