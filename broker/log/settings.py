"""What a log needs of its topic's configs, by Kafka's names, with the broker's options as defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eoslog.broker.config import BrokerConfig, ConfigError
from eoslog.protocol.errors import ErrorCode, KafkaError


@dataclass(frozen=True)
class LogSettings:
    """Sizes in bytes, times in ms."""

    segment_bytes: int = 1 << 30
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    timestamp_after_max_ms: int = 3_600_000
    log_append_time: bool = False
    compacted: bool = False
    producer_id_expiration_ms: int = 86_400_000

    @classmethod
    def of(cls, config: BrokerConfig, topic: Mapping[str, str]) -> LogSettings:
        """The settings of a topic. Raises KafkaError INVALID_CONFIG naming the config."""
        try:
            values = config.topic_values(topic)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return cls(
            segment_bytes=values["segment.bytes"],
            index_interval_bytes=values["index.interval.bytes"],
            max_message_bytes=values["max.message.bytes"],
            timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
            log_append_time=values["message.timestamp.type"] == "LogAppendTime",
            compacted="compact" in values["cleanup.policy"],
            producer_id_expiration_ms=config.producer_id_expiration_ms,
        )
