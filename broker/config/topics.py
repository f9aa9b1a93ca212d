"""The configs of a topic, by Kafka's names, and the broker options that are their defaults."""

from __future__ import annotations

# A topic's config by Kafka's name -> the field of BrokerConfig that is its default.
TOPIC_CONFIGS: dict[str, str] = {
    "max.message.bytes": "message_max_bytes",
    "segment.bytes": "segment_bytes",
    "index.interval.bytes": "index_interval_bytes",
    "message.timestamp.after.max.ms": "timestamp_after_max_ms",
    "message.timestamp.type": "timestamp_type",
}
