"""The configs of a topic that its logs need, by Kafka's names, with the broker's options as defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eoslog.broker.config import BrokerConfig, ConfigError
from eoslog.protocol.errors import ErrorCode, KafkaError

_DAY = 86_400_000
NEVER = 2**63 - 1


@dataclass(frozen=True)
class LogSettings:
    """Sizes in bytes, times in ms. Retention of -1: no limit."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    timestamp_after_max_ms: int = 3_600_000
    timestamp_before_max_ms: int = NEVER
    log_append_time: bool = False
    deleted: bool = True  # cleanup.policy has delete: retention by time and size
    compacted: bool = False  # cleanup.policy has compact
    retention_ms: int = 7 * _DAY
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    delete_retention_ms: int = _DAY
    producer_id_expiration_ms: int = _DAY

    @classmethod
    def of(cls, config: BrokerConfig, topic: Mapping[str, str]) -> LogSettings:
        """The settings of a topic. Raises KafkaError INVALID_CONFIG naming the config."""
        try:
            values = config.topics.values(topic)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return cls(
            segment_bytes=values["segment.bytes"],
            segment_ms=values["segment.ms"],
            segment_jitter_ms=values["segment.jitter.ms"],
            index_interval_bytes=values["index.interval.bytes"],
            max_message_bytes=values["max.message.bytes"],
            timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
            timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
            log_append_time=values["message.timestamp.type"] == "LogAppendTime",
            deleted="delete" in values["cleanup.policy"],
            compacted="compact" in values["cleanup.policy"],
            retention_ms=values["retention.ms"],
            retention_bytes=values["retention.bytes"],
            file_delete_delay_ms=values["file.delete.delay.ms"],
            min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
            min_compaction_lag_ms=values["min.compaction.lag.ms"],
            max_compaction_lag_ms=values["max.compaction.lag.ms"],
            delete_retention_ms=values["delete.retention.ms"],
            producer_id_expiration_ms=config.transactions.producer_id_expiration_ms,
        )

    @property
    def roll_after_ms(self) -> int:
        """The largest span of a segment's timestamps. The active segment is not compacted, so it must end."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms
