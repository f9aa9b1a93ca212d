"""The table of topic configs (Kafka's TopicConfig).

Each line of `TOPIC_CONFIGS` has name, kind, default, bounds and meaning. It also names the synonym, if Kafka
has one: the broker option for topics that do not set the config. `topics.TopicOptions` makes the option's
field from the line, so that default and bounds are written once. A config that is accepted without effect
says why: a client that sets it must not fail, and no guarantee becomes weaker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eoslog.broker.config.config_def import INT32_MAX, INT64_MAX, ConfigRule, ConfigType

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
        " or, if empty, nothing",
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
        "about how many bytes of the log there are for each index entry",
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
        "the most by which segment.ms is shortened at random, so that not all logs roll at once",
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
