"""The configs of topics, and the options that are their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eoslog.broker.config.config_def import (
    INT32_MAX,
    INT64_MAX,
    ConfigError,
    ConfigRule,
    ConfigType,
    option,
    text_of,
)

# -- configs ---------------------------------------------------------------------------------------
# The table of topic configs (Kafka's TopicConfig).
#
# Each line of `TOPIC_CONFIGS` has name, kind, default, bounds and meaning. It also names the synonym, if
# Kafka has one: the broker option for topics that do not set the config. `topics.TopicOptions` makes the
# option's field from the line, so that default and bounds are written once. A config that is accepted
# without effect says why: a client that sets it must not fail, and no guarantee becomes weaker.


TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
POLICIES = ("compact", "delete")
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_REPLICAS = r"\*|([0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)?"
_REPLICAS_HINT = "* or PARTITION:BROKER pairs separated by commas"

DAY = 86_400_000
HOUR = 3_600_000

_ALONE = "there are no other replicas"
_AS_SENT = "batches are kept as their producer compressed them"
_GROUP_FLUSH = "with flush.mode=fsync every batch is flushed before it is acknowledged"
_NO_TIERS = "there is no tiered storage"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One line of the table. `synonym` is the broker option with its default, "" if Kafka has none."""

    rule: ConfigRule
    default: Any
    meaning: str
    synonym: str = ""
    no_effect: str = ""
    """Why it is accepted and stored but has no effect here; "" if it has its effect."""

    @property
    def description(self) -> str:
        """The meaning, and a note if it has no effect."""
        return f"{self.meaning}; without effect here: {self.no_effect}" if self.no_effect else self.meaning

    @property
    def name(self) -> str:
        """Kafka's name."""
        return self.rule.name


def _config(
    name: str,
    kind: ConfigType,
    default: Any,
    meaning: str,
    *,
    synonym: str = "",
    no_effect: str = "",
    low: float = 0,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    pattern: str = "",
    hint: str = "",
) -> TopicConfig:
    if high is None:
        high = INT32_MAX if kind is ConfigType.INT else INT64_MAX
    rule = ConfigRule(name, kind, low, high, choices, pattern, hint)
    return TopicConfig(rule, default, meaning, synonym, no_effect)


