"""Options of the log: where it is, what durable means, and what topics get whose own configs are silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from eoslog.broker.config.base import INT32_MAX, option

FlushMode = Literal["fsync", "os"]
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


@dataclass(frozen=True)
class StorageOptions:
    """The data directory and the defaults of topics."""

    log_dirs: str = option("eoslog-data", "log.dirs", "data directory")
    flush: FlushMode = option(
        "fsync",
        "flush.mode",
        "fsync: acknowledge after fdatasync; os: after the write call, as Kafka does",
        choices=get_args(FlushMode),
    )
    auto_create_topics: bool = option(True, "auto.create.topics.enable", "create unknown topics on first use")
    num_partitions: int = option(1, "num.partitions", "partitions of a topic made without a number", low=1)
    accept_replication_factor: bool = option(
        False, "accept.any.replication.factor", "take a replication factor above 1 on this single node"
    )
    message_max_bytes: int = option(1_048_588, "message.max.bytes", "largest record batch", high=INT32_MAX)
    segment_bytes: int = option(
        1 << 30, "log.segment.bytes", "roll to a new segment at this size", low=1024, high=INT32_MAX
    )
    index_interval_bytes: int = option(
        4096, "log.index.interval.bytes", "one index entry about each so many bytes", high=INT32_MAX
    )
    timestamp_after_max_ms: int = option(
        3_600_000,
        "log.message.timestamp.after.max.ms",
        "how far ahead of the broker's clock a record may be",
    )
    timestamp_type: str = option(
        "CreateTime",
        "log.message.timestamp.type",
        "CreateTime, or LogAppendTime to stamp with the broker's clock",
        choices=TIMESTAMP_TYPES,
    )
    checkpoint_interval_ms: int = option(
        60_000,
        "log.flush.offset.checkpoint.interval.ms",
        "how often the recovery points are written",
        low=1,
    )
