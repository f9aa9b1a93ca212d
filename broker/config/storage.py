"""Options of the log: where it is, what durable means, how often it is maintained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from eoslog.broker.config.config_def import INT32_MAX, option

FlushMode = Literal["fsync", "os"]


@dataclass(frozen=True)
class StorageOptions:
    """The data directory, when data is flushed, and how old records are removed."""

    log_dirs: str = option("eoslog-data", "log.dirs", "data directory")
    flush: FlushMode = option(
        "fsync",
        "flush.mode",
        "fsync: acknowledge after fdatasync; os: after the write call, as Kafka does",
        choices=get_args(FlushMode),
    )
    checkpoint_interval_ms: int = option(
        60_000,
        "log.flush.offset.checkpoint.interval.ms",
        "how often the recovery points are written",
        low=1,
    )
    offsets_topic_segment_bytes: int = option(
        100 << 20,
        "offsets.topic.segment.bytes",
        "segment.bytes of __consumer_offsets, used when it is created",
        low=1024,
        high=INT32_MAX,
    )
    transaction_log_segment_bytes: int = option(
        100 << 20,
        "transaction.state.log.segment.bytes",
        "segment.bytes of __transaction_state, used when it is created",
        low=1024,
        high=INT32_MAX,
    )
    retention_check_interval_ms: int = option(
        300_000, "log.retention.check.interval.ms", "how often to look for segments to delete", low=1
    )
    cleaner_enable: bool = option(True, "log.cleaner.enable", "compact the topics that ask for it")
    cleaner_backoff_ms: int = option(
        15_000, "log.cleaner.backoff.ms", "how often to look for logs that need compaction", low=1
    )
    cleaner_dedupe_buffer_size: int = option(
        128 << 20,
        "log.cleaner.dedupe.buffer.size",
        "memory for the keys of one compaction; a log with more keys is compacted in several runs",
        low=1 << 20,
        dynamic=True,
    )
    scrub_bytes_per_second: int = option(
        32 << 20,
        "log.scrub.bytes.per.second",
        "how fast segments that were not read at the start are checked for damage; 0: never",
        low=0,
        dynamic=True,
    )