_LINES = (
    _config(
        "cleanup.policy",
        ConfigType.LIST,
        ("delete",),
        "what happens to old segments: delete (retention), compact (keep the last record of each key), both,"
        " or nothing if empty",
        synonym="log.cleanup.policy",
        choices=POLICIES,
    ),
    _config(
        "compression.gzip.level",
        ConfigType.INT,
        -1,
        "level of gzip where the broker compresses",
        synonym="compression.gzip.level",
        no_effect=_AS_SENT,
        low=-1,
        high=9,
        pattern="-1|[1-9]",
        hint="-1 or between 1 and 9",
    ),
    _config(
        "compression.lz4.level",
        ConfigType.INT,
        9,
        "level of lz4 where the broker compresses",
        synonym="compression.lz4.level",
        no_effect=_AS_SENT,
        low=1,
        high=17,
    ),
    _config(
        "compression.type",
        ConfigType.STRING,
        "producer",
        "codec of the records on disk",
        synonym="compression.type",
        no_effect=_AS_SENT,
        choices=_CODECS,
    ),
    _config(
        "compression.zstd.level",
        ConfigType.INT,
        3,
        "level of zstd where the broker compresses",
        synonym="compression.zstd.level",
        no_effect=_AS_SENT,
        low=-131_072,
        high=22,
    ),
    _config(
        "delete.retention.ms",
        ConfigType.LONG,
        DAY,
        "how long a compacted log keeps the tombstone of a deleted key",
        synonym="log.cleaner.delete.retention.ms",
    ),
    _config(
        "errors.deadletterqueue.group.enable",
        ConfigType.BOOLEAN,
        False,
        "let share groups use the topic as their dead-letter queue (KIP-1191)",
        no_effect="there are no share groups",
    ),
    _config(
        "file.delete.delay.ms",
        ConfigType.LONG,
        60_000,
        "how long the file of a removed segment is kept",
        synonym="log.segment.delete.delay.ms",
    ),
    _config(
        "flush.messages",
        ConfigType.LONG,
        INT64_MAX,
        "flush after this number of records",
        synonym="log.flush.interval.messages",
        no_effect=_GROUP_FLUSH,
        low=1,
    ),
    _config(
        "flush.ms",
        ConfigType.LONG,
        INT64_MAX,
        "flush after this time",
        synonym="log.flush.interval.ms",
        no_effect=_GROUP_FLUSH,
    ),
    _config(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "replicas whose replication is throttled on the follower",
        no_effect=_ALONE,
        pattern=_REPLICAS,
        hint=_REPLICAS_HINT,
    ),
    _config(
        "index.interval.bytes",
        ConfigType.INT,
        4096,
        "about how many bytes of the log each index entry is for",
        synonym="log.index.interval.bytes",
    ),
    _config(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "replicas whose replication is throttled on the leader",
        no_effect=_ALONE,
        pattern=_REPLICAS,
        hint=_REPLICAS_HINT,
    ),
    _config(
        "local.retention.bytes",
        ConfigType.LONG,
        -2,
        "size of the local part of a tiered log; -2: as retention.bytes",
        synonym="log.local.retention.bytes",
        no_effect=_NO_TIERS,
        low=-2,
    ),
    _config(
        "local.retention.ms",
        ConfigType.LONG,
        -2,
        "how long records of a tiered log stay local; -2: as retention.ms",
        synonym="log.local.retention.ms",
        no_effect=_NO_TIERS,
        low=-2,
    ),
    _config(
        "max.compaction.lag.ms",
        ConfigType.LONG,
        INT64_MAX,
        "a record is compacted after this time at the latest",
        synonym="log.cleaner.max.compaction.lag.ms",
        low=1,
    ),
    _config(
        "max.message.bytes", ConfigType.INT, 1_048_588, "largest record batch", synonym="message.max.bytes"
    ),
    _config(
        "message.timestamp.after.max.ms",
        ConfigType.LONG,
        HOUR,
        "how far ahead of the broker's clock a record may be",
        synonym="log.message.timestamp.after.max.ms",
    ),
    _config(
        "message.timestamp.before.max.ms",
        ConfigType.LONG,
        INT64_MAX,
        "how far behind the broker's clock a record may be",
        synonym="log.message.timestamp.before.max.ms",
    ),
    _config(
        "message.timestamp.type",
        ConfigType.STRING,
        "CreateTime",
        "CreateTime, or LogAppendTime to stamp with the broker's clock",
        synonym="log.message.timestamp.type",
        choices=TIMESTAMP_TYPES,
    ),
    _config(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        0.5,
        "a log is compacted when this share of it is not compacted yet",
        synonym="log.cleaner.min.cleanable.ratio",
        high=1,
    ),
    _config(
        "min.compaction.lag.ms",
        ConfigType.LONG,
        0,
        "a record is not compacted before this time",
        synonym="log.cleaner.min.compaction.lag.ms",
    ),
    _config(
        "min.insync.replicas",
        ConfigType.INT,
        1,
        "replicas that must have a record before acks=all is answered",
        synonym="min.insync.replicas",
        no_effect=_ALONE + "; a record is durable on this node when it is acknowledged",
        low=1,
    ),
    _config(
        "preallocate",
        ConfigType.BOOLEAN,
        False,
        "create the file of a new segment at its full size",
        synonym="log.preallocate",
        no_effect="a segment's file grows as it is written",
    ),
    _config(
        "remote.copy.lag.bytes",
        ConfigType.LONG,
        -1,
        "size after which a segment is copied to the remote tier",
        synonym="log.remote.copy.lag.bytes",
        no_effect=_NO_TIERS,
        low=-1,
    ),
    _config(
        "remote.copy.lag.ms",
        ConfigType.LONG,
        0,
        "time after which a segment is copied to the remote tier",
        synonym="log.remote.copy.lag.ms",
        no_effect=_NO_TIERS,
        low=-1,
    ),
    _config(
        "remote.log.copy.disable",
        ConfigType.BOOLEAN,
        False,
        "stop copying to the remote tier",
        no_effect=_NO_TIERS,
    ),
    _config(
        "remote.log.delete.on.disable",
        ConfigType.BOOLEAN,
        False,
        "delete the remote tier when it is turned off",
        no_effect=_NO_TIERS,
    ),
    _config(
        "remote.storage.enable",
        ConfigType.BOOLEAN,
        False,
        "keep old segments on a remote tier; only false is accepted",
        no_effect=_NO_TIERS,
        choices=("false",),
    ),
    _config(
        "retention.bytes",
        ConfigType.LONG,
        -1,
        "size of a partition above which its oldest segments are deleted; -1: no limit",
        synonym="log.retention.bytes",
        low=-1,
    ),
    _config(
        "retention.ms",
        ConfigType.LONG,
        7 * DAY,
        "age of a segment's newest record after which the segment is deleted; -1: no limit",
        synonym="log.retention.ms",
        low=-1,
    ),
    _config(
        "segment.bytes",
        ConfigType.INT,
        1 << 30,
        "size at which a new segment begins (Kafka accepts 1 MiB and more)",
        synonym="log.segment.bytes",
        low=1024,
    ),
    _config(
        "segment.index.bytes",
        ConfigType.INT,
        10 << 20,
        "largest index of a segment",
        synonym="log.index.size.max.bytes",
        no_effect="an index grows with its segment, none is created at full size",
        low=4,
    ),
    _config(
        "segment.jitter.ms",
        ConfigType.LONG,
        0,
        "the most by which segment.ms is shortened at random, so that logs do not roll at once",
        synonym="log.roll.jitter.ms",
    ),
    _config(
        "segment.ms",
        ConfigType.LONG,
        7 * DAY,
        "age at which a new segment begins",
        synonym="log.roll.ms",
        low=1,
    ),
    _config(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        False,
        "let a replica that lacks records become leader",
        synonym="unclean.leader.election.enable",
        no_effect=_ALONE,
    ),
)

TOPIC_CONFIGS: dict[str, TopicConfig] = {line.name: line for line in _LINES}
"""All topic configs by name."""


# -- options ---------------------------------------------------------------------------------------
# Options of topics: how they are created, and the defaults of their configs.
#
# The topic configs themselves stand above.


NO_REPLICAS = "without effect: there are no other replicas"

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
        "most partitions that clients may create, in all topics; each keeps a file open",
        low=1,
        high=INT32_MAX,
        dynamic=True,
    )
    delete_topic_enable: bool = option(True, "delete.topic.enable", "let clients delete topics")
    default_replication_factor: int = option(
        1,
        "default.replication.factor",
        "replicas of a topic created without a number; always 1 on this single node",
        low=1,
        high=32_767,
    )
    accept_replication_factor: bool = option(
        False,
        "accept.any.replication.factor",
        "accept requests for a replication factor above 1, although it is always 1 here",
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
        "bytes a second between data directories; without effect: there is only one directory",
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
