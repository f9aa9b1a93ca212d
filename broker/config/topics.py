"""Options of topics: how they are created, and the defaults of their configs.

The topic configs themselves are in `topic_table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eoslog.broker.config.config_def import INT32_MAX, INT64_MAX, ConfigError, option, text_of
from eoslog.broker.config.topic_table import HOUR, TOPIC_CONFIGS, TopicConfig

NO_REPLICAS = "without effect here, as there are no other replicas"

SCALED: dict[str, tuple[str, int]] = {
    "log.retention.minutes": ("log.retention.ms", 60_000),
    "log.retention.hours": ("log.retention.ms", HOUR),
    "log.roll.hours": ("log.roll.ms", HOUR),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", HOUR),
    "log.flush.scheduler.interval.ms": ("log.flush.interval.ms", 1),
    "log.dir": ("log.dirs", 0),
}
"""Kafka's other names of an option: the option, and the factor to its unit, 0 for a text. The option's own
name ranks first, then these in this order."""


def _default_of(name: str) -> Any:
    """The broker option that is the default of a topic config."""
    line = TOPIC_CONFIGS[name]
    rule = line.rule
    return option(
        line.default,
        line.synonym,
        f"{name} of topics that do not set it: {line.description}",
        low=rule.low,
        high=rule.high,
        choices=rule.choices,
        pattern=rule.pattern,
        hint=rule.hint,
        dynamic=True,
    )


@dataclass(frozen=True)
class TopicOptions:
    """How topics are created, and the defaults of topic configs."""

    auto_create_topics: bool = option(True, "auto.create.topics.enable", "create unknown topics on first use")
    num_partitions: int = option(
        1, "num.partitions", "partitions of a topic created without a number", low=1, high=INT32_MAX
    )
    partitions_max: int = option(
        10_000,
        "max.partitions",
        "most partitions that clients may create, of all topics together; each keeps a file open",
        low=1,
        high=INT32_MAX,
        dynamic=True,
    )
    delete_topic_enable: bool = option(True, "delete.topic.enable", "let clients delete topics")
    default_replication_factor: int = option(
        1,
        "default.replication.factor",
        "replicas of a topic created without a number; always 1 on this single node, whatever is set here",
        low=1,
        high=32_767,
    )
    accept_replication_factor: bool = option(
        False,
        "accept.any.replication.factor",
        "accept a request for a replication factor above 1, although it is always 1 on this single node",
        dynamic=True,
    )
    offsets_topic_replication_factor: int = option(
        1,
        "offsets.topic.replication.factor",
        "as default.replication.factor, of __consumer_offsets",
        low=1,
        high=32_767,
    )
    transaction_log_replication_factor: int = option(
        1,
        "transaction.state.log.replication.factor",
        "as default.replication.factor, of __transaction_state",
        low=1,
        high=32_767,
    )
    transaction_log_min_isr: int = option(
        1,
        "transaction.state.log.min.isr",
        "as min.insync.replicas, of __transaction_state",
        low=1,
        high=INT32_MAX,
    )
    describe_partitions_limit: int = option(
        2000,
        "max.request.partition.size.limit",
        "most partitions in one answer of DescribeTopicPartitions",
        low=1,
        high=INT32_MAX,
    )
    leader_throttled_rate: int = option(
        INT64_MAX,
        "leader.replication.throttled.rate",
        "bytes a second to other replicas; " + NO_REPLICAS,
        dynamic=True,
    )
    follower_throttled_rate: int = option(
        INT64_MAX,
        "follower.replication.throttled.rate",
        "bytes a second from other replicas; " + NO_REPLICAS,
        dynamic=True,
    )
    log_dirs_throttled_rate: int = option(
        INT64_MAX,
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "bytes a second between data directories; without effect here, as there is only one",
        dynamic=True,
    )
    cleanup_policy: tuple[str, ...] = _default_of("cleanup.policy")
    compression_gzip_level: int = _default_of("compression.gzip.level")
    compression_lz4_level: int = _default_of("compression.lz4.level")
    compression_type: str = _default_of("compression.type")
    compression_zstd_level: int = _default_of("compression.zstd.level")
    delete_retention_ms: int = _default_of("delete.retention.ms")
    file_delete_delay_ms: int = _default_of("file.delete.delay.ms")
    flush_messages: int = _default_of("flush.messages")
    flush_ms: int = _default_of("flush.ms")
    index_interval_bytes: int = _default_of("index.interval.bytes")
    local_retention_bytes: int = _default_of("local.retention.bytes")
    local_retention_ms: int = _default_of("local.retention.ms")
    max_compaction_lag_ms: int = _default_of("max.compaction.lag.ms")
    message_max_bytes: int = _default_of("max.message.bytes")
    timestamp_after_max_ms: int = _default_of("message.timestamp.after.max.ms")
    timestamp_before_max_ms: int = _default_of("message.timestamp.before.max.ms")
    timestamp_type: str = _default_of("message.timestamp.type")
    min_cleanable_dirty_ratio: float = _default_of("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = _default_of("min.compaction.lag.ms")
    min_insync_replicas: int = _default_of("min.insync.replicas")
    preallocate: bool = _default_of("preallocate")
    remote_copy_lag_bytes: int = _default_of("remote.copy.lag.bytes")
    remote_copy_lag_ms: int = _default_of("remote.copy.lag.ms")
    retention_bytes: int = _default_of("retention.bytes")
    retention_ms: int = _default_of("retention.ms")
    segment_bytes: int = _default_of("segment.bytes")
    segment_index_bytes: int = _default_of("segment.index.bytes")
    segment_jitter_ms: int = _default_of("segment.jitter.ms")
    segment_ms: int = _default_of("segment.ms")
    unclean_leader_election_enable: bool = _default_of("unclean.leader.election.enable")

    def values(self, configs: Mapping[str, str]) -> dict[str, Any]:
        """The value of every topic config of a topic that sets `configs`, in its own type.

        Raises ConfigError naming a config that is unknown or does not fit.
        """
        unknown = sorted(configs.keys() - TOPIC_CONFIGS.keys())
        if unknown:
            raise ConfigError(f"unknown topic config {unknown[0]}")
        values = {
            name: line.rule.parse(configs[name]) if name in configs else self._default(line)
            for name, line in TOPIC_CONFIGS.items()
        }
        if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
            raise ConfigError(
                f"min.compaction.lag.ms={values['min.compaction.lag.ms']}: must not be larger than "
                f"max.compaction.lag.ms={values['max.compaction.lag.ms']}"
            )
        return values

    def defaults(self) -> dict[str, str]:
        """The configs of a topic that sets none, by name, as text."""
        return {name: text_of(self._default(line)) for name, line in TOPIC_CONFIGS.items()}

    def _default(self, line: TopicConfig) -> Any:
        return getattr(self, _FIELDS[line.synonym]) if line.synonym else line.default


_FIELDS = {
    declared.metadata["name"]: declared.name for declared in TopicOptions.__dataclass_fields__.values()
}
